"""Data sets read by name from files: what becomes of their rows, and of files that are wrong."""

import dataclasses
import hashlib

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data import datasets as datasets_module
from mlrforecast.data import load_card, load_dataset

CSV = "date," + ",".join(load_card("ETTh1").target_columns) + "\n"
CSV += "".join(
    f"{stamp:%Y-%m-%d %H:%M:%S},{n},{n % 5},{n % 7},{n % 3},1,{n * n},{-n}\n"
    for n, stamp in enumerate(pd.date_range("2020-01-01", periods=60, freq="h"))
)


@pytest.fixture(autouse=True)
def small_etth1(monkeypatch, tmp_path):
    """Let the card of ETTh1 describe a file of 60 rows, with an empty cache and no variable."""
    card = load_card("ETTh1")
    content = CSV.encode()
    file = dataclasses.replace(
        card.files[0], sha256=hashlib.sha256(content).hexdigest(), size=len(content)
    )
    splits = {"train": slice(0, 30), "validation": slice(30, 40), "test": slice(40, 50)}
    cards = {"ETTh1": dataclasses.replace(card, files=(file,), rows=60, splits=splits)}
    monkeypatch.setattr(
        datasets_module, "load_card", lambda name: cards.get(name) or load_card(name)
    )
    monkeypatch.delenv("MLRFORECAST_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cards


def put(path, content=CSV):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode())


def rewrite(cards, path, content, **fields):
    """Put another file in place of the small one, and a card that knows its hash."""
    put(path, content)
    file = dataclasses.replace(cards["ETTh1"].files[0], sha256="", size=0)
    cards["ETTh1"] = dataclasses.replace(cards["ETTh1"], files=(file,), **fields)


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


def test_a_file_without_a_known_hash_must_hold_what_its_card_says(tmp_path, small_etth1):
    path = tmp_path / "ETTh1.csv"
    rewrite(small_etth1, path, CSV.replace("HUFL", "LOAD"), rows=0)
    with pytest.raises(
        DataError, match=r"ETTh1.csv must hold columns of \['date', 'HUFL', .*'LOAD'"
    ):
        load_dataset("ETTh1", root=tmp_path)
    rewrite(small_etth1, path, CSV.replace("2020-01-02 03:00:00", "tomorrow"), rows=0)
    with pytest.raises(DataError, match=r"Column 'date' of ETTh1.csv must hold time stamps: .*tom"):
        load_dataset("ETTh1", root=tmp_path)
    rewrite(small_etth1, path, "\n".join(CSV.split("\n")[:45]), rows=0)
    with pytest.raises(DataError, match=r"split 'test' must be a slice of the 44 rows, got slice"):
        load_dataset("ETTh1", root=tmp_path)


def test_without_columns_in_the_card_all_are_targets(tmp_path, small_etth1):
    rewrite(small_etth1, tmp_path / "ETTh1.csv", CSV, rows=0, columns=(), timestamp_format="")
    dataset = load_dataset("ETTh1", root=tmp_path)
    assert dataset.target_columns == load_card("ETTh1").target_columns
    assert dataset.frame.index.freq == "h"


def test_rows_that_are_absent_stay_absent(tmp_path, small_etth1):
    lines = CSV.split("\n")
    del lines[6]
    rewrite(small_etth1, tmp_path / "ETTh1.csv", "\n".join(lines), rows=0)
    dataset = load_dataset("ETTh1", root=tmp_path)
    assert len(dataset.frame) == 59
    assert dataset.frame.index.freq is None
    assert dataset.frame.index[5] == pd.Timestamp("2020-01-01 06:00")
