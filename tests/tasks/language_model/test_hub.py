import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlrforecast._core.errors import HubError, MissingDependencyError
from mlrforecast.tasks.language_model import hugging_face_documents, prepare_corpus

ROWS: list[dict[str, Any]] = [{"text": f"Text {n}." if n != 3 else None, "n": n} for n in range(60)]


class Library(ModuleType):
    """Stands in for Hugging Face's library, and keeps what it was asked for."""

    def __init__(self, error: Exception | None = None, after: int | None = None) -> None:
        super().__init__("datasets")
        self.error, self.after = error, after
        self.asked: list[Any] = []

    def load_dataset(self, *names: Any, **options: Any) -> Iterator[dict[str, Any]]:
        self.asked.append((names, options))
        if self.error is not None and self.after is None:
            raise self.error
        return self._rows()

    def _rows(self) -> Iterator[dict[str, Any]]:
        for number, row in enumerate(ROWS):
            if number == self.after:
                assert self.error is not None
                raise self.error
            yield row


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    for name in ("MLRFORECAST_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    return use(Library(), monkeypatch)


def use(library: Library, monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setitem(sys.modules, "datasets", library)
    return library


def test_texts_come_one_by_one_and_rows_without_one_are_left_out(library: Library) -> None:
    found = list(hugging_face_documents("a/b", config="c", split="test", max_documents=5))
    assert found == ["Text 0.", "Text 1.", "Text 2.", "Text 4."]
    assert library.asked == [(("a/b", "c"), {"split": "test", "streaming": True})]


def test_a_corpus_is_made_of_them(library: Library, tmp_path: Path) -> None:
    documents = hugging_face_documents("a/b")
    corpus = prepare_corpus(documents, tmp_path / "c", validation_share=0.3, progress=False)
    assert corpus.record["counts"]["documents"] == 59


@pytest.mark.parametrize("switch", ["MLRFORECAST_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_is_told_at_once_and_a_folder_is_read(
    library: Library, switch: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(switch, "1")
    with pytest.raises(HubError, match=rf"'a/b', split 'train'.*\(switched off by {switch}=1\)"):
        hugging_face_documents("a/b")
    assert library.asked == []
    assert len(list(hugging_face_documents(str(tmp_path)))) == 59


def test_errors_of_the_library_say_what_was_tried(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(Library(ConnectionError("Couldn't\nreach it")), monkeypatch)
    with pytest.raises(HubError, match=r"'c'.*Tried: the hub \(ConnectionError: Couldn't reach i"):
        hugging_face_documents("a/b", config="c")
    use(Library(TimeoutError(), after=7), monkeypatch)
    documents = hugging_face_documents("a/b")
    with pytest.raises(HubError, match=r"cannot be read after 7 documents.*TimeoutError: no reas"):
        list(documents)


def test_a_failing_download_leaves_no_corpus(
    library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(Library(TimeoutError(), after=40), monkeypatch)
    with pytest.raises(HubError):
        prepare_corpus(hugging_face_documents("a/b"), tmp_path / "c", progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"column": "txet"}, ValueError, "`column` must be one of 'text', 'n', got 'txet'"),
        ({"column": "n"}, TypeError, "`column` must hold texts, got a int in row 1"),
        ({"max_documents": 0}, ValueError, "`max_documents` must be at least 1, got 0"),
        ({"name": ""}, ValueError, "`name` must be the name of a data set"),
    ],
)
def test_wrong_arguments_are_refused(
    library: Library, options: dict[str, Any], kind: type, message: str
) -> None:
    with pytest.raises(kind, match=message):
        list(hugging_face_documents(**{"name": "a/b", **options}))


def test_a_folder_of_the_same_name_is_not_the_library(
    library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in = ModuleType("datasets")
    stand_in.__path__ = [str(tmp_path / "datasets")]
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    with pytest.raises(MissingDependencyError, match=r"another one of that name was found \("):
        hugging_face_documents("a/b")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'mlrforecast\[text\]'"):
        hugging_face_documents("a/b")
