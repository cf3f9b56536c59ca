import importlib.util
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError, MissingDependencyError
from mlrforecast.data import gluonts_to_long_frame, load_gluonts

ENTRIES = [
    {"item_id": "b", "start": pd.Period("2024-01-31 22:00", "h"), "target": np.arange(3.0)},
    {"item_id": 7, "start": "2024-02-29 23:00", "target": [np.nan, 5]},
]


@pytest.mark.parametrize("freq", ["h", "H", "1H"])
def test_entries_become_a_long_frame_in_their_order(freq):
    frame = gluonts_to_long_frame(iter(ENTRIES), freq)

    expected = pd.DataFrame(
        {
            "item_id": ["b", "b", "b", "7", "7"],
            "timestamp": pd.to_datetime(
                [
                    "2024-01-31 22:00",
                    "2024-01-31 23:00",
                    "2024-02-01 00:00",
                    "2024-02-29 23:00",
                    "2024-03-01 00:00",
                ]
            ),
            "target": [0.0, 1.0, 2.0, np.nan, 5.0],
        }
    )
    pd.testing.assert_frame_equal(
        frame.astype({"timestamp": "datetime64[ns]"}),
        expected.astype({"timestamp": "datetime64[ns]"}),
    )


def test_monthly_periods_give_the_start_of_each_month():
    frame = gluonts_to_long_frame([{"start": "2023-12", "target": [1, 2]}], "ME")

    assert list(frame["timestamp"]) == [pd.Timestamp("2023-12-01"), pd.Timestamp("2024-01-01")]
    assert list(frame["item_id"]) == ["0", "0"]


def test_start_that_is_a_period_keeps_its_own_multiple():
    entry = {"start": pd.Period("2024-01-01", "2D"), "target": [1, 2]}
    assert list(gluonts_to_long_frame([entry], "D")["timestamp"].diff().dt.days)[1] == 2


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "at least one series"),
        ([ENTRIES[0], ENTRIES[0]], "item_id 'b' occurs twice, again at entry 1"),
        ([{"item_id": "c", "target": [1.0]}], r"entry 0 \(item_id 'c'\) lacks \['start'\]"),
        ([{**ENTRIES[0], "target": np.ones((2, 3))}], r"'b' must have one dimension.*\(2, 3\)"),
    ],
)
def test_entries_that_break_a_rule_are_named(entries, message):
    with pytest.raises(DataError, match=message):
        gluonts_to_long_frame(entries, "h")


@pytest.mark.skipif(importlib.util.find_spec("gluonts") is not None, reason="gluonts is installed")
def test_without_gluonts_the_error_says_how_to_install_it():
    with pytest.raises(
        MissingDependencyError,
        match=r"GluonTS data set 'm4_hourly' needs 'gluonts.*pip install 'mlrforecast\[gluonts\]'",
    ):
        load_gluonts("m4_hourly")


def test_load_uses_the_split_that_was_asked_for(monkeypatch):
    dataset = SimpleNamespace(train=ENTRIES[:1], test=ENTRIES, metadata=SimpleNamespace(freq="H"))
    repository = SimpleNamespace(get_dataset={"tiny": dataset}.__getitem__)
    monkeypatch.setattr("mlrforecast.data.gluonts.import_optional", lambda *_, **__: repository)
    assert len(load_gluonts("tiny")) == 5
    assert len(load_gluonts("tiny", split="train")) == 3
