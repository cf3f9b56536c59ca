"""One process at a time in a result file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mlrforecast._core.locks import lock_file


@contextmanager
def locked(path: Path, *, write: bool = False) -> Iterator[BinaryIO]:
    """Open a file while no other process writes to it, to read or, made if need be, to append.

    The lock is the system's own, so it ends with the process, however that ends, and leaves no
    file behind.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT if write else os.O_RDONLY
    # Unbuffered, so that what is written in one call goes out in one call.
    with open(os.open(path, flags | _BINARY, 0o644), "r+b" if write else "rb", buffering=0) as file:
        lock_file(file.fileno(), shared=not write)
        yield file


# Windows would turn line ends into two bytes.
_BINARY = getattr(os, "O_BINARY", 0)
