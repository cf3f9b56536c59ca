"""Paths of the command line, checked before any work is done."""

import os
from pathlib import Path


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


def find_below(folder: Path, names: tuple[str, ...]) -> bool:
    """Tell whether a file of one of these names is in a folder, at any depth."""
    return any(
        (Path(parent) / name).is_file()
        for parent, _, files in os.walk(folder)
        for name in names
        if name in files
    )
