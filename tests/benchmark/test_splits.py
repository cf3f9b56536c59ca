"""Which rows are learnt from and scored, and the errors over all windows."""

import numpy as np
import pandas as pd
import pytest

from mlrforecast.benchmark import _splits

ETT = {"train": range(8640), "validation": range(8640, 11520), "test": range(11520, 14400)}


def test_folds_are_those_of_the_protocol():
    folds = _splits.make_splits(ETT, final=False)
    assert [(s.name, s.train, s.scored) for s in folds] == [
        ("fold1", range(5760), range(5760, 8640)),
        ("fold2", range(7200), range(7200, 10080)),
        ("fold3", range(8640), range(8640, 11520)),
    ]
    assert all(split.validation == split.scored for split in folds)


def test_folds_never_touch_a_test_row():
    for split in _splits.make_splits(ETT, final=False):
        assert max(split.train.stop, split.scored.stop, split.validation.stop) <= 11520
        assert split.train.stop <= split.scored.start


def test_final_is_the_standard_split():
    (split,) = _splits.make_splits(ETT, final=True)
    assert (split.name, split.train, split.scored) == ("test", range(8640), range(11520, 14400))
    assert split.validation == range(8640, 11520)


def test_full_window_counts():
    counts = [_splits.num_windows(ETT["test"], horizon) for horizon in (96, 192, 336, 720)]
    assert counts == [2785, 2689, 2545, 2161]
    with pytest.raises(ValueError, match=r"`horizons` must be at most 2880.*got 2881"):
        _splits.num_windows(ETT["test"], 2881)


def test_windows_are_views_of_the_right_rows():
    values = np.arange(100.0).reshape(50, 2)
    scored, horizon, length = range(30, 44), 5, 7
    future = _splits.future_windows(values, scored, horizon)
    past = _splits.past_windows(values, scored, horizon, length)
    assert future.shape == (10, 5, 2)
    assert past.shape == (10, 7, 2)
    for window in range(10):
        cut = 30 + window
        np.testing.assert_array_equal(future[window], values[cut : cut + 5])
        np.testing.assert_array_equal(past[window], values[cut - 7 : cut])
    assert np.shares_memory(future, values)
    assert np.shares_memory(past, values)
    with pytest.raises(ValueError, match=r"`context_length` must be at most 30.*got 31"):
        _splits.past_windows(values, scored, horizon, 31)


def test_the_scaler_reads_train_rows_only():
    frame = pd.DataFrame({"a": [1.0, 3.0, np.nan, 1e9], "b": [5.0, 5.0, 5.0, 7.0]})
    scaled = _splits.standardise(frame, range(3))
    np.testing.assert_array_equal(scaled["a"][:2], [-1.0, 1.0])
    np.testing.assert_array_equal(scaled["b"], [0.0, 0.0, 0.0, 2.0])


@pytest.mark.parametrize("windows", [1, 128, 129, 300])
def test_errors_in_pieces_are_the_errors_of_the_whole(windows):
    rng = np.random.default_rng(windows)
    actual = rng.normal(size=(windows, 3, 2))
    actual[rng.random(actual.shape) < 0.3] = np.nan
    actual[:128, 1:] = np.nan
    forecast = rng.normal(size=actual.shape)
    found = _splits.mean_errors(actual, lambda rows: forecast[rows])
    assert found.mse == pytest.approx(np.nanmean((actual - forecast) ** 2), abs=1e-14)
    assert found.mae == pytest.approx(np.nanmean(abs(actual - forecast)), abs=1e-14)
    with np.errstate(invalid="ignore"):
        seen = (~np.isnan(actual)).sum(axis=(0, 2))
        by_step = np.nansum((actual - forecast) ** 2, axis=(0, 2)) / seen
    np.testing.assert_allclose(found.mse_by_step, by_step, atol=1e-14)
    assert np.isnan(found.mse_by_step[2]) == (windows <= 128)
    with pytest.raises(ValueError, match="no observed value"):
        _splits.mean_errors(actual * np.nan, lambda rows: forecast[rows])


def test_a_forecast_that_is_no_number_is_seen():
    actual = np.zeros((3, 2, 1))
    forecast = np.zeros_like(actual)
    forecast[1, 1, 0] = np.nan
    found = _splits.mean_errors(actual, lambda rows: forecast[rows])
    assert np.isnan([found.mse, found.mae, found.mse_by_step[1]]).all()
    assert found.mse_by_step[0] == 0
