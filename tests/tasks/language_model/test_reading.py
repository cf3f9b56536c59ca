import bz2
import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlrforecast._core.errors import DataError
from mlrforecast.tasks.language_model._reading import Seen, cut, find_texts, read_documents

PATTERNS = ("*.txt",)


def in_chunks(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize(
    ("text", "limit", "pieces"),
    [
        ("abcdef", 6, ["abcdef"]),
        ("abcdefg", 3, ["abc", "def", "g"]),
        ("ab\ncd\nef", 6, ["ab\ncd\n", "ef"]),
        ("ab\n\ncd\nefgh", 8, ["ab\n\n", "cd\nefgh"]),
        ("ab\r\n\r\ncd\r\nefgh", 10, ["ab\r\n\r\n", "cd\r\nefgh"]),
        ("", 3, []),
    ],
)
def test_texts_are_cut_at_blank_lines_else_at_lines_else_hard(
    text: str, limit: int, pieces: list[str]
) -> None:
    assert list(cut([text], limit)) == pieces


@given(st.text(st.sampled_from("ab\n\r")), st.integers(1, 9), st.integers(1, 9))
def test_cutting_loses_nothing_and_chunks_do_not_matter(text: str, limit: int, size: int) -> None:
    pieces = list(cut(in_chunks(text, size), limit))
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= limit for piece in pieces)
    assert pieces == list(cut([text], limit))


def test_compressed_files_read_as_plain_ones(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbfOne \xc3\xa9\r\n"
    for suffix, pack in {
        "": bytes,
        ".xz": lzma.compress,
        ".gz": gzip.compress,
        ".dz": gzip.compress,
        ".bz2": bz2.compress,
    }.items():
        (tmp_path / f"a.txt{suffix}").write_bytes(pack(content))
    seen = Seen()
    found = list(read_documents(find_texts([tmp_path], PATTERNS), 100, seen))
    assert found == ["One \u00e9\r\n"] * 5
    assert (seen.files, seen.undecodable_bytes) == (5, 0)


def test_bytes_that_are_no_utf8_are_replaced_and_counted(tmp_path: Path) -> None:
    # The last one is the beginning of a character that never comes.
    (tmp_path / "a.txt").write_bytes(b"a\xe9b\xff\xfe \xef\xbf\xbd c\xc3")
    seen = Seen()
    found = list(read_documents([tmp_path / "a.txt"], 100, seen))
    assert found == ["a\ufffdb\ufffd\ufffd \ufffd c\ufffd"]
    assert seen.undecodable_bytes == 4


def test_characters_on_the_edge_of_a_chunk_stay_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlrforecast.tasks.language_model._reading._CHUNK", 3)
    text = "a\u00e9\u20ac\U0001f600\r\nb" * 5
    (tmp_path / "a.txt").write_bytes(text.encode())
    seen = Seen()
    assert "".join(read_documents([tmp_path / "a.txt"], 7, seen)) == text
    assert seen.undecodable_bytes == 0


def test_folders_are_walked_in_order_and_hidden_or_other_files_left(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt.xz", "a/y.txt", "c.md", ".d.txt", ".git/e.txt", "f.txt.zip"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "broken.txt").symlink_to("nowhere")
    found = [path.relative_to(tmp_path).as_posix() for path in find_texts([tmp_path], PATTERNS)]
    assert found == ["b.txt", "a/y.txt", "a/z.txt.xz"]
    assert list(find_texts([tmp_path / "c.md"], PATTERNS)) == [tmp_path / "c.md"]


@pytest.mark.parametrize("suffix", [".xz", ".gz", ".bz2"])
@pytest.mark.parametrize("whole", [False, True])
def test_damaged_files_are_named(tmp_path: Path, suffix: str, whole: bool) -> None:
    pack = {".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress}[suffix]
    content = b"not compressed" if whole else pack(b"text " * 1000)[:-9]
    (tmp_path / f"a.txt{suffix}").write_bytes(content)
    with pytest.raises(DataError, match=f"a.txt{suffix}' is no whole {suffix} file"):
        list(read_documents([tmp_path / f"a.txt{suffix}"], 100, Seen()))
