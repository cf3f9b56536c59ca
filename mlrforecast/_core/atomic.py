"""Files that appear whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlrforecast._core.locks import lock_file

DRAFT = ".mlrforecast-draft-"


def write_whole(path: Path, content: bytes) -> None:
    """Let a file appear whole, and on the disk, or replace the one that is there.

    Parameters
    ----------
    path : Path
        The file; its folder must exist.
    content : bytes
        What it holds.

    Raises
    ------
    OSError
        If it cannot be written; an earlier file is as it was then, and no draft is left.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "numbers"
    >>> write_whole(path, b"1 2 3")
    >>> path.read_bytes()
    b'1 2 3'
    """
    draft = path.with_name(f"{DRAFT}{path.name}-{secrets.token_hex(8)}")
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    with opened_folder(path.parent) as number:
        if number is not None:
            os.fsync(number)


def remove_drafts(path: Path) -> None:
    """Remove what writers of a file left that were killed.

    Parameters
    ----------
    path : Path
        The file that they wrote.

    Examples
    --------
    >>> import tempfile
    >>> remove_drafts(Path(tempfile.mkdtemp()) / "numbers")
    """
    if not path.parent.is_dir():
        return
    for draft in path.parent.glob(f"{DRAFT}{path.name}-*"):
        with suppress(OSError):
            draft.unlink()


@contextmanager
def opened_folder(folder: Path) -> Iterator[int | None]:
    """Open a folder itself, where the system can; otherwise give None.

    Parameters
    ----------
    folder : Path
        The folder.

    Examples
    --------
    >>> with opened_folder(Path(".")) as number:
    ...     number is None or number > 0
    True
    """
    if os.name != "posix":
        yield None
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        yield number
    finally:
        os.close(number)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Let one writer at a time into a folder; the lock ends with the process and leaves no file.

    Parameters
    ----------
    folder : Path
        The folder.

    Examples
    --------
    >>> with locked_folder(Path(".")):
    ...     pass
    """
    with opened_folder(folder) as number:
        if number is not None:
            lock_file(number)
        yield
