import dataclasses
import functools
import hashlib
import http.server
import io
import logging
import lzma
import os
import threading
import tracemalloc

import numpy as np
import pandas as pd
import pooch
import pytest

from mlrforecast._core.errors import ChecksumError, DataError, DatasetNotFoundError
from mlrforecast.data import datasets as datasets_module
from mlrforecast.data import load_card, load_dataset

CSV = "date," + ",".join(load_card("ETTh1").target_columns) + "\n"
CSV += "".join(
    f"{stamp:%Y-%m-%d %H:%M:%S},{n},{n % 5},{n % 7},{n % 3},1,{n * n},{-n}\n"
    for n, stamp in enumerate(pd.date_range("2020-01-01", periods=60, freq="h"))
)


@pytest.fixture(autouse=True)
def small_etth1(monkeypatch, tmp_path, request):
    """Let the card of ETTh1 describe a file of 60 rows, with an empty cache and no variable."""
    if request.node.get_closest_marker("shared"):
        return None
    card = dataclasses.replace(
        load_card("ETTh1"),
        sha256=hashlib.sha256(CSV.encode()).hexdigest(),
        size=len(CSV),
        rows=60,
        splits={"train": range(30), "validation": range(30, 40), "test": range(40, 50)},
        urls=("http://127.0.0.1:9/ETTh1.csv",),
    )
    cards = {"ETTh1": card}
    monkeypatch.setattr(
        datasets_module, "load_card", lambda name: cards.get(name) or load_card(name)
    )
    monkeypatch.delenv("MLRFORECAST_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    return cards


@pytest.fixture
def server(tmp_path, small_etth1):
    """Serve a folder on a free port; what the card names is fetched from there."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{running.server_port}/ETTh1.csv"
        small_etth1["ETTh1"] = dataclasses.replace(small_etth1["ETTh1"], urls=(url,))
        yield folder
        running.shutdown()
        thread.join()


def put(path, content=CSV, *, xz=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(content.encode()) if xz else content.encode())


def files_below(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


# What a data set is.


def test_frame_keeps_all_rows_and_splits_are_row_ranges(tmp_path):
    put(tmp_path / "ETTh1.csv")
    dataset = load_dataset("ETTh1", root=tmp_path)

    assert dataset.frame.shape == (60, 7)
    assert dataset.frame.index.freq == "h"
    assert list(dataset.train["HUFL"]) == list(range(30))
    assert list(dataset.validation["HUFL"]) == list(range(30, 40))
    assert list(dataset.test["HUFL"]) == list(range(40, 50))
    assert list(dataset.targets.columns) == list(dataset.target_columns)
    assert dataset.covariate_columns == ()


def test_standardised_knows_the_train_rows_only(tmp_path):
    """HUFL is 0, 1, ..., 59: with validation rows its mean would be 19.5, not 14.5."""
    put(tmp_path / "ETTh1.csv")
    dataset = load_dataset("ETTh1", root=tmp_path)
    before = dataset.frame.copy()

    scaled = dataset.standardised()

    rows = np.arange(60)
    np.testing.assert_allclose(scaled["HUFL"], (rows - 14.5) / np.sqrt((30**2 - 1) / 12))
    np.testing.assert_allclose(scaled["LUFL"], 0.0, err_msg="a constant is only centred")
    pd.testing.assert_frame_equal(dataset.frame, before)
    changed = dataset.frame.copy()
    changed.iloc[30:] = 1e6
    spoilt = dataclasses.replace(dataset, frame=changed).standardised()
    pd.testing.assert_frame_equal(spoilt.iloc[:30], scaled.iloc[:30])


def test_card_and_file_must_agree(tmp_path, small_etth1):
    put(tmp_path / "ETTh1.csv")
    small_etth1["ETTh1"] = dataclasses.replace(small_etth1["ETTh1"], rows=61)
    with pytest.raises(DataError, match=r"ETTh1.csv must hold 61 rows .* got 60 rows"):
        load_dataset("ETTh1", root=tmp_path)


# Where the file is sought.


@pytest.mark.parametrize("xz", [False, True])
@pytest.mark.parametrize("below", ["", "data/ett", "a/b/c/d"])
@pytest.mark.parametrize("named_by", ["root", "variable"])
def test_file_is_found_at_any_depth_plain_or_xz(tmp_path, monkeypatch, named_by, below, xz):
    folder = tmp_path / "data"
    put(folder / below / ("ETTh1.csv.xz" if xz else "ETTh1.csv"), xz=xz)
    root = folder if named_by == "root" else None
    if named_by == "variable":
        monkeypatch.setenv("MLRFORECAST_DATA", str(folder))

    assert len(load_dataset("ETTh1", root=root, download=False).frame) == 60


def test_root_goes_before_the_variable_and_the_variable_before_the_cache(tmp_path, monkeypatch):
    """An altered copy stands where the later places would be read."""
    altered = CSV.replace("1", "2")
    put(tmp_path / "root" / "ETTh1.csv")
    put(tmp_path / "named" / "ETTh1.csv", altered)
    put(tmp_path / "cache" / "mlrforecast" / "ETTh1.csv", altered)
    monkeypatch.setenv("MLRFORECAST_DATA", str(tmp_path / "named"))

    assert len(load_dataset("ETTh1", root=str(tmp_path / "root")).frame) == 60
    with pytest.raises(ChecksumError, match="named"):
        load_dataset("ETTh1")
    put(tmp_path / "named" / "ETTh1.csv")
    assert len(load_dataset("ETTh1").frame) == 60


def test_next_place_is_tried_where_the_file_is_not_there(tmp_path, monkeypatch):
    for empty in ("root", "named"):
        (tmp_path / empty).mkdir()
    put(tmp_path / "cache" / "mlrforecast" / "ETTh1.csv")
    monkeypatch.setenv("MLRFORECAST_DATA", str(tmp_path / "named"))

    assert len(load_dataset("ETTh1", root=tmp_path / "root").frame) == 60


def test_an_intact_copy_is_taken_though_an_altered_one_lies_beside_it(tmp_path):
    put(tmp_path / "a" / "ETTh1.csv", CSV + "\n")
    put(tmp_path / "b" / "c" / "ETTh1.csv.xz", xz=True)
    assert len(load_dataset("ETTh1", root=tmp_path).frame) == 60


@pytest.mark.parametrize("download", [True, False])
def test_altered_file_is_named_with_both_hashes(tmp_path, small_etth1, download):
    altered = CSV.replace("00:00:00,0", "00:00:00,9", 1)
    assert len(altered) == len(CSV)
    put(tmp_path / "x" / "ETTh1.csv", altered)

    with pytest.raises(ChecksumError) as caught:
        load_dataset("ETTh1", root=tmp_path, download=download)

    text = str(caught.value)
    assert str(tmp_path / "x" / "ETTh1.csv") in text
    assert hashlib.sha256(altered.encode()).hexdigest() in text
    assert small_etth1["ETTh1"].sha256 in text
    assert "delete it" in text


def test_hash_is_of_the_decompressed_content(tmp_path):
    put(tmp_path / "ETTh1.csv.xz", CSV + " ", xz=True)
    with pytest.raises(ChecksumError, match="xz"):
        load_dataset("ETTh1", root=tmp_path, download=False)


@pytest.mark.parametrize("cut", [0, 10, -5])
def test_damaged_xz_is_named(tmp_path, cut):
    whole = lzma.compress(CSV.encode())
    (tmp_path / "ETTh1.csv.xz").write_bytes(whole[:cut] if cut else b"no xz at all")
    with pytest.raises(ChecksumError, match=r"ETTh1.csv.xz is no readable .xz file"):
        load_dataset("ETTh1", root=tmp_path)


@pytest.mark.parametrize("xz", [False, True])
def test_no_more_of_a_huge_file_is_read_than_the_card_says(tmp_path, xz):
    path = tmp_path / ("ETTh1.csv.xz" if xz else "ETTh1.csv")
    size = 64 * 2**20
    if xz:
        path.write_bytes(lzma.compress(bytes(size), preset=0))
    else:
        with path.open("wb") as file:
            file.truncate(size)
    tracemalloc.start()
    try:
        with pytest.raises(ChecksumError, match=r"has more than 2371 bytes .*expected 2371 bytes"):
            load_dataset("ETTh1", root=tmp_path, download=False)
        assert tracemalloc.get_traced_memory()[1] < size // 8
    finally:
        tracemalloc.stop()


def test_a_broken_link_is_no_file(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "ETTh1.csv").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DatasetNotFoundError, match="root"):
        load_dataset("ETTh1", root=tmp_path, download=False)
    put(tmp_path / "b" / "ETTh1.csv")
    assert len(load_dataset("ETTh1", root=tmp_path, download=False).frame) == 60


@pytest.mark.parametrize("named_by", ["root", "MLRFORECAST_DATA"])
def test_the_home_folder_is_expanded(tmp_path, monkeypatch, named_by):
    put(tmp_path / "data" / "ETTh1.csv")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    if named_by == "MLRFORECAST_DATA":
        monkeypatch.setenv(named_by, "~/data")
    root = "~/data" if named_by == "root" else None
    assert len(load_dataset("ETTh1", root=root, download=False).frame) == 60
    with pytest.raises(ValueError, match="root must name an existing folder, got '~nobody-here"):
        load_dataset("ETTh1", root="~nobody-here/data")


@pytest.mark.parametrize("named_by", ["root", "MLRFORECAST_DATA"])
def test_a_folder_that_is_none_is_named(tmp_path, monkeypatch, named_by):
    put(tmp_path / "ETTh1.csv")
    wrong = tmp_path / "ETTh1.csv"
    if named_by == "MLRFORECAST_DATA":
        monkeypatch.setenv(named_by, str(wrong))
    with pytest.raises(ValueError, match=f"{named_by} must name an existing folder, got .*ETTh1"):
        load_dataset("ETTh1", root=wrong if named_by == "root" else None)


def test_unknown_name_lists_the_available():
    with pytest.raises(ValueError, match=r"Unknown data set 'ETTm9'. Available: \['ETTh1', "):
        load_dataset("ETTm9")


# What happens when it is nowhere.


def test_offline_error_says_what_was_tried_and_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "root").mkdir()
    (tmp_path / "named").mkdir()
    monkeypatch.setenv("MLRFORECAST_DATA", str(tmp_path / "named"))

    with pytest.raises(DatasetNotFoundError) as caught:
        load_dataset("ETTh1", root=tmp_path / "root")

    assert isinstance(caught.value, FileNotFoundError)
    text = str(caught.value)
    for place in (
        f"root ({tmp_path / 'root'})",
        f"MLRFORECAST_DATA ({tmp_path / 'named'})",
        f"the user cache ({tmp_path / 'cache' / 'mlrforecast'})",
        "http://127.0.0.1:9/ETTh1.csv (ConnectionError",
        "set MLRFORECAST_DATA to a folder",
        "root=",
    ):
        assert place in text
    assert files_below(tmp_path) == []


def test_download_can_be_switched_off(tmp_path):
    with pytest.raises(DatasetNotFoundError) as caught:
        load_dataset("ETTh1", download=False)
    assert "switched off by download=False" in str(caught.value)
    assert "the environment variable MLRFORECAST_DATA (not set)" in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_the_error_names_the_public_address(small_etth1):
    small_etth1.clear()
    with pytest.raises(
        DatasetNotFoundError,
        match=r"https://raw\.githubusercontent\.com/zhouhaoyi/ETDataset/main/ETT-small/ETTh1\.csv",
    ):
        load_dataset("ETTh1", download=False)


# Downloads, from a server on this machine.


def test_download_is_kept_in_the_cache_and_used_again(tmp_path, server, capfd):
    put(server / "ETTh1.csv")

    assert len(load_dataset("ETTh1").frame) == 60

    assert capfd.readouterr() == ("", ""), "the bar shows on terminals only"
    cached = tmp_path / "cache" / "mlrforecast" / "ETTh1.csv"
    assert cached.read_bytes() == CSV.encode()
    assert files_below(tmp_path / "cache") == ["ETTh1.csv"]
    (server / "ETTh1.csv").unlink()
    assert len(load_dataset("ETTh1", download=False).frame) == 60


def test_missing_on_the_server_is_reported_and_leaves_nothing(tmp_path, server):
    with pytest.raises(DatasetNotFoundError, match=r"/ETTh1\.csv \(HTTPError: 404"):
        load_dataset("ETTh1")
    assert files_below(tmp_path) == []


@pytest.mark.parametrize("content", [CSV[:-1], CSV + "x", ""])
def test_altered_on_the_server_is_refused_and_leaves_nothing(tmp_path, server, content):
    put(server / "ETTh1.csv", content)

    with pytest.raises(ChecksumError, match=r"http://127\.0\.0\.1:\d+/ETTh1\.csv did not serve"):
        load_dataset("ETTh1")
    assert files_below(tmp_path / "cache") == []


@pytest.mark.parametrize("first", ["absent", "altered"])
def test_second_address_serves_where_the_first_does_not(server, small_etth1, first):
    if first == "altered":
        put(server / "old" / "ETTh1.csv", CSV + "x")
    put(server / "ETTh1.csv")
    (good,) = small_etth1["ETTh1"].urls
    urls = (good.replace("ETTh1.csv", "old/ETTh1.csv"), good)
    small_etth1["ETTh1"] = dataclasses.replace(small_etth1["ETTh1"], urls=urls)

    assert len(load_dataset("ETTh1").frame) == 60


def test_altered_cache_is_never_used(tmp_path, server):
    put(server / "ETTh1.csv")
    put(tmp_path / "cache" / "mlrforecast" / "ETTh1.csv", CSV + "x")
    with pytest.raises(ChecksumError, match="delete it"):
        load_dataset("ETTh1")


def test_nothing_of_the_caller_is_changed(server, monkeypatch):
    put(server / "ETTh1.csv")
    logger, written = pooch.get_logger(), io.StringIO()
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(written)])
    logger.setLevel(logging.DEBUG)
    environment = dict(os.environ)
    legacy = np.random.get_state()[1].copy()  # noqa: NPY002 - the state that is guarded

    try:
        load_dataset("ETTh1")
        load_dataset("synthetic")

        assert written.getvalue() == ""
        assert logger.level == logging.DEBUG
    finally:
        logger.setLevel(logging.NOTSET)
    assert dict(os.environ) == environment
    assert np.array_equal(np.random.get_state()[1], legacy)  # noqa: NPY002
