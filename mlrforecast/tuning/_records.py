"""What is known of each trial, in files beside each other: the memory of a sweep."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]  # no types for fsspec
from fsspec.implementations.local import (  # type: ignore[import-untyped]
    LocalFileSystem,
)

from mlrforecast._core.atomic import write_whole

SWEEP = "sweep.json"


class Records:
    """One JSON file for each trial below the folder of a sweep, and one for the sweep.

    Files appear whole: a trial whose file says that it has finished has finished.

    Parameters
    ----------
    storage_path : str
        Folder, or address that fsspec knows, such as ``"s3://bucket/sweep"``.

    Examples
    --------
    >>> import tempfile
    >>> records = Records(tempfile.mkdtemp())
    >>> records.write(3, {"number": 3, "status": "finished", "score": 0.5})
    >>> records.read(3)["score"], records.read(4), len(records.all())
    (0.5, None, 1)
    """

    def __init__(self, storage_path: str) -> None:
        self.storage_path = storage_path
        self._system, self._root = fsspec.core.url_to_fs(storage_path)

    @property
    def local(self) -> Path | None:
        """The folder, if it is one of this machine."""
        return Path(self._root) if isinstance(self._system, LocalFileSystem) else None

    def write(self, number: int, record: Mapping[str, Any]) -> None:
        """Write what is known of a trial.

        Parameters
        ----------
        number : int
            Its number.
        record : mapping of str to object
            What JSON can hold.

        Raises
        ------
        OSError
            If it cannot be written; an earlier record is as it was then.
        """
        self._write(f"trials/{number:05d}.json", record)

    def read(self, number: int) -> dict[str, Any] | None:
        """Return what is known of a trial, None if nothing is."""
        return self._read(f"trials/{number:05d}.json")

    def all(self) -> list[dict[str, Any]]:
        """Return the records of all trials, by number."""
        self._system.invalidate_cache()
        found = sorted(self._system.glob(f"{self._root}/trials/*.json"))
        return [json.loads(self._system.cat_file(path)) for path in found]

    def write_sweep(self, settings: Mapping[str, Any]) -> None:
        """Write what the sweep is."""
        self._write(SWEEP, settings)

    def read_sweep(self) -> dict[str, Any] | None:
        """Return what the sweep is, None if there is none."""
        return self._read(SWEEP)

    def is_empty(self) -> bool:
        """Tell whether the folder holds nothing, or is not there."""
        self._system.invalidate_cache()
        return not self._system.exists(self._root) or not self._system.ls(self._root)

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(_without_nan(content), indent=1).encode()
        path = f"{self._root}/{name}"
        if self.local is None:
            # Object stores show a file once it is whole.
            try:
                self._system.pipe_file(path, text)
            except FileNotFoundError:
                # Not an object store: folders must be there.
                self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._system.pipe_file(path, text)
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_whole(Path(path), text)

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            content: dict[str, Any] = json.loads(self._system.cat_file(f"{self._root}/{name}"))
        except FileNotFoundError:
            return None
        return content


def _without_nan(value: Any) -> Any:
    """Replace what JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
