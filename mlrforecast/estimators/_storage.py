"""A folder that holds a whole model at every moment, the old one or the new one.

Files of tensors are named after their content, and ``config.json`` names them; it is replaced
last, in one step. Whoever reads it finds a complete model, however a save ended.
"""

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from mlrforecast._core.atomic import DRAFT, locked_folder, write_whole
from mlrforecast._core.errors import ModelFileError
from mlrforecast.estimators._card import CARD, is_edited
from mlrforecast.estimators._document import (
    CONFIG,
    file_name,
    is_ours,
    listed_files,
    read_document,
    write_document,
)

Tensors = dict[str, torch.Tensor]

LEFTOVER = re.compile(
    rf"(model|context|calibration)-[0-9a-f]{{12}}\.safetensors|{re.escape(DRAFT)}.+"
)
BESIDE = {CARD, ".cache", ".git", ".gitattributes"}
"""Names that may stand beside a model: its card, and what a hub or a clone of it leaves."""
ATTEMPTS = 5


def write_model(
    path: Path, document: dict[str, Any], tensors: dict[str, Tensors], card: bytes
) -> None:
    """Write a model into a new folder, or over an earlier one; an OSError names ``path``."""
    contents = {kind: safetensors.torch.save(parts) for kind, parts in tensors.items()}
    digests = {kind: hashlib.sha256(content).hexdigest() for kind, content in contents.items()}
    files = {file_name(kind, digests[kind]): content for kind, content in contents.items()}
    listed = dict(zip(files, digests.values(), strict=True))
    files[CARD] = card
    files[CONFIG] = write_document({**document, "sha256": listed})
    try:
        _write_files(path, files)
    except OSError as error:
        if error.errno is None:
            raise
        # A name that was asked for instead of one that was made up here; the class follows errno.
        reason = f"`path` cannot be written: {error.strerror}"
        raise OSError(error.errno, reason, str(path)) from error


def _write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write files in order, the description last; what is listed nowhere then goes."""
    _check_target(folder)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked_folder(folder):
            _remove_leftovers(folder)
            earlier = _earlier_card(folder)
            try:
                for name, content in files.items():
                    if name != CARD or not is_edited(earlier):
                        write_whole(folder / name, content)
            except BaseException:
                _restore_card(folder, earlier)
                raise
            finally:
                _remove_leftovers(folder)
    except BaseException:
        if made:
            with suppress(OSError):
                folder.rmdir()
        raise


def _earlier_card(folder: Path) -> bytes | None:
    """Return the card that is there, None for none; what is no file is no card of ours."""
    card = folder / CARD
    if card.is_file():
        return card.read_bytes()
    return b"" if os.path.lexists(card) else None


def _restore_card(folder: Path, earlier: bytes | None) -> None:
    """Let a card go on telling of the model that is still there."""
    with suppress(OSError):
        if earlier is None:
            (folder / CARD).unlink()
        elif not is_edited(earlier):
            write_whole(folder / CARD, earlier)


def _remove_leftovers(folder: Path) -> None:
    """Remove drafts, and files of tensors that the description does not list."""
    try:
        listed = listed_files((folder / CONFIG).read_bytes())
    except FileNotFoundError:
        listed = set()
    except (OSError, ValueError, LookupError, TypeError):
        return
    for file in list(folder.iterdir()):
        if LEFTOVER.fullmatch(file.name) and file.name not in listed:
            with suppress(OSError):
                file.unlink()


def _check_target(folder: Path) -> None:
    """Refuse to write over anything but an earlier model, what is left of one, or nothing."""
    if not folder.exists() or (folder.is_dir() and _is_ours(folder)):
        return
    raise FileExistsError(
        f"`path` {str(folder)!r} exists and is no saved forecaster; it is left alone. "
        "Name a new folder."
    )


def _is_ours(folder: Path) -> bool:
    """Tell whether a folder holds nothing but what saving a forecaster leaves there."""
    names = {file.name for file in folder.iterdir()}
    if not all(LEFTOVER.fullmatch(name) for name in names - {CONFIG} - BESIDE):
        return False
    config = folder / CONFIG
    if CONFIG in names:
        return config.is_file() and is_ours(config.read_bytes())
    # Of a first save that was killed; a card of somebody else tells of something else.
    return names.isdisjoint(BESIDE - {CARD}) and not is_edited(_earlier_card(folder))


def read_model(folder: Path) -> tuple[dict[str, Any], dict[str, Tensors]]:
    """Read the description and, by kind, the tensors of a model, all of one save."""
    seen: set[bytes] = set()
    missing = ""
    for _ in range(ATTEMPTS):
        text = _read(folder, CONFIG)
        if text is None:
            raise ModelFileError(f"{str(folder)!r} holds no {CONFIG}: it is no forecaster.")
        seen.add(text)
        document = read_document(folder, text)
        tensors = {}
        for name, digest in document["sha256"].items():
            content = _read(folder, name)
            if content is None:
                # A saver may have replaced the model since: its description says what is there.
                missing = name
                break
            tensors[name.split("-")[0]] = _decode(folder, name, content, digest)
        else:
            return document, tensors
    if len(seen) > 1:
        raise ModelFileError(
            f"The model in {str(folder)!r} was replaced while it was read. Load it again."
        )
    raise ModelFileError(f"{str(folder)!r} lacks {missing}.")


def _read(folder: Path, name: str) -> bytes | None:
    """Return what a file holds, None if there is no such file."""
    file = folder / name
    try:
        # Neither a folder nor a pipe, which would never end.
        return file.read_bytes() if file.is_file() else None
    except FileNotFoundError:
        return None
    except (OSError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it does not fit into memory"
        raise ModelFileError(f"{name} in {str(folder)!r} cannot be read: {reason}.") from error


def _decode(folder: Path, name: str, content: bytes, digest: str) -> Tensors:
    """Return the tensors of a file, which must have the listed digest."""
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise ModelFileError(
            f"{name} in {str(folder)!r} was altered or cut short: its sha256 is {found}, "
            f"{CONFIG} says {digest}."
        )
    try:
        return dict(safetensors.torch.load(content))
    except (safetensors.SafetensorError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ModelFileError(f"{name} in {str(folder)!r} cannot be read: {error}") from error
