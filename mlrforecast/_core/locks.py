"""Locks between processes that end with them and leave no file behind."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:
    # Windows has no such locks: there, two processes must take turns themselves.
    fcntl = None  # type: ignore[assignment]


def lock_file(descriptor: int, *, shared: bool = False) -> None:
    """Wait until no other process holds an open file or folder; closing it lets the lock go.

    Where the system has no such locks, as on Windows and some network drives, nothing is done.

    Parameters
    ----------
    descriptor : int
        Number of the open file.
    shared : bool
        Whether other shared locks may be held at the same time.

    Examples
    --------
    >>> import os
    >>> descriptor = os.open(".", os.O_RDONLY)
    >>> lock_file(descriptor)
    >>> os.close(descriptor)
    """
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


@contextmanager
def locked(path: Path, *, write: bool = False) -> Iterator[BinaryIO]:
    """Open a file while no other process writes to it, to read or, made if need be, to append.

    Parameters
    ----------
    path : Path
        The file.
    write : bool
        Whether the caller appends to it.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "lines"
    >>> with locked(path, write=True) as file:
    ...     _ = file.write(b"one")
    >>> path.read_bytes()
    b'one'
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT if write else os.O_RDONLY
    # Unbuffered, so that what is written in one call goes out in one call.
    with open(os.open(path, flags | _BINARY, 0o644), "r+b" if write else "rb", buffering=0) as file:
        lock_file(file.fileno(), shared=not write)
        yield file


# Windows would turn line ends into two bytes.
_BINARY = getattr(os, "O_BINARY", 0)
