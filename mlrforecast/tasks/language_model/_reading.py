"""Documents of text files, piece by piece."""

import bz2
import codecs
import fnmatch
import gzip
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

from mlrforecast._core.errors import DataError

_OPENERS: dict[str, Callable[..., BufferedIOBase]] = {
    ".xz": lzma.LZMAFile,
    ".gz": gzip.GzipFile,
    # What dictd compresses is gzip with an index.
    ".dz": gzip.GzipFile,
    ".bz2": bz2.BZ2File,
}
_DAMAGED = (lzma.LZMAError, zlib.error, EOFError)
_CHUNK = 1 << 20
# What "surrogateescape" makes of bytes that are no UTF-8; no text that decodes holds them.
_UNDECODABLE = re.compile("[\udc80-\udcff]")


@dataclass
class Seen:
    """What was met while files were read."""

    files: int = 0
    undecodable_bytes: int = 0


def find_texts(sources: Sequence[Path], patterns: Sequence[str]) -> Iterator[Path]:
    """Yield files, and those of folders, at any depth in the order of their names."""
    for source in sources:
        if source.is_dir():
            yield from _walk(source, patterns)
        else:
            yield source


def read_documents(files: Iterable[Path], limit: int, seen: Seen) -> Iterator[str]:
    """Yield the documents of files, none longer than ``limit`` characters."""
    for path in files:
        seen.files += 1
        yield from cut(_read(path, seen), limit)


def cut(chunks: Iterable[str], limit: int) -> Iterator[str]:
    """Cut a text that comes in chunks where it is longer than ``limit``."""
    text = ""
    for chunk in chunks:
        text += chunk
        start = 0
        while len(text) - start > limit:
            end = _end(text, start, start + limit)
            yield text[start:end]
            start = end
        text = text[start:]
    if text:
        yield text


def _end(text: str, start: int, stop: int) -> int:
    """Return where to cut: after the last blank line, else the last line, else at ``stop``."""
    ends = [
        text.rfind(sign, start, stop) + len(sign)
        for sign in ("\n\n", "\n\r\n")
        if sign in text[start:stop]
    ]
    return max(ends) if ends else (text.rfind("\n", start, stop) + 1) or stop


def _walk(folder: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """Yield the files of a folder whose names match; those that begin with a dot are hidden."""
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            bare = Path(name).stem if Path(name).suffix in _OPENERS else name
            fits = any(fnmatch.fnmatchcase(n, p) for n in (name, bare) for p in patterns)
            path = Path(parent, name)
            # A pipe or a broken link is no file.
            if fits and not name.startswith(".") and path.is_file():
                yield path


def _refuse(error: OSError) -> None:
    """Let no folder be left out in silence."""
    raise error


def _read(path: Path, seen: Seen) -> Iterator[str]:
    """Yield the text of a file in chunks; bytes that are no UTF-8 become the sign for them."""
    decode = codecs.getincrementaldecoder("utf-8-sig")(errors="surrogateescape").decode
    try:
        with _OPENERS.get(path.suffix, _open_plain)(path) as file:
            while content := file.read(_CHUNK):
                yield _mended(decode(content), seen)
    except (*_DAMAGED, OSError) as error:
        # The system's own errors have a number; that of bz2 about damaged content has none.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(f"{str(path)!r} is no whole {path.suffix} file ({error}).") from error
    yield _mended(decode(b"", True), seen)


def _open_plain(path: Path) -> BufferedIOBase:
    return path.open("rb")


def _mended(text: str, seen: Seen) -> str:
    """Put the sign of replacement in place of bytes that could not be decoded, and count them."""
    if text.isascii():
        return text
    text, count = _UNDECODABLE.subn("\ufffd", text)
    seen.undecodable_bytes += count
    return text
