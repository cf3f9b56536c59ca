"""Files of data sets from their public addresses into the user's cache."""

import lzma
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mlrforecast._core.atomic import DRAFT, remove_drafts
from mlrforecast._core.errors import ChecksumError, MLRForecastError
from mlrforecast._core.locks import lock_file
from mlrforecast.data._checks import (
    FOLDER_VARIABLE,
    Identity,
    advice_on_download,
    check,
    expected_of,
    identity_of_stream,
    is_archive,
    is_intact,
    not_found,
    record,
    user_cache,
)
from mlrforecast.data._transfer import Part, TransferError, Wanted, transfer
from mlrforecast.data.catalogue import FileCard

_CHUNK = 2**20
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
)
"""What reading a damaged archive raises; that of bzip2 is an OSError without a number."""
_GROWTH = 200
"""Times that an archive may grow where the bytes of the file are not known."""


@dataclass(frozen=True, kw_only=True)
class _Job:
    """One file that is fetched."""

    file: FileCard
    dataset: str
    target: Path
    expected: Identity
    progress: bool


def fetch(file: FileCard, *, dataset: str, force: bool, progress: bool, tried: list[str]) -> Path:
    """Return where in the cache a file is, downloaded if it is not there, or with ``force``.

    One process at a time works on a file; the others wait and then find it. Whatever happens,
    the cache holds the whole file or none, and the beginning of it to be continued.
    """
    target = user_cache() / file.name
    with _cache_errors(file), _only_one(target) as part:
        expected = expected_of(file, anew=force)
        if not force and is_intact(target, expected):
            part.clear()
            return target
        job = _Job(file=file, dataset=dataset, target=target, expected=expected, progress=progress)
        altered: ChecksumError | None = None
        for url in file.urls:
            try:
                _from_address(job, url, part)
                return target
            except TransferError as error:
                tried.append(f"{url} ({error})")
            except ChecksumError as error:
                altered = altered or error
        raise altered or not_found(file, dataset, tried)


@contextmanager
def _cache_errors(file: FileCard) -> Iterator[None]:
    """Say which file could not be kept where."""
    try:
        yield
    except MLRForecastError:
        raise
    except OSError as error:
        raise OSError(
            f"{file.name} cannot be kept in the cache {user_cache()}: {error}. Make room or give "
            f"the right to write there, or name a folder that holds the file with root= or "
            f"{FOLDER_VARIABLE}."
        ) from error


@contextmanager
def _only_one(target: Path) -> Iterator[Part]:
    """Let one process at a time download a file; the lock ends with the process."""
    target.parent.mkdir(parents=True, exist_ok=True)
    path = target.with_name(f"{target.name}.part")
    note = target.with_name(f"{target.name}.part.json")
    while True:
        with note.open("a+b") as opened:
            lock_file(opened.fileno())
            # The one before may have removed the file that was waited for.
            if not _is_open_file(opened, note):
                continue
            remove_drafts(target)
            part = Part(path=path, note=opened)
            try:
                yield part
            finally:
                if not part.size:
                    path.unlink(missing_ok=True)
                    # Windows removes no open file; an empty note says nothing.
                    with suppress(PermissionError):
                        note.unlink()
            return


def _is_open_file(opened: IO[bytes], path: Path) -> bool:
    """Whether a path still names the file that was opened."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    return False


def _from_address(job: _Job, url: str, part: Part) -> None:
    """Download a file from one address, and put it into its place if it is what it must be."""
    archived = bool(job.file.member) and is_archive(url)
    wanted = Wanted(
        name=job.file.name,
        url=url,
        checked=bool(job.expected.sha256),
        limit=None if archived else job.expected.limit,
        progress=job.progress,
    )
    # What was put together from several answers may be wrong though the address is right.
    for last in (False, True):
        joined = transfer(wanted, part)
        try:
            _accept(job, url, _unpack(job, url, part.path) if archived else part.path)
            part.clear()
            return
        except ChecksumError:
            part.clear()
            if last or not joined:
                raise
        finally:
            remove_drafts(job.target)


def _accept(job: _Job, url: str, source: Path) -> None:
    """Put a downloaded file into its place if it is what it must be."""
    with source.open("rb+") as stream:
        seen = identity_of_stream(stream, job.expected.limit)
        os.fsync(stream.fileno())
    if not seen.size:
        raise ChecksumError(f"{url} served an empty {job.file.name}. Nothing of it was kept.")
    advice = advice_on_download(job.dataset, job.expected)
    check(job.file, seen, job.expected, where=url, advice=advice)
    if not job.file.verified and not job.expected.recorded:
        # Whoever is stopped in between leaves no file beside the record of another.
        job.target.unlink(missing_ok=True)
        record(job.file, seen, url)
    source.replace(job.target)


def _unpack(job: _Job, url: str, archive: Path) -> Path:
    """Take the file out of an archive, into a draft beside the target."""
    draft = job.target.with_name(f"{DRAFT}{job.target.name}-unpacked")
    limit = job.expected.limit or max(_CHUNK, _GROWTH * archive.stat().st_size)
    try:
        with zipfile.ZipFile(archive) as opened, draft.open("wb") as out:
            with _member(opened, job.file.member, url) as member:
                while out.tell() <= limit and (chunk := member.read(_CHUNK)):
                    out.write(chunk)
            if out.tell() > limit and not job.expected.limit:
                raise ChecksumError(
                    f"{url} served an archive whose {job.file.member} has more than {limit} bytes, "
                    f"{_GROWTH} times those of the archive. Nothing of it was kept."
                )
    except (*_DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ChecksumError(
            f"{url} served no readable archive ({error}). Nothing of it was kept."
        ) from error
    return draft


def _member(opened: zipfile.ZipFile, name: str, url: str) -> IO[bytes]:
    """Open a member of an archive."""
    if name not in (names := opened.namelist()):
        raise ChecksumError(
            f"{url} served an archive without {name!r}; it holds "
            f"{', '.join(map(repr, names[:5])) or 'nothing'}. Nothing of it was kept."
        )
    return opened.open(name)
