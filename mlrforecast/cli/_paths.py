"""Paths of the command line: checked before any work is done, written whole or not at all."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlrforecast._core.atomic import DRAFT

_PART_OF_MODEL = re.compile(
    rf"config\.json|[a-z]+-[0-9a-f]{{12}}\.safetensors|{re.escape(DRAFT)}.+"
)
_BESIDE_MODEL = {"README.md", ".cache", ".git", ".gitattributes"}
"""Its card, and what a hub leaves; alone, they tell of something else."""


def check_writable(path: Path, option: str) -> None:
    """Refuse a file or folder that could not be made, or not be written to, at the end."""
    nearest = path
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if nearest != path and not nearest.is_dir():
        raise ValueError(
            f"`{option}` cannot be {str(path)!r}: {str(nearest)!r} is no folder. Choose another."
        )
    if not os.access(nearest, os.W_OK | (os.X_OK if nearest.is_dir() else 0)):
        raise ValueError(
            f"`{option}` cannot be {str(path)!r}: there is no right to write to {str(nearest)!r}. "
            "Choose another."
        )


def check_model_folder(path: Path, option: str) -> None:
    """Refuse, before any training, a folder that holds something else than a saved model."""
    check_writable(path, option)
    if not path.exists():
        return
    names = {file.name for file in path.iterdir()}
    parts = {name for name in names if _PART_OF_MODEL.fullmatch(name)}
    if others := names - parts - (_BESIDE_MODEL if parts else set()):
        raise ValueError(
            f"`{option}` cannot be {str(path)!r}: it holds {min(others)!r}, which is no part of a "
            "saved model. Name a new folder."
        )


def check_apart(out: Path, option: str, *inputs: str | None) -> None:
    """Refuse to write over a file that is read."""
    for given in inputs:
        if given is not None and out.is_file() and Path(given).exists() and out.samefile(given):
            raise ValueError(
                f"`{option}` cannot be {str(out)!r}, which is read. Name another file."
            )


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a file to write that becomes ``path`` once it is whole, and is gone otherwise."""
    if path.exists() and not path.is_file():
        # A device or a pipe, such as /dev/null.
        yield path
        return
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"{DRAFT}{secrets.token_hex(8)}")
    try:
        yield draft
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
