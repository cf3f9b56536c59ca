"""Corpora: text in folders or from elsewhere, made into tokens once and mapped into memory."""

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import tqdm  # type: ignore[import-untyped]  # no types for tqdm

from mlrforecast._core.atomic import locked_folder
from mlrforecast._core.errors import DataError
from mlrforecast.tasks.language_model import _arguments, _storage
from mlrforecast.tasks.language_model._checks import whole
from mlrforecast.tasks.language_model._reading import Seen, cut, find_texts, read_documents
from mlrforecast.tasks.language_model._storage import SPLITS, SplitWriter
from mlrforecast.tasks.language_model.vocabulary import Vocabulary, get_vocabulary

__all__ = ["PATTERNS", "Corpus", "Split", "prepare_corpus"]

_Path = str | os.PathLike[str]

PATTERNS = ("*.md", "*.rst", "*.text", "*.txt")
"""Names of the files of a folder that hold text, if not told otherwise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """One side of a corpus, mapped from its files: memory holds what is read, while it is read.

    Attributes
    ----------
    name : {"train", "validation"}
        Which side it is.
    tokens : array of uint8
        All documents, one after the other; read only.
    documents : array of int64 of shape (num_documents + 1,)
        Where each document begins, and where the last one ends; read only.
    vocabulary : Vocabulary
        What the tokens stand for.
    """

    name: str
    tokens: NDArray[np.uint8] = field(repr=False)
    documents: NDArray[np.int64] = field(repr=False)
    vocabulary: Vocabulary
    _mapped: NDArray[np.uint8] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Tensors are made of the array as it was given: torch knows none that are read only.
        object.__setattr__(self, "_mapped", self.tokens)
        object.__setattr__(self, "tokens", self.tokens.view())
        self.tokens.flags.writeable = False

    @property
    def num_tokens(self) -> int:
        """Tokens of all documents."""
        return len(self.tokens)

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.documents) - 1

    def document(self, index: int) -> str:
        """Return the text of document ``index``, counted from 0, or from -1 back.

        Raises
        ------
        IndexError
            If there is no such document.
        """
        if not -self.num_documents <= index < self.num_documents:
            raise IndexError(f"`index` must be below {self.num_documents}, got {index}.")
        index %= self.num_documents
        start, end = (int(edge) for edge in self.documents[index : index + 2])
        return self.vocabulary.decode(self.tokens[start:end])

    def tensor(self, device: torch.device | str | None = None) -> Tensor:
        """Return the tokens as a tensor: on the CPU still mapped, on a ``device`` a copy.

        Returns
        -------
        Tensor of uint8 of shape (num_tokens,)
            Nothing that is written to it reaches the file.
        """
        return torch.from_numpy(self._mapped).to(device or "cpu")

    def document_tensor(self, device: torch.device | str | None = None) -> Tensor:
        """Return ``documents`` as a tensor of int64, a copy, on a ``device``."""
        return torch.tensor(self.documents, device=device)


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Text as tokens, in documents for training and others for validation.

    Attributes
    ----------
    folder : Path
        Where its files are.
    vocabulary : Vocabulary
        What the tokens stand for.
    train, validation : Split
        Both sides; no document is on both.
    record : mapping
        What ``corpus.json`` says: settings, names of the sources, counts and hashes of files.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = (f"Text {number}." for number in range(100))
    ...     _ = prepare_corpus(texts, folder, validation_share=0.2, progress=False)
    ...     corpus = Corpus.open(folder, verify=True)
    >>> corpus.train.num_documents + corpus.validation.num_documents
    100
    >>> corpus.validation.document(0)
    'Text 1.'
    """

    folder: Path
    vocabulary: Vocabulary
    train: Split
    validation: Split
    record: Mapping[str, Any] = field(repr=False)

    @classmethod
    def open(cls, folder: _Path, *, verify: bool = False) -> "Corpus":
        """Open a corpus that :func:`prepare_corpus` made; no tokens are read.

        Parameters
        ----------
        folder : path
            Folder of the corpus.
        verify : bool, default False
            Whether to read all files and compare their hashes, beside their sizes.

        Returns
        -------
        Corpus

        Raises
        ------
        DatasetNotFoundError
            If the folder holds no corpus; a FileNotFoundError.
        DataError
            If a file is missing, damaged or of another size, or ``corpus.json`` cannot be read;
            a ValueError that names the file.
        ChecksumError
            If a hash is not the one that was recorded; a ValueError as well.
        """
        place = Path(folder)
        record = _storage.read_record(place)
        try:
            vocabulary = get_vocabulary(record["vocabulary"])
        except ValueError as error:
            raise DataError(f"{str(place / _storage.RECORD)!r}: {error}") from None
        splits = {}
        for name in SPLITS:
            tokens, documents = _storage.open_files(place, record["splits"][name], verify=verify)
            splits[name] = Split(
                name=name, tokens=tokens, documents=documents, vocabulary=vocabulary
            )
        return cls(folder=place, vocabulary=vocabulary, record=record, **splits)


def prepare_corpus(
    source: _Path | Iterable[_Path] | Iterable[str],
    folder: _Path,
    *,
    vocabulary: str = "characters",
    validation_share: float = 0.05,
    seed: int = 0,
    max_document_chars: int = 65536,
    patterns: Sequence[str] = PATTERNS,
    overwrite: bool = False,
    progress: bool = True,
) -> Corpus:
    """Make a corpus of text, piece by piece: memory does not grow with the text.

    A document is a file, or one of the texts that are given. It is cut where it is longer than
    ``max_document_chars``: after the last blank line before, else the last end of a line, else
    right there; each piece is a document from then on. Of documents with equal tokens the first
    is kept, and those without a token are left out. Which side one goes to depends on its tokens
    and ``seed`` alone: not on its file, nor on what else there is.

    The files of a corpus are named by what they hold, and ``corpus.json``, which names them,
    is written last. Until then an earlier corpus in the folder stays as it was.

    Parameters
    ----------
    source : path, list of paths, or iterable of str
        A file, whatever its name, or a folder, whose files are sought at any depth in the order
        of their names; or a list or tuple of these. Files that end in ``.xz``, ``.gz``, ``.dz`` or
        ``.bz2`` are decompressed. Any other iterable, such as a generator, yields documents.
    folder : path
        Where to write; made if need be. Other files in it stay.
    vocabulary : {"characters", "bytes"}, default "characters"
        What a token is, see :func:`get_vocabulary`.
    validation_share : float between 0 and 1, default 0.05
        Share of the documents that go to validation, about.
    seed : int, default 0
        Another one shares documents out anew.
    max_document_chars : int, at least 1, default 65536
        Longest document, in characters.
    patterns : sequence of str
        Names of the files of a folder that are read, such as ``"*.txt"``, with or without the
        ending of a compressed file. Hidden files and folders are not.
    overwrite : bool, default False
        Whether to replace a corpus that is in the folder.
    progress : bool, default True
        Whether to show a progress bar on the standard error.

    Returns
    -------
    Corpus
        As :meth:`Corpus.open` opens it.

    Raises
    ------
    ValueError
        If an argument is out of its range, no file matches, one side has no document, or the
        folder holds a corpus and is not to be overwritten. A :class:`DataError`, which is one,
        names a compressed file that is damaged.
    FileNotFoundError
        If a source is not there.

    Notes
    -----
    Bytes that are no UTF-8 are read as the sign of replacement, and counted in ``record``.
    Memory grows by about 100 bytes a document, for its place and a mark by which it is known
    again.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts, out = Path(folder, "texts"), Path(folder, "corpus")
    ...     texts.mkdir()
    ...     for number in range(40):
    ...         _ = Path(texts, f"{number}.txt").write_text(f"Caf\u00e9 {number}")
    ...     corpus = prepare_corpus(texts, out, validation_share=0.2, progress=False)
    >>> corpus.record["counts"]["files"], corpus.record["counts"]["dropped_characters"]
    (40, 40)
    """
    known = get_vocabulary(vocabulary)
    settings = _Settings(
        validation_share=_arguments.validation_share(validation_share),
        seed=whole("seed", seed, least=0),
        max_document_chars=whole("max_document_chars", max_document_chars),
        patterns=_arguments.name_patterns(patterns),
    )
    paths = _arguments.source_paths(source)
    place = _check_folder(Path(folder), overwrite)
    seen = Seen()
    documents: Iterable[str]
    if paths is None:
        assert isinstance(source, Iterable)
        texts = (cut([_arguments.document(text)], settings.max_document_chars) for text in source)
        documents = itertools.chain.from_iterable(texts)
    else:
        files = find_texts(paths, settings.patterns)
        documents = read_documents(files, settings.max_document_chars, seen)
    with _storage.writing(place), locked_folder(place):
        # Another process may have had the lock, and made a corpus meanwhile.
        _check_folder(place, overwrite)
        with tqdm(documents, unit=" documents", disable=not progress) as bar:
            _write(iter(bar), place, known, settings, paths, seen)
    return Corpus.open(place)


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """What determines a corpus beside its text."""

    validation_share: float
    seed: int
    max_document_chars: int
    patterns: tuple[str, ...]


@dataclass
class _Counts:
    """What became of the text that was read."""

    characters: int = 0
    dropped_characters: int = 0
    documents: int = 0
    duplicates: int = 0
    empty_documents: int = 0


def _write(
    documents: Iterable[str],
    folder: Path,
    vocabulary: Vocabulary,
    settings: _Settings,
    paths: Sequence[Path] | None,
    seen: Seen,
) -> None:
    """Write all files; the record, which makes them the corpus of the folder, is the last."""
    with _storage.split_writers(folder) as (train, validation):
        counts = _share_out(documents, vocabulary, settings, train, validation)
        if paths is not None and not seen.files:
            raise ValueError(
                f"`source` must hold files that match {', '.join(settings.patterns)}, got none in "
                f"{', '.join(map(str, paths))}."
            )
        for split in (train, validation):
            if not split.documents:
                raise ValueError(
                    f"`validation_share` of {settings.validation_share} leaves {split.name} "
                    f"without any of the {counts.documents} documents. Give another share or "
                    "seed, more text, or smaller `max_document_chars`."
                )
        names = ["documents"] if paths is None else [path.resolve().name for path in paths]
        share = counts.dropped_characters / max(counts.characters, 1)
        record = {
            "vocabulary": vocabulary.name,
            "settings": asdict(settings),
            "sources": names,
            "counts": {**asdict(seen), **asdict(counts), "dropped_share": share},
            "splits": {split.name: split.finish() for split in (train, validation)},
        }
        _storage.write_record(folder, record)


def _share_out(
    documents: Iterable[str],
    vocabulary: Vocabulary,
    settings: _Settings,
    train: SplitWriter,
    validation: SplitWriter,
) -> _Counts:
    """Write each document to one of two sides."""
    counts = _Counts()
    known: set[bytes] = set()
    for text in documents:
        tokens, dropped = vocabulary.encode_counting(text)
        counts.characters += len(text)
        counts.dropped_characters += dropped
        content = tokens.tobytes()
        mark = blake2b(content, digest_size=16).digest()
        if not content:
            counts.empty_documents += 1
        elif mark in known:
            counts.duplicates += 1
        else:
            known.add(mark)
            counts.documents += 1
            drawn = blake2b(b"%d:%s" % (settings.seed, mark), digest_size=8).digest()
            share = int.from_bytes(drawn, "big") / 2**64
            (validation if share < settings.validation_share else train).add(content)
    return counts


def _check_folder(folder: Path, overwrite: bool) -> Path:
    """Return the folder, if a corpus may be written to it."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`folder` must be a folder, got the file {str(folder)!r}.")
    if not overwrite and (folder / _storage.RECORD).exists():
        raise ValueError(
            f"`folder` holds a corpus already, got {str(folder)!r}. Open it with Corpus.open, or "
            "replace it (overwrite=True, or --overwrite)."
        )
    return folder
