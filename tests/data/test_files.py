"""Where files are sought, which copy is taken, and what is refused."""

import dataclasses
import hashlib
import lzma
import os
import tracemalloc

import numpy as np
import pytest

from mlrforecast._core.errors import ChecksumError, DatasetNotFoundError
from mlrforecast.data import FileCard, find_files, load_card, load_dataset
from mlrforecast.data._checks import user_cache
from mlrforecast.data._files import read_file

CONTENT = b"time,value\n" + b"".join(b"%d,%d\n" % (n, n * n) for n in range(200))
ALTERED = CONTENT.replace(b"9", b"8")
CARD = FileCard(
    name="a.csv",
    urls=("http://127.0.0.1:9/a.csv",),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size=len(CONTENT),
)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """A cache of its own, and no variable that says where else to look."""
    for name in ("MLRFORECAST_DATA", "MLRFORECAST_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def put(path, content=CONTENT):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(content) if path.suffix == ".xz" else content)


def read(root=None, card=CARD):
    return read_file(card, dataset="toy", root=root, download=False)


def test_the_cache_is_the_one_of_the_system(tmp_path):
    assert user_cache() == tmp_path / "cache" / "mlrforecast"


@pytest.mark.parametrize("file", ["a.csv", "a.csv.xz"])
@pytest.mark.parametrize("below", ["", "data/ett", "a/b/c/d"])
@pytest.mark.parametrize("place", ["root", "variable", "cache"])
def test_a_file_is_found_at_any_depth_plain_or_xz(tmp_path, monkeypatch, place, below, file):
    folder = user_cache() if place == "cache" else tmp_path / "data"
    put(folder / below / file)
    if place == "variable":
        monkeypatch.setenv("MLRFORECAST_DATA", str(folder))

    assert read(folder if place == "root" else None) == CONTENT


def test_root_goes_before_the_variable_and_the_variable_before_the_cache(tmp_path, monkeypatch):
    """An altered copy stands where the later places would be read."""
    root, named = tmp_path / "root", tmp_path / "named"
    put(root / "a.csv")
    put(named / "a.csv", ALTERED)
    put(user_cache() / "a.csv", ALTERED)
    monkeypatch.setenv("MLRFORECAST_DATA", str(named))

    assert read(root) == CONTENT
    put(named / "a.csv")
    assert read() == CONTENT


def test_the_next_place_is_tried_where_the_file_is_not_there(tmp_path, monkeypatch):
    for empty in ("root", "named"):
        (tmp_path / empty).mkdir()
    put(user_cache() / "a.csv")
    monkeypatch.setenv("MLRFORECAST_DATA", str(tmp_path / "named"))

    assert read(tmp_path / "root") == CONTENT


def test_an_intact_copy_is_taken_though_an_altered_one_lies_beside_it(tmp_path):
    put(tmp_path / "a" / "a.csv", ALTERED)
    put(tmp_path / "b" / "c" / "a.csv.xz")
    assert read(tmp_path) == CONTENT


def test_without_a_hash_the_nearest_copy_is_taken(tmp_path):
    put(tmp_path / "a" / "b" / "a.csv", ALTERED)
    put(tmp_path / "c" / "a.csv")
    card = dataclasses.replace(CARD, sha256="", size=0)
    assert read(tmp_path, card) == CONTENT
    assert [path.parent.name for path in find_files(tmp_path, "a.csv")] == ["c", "b"]


@pytest.mark.parametrize("file", ["a.csv", "a.csv.xz"])
@pytest.mark.parametrize("content", [ALTERED, CONTENT[:-1], CONTENT + b" ", b""])
def test_an_altered_file_is_named_with_both_hashes(tmp_path, file, content):
    put(tmp_path / "x" / file, content)

    with pytest.raises(ChecksumError) as caught:
        read(tmp_path)

    text = str(caught.value)
    for part in (tmp_path / "x" / file, hashlib.sha256(content).hexdigest(), CARD.sha256):
        assert str(part) in text
    assert f"{len(content)} bytes" in text
    assert f"{len(CONTENT)} bytes" in text
    assert "delete it and load 'toy' again" in text


def test_of_several_altered_copies_the_nearest_is_named(tmp_path):
    put(tmp_path / "a" / "b" / "a.csv", ALTERED)
    put(tmp_path / "c" / "a.csv", CONTENT[1:])
    with pytest.raises(ChecksumError, match=f"{len(CONTENT) - 1} bytes"):
        read(tmp_path)


@pytest.mark.parametrize("cut", [0, 10, -5])
def test_a_damaged_xz_is_named(tmp_path, cut):
    (tmp_path / "a.csv.xz").write_bytes(lzma.compress(CONTENT)[:cut] if cut else b"no xz at all")
    with pytest.raises(ChecksumError, match=r"a\.csv\.xz is no readable \.xz file"):
        read(tmp_path)


@pytest.mark.parametrize("xz", [False, True])
def test_no_more_of_a_huge_file_is_read_than_is_needed(tmp_path, xz):
    path = tmp_path / ("a.csv.xz" if xz else "a.csv")
    size = 64 * 2**20
    if xz:
        path.write_bytes(lzma.compress(bytes(size), preset=0))
    else:
        with path.open("wb") as file:
            file.truncate(size)
    tracemalloc.start()
    try:
        with pytest.raises(ChecksumError, match=r"at least \d+ bytes .*not computed"):
            read(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < size // 8
    finally:
        tracemalloc.stop()


def test_a_broken_link_or_a_pipe_is_no_file(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "a.csv").symlink_to(tmp_path / "nowhere")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "b" / "a.csv")
    with pytest.raises(DatasetNotFoundError, match="root"):
        read(tmp_path)
    put(tmp_path / "c" / "a.csv")
    assert read(tmp_path) == CONTENT


@pytest.mark.parametrize("named_by", ["root", "MLRFORECAST_DATA"])
def test_the_home_folder_is_expanded(tmp_path, monkeypatch, named_by):
    put(tmp_path / "data" / "a.csv")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    if named_by == "MLRFORECAST_DATA":
        monkeypatch.setenv(named_by, "~/data")
    assert read("~/data" if named_by == "root" else None) == CONTENT
    assert find_files("~/data", "a.csv") == [tmp_path / "data" / "a.csv"]
    with pytest.raises(ValueError, match="root must name an existing folder, got '~nobody-here"):
        read("~nobody-here/data")


@pytest.mark.parametrize("named_by", ["root", "MLRFORECAST_DATA"])
def test_a_folder_that_is_none_is_named(tmp_path, monkeypatch, named_by):
    put(tmp_path / "a.csv")
    wrong = tmp_path / "a.csv"
    if named_by == "MLRFORECAST_DATA":
        monkeypatch.setenv(named_by, str(wrong))
    with pytest.raises(ValueError, match=rf"{named_by} must name an existing folder, got .*a\.csv"):
        read(wrong if named_by == "root" else None)


def test_the_error_says_what_was_tried_and_what_to_do(tmp_path, monkeypatch):
    for name in ("root", "named"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("MLRFORECAST_DATA", str(tmp_path / "named"))

    with pytest.raises(DatasetNotFoundError) as caught:
        read_file(CARD, dataset="toy", root=tmp_path / "root", download=True)

    text = str(caught.value)
    for part in (
        *(f"root ({tmp_path / 'root'})", f"MLRFORECAST_DATA ({tmp_path / 'named'})"),
        *(f"the user's cache ({user_cache()})", "http://127.0.0.1:9/a.csv (ConnectionError"),
        *("a.csv, a file of data set 'toy'", "fetch http://127.0.0.1:9/a.csv on a machine with"),
    ):
        assert part in text
    assert list(user_cache().iterdir()) == []


def test_downloads_can_be_switched_off():
    with pytest.raises(DatasetNotFoundError) as caught:
        read()
    assert "switched off by download=False" in str(caught.value)
    assert "the environment variable MLRFORECAST_DATA (not set)" in str(caught.value)
    assert not user_cache().exists()


def test_the_error_tells_how_to_unpack():
    card = dataclasses.replace(CARD, urls=("http://127.0.0.1:9/a.zip",), member="in/a.csv")
    with pytest.raises(DatasetNotFoundError, match=r"a\.zip on a machine with internet, unpack in"):
        read(card=card)


def test_an_embedded_file_needs_no_folder_but_a_right_one(tmp_path):
    card = load_card("synthetic").files[0]
    assert len(read(card=card)) == card.size
    with pytest.raises(ValueError, match="root must name an existing folder"):
        read(tmp_path / "none", card)
    with pytest.raises(
        ChecksumError, match=r"synthetic\.csv is not the synthetic\.csv of the cata"
    ):
        read(card=dataclasses.replace(card, sha256="0" * 64))


def test_nothing_of_the_caller_is_changed(tmp_path):
    environment = dict(os.environ)
    legacy = np.random.get_state()[1].copy()  # noqa: NPY002 - the state that is guarded

    load_dataset("synthetic")
    with pytest.raises(DatasetNotFoundError):
        read_file(CARD, dataset="toy", root=tmp_path, download=True)

    assert dict(os.environ) == environment
    assert np.array_equal(np.random.get_state()[1], legacy)  # noqa: NPY002
