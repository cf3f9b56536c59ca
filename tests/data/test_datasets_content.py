"""The embedded data set, and the real files where they are at hand."""

import dataclasses
import subprocess
import sys

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from mlrforecast._core.errors import DataError
from mlrforecast.data import (
    FrameSchema,
    TimeSeriesDataset,
    load_card,
    load_dataset,
    read_panel,
)


def test_standardised_leaves_missing_values_out():
    dataset = load_dataset("synthetic")
    scaled, train = dataset.standardised(), dataset.train

    assert scaled.isna().equals(dataset.targets.isna())
    assert train.isna().to_numpy().any()
    for column in train:
        seen = train[column].dropna().to_numpy()
        expected = (dataset.targets[column] - seen.mean()) / seen.std()
        np.testing.assert_allclose(scaled[column], expected, rtol=1e-9)


def test_embedded_default_is_ready_to_train_on():
    dataset = load_dataset("synthetic")

    assert dataset.frame.shape == (1344, 5)
    assert (dataset.season_length, dataset.prediction_length) == (24, 24)
    assert (dataset.past_covariates, dataset.known_covariates) == (("temperature",), ("holiday",))
    assert dataset.covariate_columns == ("temperature", "holiday")
    assert list(dataset.covariates.columns) == ["temperature", "holiday"]
    assert len(dataset.test) == len(dataset.validation) == 7 * 24
    assert dataset.test.index[-1] == dataset.frame.index[-1]
    seasonal_error = dataset.test.diff(24).abs().mean()
    spread = (dataset.test - dataset.test.mean()).abs().mean()
    assert (seasonal_error < spread).all(), "worth forecasting: yesterday beats the mean"


def test_every_call_gives_a_frame_of_its_own():
    first, second = load_dataset("synthetic"), load_dataset("synthetic")
    first.frame.iloc[:, :] = 0
    assert second.frame["load_1"].max() > 0


def test_text_forms_are_short():
    dataset = load_dataset("synthetic")

    assert repr(dataset) == "TimeSeriesDataset('synthetic': 1344 rows x 3 targets, freq 'h')"
    text = dataset.describe()
    assert "test 1176..1343" in text
    assert "covariates: temperature, holiday" in text
    assert "licence: MIT" in text
    assert "step 'h', season 24 rows, horizon 24 rows" in text
    assert "source: mlrforecast.data.make_synthetic" in text
    assert len(text.splitlines()) == 8


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("target_columns", ("OT",), r"frame lacks the columns \['OT'\]"),
        ("known_covariates", ("rain",), r"frame lacks the columns \['rain'\]"),
        ("splits", {"train": slice(0, 5)}, r"splits lack \['test'\]"),
        (
            "splits",
            {"train": slice(0, 5), "test": slice(9, 2000)},
            r"split 'test' must be a slice of the 1344 rows, got slice\(9, 2000, None\)",
        ),
        (
            "splits",
            {"train": slice(None, -1344), "test": slice(-1344, None)},
            "split 'train' must be a slice of the 1344 rows",
        ),
    ],
)
def test_a_data_set_that_contradicts_itself_is_refused(field, value, message):
    dataset = load_dataset("synthetic")
    with pytest.raises(DataError, match=message):
        dataclasses.replace(dataset, **{field: value})


def test_embedded_set_loads_without_what_a_download_needs():
    code = (
        "import sys; from mlrforecast.data.datasets import load_dataset; load_dataset('synthetic');"
        "print(sorted({'requests', 'gluonts', 'matplotlib'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def panel(rows: dict[str, list[float]]) -> TimeSeriesDataset:
    """A long data set whose last two rows of each series are the test."""
    frame = pd.DataFrame(
        [(name, row, value) for name, values in rows.items() for row, value in enumerate(values)],
        columns=["item_id", "timestamp", "target"],
    )
    return TimeSeriesDataset(
        name="mine",
        frame=frame,
        freq=1,
        season_length=1,
        prediction_length=2,
        target_columns=("target",),
        past_covariates=(),
        known_covariates=(),
        static_covariates=(),
        splits={"train": slice(None, -2), "test": slice(-2, None)},
        card=load_card("m4:hourly"),
    )


def test_splits_of_a_long_frame_are_counted_in_each_series():
    dataset = panel({"b": [1.0, 2.0, 3.0], "a": [4.0, 5.0, 6.0, 8.0, 9.0]})

    assert dataset.lengths.to_dict() == {"b": 3, "a": 5}
    assert dataset.train["target"].tolist() == [1, 4, 5, 6]
    assert dataset.test["item_id"].tolist() == ["b", "b", "a", "a"]
    assert dataset.test["target"].tolist() == [2, 3, 8, 9]
    with pytest.raises(ValueError, match=r"`split` must be one of train, test .* got 'validation'"):
        dataset.validation  # noqa: B018
    assert repr(dataset) == "TimeSeriesDataset('mine': 8 rows of 2 series, freq 1)"
    text = dataset.describe()
    assert "8 rows of 2 series with 3 to 5 rows, 0 to 4" in text
    assert "train all but the last 2 of each series, test the last 2" in text


def test_a_split_can_have_the_rows_that_a_forecast_reads_before_it():
    dataset = panel({"b": [1.0, 2.0, 3.0], "a": [4.0, 5.0, 6.0, 8.0, 9.0]})
    rows = dataset.frame_of("test", context_length=2)
    # b has but one row before its test.
    assert rows["target"].tolist() == [1, 2, 3, 5, 6, 8, 9]
    wide = load_dataset("synthetic")
    assert wide.frame_of("test", context_length=5).index[5] == wide.test.index[0]
    assert len(wide.frame_of("train", context_length=5)) == len(wide.train)
    with pytest.raises(ValueError, match="`context_length` must be at least 0, got -1"):
        dataset.frame_of("test", context_length=-1)


def test_what_a_forecaster_must_be_told_is_said():
    assert panel({"a": [1.0, 2.0, 3.0]}).parameters() == {
        "prediction_length": 2,
        "season_length": 1,
        "past_covariates": (),
        "known_covariates": (),
        "static_covariates": (),
    }
    dataset = load_dataset("synthetic")
    assert dataset.parameters()["past_covariates"] == ("temperature",)
    rows = dataset.frame.drop(index=dataset.frame.index[7])
    assert (
        dataclasses.replace(
            dataset, frame=rows, splits={"train": slice(0, 1000), "test": slice(1000, 1343)}
        ).parameters()["fill"]
        == "missing"
    )


def test_a_long_frame_is_standardised_series_by_series():
    dataset = panel({"b": [1.0, 2.0, 3.0], "a": [4.0, 6.0, np.nan, 8.0, 9.0]})

    scaled = dataset.standardised()

    # b is constant in its one train row, and is only centred.
    expected = [0, 1, 2, -1, 1, np.nan, 3, 4]
    np.testing.assert_allclose(scaled["target"], expected)
    assert scaled[["item_id", "timestamp"]].equals(dataset.frame[["item_id", "timestamp"]])


def test_the_rows_of_a_series_must_stand_together():
    dataset = panel({"b": [1.0, 2.0, 3.0], "a": [4.0, 5.0, 6.0]})
    mixed = dataset.frame.sort_values(["timestamp", "item_id"])
    with pytest.raises(DataError, match="the rows of each series of frame must stand together"):
        dataclasses.replace(dataset, frame=mixed)


def test_a_series_must_have_room_for_the_test_rows():
    with pytest.raises(DataError, match="split 'train' must be a slice of the 2 rows of the short"):
        panel({"a": [1.0, 2.0], "b": [1.0, 2.0, 3.0]})


def test_pictures_show_the_splits():
    dataset = load_dataset("synthetic")
    axes = dataset.plot(items=["load_3", "load_1"])
    assert [axis.get_ylabel() for axis in axes] == ["load_3", "load_1"]
    shades = [patch for patch in axes[0].patches if patch.get_label() == "test"]
    (left, right) = dataset.test.index[[0, -1]]
    (drawn,) = shades
    assert drawn.get_x() == pytest.approx(mdates.date2num(left))
    assert drawn.get_width() == pytest.approx(mdates.date2num(right) - mdates.date2num(left))
    plt.close(axes[0].figure)
    with pytest.raises(ValueError, match=r"`items` must name series of data set .* got 'holiday'"):
        dataset.plot(items=["holiday"])

    long = panel({"b": [1.0, 2.0, 3.0], "a": [4.0, 5.0, 6.0, 8.0, 9.0]}).plot(max_items=1)
    np.testing.assert_array_equal(long[0].lines[0].get_ydata(), [1, 2, 3])
    assert long[0].get_xlabel() == "and 1 more, not drawn"
    plt.close(long[0].figure)
    with pytest.raises(ValueError, match="`max_items` must be at least 1, got 0"):
        dataset.plot(max_items=0)


# The real files.


@pytest.mark.shared
def test_real_etth1_has_the_published_statistics():
    dataset = load_dataset("ETTh1", download=False)

    assert isinstance(dataset, TimeSeriesDataset)
    assert dataset.frame.shape == (17420, 7)
    assert dataset.frame.index[0] == pd.Timestamp("2016-07-01 00:00")
    assert dataset.frame.index[-1] == pd.Timestamp("2018-06-26 19:00")
    assert not dataset.frame.isna().to_numpy().any()
    assert dataset.train["OT"].mean() == pytest.approx(17.1283, abs=5e-5)
    assert dataset.train["OT"].std(ddof=0) == pytest.approx(9.1765, abs=5e-5)
    for horizon, windows in {96: 2785, 192: 2689, 336: 2545, 720: 2161}.items():
        assert len(dataset.test) - horizon + 1 == windows


@pytest.mark.shared
def test_real_etth2_loads_and_is_another_series():
    first, second = (load_dataset(name, download=False) for name in ("ETTh1", "ETTh2"))
    assert second.frame.shape == (17420, 7)
    assert not np.allclose(first.frame, second.frame)


@pytest.mark.shared
def test_real_etth1_gives_the_published_repeat_last_score():
    """MSE and MAE of repeat-last at horizon 96 over all 2785 test windows."""
    dataset = load_dataset("ETTh1", download=False)
    values = dataset.standardised().to_numpy()
    test = dataset.splits["test"]
    windows = np.lib.stride_tricks.sliding_window_view(values[test.start : test.stop], 96, axis=0)
    last = values[test.start - 1 : test.stop - 96]

    error = windows - last[..., None]

    assert len(windows) == 2785
    assert np.mean(error**2) == pytest.approx(1.2944, abs=5e-5)
    assert np.mean(np.abs(error)) == pytest.approx(0.7132, abs=5e-5)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "series", "shortest", "longest", "freq"),
    [
        ("monash:m3_monthly", 1428, 66, 144, "MS"),
        ("monash:electricity_weekly", 321, 156, 156, "W-SUN"),
        ("monash:us_births", 1, 7305, 7305, "D"),
        ("m4:hourly", 414, 748, 1008, 1),
    ],
)
def test_real_panels_are_whole(name, series, shortest, longest, freq):
    dataset = load_dataset(name, download=False)
    lengths = dataset.lengths
    assert (len(lengths), lengths.min(), lengths.max()) == (series, shortest, longest)
    assert dataset.freq == freq
    assert len(dataset.test) == series * dataset.prediction_length
    assert len(dataset.train) + len(dataset.test) == len(dataset.frame)
    panel = read_panel(dataset.frame)
    assert panel.freq == freq, "an estimator reads the same step"
    assert len(panel) == series


@pytest.mark.shared
def test_attributes_of_a_monash_file_are_static_covariates():
    dataset = load_dataset("monash:vehicle_trips_without_missing", download=False)
    assert dataset.static_covariates == ("base_number", "base_name", "type")
    assert dataset.prediction_length == 30
    schema = FrameSchema(static_covariates=dataset.static_covariates)
    assert len(read_panel(dataset.frame, schema).static) == 3


@pytest.mark.shared
def test_exchange_rates_are_split_by_shares():
    dataset = load_dataset("exchange_rate", download=False)
    assert dataset.frame.shape == (7588, 8)
    sizes = [len(dataset.targets_of(name)) for name in ("train", "validation", "test")]
    assert sizes == [5311, 760, 1517]
