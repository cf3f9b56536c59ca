"""Data sets that GluonTS itself makes, and frames as data sets of GluonTS."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from mlrforecast.data import FrameSchema, gluonts_to_long_frame, make_synthetic, read_panel
from mlrforecast.data.gluonts import to_train_datasets, unfold_entries

pytest.importorskip("gluonts")

from gluonts.dataset import arrow, jsonl
from gluonts.dataset.common import (
    FileDataset,
    ListDataset,
    MetaData,
    TrainDatasets,
)
from gluonts.dataset.multivariate_grouper import MultivariateGrouper
from gluonts.dataset.pandas import PandasDataset
from gluonts.dataset.split import split

ROWS = [
    {
        "item_id": "b",
        "start": "2024-02-28",
        "target": [1.0, np.nan, 3.0],
        "feat_dynamic_real": [[1, 2, 3, 4]],
        "past_feat_dynamic_real": [[5, 6, 7]],
        "feat_static_cat": [1],
        "feat_static_real": [0.5],
    },
    {
        "item_id": "a",
        "start": "2024-03-01",
        "target": [4.0, 5.0],
        "feat_dynamic_real": [[8, 9, 10]],
        "past_feat_dynamic_real": [[11, 12]],
        "feat_static_cat": [0],
        "feat_static_real": [0.25],
    },
]
DAYS = pd.DataFrame(
    {
        "item_id": ["b"] * 3 + ["a"] * 2,
        "timestamp": pd.to_datetime(
            ["2024-02-28", "2024-02-29", "2024-03-01", "2024-03-01", "2024-03-02"]
        ),
        "target": [1.0, np.nan, 3.0, 4.0, 5.0],
        "past_feat_dynamic_real_0": [5.0, 6.0, 7.0, 11.0, 12.0],
        "feat_dynamic_real_0": [1.0, 2.0, 3.0, 8.0, 9.0],
        "feat_static_real_0": [0.5] * 3 + [0.25] * 2,
        "feat_static_cat_0": pd.Categorical([1] * 3 + [0] * 2),
    }
)


def listed(freq="D"):
    return ListDataset([dict(row) for row in ROWS], freq=freq)


def alike(found, expected):
    """Compare frames of any unit of stamps, the items in any order."""
    sides = [
        frame.astype({"timestamp": "datetime64[ns]"}).sort_values(
            ["item_id", "timestamp"], kind="stable", ignore_index=True
        )
        for frame in (found, expected)
    ]
    pd.testing.assert_frame_equal(*sides)


def test_a_list_data_set():
    alike(gluonts_to_long_frame(listed()), DAYS)


@pytest.mark.parametrize(
    "writer", [jsonl.JsonLinesWriter(), arrow.ArrowWriter(), arrow.ParquetWriter()]
)
def test_data_sets_in_files(writer, tmp_path):
    saved = TrainDatasets(MetaData(freq="D"), listed(), listed())
    saved.save(str(tmp_path / "set"), writer=writer)
    alike(gluonts_to_long_frame(FileDataset(tmp_path / "set" / "test", freq="D")), DAYS)


def test_a_pandas_data_set_with_features():
    static = DAYS.groupby("item_id")[["feat_static_real_0", "feat_static_cat_0"]].first()
    dataset = PandasDataset(
        {item: rows.set_index("timestamp") for item, rows in DAYS.groupby("item_id")},
        target="target",
        feat_dynamic_real=["feat_dynamic_real_0"],
        past_feat_dynamic_real=["past_feat_dynamic_real_0"],
        static_features=static,
        freq="D",
    )
    alike(gluonts_to_long_frame(dataset), DAYS)


def test_a_pandas_data_set_that_leaves_off_the_end_gives_it_as_the_future():
    rows = DAYS[DAYS["item_id"] == "b"].set_index("timestamp")
    dataset = PandasDataset(
        {"b": rows}, feat_dynamic_real=["feat_dynamic_real_0"], freq="D", future_length=1
    )
    frame, future, _ = unfold_entries(dataset, FrameSchema(), find_roles=True)
    assert frame["target"].tolist()[0] == 1.0
    assert len(frame) == 2
    assert future["feat_dynamic_real_0"].tolist() == [3.0]


@pytest.mark.parametrize(
    ("freq", "start", "expected"),
    [
        ("h", "2024-02-29 22:00", ["2024-02-29 22:00", "2024-02-29 23:00", "2024-03-01 00:00"]),
        ("15min", "2024-02-29 23:45", ["2024-02-29 23:45", "2024-03-01", "2024-03-01 00:15"]),
        ("2D", "2024-02-28", ["2024-02-28", "2024-03-01", "2024-03-03"]),
        # A week is named by its last day and stamped by its first.
        ("W-WED", "2024-02-28", ["2024-02-22", "2024-02-29", "2024-03-07"]),
        ("ME", "2024-01-31", ["2024-01-01", "2024-02-01", "2024-03-01"]),
        ("QE", "2024-01-31", ["2024-01-01", "2024-04-01", "2024-07-01"]),
        ("YE", "2024-01-31", ["2024-01-01", "2025-01-01", "2026-01-01"]),
    ],
)
def test_a_list_data_set_of_any_frequency(freq, start, expected):
    entries = ListDataset([{"start": start, "target": [1.0, 2.0, 3.0]}], freq=freq)
    found = gluonts_to_long_frame(entries)
    assert [pd.Timestamp(stamp) for stamp in found["timestamp"]] == [
        pd.Timestamp(stamp) for stamp in expected
    ]
    step = read_panel(entries).freq
    assert read_panel(found, freq=step).freq == step


def test_what_a_multivariate_grouper_makes_is_a_wide_frame():
    entries = [{"start": "2024-01-01", "target": [1.0, 2.0, 3.0]}] * 2
    entries.append({"start": "2024-01-02", "target": [4.0, 5.0]})
    grouped = MultivariateGrouper()(ListDataset(entries, freq="D"))
    panel = read_panel(grouped)
    assert panel.layout.form == "wide"
    # It fills what a series lacks with its mean.
    np.testing.assert_array_equal(panel.values, [[1, 1, 4.5], [2, 2, 4], [3, 3, 5]])


def test_windows_at_several_dates_are_series_by_their_position():
    entries = [{"start": "2024-01-01", "target": list(range(length))} for length in (4, 4, 6, 6)]
    grouped = MultivariateGrouper(num_test_dates=2)(ListDataset(entries, freq="D"))
    assert list(read_panel(grouped).labels) == ["0.0", "0.1", "1.0", "1.1"]


def test_inputs_of_a_rolling_test_set_know_the_features_of_what_follows():
    entry = {"start": "2024-01-01", "target": range(9), "feat_dynamic_real": [range(9)]}
    _, template = split(ListDataset([entry], freq="D"), offset=-4)
    windows = template.generate_instances(prediction_length=2, windows=1)
    _, future, _ = unfold_entries(windows.input, FrameSchema(), find_roles=True)
    assert future["feat_dynamic_real_0"].tolist() == [5.0, 6.0]
    with pytest.raises(TypeError, match=r"got TestData. Pass its \.input"):
        read_panel(windows)
    with pytest.raises(TypeError, match=r"got TrainDatasets. Pass one .* \.train or \.test"):
        read_panel(TrainDatasets(MetaData(freq="D"), listed()))


SCHEMA = FrameSchema(
    past_covariates=("visits",),
    known_covariates=("promo", "weekday", "price"),
    static_covariates=("region",),
)


def shops():
    """A long frame with a covariate of each kind."""
    parts = []
    for number, (item, length) in enumerate((("x", 9), ("y", 7))):
        days = pd.date_range("2024-01-01", periods=length, freq="D")
        parts.append(
            pd.DataFrame(
                {
                    "item_id": item,
                    "timestamp": days,
                    "target": np.arange(length) / 7,
                    "visits": np.arange(length) * 3.0,
                    "promo": np.arange(length) % 2 * 1.0,
                    "weekday": days.day_name(),
                    "price": 1 / np.arange(1, length + 1),
                    "region": ["north", "south"][number],
                }
            )
        )
    frame = pd.concat(parts, ignore_index=True)
    frame.loc[3, "target"] = np.nan
    return frame


def test_a_long_frame_there_and_back():
    frame = shops()
    made = to_train_datasets(frame, SCHEMA, freq="D", prediction_length=2, test=slice(-2, None))
    assert isinstance(made, TrainDatasets)
    assert made.metadata.freq == "D"
    assert made.metadata.prediction_length == 2
    assert [each.name for each in made.metadata.feat_dynamic_real] == ["promo", "price"]
    assert [each.name for each in made.metadata.feat_dynamic_cat] == ["weekday"]
    assert [(e.name, e.cardinality) for e in made.metadata.feat_static_cat] == [("region", "2")]
    assert [len(entry["target"]) for entry in made.train] == [7, 5]

    back = gluonts_to_long_frame(made.test).rename(
        columns={
            "past_feat_dynamic_real_0": "visits",
            "feat_dynamic_real_0": "promo",
            "feat_dynamic_real_1": "price",
            "feat_dynamic_cat_0": "weekday",
            "feat_static_cat_0": "region",
        }
    )
    texts = {"weekday": sorted(set(frame["weekday"])), "region": ["north", "south"]}
    for name, categories in texts.items():
        back[name] = [categories[code] for code in back[name]]
    alike(back[list(frame.columns)], frame)


@pytest.mark.parametrize("writer", [jsonl.JsonLinesWriter(), arrow.ParquetWriter()])
def test_data_sets_are_written_and_read_by_gluonts(writer, tmp_path):
    frame = shops().drop(columns=["weekday", "region"])
    schema = FrameSchema(past_covariates=("visits",), known_covariates=("promo", "price"))
    made = to_train_datasets(frame, schema, freq="D", prediction_length=2, test=slice(-2, None))
    made.save(str(tmp_path / "shops"), writer=writer)
    back = gluonts_to_long_frame(FileDataset(tmp_path / "shops" / "test", freq="D"))
    # GluonTS reads numbers in float32.
    np.testing.assert_allclose(back["target"], frame["target"], rtol=1e-6)
    np.testing.assert_allclose(back["feat_dynamic_real_1"], frame["price"], rtol=1e-6)


@pytest.mark.parametrize("freq", ["h", "15min", "D", "2D", "W-WED", "MS", "ME", "QS-FEB", "YE-JUN"])
def test_a_wide_frame_of_any_frequency_there_and_back(freq):
    stamps = pd.date_range("2024-01-01", periods=12, freq=freq)
    frame = pd.DataFrame({"a": np.arange(12.0), "b": 5.0}, index=stamps)
    made = to_train_datasets(
        frame, FrameSchema(), freq=freq, prediction_length=3, test=slice(9, 12)
    )
    assert [entry["item_id"] for entry in made.test] == ["a", "b"]
    assert [len(entry["target"]) for entry in made.train] == [9, 9]
    back = gluonts_to_long_frame(made.test, freq).pivot(
        index="timestamp", columns="item_id", values="target"
    )
    pd.testing.assert_frame_equal(
        back, frame, check_freq=False, check_names=False, check_index_type=False
    )
    # As GluonTS reads a file that says so.
    assert made.test[0]["start"] == pd.Period(stamps[0], made.metadata.freq)


def test_integer_time_there_and_back():
    frame = pd.DataFrame(
        {"item_id": ["a"] * 4, "timestamp": [3, 5, 7, 9], "target": [1.0, 2.0, 3.0, 4.0]}
    )
    made = to_train_datasets(
        frame, FrameSchema(), freq=2, prediction_length=1, test=slice(-1, None)
    )
    assert made.test[0]["start"] == pd.Period("1970-01-04", "2D")
    pd.testing.assert_frame_equal(gluonts_to_long_frame(made.test, 2), frame)


def test_the_test_ends_where_its_split_does():
    frame = pd.DataFrame({"a": np.arange(12.0)}, index=pd.date_range("2024", periods=12, freq="D"))
    made = to_train_datasets(frame, FrameSchema(), freq="D", prediction_length=2, test=slice(6, 10))
    assert [len(part[0]["target"]) for part in (made.train, made.test)] == [6, 10]


def test_a_missing_category_has_a_number_of_its_own():
    frame = shops()
    frame.loc[frame["item_id"] == "y", "region"] = None
    schema = FrameSchema(target="target", static_covariates=("region",))
    made = to_train_datasets(frame, schema, freq="D", prediction_length=1, test=slice(-1, None))
    assert [int(entry["feat_static_cat"][0]) for entry in made.test] == [0, 1]
    assert made.metadata.feat_static_cat[0].cardinality == "2"


def test_a_synthetic_panel_there_and_back():
    data = make_synthetic(num_series=3, length=200, missing_rate=0.1, seed=1)
    names = [name for name in data.frame.columns if name not in ("temperature", "holiday")]
    schema = FrameSchema(target=tuple(names), known_covariates=("temperature", "holiday"))
    made = to_train_datasets(
        data.frame, schema, freq="h", prediction_length=24, test=slice(-24, None)
    )
    back = gluonts_to_long_frame(made.test)
    for name, rows in back.groupby("item_id"):
        np.testing.assert_array_equal(rows["target"], data.frame[name])
        np.testing.assert_array_equal(rows["feat_dynamic_real_0"], data.frame["temperature"])
    assert all(one["start"] == other["start"] for one, other in pairwise(made.test))
