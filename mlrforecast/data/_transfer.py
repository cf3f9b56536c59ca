"""One address into one file, continued where it broke off."""

import errno
import json
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import requests
from tqdm.auto import tqdm  # type: ignore[import-untyped]

from mlrforecast._version import __version__

CONNECT_S = 10.0
STALL_S = 30.0
"""Seconds to wait for a connection, and for the next bytes."""
PAUSE_S = 0.5
"""Seconds before the second try, doubled before each further one."""
_TRIES = 5
_PROGRESS = 2**20
"""Bytes after which a try was worth it, and the count of tries begins again."""
_CHUNK = 2**13
_PARTIAL, _NOTHING_LEFT = 206, 416
_PASSING_ERRORS = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
)
_PASSING, _SERVER_ERRORS = (408, 425, 429), 500
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A file that is being downloaded, beside the note that tells what it is the beginning of.

    The note is open, and locked, as long as a process works on the file.
    """

    path: Path
    note: IO[bytes]

    @property
    def size(self) -> int:
        """Bytes that are there."""
        return self.path.stat().st_size if self.path.exists() else 0

    def begin(self, url: str, validator: str) -> None:
        """Throw away what is there and note what comes."""
        self.path.write_bytes(b"")
        self._write_note({"url": url, "validator": validator})

    def clear(self) -> None:
        """Throw away what is there."""
        self.path.unlink(missing_ok=True)
        self._write_note({})

    def validator(self) -> str:
        """ETag or date of the version that is the beginning of, if its address told one."""
        return str(self._read_note().get("validator", ""))

    def offset(self, url: str, *, checked: bool) -> int:
        """Where to go on with an address; 0 if what is there may be of another version."""
        known = checked or self.validator()
        return self.size if known and self._read_note().get("url") == url else 0

    def _read_note(self) -> dict[str, Any]:
        self.note.seek(0)
        try:
            fields = json.loads(self.note.read())
        except ValueError:
            # Empty, or a process was killed while writing it.
            return {}
        return fields if isinstance(fields, dict) else {}

    def _write_note(self, fields: dict[str, str]) -> None:
        self.note.seek(0)
        self.note.truncate()
        self.note.write(json.dumps(fields).encode())
        self.note.flush()


class TransferError(Exception):
    """An address did not serve a file; the message says why."""


class _BrokenError(Exception):
    """The address may serve the rest if it is asked again."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be downloaded.

    ``checked`` tells that a hash will be compared, so that parts may be joined without a
    validator. After ``limit`` bytes the file is certainly another one.
    """

    name: str
    url: str
    checked: bool
    limit: int | None
    progress: bool


def transfer(wanted: Wanted, part: Part) -> bool:
    """Download a file, and tell whether it was put together from several answers."""
    tries, reached, joined = 0, 0, False
    with requests.Session() as session:
        session.headers["User-Agent"] = f"mlrforecast/{__version__}"
        # Lengths and ranges are to be those of the file.
        session.headers["Accept-Encoding"] = "identity"
        while True:
            offset = part.offset(wanted.url, checked=wanted.checked)
            joined |= offset > 0
            try:
                _ask(session, wanted, part, offset)
                return joined
            except _BrokenError as error:
                # What was there before counts as progress too, but only once.
                tries = 1 if part.size > reached + _PROGRESS else tries + 1
                reached = max(reached, part.size)
                if tries >= _TRIES:
                    raise TransferError(f"{error}; {_TRIES} tries") from error
                time.sleep(PAUSE_S * 2 ** (tries - 1))


def _ask(session: requests.Session, wanted: Wanted, part: Part, offset: int) -> None:
    """Ask once for what follows ``offset``, and write it."""
    headers = {}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if validator := part.validator():
            headers["If-Range"] = validator
    try:
        with session.get(
            wanted.url, headers=headers, stream=True, timeout=(CONNECT_S, STALL_S)
        ) as response:
            total = _prepare(response, wanted, part, offset)
            if total is None or total > part.size:
                _write(response, wanted, part, total)
    except requests.RequestException as error:
        raise _judged(error) from error


def _prepare(response: requests.Response, wanted: Wanted, part: Part, offset: int) -> int | None:
    """Make the part ready for an answer, and return the bytes of the whole file if it tells."""
    start, total = _range_of(response)
    if response.status_code in (_PARTIAL, _NOTHING_LEFT):
        if start == offset > 0 and _goes_on(response, part):
            return total
        part.clear()
        raise _BrokenError("it answered with another part of the file")
    response.raise_for_status()
    if not wanted.checked and response.headers.get("Content-Type", "").startswith("text/html"):
        raise TransferError("it answered with a web page")
    part.begin(wanted.url, _validator_of(response))
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdigit() and not _is_encoded(response) else None


def _range_of(response: requests.Response) -> tuple[int | None, int | None]:
    """First byte of an answer and bytes of the whole file; nothing may be left after the last."""
    text = response.headers.get("Content-Range", "")
    found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", text)
    if not found:
        return None, None
    start, total = (int(x) if (x or "").isdigit() else None for x in found.groups())
    return total if response.status_code == _NOTHING_LEFT else start, total


def _goes_on(response: requests.Response, part: Part) -> bool:
    """Whether an answer is of the version that the part is of."""
    versions = {part.validator(), _validator_of(response)} - {""}
    return len(versions) < 2 and not _is_encoded(response)


def _validator_of(response: requests.Response) -> str:
    """Return what tells this version of a file from others: its ETag, or else its date."""
    etag = response.headers.get("ETag", "")
    # A weak one may stand for several versions.
    return etag if etag.startswith('"') else response.headers.get("Last-Modified", "")


def _is_encoded(response: requests.Response) -> bool:
    """Whether the bytes that are counted are not those of the file, though it was asked for."""
    return response.headers.get("Content-Encoding", "identity") != "identity"


def _write(response: requests.Response, wanted: Wanted, part: Part, total: int | None) -> None:
    """Append the body of an answer to the part."""
    size = part.size
    if total is not None and shutil.disk_usage(part.path.parent).free < total - size:
        raise OSError(errno.ENOSPC, f"{total - size} bytes are to come and there is no space")
    # disable=None: no bar where nobody watches, that is where stderr is no terminal.
    disable = None if wanted.progress else True
    with tqdm(
        total=total,
        initial=size,
        unit="B",
        unit_scale=True,
        desc=wanted.name,
        leave=False,
        disable=disable,
    ) as bar:
        try:
            with part.path.open("ab") as file:
                for chunk in response.iter_content(_CHUNK):
                    size += file.write(chunk)
                    bar.update(len(chunk))
                    if wanted.limit is not None and size > wanted.limit:
                        return
        except OSError as error:
            # What cannot be finished shall not fill the disk. An error of the line has no number.
            if error.errno in _FULL:
                part.clear()
            raise
    if total is not None and size < total:
        raise _BrokenError(f"it ended after {size} of {total} bytes")


def _judged(error: requests.RequestException) -> Exception:
    """Tell what may pass from what will not."""
    if isinstance(error, requests.HTTPError):
        assert error.response is not None, "raise_for_status hands it on"
        code = error.response.status_code
        passing = code in _PASSING or code >= _SERVER_ERRORS
    elif reason := getattr(next(iter(error.args), None), "reason", None):
        # There is no such host, nobody listens there, or it cannot be trusted.
        return TransferError(f"{type(error).__name__}: {reason}")
    else:
        passing = isinstance(error, _PASSING_ERRORS)
    text = f"{type(error).__name__}: {error}"
    return _BrokenError(text) if passing else TransferError(text)
