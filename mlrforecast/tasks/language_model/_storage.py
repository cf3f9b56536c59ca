"""The files of a corpus: written as drafts, named by what they hold, and checked when opened."""

import hashlib
import json
import os
import re
import secrets
from array import array
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlrforecast._core.atomic import DRAFT, write_whole
from mlrforecast._core.errors import ChecksumError, DataError, DatasetNotFoundError

RECORD = "corpus.json"
FORMAT = "mlrforecast-corpus"
VERSION = 1
SPLITS = ("train", "validation")
_KINDS = ("tokens", "documents")
_OURS = re.compile(r"(train|validation)(_documents)?-[0-9a-f]{12}\.(bin|npy)")
_BLOCK = 1 << 20


class SplitWriter:
    """Writes the tokens of one side document by document, into drafts."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.tokens = 0
        self._starts = array("q", [0])
        self._hash = hashlib.sha256()
        self._draft = _draft(folder, name)
        self._file = self._draft.open("xb")

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return len(self._starts) - 1

    def add(self, content: bytes) -> None:
        """Put a document behind the others."""
        self._file.write(content)
        self._hash.update(content)
        self.tokens += len(content)
        self._starts.append(self.tokens)

    def finish(self) -> dict[str, Any]:
        """Give the files their names, and return what the record says of them."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        files = {"tokens_file": _named(self._draft, self.name, ".bin", self._hash.hexdigest())}
        draft = _draft(self.folder, self.name)
        with draft.open("xb") as file:
            np.save(file, np.frombuffer(self._starts, np.int64))
            file.flush()
            os.fsync(file.fileno())
        digest = _digest(draft)
        files["documents_file"] = _named(draft, f"{self.name}_documents", ".npy", digest)
        return {"tokens": self.tokens, "documents": self.documents, **files}

    def close(self) -> None:
        """Let go of the draft."""
        self._file.close()


@contextmanager
def split_writers(folder: Path) -> Iterator[tuple[SplitWriter, SplitWriter]]:
    """Give what writes both sides, and remove at the end what the record does not name."""
    try:
        with ExitStack() as stack:
            train, validation = (
                stack.enter_context(closing(SplitWriter(folder, name))) for name in SPLITS
            )
            yield train, validation
    finally:
        sweep(folder)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Make a folder for the files that are written meanwhile; take away all of a failed try."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for each in made:
            with suppress(OSError):
                each.rmdir()
        raise


def sweep(folder: Path) -> None:
    """Remove drafts, and files that the record of the folder, if it can be read, does not name."""
    named: set[str] | None = set()
    try:
        record = read_record(folder)
        named = {record["splits"][s][f"{k}_file"]["name"] for s in SPLITS for k in _KINDS}
    except DatasetNotFoundError:
        pass
    except DataError:
        # Perhaps that of a later version: its files are not ours to remove.
        named = None
    for path in folder.iterdir():
        draft = path.name.startswith(tuple(f"{DRAFT}{name}-" for name in (*SPLITS, RECORD)))
        loose = named is not None and _OURS.fullmatch(path.name) and path.name not in named
        if draft or loose:
            with suppress(OSError):
                path.unlink()


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Let the files that a record names become the corpus of the folder."""
    content = json.dumps({"format": FORMAT, "version": VERSION, **record}, indent=2) + "\n"
    write_whole(folder / RECORD, content.encode())


def read_record(folder: Path) -> dict[str, Any]:
    """Return the record of a corpus, whose parts are all there and of the right types."""
    path = folder / RECORD
    if not path.is_file():
        raise DatasetNotFoundError(
            f"{str(folder)!r} holds no corpus: it has no {RECORD}. prepare_corpus makes one."
        )
    try:
        record = json.loads(path.read_bytes())
        wrong = _wrong(record)
    except (ValueError, KeyError, TypeError) as error:
        wrong = f"it cannot be read ({type(error).__name__}: {error})"
    if wrong:
        raise DataError(f"{str(path)!r} describes no corpus: {wrong}. Prepare the corpus again.")
    found: dict[str, Any] = record
    return found


def open_files(
    folder: Path, split: Mapping[str, Any], *, verify: bool
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Map the tokens of one side, and the places where its documents begin, and check both."""
    paths = {kind: folder / split[f"{kind}_file"]["name"] for kind in _KINDS}
    for kind, path in paths.items():
        told = split[f"{kind}_file"]
        if not path.is_file():
            raise DataError(f"{str(path)!r} is missing. Prepare the corpus again.")
        if (size := path.stat().st_size) != told["size"]:
            raise DataError(
                f"{str(path)!r} must have {told['size']} bytes, got {size}. Prepare the corpus "
                "again."
            )
        if verify and (found := _digest(path)) != told["sha256"]:
            raise ChecksumError(
                f"{str(path)!r} is not the file that was written: its sha256 must be "
                f"{told['sha256']}, got {found}. Prepare the corpus again."
            )
    # Pages that the caller writes to, through a tensor, are copies of its own.
    tokens = np.memmap(paths["tokens"], np.uint8, mode="c")
    return tokens, _documents(paths["documents"], split)


def _documents(path: Path, split: Mapping[str, Any]) -> NDArray[np.int64]:
    """Read where documents begin and the last one ends."""
    try:
        edges: NDArray[np.int64] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"{str(path)!r} is no array ({error}). Prepare the corpus again.") from None
    if (
        edges.dtype != np.int64
        or edges.shape != (split["documents"] + 1,)
        or (edges[0], edges[-1]) != (0, split["tokens"])
        or not (edges[1:] > edges[:-1]).all()
    ):
        raise DataError(
            f"{str(path)!r} must hold {split['documents'] + 1} growing places, the first 0 and "
            f"the last {split['tokens']}. Prepare the corpus again."
        )
    return edges


def _wrong(record: Any) -> str:
    """Say what is wrong with a record, if anything is; what is missing raises."""
    if (record["format"], record["version"]) != (FORMAT, VERSION):
        return f"its format must be {FORMAT!r} in version {VERSION}"
    if not isinstance(record["vocabulary"], str):
        return "its vocabulary must be a name"
    for name in SPLITS:
        split = record["splits"][name]
        for kind in _KINDS:
            if type(split[kind]) is not int or split[kind] < 1:
                return f"{name} must have {kind}, got {split[kind]!r}"
            file = split[f"{kind}_file"]
            if not _OURS.fullmatch(file["name"]) or file["sha256"][:12] not in file["name"]:
                return f"no file of a corpus has the name {file['name']!r}"
        if split["tokens_file"]["size"] != split["tokens"]:
            return f"{name} must have one byte a token"
    return ""


def _draft(folder: Path, name: str) -> Path:
    return folder / f"{DRAFT}{name}-{secrets.token_hex(8)}"


def _named(draft: Path, name: str, suffix: str, digest: str) -> dict[str, Any]:
    """Name a finished draft by what it holds, so that no file of another corpus is touched."""
    path = draft.with_name(f"{name}-{digest[:12]}{suffix}")
    draft.replace(path)
    return {"name": path.name, "size": path.stat().st_size, "sha256": digest}


def _digest(path: Path) -> str:
    """Return the sha256 of a file, which is read block by block."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
