"""What an unfinished run needs to go on: tensors, numbers and text in one file."""

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from mlrforecast._core.atomic import locked_folder, remove_drafts, write_whole
from mlrforecast._core.errors import ModelFileError

__all__ = ["Checkpoint", "Progress", "tensors_digest"]

FORMAT = "mlrforecast checkpoint 1"


@dataclass(frozen=True)
class Progress:
    """How far a run has come.

    Parameters
    ----------
    tensors : dict of str to Tensor
        Weights, moments of the optimiser, states of random generators.
    numbers : dict of str to float, int, bool, str or None
        All else.
    """

    tensors: dict[str, Tensor]
    numbers: dict[str, Any]

    @property
    def finished(self) -> bool:
        """Whether the run has ended, so that its weights are the trained ones."""
        return bool(self.numbers["finished"])

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with ``prefix`` and a dot, without them."""
        start = f"{prefix}."
        return {
            name.removeprefix(start): value
            for name, value in self.tensors.items()
            if name.startswith(start)
        }


class Checkpoint:
    """The file of one run in a folder, named after all that determines the run.

    The same run, started again, finds it; another one has another file. It is replaced whole, so
    that a process killed at any moment leaves the old file or the new one.

    Parameters
    ----------
    folder : Path
        Where the file lies; made when it is first written.
    run : str
        Hexadecimal digest of all that determines the run.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> checkpoint = Checkpoint(folder, "5ca1ab1e5eed")
    >>> checkpoint.prepare()
    >>> checkpoint.read() is None
    True
    >>> checkpoint.write(Progress({"weight": torch.ones(2)}, {"num_steps": 3, "finished": False}))
    >>> checkpoint.read().numbers["num_steps"], [file.name for file in folder.iterdir()]
    (3, ['fit-5ca1ab1e5eed.safetensors'])
    >>> checkpoint.remove()
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.path = folder / f"fit-{run[:12]}.safetensors"
        self.run = run

    def prepare(self) -> None:
        """Make the folder, before anything is trained.

        Raises
        ------
        OSError
            If it cannot be made, or not be written to.
        """
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"`checkpoint_dir` cannot be made: {error.strerror}"
            raise OSError(error.errno, reason, str(folder)) from error
        if not os.access(folder, os.W_OK):
            reason = "`checkpoint_dir` cannot be written to"
            raise PermissionError(errno.EACCES, reason, str(folder))

    def read(self) -> Progress | None:
        """Return how far the run has come, None if there is no file.

        Raises
        ------
        ModelFileError
            If the file is no checkpoint of this run, or was altered or cut short.
        """
        if not self.path.is_file():
            return None
        try:
            content = self.path.read_bytes()
            metadata = _metadata(content)
            tensors = dict(safetensors.torch.load(content))
            numbers = json.loads(metadata["numbers"])
            sound = (
                metadata["format"] == FORMAT
                and metadata["run"] == self.run
                and metadata["sha256"] == _digest(tensors, metadata["numbers"])
            )
        except (
            safetensors.SafetensorError,
            LookupError,
            MemoryError,
            OSError,
            RecursionError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            raise self.refusal(f"it cannot be read ({type(error).__name__})") from error
        if not sound:
            raise self.refusal("it was altered, or is of another version or run")
        return Progress(tensors, numbers)

    def write(self, progress: Progress) -> None:
        """Replace the file.

        Parameters
        ----------
        progress : Progress
            How far the run has come.

        Raises
        ------
        OSError
            If it cannot be written; an earlier one is as it was then.
        """
        # Names of one storage are tensors of their own in the file.
        tensors = {
            name: value.detach().cpu().contiguous().clone()
            for name, value in progress.tensors.items()
        }
        numbers = json.dumps(progress.numbers, sort_keys=True)
        metadata = {
            "format": FORMAT,
            "run": self.run,
            "numbers": numbers,
            "sha256": _digest(tensors, numbers),
        }
        content = safetensors.torch.save(tensors, metadata)
        # The end of another run may have removed the folder.
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be at the same run: its draft is no leftover.
        with locked_folder(self.path.parent):
            remove_drafts(self.path)
            write_whole(self.path, content)

    def remove(self) -> None:
        """Remove the file, and its folder if that is empty then."""
        remove_drafts(self.path)
        self.path.unlink(missing_ok=True)
        # Another run may have put its own file there in the meantime, or removed the folder.
        with suppress(OSError):
            self.path.parent.rmdir()

    def refusal(self, reason: str) -> ModelFileError:
        """Return the error of a file that a run cannot go on from.

        Parameters
        ----------
        reason : str
            Why it cannot.

        Returns
        -------
        ModelFileError
            It names the file.
        """
        return ModelFileError(
            f"The checkpoint {str(self.path)!r} cannot be used: {reason}. Remove the file to start "
            "the fit anew."
        )


def _metadata(content: bytes) -> dict[str, str]:
    """Return the text that stands before the tensors in a file."""
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    return dict(metadata)


def _digest(tensors: Mapping[str, Tensor], numbers: str) -> str:
    """Return the sha256 of all that a file holds: found are accidents, not attacks."""
    return hashlib.sha256(f"{numbers} {tensors_digest(tensors)}".encode()).hexdigest()


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 of tensors by name.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        The tensors, of any type and on any device.

    Returns
    -------
    str
        64 hexadecimal digits.

    Raises
    ------
    ValueError
        If an entry is no tensor: a checkpoint could not hold it.

    Examples
    --------
    >>> tensors_digest({"weight": torch.ones(2)})[:12]
    '3005f35c72d7'
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name]
        if not isinstance(value, Tensor):
            raise ValueError(
                f"`checkpoint_dir` can hold the state of a network as tensors only, and {name!r} "
                f"is a {type(value).__name__}."
            )
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        plain = value.detach().cpu().contiguous().reshape(-1)
        digest.update(plain.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
