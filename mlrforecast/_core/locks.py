"""Locks between processes that end with them and leave no file behind."""

from contextlib import suppress

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
