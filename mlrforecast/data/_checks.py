"""What the content of a data file must be: by its card, or by what was first downloaded."""

import hashlib
import json
import lzma
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mlrforecast._core.atomic import write_whole
from mlrforecast._core.errors import ChecksumError, DatasetNotFoundError
from mlrforecast.data.catalogue import FileCard

FOLDER_VARIABLE = "MLRFORECAST_DATA"
_CHUNK = 2**20


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Bytes and hash of a decompressed file, 0 and empty where they are not known."""

    sha256: str = ""
    size: int = 0
    recorded: bool = False
    """Whether the first download told them, not the catalogue."""

    @property
    def limit(self) -> int | None:
        """Bytes after which a file is certainly another one."""
        return 2 * self.size + _CHUNK if self.size else None

    def fits(self, other: "Identity") -> bool:
        """Whether what is known of this one is true of another."""
        return self.sha256 in ("", other.sha256) and self.size in (0, other.size)

    def __str__(self) -> str:
        return f"{self.size} bytes and sha256 {self.sha256 or 'unknown'}"


def user_cache() -> Path:
    """Folder of downloads, which need not exist."""
    # A machine that has its data in a folder needs neither the cache nor its name.
    import platformdirs

    return Path(platformdirs.user_cache_dir("mlrforecast"))


def expected_of(file: FileCard, *, anew: bool = False) -> Identity:
    """Tell what a file must be, as far as it is known; ``anew`` forgets the first download."""
    told = Identity(sha256=file.sha256, size=file.size)
    return told if file.verified or anew else _read_record(file) or told


def identity_of_content(content: bytes) -> Identity:
    """Measure bytes."""
    return Identity(sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def identity_of_stream(stream: IO[bytes], limit: int | None) -> Identity:
    """Measure a stream; beyond ``limit`` bytes it is not read, and the hash stays unknown."""
    digest, size = hashlib.sha256(), 0
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
        if limit is not None and size > limit:
            return Identity(size=size)
    return Identity(sha256=digest.hexdigest(), size=size)


def open_decompressed(path: Path) -> IO[bytes]:
    """Open a file to be read, decompressed where it is an ``.xz``."""
    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")


def is_intact(path: Path, expected: Identity) -> bool:
    """Whether a file is there and is what it must be."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return expected.fits(identity_of_stream(stream, expected.limit))


def record(file: FileCard, seen: Identity, url: str) -> None:
    """Keep in the cache what the download of an unverified file had."""
    fields = {"sha256": seen.sha256, "size": seen.size, "url": url}
    write_whole(_record_path(file), json.dumps(fields, indent=1).encode())


def _record_path(file: FileCard) -> Path:
    return user_cache() / f"{file.name}.recorded.json"


def _read_record(file: FileCard) -> Identity | None:
    """Return what the first download of a file had, or None where there was none."""
    path = _record_path(file)
    try:
        fields = json.loads(path.read_bytes())
        return Identity(sha256=fields["sha256"], size=fields["size"], recorded=True)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ChecksumError(
            f"{path}, which tells the hash of the first download of {file.name}, is damaged. "
            "Delete it to accept the file as it is then."
        ) from error


def check(file: FileCard, seen: Identity, expected: Identity, *, where: str, advice: str) -> None:
    """Refuse what is not the file that was expected, with both hashes."""
    if expected.fits(seen):
        return
    found = str(seen)
    if not seen.sha256:
        # No more of it was read.
        found = f"at least {seen.size} bytes (its sha256 was not computed)"
    known = "that was first downloaded" if expected.recorded else "of the catalogue"
    raise ChecksumError(
        f"{where} is not the {file.name} {known}: its content has {found}, expected {expected}. "
        f"{advice}"
    )


def advice_on_file(dataset: str, expected: Identity) -> str:
    """Say what to do about a file on this machine that is not the one that was expected."""
    return (
        f"The file was altered or cut short: delete it and load {dataset!r} again, or put an "
        f"unaltered copy there.{_to_accept(dataset, expected)}"
    )


def advice_on_download(dataset: str, expected: Identity) -> str:
    """Say what to do about an address that serves another file."""
    return (
        "Nothing of it was kept. Put an unaltered copy into a folder and name that with root= or "
        f"{FOLDER_VARIABLE}.{_to_accept(dataset, expected)}"
    )


def _to_accept(dataset: str, expected: Identity) -> str:
    """How to take a new version of a file whose hash the catalogue does not know."""
    if not expected.recorded:
        return ""
    return f" To take the newest version instead: mlrforecast datasets fetch {dataset} --force"


def not_found(file: FileCard, dataset: str, tried: Iterable[str]) -> DatasetNotFoundError:
    """Say where a file was sought and what to do."""
    places = "".join(f"\n  - {place}" for place in tried)
    by_hand = ""
    if file.urls:
        unpack = f", unpack {file.member}" if file.member and is_archive(file.urls[0]) else ""
        by_hand = f", or fetch {file.urls[0]} on a machine with internet{unpack} and copy it there"
    return DatasetNotFoundError(
        f"{file.name}, a file of data set {dataset!r}, was not found. Tried:{places}\n"
        f"Either set {FOLDER_VARIABLE} to a folder that holds it (at any depth, plain or .xz), "
        f"or pass that folder as root={by_hand}. load_dataset('synthetic') needs no file."
    )


def is_archive(url: str) -> bool:
    """Whether an address serves an archive."""
    return url.partition("?")[0].lower().endswith(".zip")
