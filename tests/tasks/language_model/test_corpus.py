import json
import os
import shutil
import tracemalloc
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mlrforecast._core.errors import ChecksumError, DataError, DatasetNotFoundError
from mlrforecast.tasks.language_model import Corpus, Split, prepare_corpus

TEXTS = [f"Document {number}.\n" * (number % 7 + 1) for number in range(200)]


def documents_of(split: Split) -> list[str]:
    return [split.document(number) for number in range(split.num_documents)]


def prepare(source: Any, folder: Path, **options: Any) -> Corpus:
    return prepare_corpus(source, folder, **{"progress": False, "validation_share": 0.2, **options})


def state_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return prepare(iter(TEXTS), tmp_path / "corpus")


def test_a_corpus_holds_every_document_once(corpus: Corpus) -> None:
    train, validation = documents_of(corpus.train), documents_of(corpus.validation)
    assert sorted(train + validation) == sorted(TEXTS)
    # In their order, and about a fifth in validation: five standard deviations.
    assert train == [text for text in TEXTS if text in set(train)]
    assert abs(len(validation) - 40) < 5 * (200 * 0.2 * 0.8) ** 0.5
    assert corpus.train.num_tokens == len("".join(train)) == corpus.train.documents[-1]
    assert corpus.train.document(-1) == train[-1]
    with pytest.raises(IndexError, match="`index` must be below"):
        corpus.train.document(len(train))


def test_the_record_says_what_became_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for number, text in enumerate([*TEXTS, TEXTS[3], "\u00e9\u20ac", "", "a\u00e9 \r\n"]):
        (tmp_path / "source" / f"{number:03}.txt").write_bytes(text.encode())
    (tmp_path / "source" / "bytes.txt").write_bytes(b"caf\xe9")
    corpus = prepare(tmp_path / "source", tmp_path / "corpus", seed=5)
    counts = corpus.record["counts"]
    total = sum(map(len, TEXTS)) + len(TEXTS[3]) + 2 + 5 + 4
    assert counts == {
        "files": 205,
        "undecodable_bytes": 1,
        "characters": total,
        "dropped_characters": 4,
        "documents": 202,
        "duplicates": 1,
        "empty_documents": 1,
        "dropped_share": 4 / total,
    }
    assert corpus.record["sources"] == ["source"]
    assert corpus.record["settings"]["seed"] == 5
    assert str(tmp_path) not in (tmp_path / "corpus" / "corpus.json").read_text()
    for name in ("train", "validation"):
        for kind in ("tokens_file", "documents_file"):
            file = corpus.record["splits"][name][kind]
            content = (corpus.folder / file["name"]).read_bytes()
            assert (len(content), sha256(content).hexdigest()) == (file["size"], file["sha256"])
    assert len(list(corpus.folder.iterdir())) == 5


def test_sides_depend_on_content_and_seed_alone(tmp_path: Path, corpus: Corpus) -> None:
    validation = set(documents_of(corpus.validation))
    turned = prepare(iter([*TEXTS[::-1], *TEXTS]), tmp_path / "turned")
    assert set(documents_of(turned.validation)) == validation
    fewer = prepare(iter(TEXTS[:100]), tmp_path / "fewer")
    assert set(documents_of(fewer.validation)) == validation & set(TEXTS[:100])
    other = prepare(iter(TEXTS), tmp_path / "other", seed=1)
    assert set(documents_of(other.validation)) != validation


def test_the_same_again_gives_the_same_files(tmp_path: Path, corpus: Corpus) -> None:
    again = prepare(iter(TEXTS), tmp_path / "again")
    assert state_of(again.folder) == state_of(corpus.folder)


def test_documents_are_cut_and_bytes_are_kept(tmp_path: Path) -> None:
    text = "".join(f"L\u00efne {n}\n" + "\n" * (n % 5 == 0) for n in range(500))
    (tmp_path / "a.text").write_text(text, encoding="utf-8")
    options: dict[str, Any] = {"max_document_chars": 60, "vocabulary": "bytes"}
    corpus = prepare(tmp_path / "a.text", tmp_path / "corpus", **options)
    pieces = documents_of(corpus.train) + documents_of(corpus.validation)
    assert sorted("".join(pieces)) == sorted(text)
    assert all(len(piece) <= 60 and piece.endswith("\n") for piece in pieces)
    assert corpus.record["counts"]["dropped_characters"] == 0


def test_several_sources_and_a_file_whatever_its_name(tmp_path: Path) -> None:
    for number, text in enumerate(TEXTS):
        place = tmp_path / ("one" if number % 2 else "two") / "deep"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.rst").write_text(text)
    (tmp_path / "three.dict").write_text("Three")
    sources = [tmp_path / "one", str(tmp_path / "two"), tmp_path / "three.dict"]
    corpus = prepare(sources, tmp_path / "corpus")
    assert corpus.record["sources"] == ["one", "two", "three.dict"]
    assert corpus.record["counts"]["files"] == 201


def test_tokens_are_mapped_and_not_read(corpus: Corpus) -> None:
    tokens, tensor = corpus.train.tokens, corpus.train.tensor()
    assert isinstance(tokens, np.memmap)
    assert tensor.data_ptr() == tokens.ctypes.data
    assert tensor.dtype == torch.uint8
    with pytest.raises(ValueError, match="read-only"):
        tokens[0] = 1
    # A tensor knows no such rule; what is written to it stays in this process.
    tensor[:] = 0
    assert documents_of(Corpus.open(corpus.folder, verify=True).train)[0].startswith("Document")
    assert torch.equal(
        corpus.train.document_tensor(), torch.tensor(corpus.train.documents.tolist())
    )


def many_documents(count: int) -> Iterator[str]:
    return (f"{number} " * 20_000 for number in range(count))


def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    peaks = []
    for count in (10, 100):
        tracemalloc.start()
        prepare(many_documents(count), tmp_path / str(count), validation_share=0.4)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Ten times as much text, 5 MB more of it.
    assert peaks[1] < peaks[0] + 500_000


def test_opening_takes_no_memory_for_the_text(tmp_path: Path) -> None:
    prepare(many_documents(100), tmp_path / "corpus", validation_share=0.4)
    tracemalloc.start()
    corpus = Corpus.open(tmp_path / "corpus", verify=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert corpus.train.num_tokens > 2_000_000
    assert peak < 500_000


def failing(after: int) -> Iterator[str]:
    yield from TEXTS[:after]
    raise KeyboardInterrupt


def test_a_stopped_preparation_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        prepare(failing(50), tmp_path / "new" / "corpus")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["text", "documents", "record"])
def test_an_earlier_corpus_stays_when_another_fails(
    corpus: Corpus, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (corpus.folder / "notes.txt").write_text("mine")
    before = state_of(corpus.folder)
    place = "mlrforecast.tasks.language_model._storage"

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    if step != "text":
        name = {"documents": "np.save", "record": "write_whole"}[step]
        monkeypatch.setattr(f"{place}.{name}", full)
    source = failing(50) if step == "text" else iter(TEXTS[:150])
    with pytest.raises((KeyboardInterrupt, OSError)):
        prepare(source, corpus.folder, overwrite=True)
    assert state_of(corpus.folder) == before
    assert Corpus.open(corpus.folder, verify=True).train.num_documents > 1


def test_a_corpus_is_replaced_only_if_asked_and_other_files_stay(corpus: Corpus) -> None:
    (corpus.folder / "notes.txt").write_text("mine")
    # What a writer leaves that was killed.
    (corpus.folder / ".mlrforecast-draft-train-0011").write_text("half")
    with pytest.raises(ValueError, match="`folder` holds a corpus already"):
        prepare(iter(TEXTS), corpus.folder)
    new = prepare(iter(TEXTS[:100]), corpus.folder, overwrite=True)
    assert new.train.num_documents + new.validation.num_documents == 100
    # The one that is open still reads what it was opened for.
    assert corpus.train.num_documents + corpus.validation.num_documents == 200
    assert "Document" in corpus.train.document(-1)
    names = {path.name for path in corpus.folder.iterdir()}
    assert len(names) == 6
    assert "notes.txt" in names


def test_an_unreadable_corpus_is_replaced_and_spared_by_a_failure(corpus: Corpus) -> None:
    (corpus.folder / "corpus.json").write_text("{}")
    before = state_of(corpus.folder)
    with pytest.raises(KeyboardInterrupt):
        prepare(failing(9), corpus.folder, overwrite=True)
    assert state_of(corpus.folder) == before
    prepare(iter(TEXTS[:100]), corpus.folder, overwrite=True)
    assert len(state_of(corpus.folder)) == 5


def file_of(corpus: Corpus, name: str, kind: str) -> Path:
    return corpus.folder / corpus.record["splits"][name][kind]["name"]


@pytest.mark.parametrize("name", ["train", "validation"])
@pytest.mark.parametrize("kind", ["tokens_file", "documents_file"])
def test_cut_missing_or_altered_files_are_named(corpus: Corpus, name: str, kind: str) -> None:
    path = file_of(corpus, name, kind)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(DataError, match=f"{path.name}' must have {len(content)} bytes, got"):
        Corpus.open(corpus.folder)
    path.write_bytes(content[:-8] + bytes([content[-8] ^ 1]) + content[-7:])
    with pytest.raises(ChecksumError, match=f"{path.name}' is not the file that was written"):
        Corpus.open(corpus.folder, verify=True)
    path.unlink()
    with pytest.raises(DataError, match=f"{path.name}' is missing"):
        Corpus.open(corpus.folder)


@pytest.mark.parametrize("damage", ["order", "end", "header"])
def test_places_of_documents_are_checked(corpus: Corpus, damage: str) -> None:
    path = file_of(corpus, "train", "documents_file")
    content = bytearray(path.read_bytes())
    if damage == "header":
        content[:6] = b"broken"
    else:
        edges = np.load(path)
        edges[-1 if damage == "end" else 3] += 10_000
        content[-edges.nbytes :] = edges.tobytes()
    path.write_bytes(content)
    with pytest.raises(DataError, match=path.name):
        Corpus.open(corpus.folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "cannot be read"),
        ({"format": "other"}, "its format must be 'mlrforecast-corpus' in version 1"),
        ({"version": 2}, "in version 1"),
        ({"vocabulary": "words"}, "Unknown vocabulary 'words'"),
        ({"vocabulary": None}, "its vocabulary must be a name"),
        ({"splits": {}}, "cannot be read"),
        ("name", "no file of a corpus has the name '../train-"),
        ("tokens", "train must have one byte a token"),
        ("documents", "train must have documents, got 0"),
    ],
)
def test_a_record_that_describes_no_corpus_is_named(
    corpus: Corpus, change: Any, message: str
) -> None:
    path = corpus.folder / "corpus.json"
    record = json.loads(path.read_text())
    train = record["splits"]["train"]
    if isinstance(change, dict):
        record |= change
    elif change == "name":
        train["tokens_file"]["name"] = "../" + train["tokens_file"]["name"]
    elif change:
        train[change] = 1 if change == "tokens" else 0
    path.write_text(json.dumps(record) if change else path.read_text()[:-9])
    with pytest.raises(DataError, match=message) as raised:
        Corpus.open(corpus.folder)
    assert "corpus.json" in str(raised.value)


def test_a_folder_without_a_corpus_is_told(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(DatasetNotFoundError, match=r"holds no corpus: it has no corpus\.json"):
            Corpus.open(folder)


@pytest.mark.parametrize(
    ("source", "options", "kind", "message"),
    [
        ("none", {}, FileNotFoundError, "`source` names 'none'"),
        (["x" * 9000], {}, FileNotFoundError, r"x\.\.\.', which is no file or folder\. A list"),
        ([], {}, ValueError, "`source` must name at least one file"),
        (3, {}, TypeError, "`source` must be a path, a list of paths, or an iterable"),
        (b"text", {}, TypeError, "got a bytes"),
        (iter([b"text"]), {}, TypeError, "`source` must yield texts, got a bytes"),
        (iter([]), {}, ValueError, "leaves train without any of the 0 documents"),
        (iter(["one"]), {}, ValueError, "without any of the 1 documents"),
        (iter(TEXTS), {"validation_share": 1e-9}, ValueError, "leaves validation without any of"),
        (iter(TEXTS), {"vocabulary": "words"}, ValueError, "Unknown vocabulary 'words'"),
        (iter(TEXTS), {"validation_share": 0}, ValueError, "`validation_share` must lie between"),
        (iter(TEXTS), {"validation_share": True}, ValueError, "got True"),
        (iter(TEXTS), {"seed": -1}, ValueError, "`seed` must be at least 0, got -1"),
        (iter(TEXTS), {"max_document_chars": 0}, ValueError, "`max_document_chars` must be at"),
        (iter(TEXTS), {"max_document_chars": 1.5}, TypeError, "must be an int, got 1.5"),
        (iter(TEXTS), {"patterns": "*.txt"}, ValueError, "`patterns` must be texts such as"),
        (iter(TEXTS), {"patterns": ()}, ValueError, "`patterns` must be texts"),
    ],
)
def test_wrong_arguments_leave_nothing(
    tmp_path: Path, source: Any, options: dict[str, Any], kind: type, message: str
) -> None:
    with pytest.raises(kind, match=message):
        prepare(source, tmp_path / "corpus", **options)
    assert list(tmp_path.iterdir()) == []


def test_folders_without_text_and_files_as_folders_are_told(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.html").write_text("text")
    with pytest.raises(ValueError, match=r"`source` must hold files that match \*\.md, \*\.rst"):
        prepare(tmp_path / "source", tmp_path / "corpus")
    with pytest.raises(ValueError, match=r"`folder` must be a folder, got the file"):
        prepare(iter(TEXTS), tmp_path / "source" / "a.html")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "source" / "closed").mkdir(parents=True)
    (tmp_path / "source" / "closed").chmod(0)
    with pytest.raises(PermissionError):
        prepare(tmp_path / "source", tmp_path / "corpus")


def test_only_a_bar_is_shown_and_on_the_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(iter(TEXTS), tmp_path / "quiet")
    assert capsys.readouterr() == ("", "")
    prepare(iter(TEXTS), tmp_path / "bar", progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "200 documents" in err


def test_a_corpus_may_be_moved(corpus: Corpus, tmp_path: Path) -> None:
    shutil.copytree(corpus.folder, tmp_path / "elsewhere")
    moved = Corpus.open(tmp_path / "elsewhere", verify=True)
    assert documents_of(moved.validation) == documents_of(corpus.validation)


@pytest.mark.shared
def test_real_text_loses_next_to_nothing(tmp_path: Path, shared_file: Any) -> None:
    folder = shared_file("tinyshakespeare.txt").parent
    corpus = prepare(folder, tmp_path / "corpus", max_document_chars=20_000)
    counts = corpus.record["counts"]
    assert counts["files"] == len(list(folder.glob("*.txt*")))
    assert counts["dropped_share"] < 1e-3
    total = corpus.train.num_tokens + corpus.validation.num_tokens
    assert corpus.validation.num_tokens / total == pytest.approx(0.2, abs=0.07)
