"""Where arrays as long as the data live, and how they are worked through: block by block.

Blocks are the same wherever the arrays are, so that results are equal to the bit.
"""

import errno
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

import numpy as np

BLOCK = 1_000_000
"""Values that are worked on at once: bounds the memory beside the arrays themselves."""


@runtime_checkable
class Storage(Protocol):
    """Makes arrays."""

    @property
    def in_memory(self) -> bool:
        """Whether its arrays take memory that only their end gives back."""

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an array that holds anything."""

    def collect(self) -> "Collector":
        """Return what puts arrays of one dtype together that come one after the other."""

    def release(self) -> None:
        """Give back the memory of what was read or written, where it can be had again."""

    def close(self) -> None:
        """End all that was being collected; arrays stay."""


@runtime_checkable
class Collector(Protocol):
    """Puts arrays together, along their first axis."""

    def add(self, values: np.ndarray) -> None:
        """Put ``values`` behind all others."""

    def array(self) -> np.ndarray:
        """Return all that was added."""


class Memory:
    """Makes arrays in memory."""

    in_memory = True

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.empty(shape, dtype)

    def collect(self) -> Collector:
        return _InMemory()

    def release(self) -> None:
        """Do nothing: memory is all there is."""

    def close(self) -> None:
        """Do nothing: no file is open."""


MEMORY = Memory()


class Disk:
    """Makes arrays that are mapped from files without a name, which end with the process.

    Parameters
    ----------
    folder : Path
        Where the files are.
    """

    in_memory = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
        self._collecting: list[IO[bytes]] = []

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        with self.file() as file:
            with self.full(size):
                _reserve(file, size)
            return self.map(file, shape, dtype)

    def collect(self) -> Collector:
        file = self.file()
        self._collecting.append(file)
        return _InFile(self, file)

    def close(self) -> None:
        for file in self._collecting:
            file.close()
        self._collecting.clear()

    def file(self) -> IO[bytes]:
        """Open a file without a name, nor a buffer."""
        return tempfile.TemporaryFile(prefix="mlrforecast-", dir=self.folder, buffering=0)

    def map(self, file: IO[bytes], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return the array that a file holds; the file itself may be closed then."""
        if 0 in shape:
            return np.empty(shape, dtype)
        mapped = mmap.mmap(file.fileno(), 0)
        self._maps.add(mapped)
        return np.frombuffer(mapped, dtype).reshape(shape)

    def release(self) -> None:
        """Give back the memory of all arrays; what they hold is read again when it is needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)

    @contextmanager
    def full(self, size: int) -> Iterator[None]:
        """Say of a full disk which folder it is, and how many bytes were to be written."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise OSError(
                error.errno,
                f"The scratch folder {str(self.folder)!r} has no room for {size / 1e6:.1f} MB "
                "more. Set `scratch_dir` of the FileDataset to a folder on a larger disk.",
            ) from error


class _InMemory:
    """Puts arrays together in memory."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []

    def add(self, values: np.ndarray) -> None:
        self._parts.append(values)

    def array(self) -> np.ndarray:
        return np.concatenate(self._parts)


class _InFile:
    """Puts arrays together in a file, which takes no memory."""

    def __init__(self, disk: Disk, file: IO[bytes]) -> None:
        self._disk, self._file = disk, file
        self._like = np.empty(0)
        self._count = 0

    def add(self, values: np.ndarray) -> None:
        with self._disk.full(values.nbytes):
            left = memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
            while left:
                # Without a buffer, which could not be emptied onto a full disk.
                left = left[self._file.write(left) :]
        self._like = values[:0]
        self._count += len(values)

    def array(self) -> np.ndarray:
        shape = (self._count, *self._like.shape[1:])
        return self._disk.map(self._file, shape, self._like.dtype)


def _reserve(file: IO[bytes], size: int) -> None:
    """Make a file so long; its place on the disk is taken now, where the system can do so."""
    if size and hasattr(os, "posix_fallocate"):
        # A mapped page for which the disk has no room would end the process.
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)


def blocks(count: int) -> Iterator[slice]:
    """Cut ``count`` values into slices of one block, the last may be smaller."""
    return (slice(first, min(first + BLOCK, count)) for first in range(0, count, BLOCK))


def groups(lengths: np.ndarray) -> Iterator[slice]:
    """Cut runs of some lengths into groups of one block at most, but of one run at least."""
    ends = np.cumsum(lengths)
    first = 0
    while first < len(lengths):
        before = ends[first] - lengths[first]
        last = max(int(np.searchsorted(ends, before + BLOCK, side="right")), first + 1)
        yield slice(first, last)
        first = last


def scratch_folder() -> Path:
    """Return the folder of temporary files, or ``/var/tmp`` where that one is held in memory."""
    usual, lasting = Path(tempfile.gettempdir()), Path("/var/tmp")
    if not _is_memory(usual) or not os.access(lasting, os.W_OK) or _is_memory(lasting):
        return usual
    return lasting


def _is_memory(folder: Path) -> bool:
    """Tell whether a folder is on a file system that lives in memory, as far as can be told."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return False
    kinds = {Path(line.split()[1]): line.split()[2] for line in lines}
    folder = folder.resolve()
    mounted = next((place for place in (folder, *folder.parents) if place in kinds), None)
    return mounted is not None and kinds[mounted] in ("tmpfs", "ramfs")
