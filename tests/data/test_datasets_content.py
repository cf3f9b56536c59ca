"""The embedded data set, and the real files where they are at hand."""

import dataclasses
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data import TimeSeriesDataset, load_dataset


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
    assert len(text.splitlines()) == 6


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("target_columns", ("OT",), r"frame lacks the columns \['OT'\]"),
        ("splits", {"train": range(5)}, r"splits lack \['validation', 'test'\]"),
        (
            "splits",
            {"train": range(5), "validation": range(5, 9), "test": range(9, 2000)},
            "split 'test' must be a range of the 1344 rows",
        ),
    ],
)
def test_a_data_set_that_contradicts_itself_is_refused(field, value, message):
    dataset = load_dataset("synthetic")
    with pytest.raises(DataError, match=message):
        dataclasses.replace(dataset, **{field: value})


def test_embedded_set_loads_without_pooch():
    code = (
        "import sys; from mlrforecast.data.datasets import load_dataset; load_dataset('synthetic');"
        "print(sorted({'pooch', 'requests', 'gluonts'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


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
