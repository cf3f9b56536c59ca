"""Checks of the arguments of a preparation, before any of it is done."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def source_paths(source: Any) -> list[Path] | None:
    """Return the files and folders that are named; None if documents themselves are given."""
    given = [source] if isinstance(source, str | os.PathLike) else source
    if not isinstance(given, list | tuple):
        if not isinstance(given, Iterable) or isinstance(given, bytes):
            raise TypeError(
                f"`source` must be a path, a list of paths, or an iterable of documents, got a "
                f"{type(source).__name__}."
            )
        return None
    if not given or not all(isinstance(each, str | os.PathLike) for each in given):
        raise ValueError(f"`source` must name at least one file or folder, got {source!r}.")
    paths = [Path(each) for each in given]
    for path in paths:
        if not _exists(path):
            raise FileNotFoundError(
                f"`source` names {_short(str(path))}, which is no file or folder. A list names "
                "files and folders: give documents by iter(documents)."
            )
    return paths


def _exists(path: Path) -> bool:
    """Tell whether there is a file or folder; a text that is too long for a name has none."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _short(text: str) -> str:
    """Quote the beginning of a text."""
    return repr(text if len(text) <= 100 else f"{text[:100]}...")


def document(text: Any) -> str:
    """Return a document, which must be a text."""
    if not isinstance(text, str):
        raise TypeError(f"`source` must yield texts, got a {type(text).__name__}.")
    return text


def validation_share(share: float) -> float:
    """Return a share that leaves something on both sides."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise ValueError(f"`validation_share` must lie between 0 and 1, got {share!r}.")
    return float(share)


def name_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return patterns of names, at least one."""
    given = None if isinstance(patterns, str) else tuple(patterns)
    if not given or not all(isinstance(each, str) and each for each in given):
        raise ValueError(f"`patterns` must be texts such as ('*.txt',), got {patterns!r}.")
    return given
