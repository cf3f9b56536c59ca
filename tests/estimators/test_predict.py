"""Forecasts come back in the form that was given, with ordered quantiles."""

import time
import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal, assert_index_equal
from scipy.stats import norm

from mlrforecast import MLRForecaster
from tests.estimators.frames import CONTEXT, PREDICTION, TINY, long, wide

LEVELS = tuple(number / 10 for number in range(1, 10))


class TestWideForm:
    @pytest.mark.parametrize("columns", [(0, 1), ("0.9", "point"), (("x", 1), "b"), (1.5, "item")])
    def test_names_of_columns_are_kept(self, on_wide: MLRForecaster, columns: Any) -> None:
        frame = wide()
        frame.columns = pd.Index(list(columns), tupleize_cols=False, name="sensor")
        forecast = on_wide.predict(frame)
        assert_index_equal(forecast.columns, frame.columns)
        assert forecast.index.name == "date"
        with_levels = on_wide.predict(frame, quantile_levels=[0.9])
        assert list(with_levels.columns) == [(n, k) for n in columns for k in ("point", "0.9")]
        assert with_levels.columns.names == ["sensor", None]

    def test_columns_of_several_levels_get_one_more(self, on_wide: MLRForecaster) -> None:
        frame = wide()
        frame.columns = pd.MultiIndex.from_tuples([("x", "a"), ("y", "b")], names=["p", "q"])
        assert_index_equal(on_wide.predict(frame).columns, frame.columns)
        forecast = on_wide.predict(frame, quantile_levels=[0.1])
        assert forecast.columns.names == ["p", "q", None]
        np.testing.assert_array_equal(forecast["y"]["b"]["point"], on_wide.predict()["b"])

    def test_levels_are_below_each_column(self, on_wide: MLRForecaster) -> None:
        forecast = on_wide.predict(quantile_levels=(0.9, 0.1))
        assert list(forecast["a"].columns) == ["point", "0.9", "0.1"]
        assert (forecast["a"]["0.9"] > forecast["a"]["0.1"]).all()
        np.testing.assert_array_equal(forecast.xs("point", axis=1, level=1), on_wide.predict())

    @pytest.mark.parametrize(
        ("freq", "rows"), [("h", 60), ("30min", 60), ("ME", 60), ("QS-OCT", 60), ("B", 60)]
    )
    def test_stamps_go_on_in_every_frequency(self, freq: str, rows: int) -> None:
        fitted = MLRForecaster(**TINY).fit(wide(rows, freq=freq))
        expected = wide(rows + PREDICTION, freq=freq).index[-PREDICTION:]
        assert_index_equal(fitted.predict().index, expected)
        assert fitted.predict().index.freqstr == freq

    @pytest.mark.parametrize("zone", ["Europe/Paris", "UTC", "+05:30"])
    def test_time_zones_are_kept_over_a_change_of_the_clock(
        self, on_wide: MLRForecaster, zone: str
    ) -> None:
        frame = wide()
        frame.index = pd.date_range("2024-03-26 03:00", periods=120, freq="h", tz=zone, name="date")
        forecast = on_wide.predict(frame)
        expected = pd.date_range(frame.index[0], periods=126, freq="h", name="date")[-6:]
        assert_index_equal(forecast.index, expected)
        assert str(forecast.index.tz) == str(frame.index.tz)

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    def test_units_of_stamps_are_kept(self, on_wide: MLRForecaster, unit: str) -> None:
        frame = wide()
        frame.index = frame.index.as_unit(unit)
        assert on_wide.predict(frame).index.unit == unit

    @pytest.mark.parametrize("dtype", ["float32", "int64", "Int64", "Float32", "uint8"])
    def test_numbers_of_every_kind_are_read(self, on_wide: MLRForecaster, dtype: str) -> None:
        frame = wide().round().abs()
        forecast = on_wide.predict(frame.astype(dtype))
        assert_frame_equal(forecast, on_wide.predict(frame.astype(float)))


class TestLongForm:
    @pytest.mark.parametrize(
        ("ids", "dtype"),
        [
            (("z", "b", "m"), "str"),
            (("z", "b", "m"), "object"),
            (("z", "b", "m"), pd.CategoricalDtype(["b", "m", "unused", "z"])),
            ((3, 1, 2), "int64"),
            ((3, 1, 2), "int8"),
            ((2.5, 1.5, 0.5), "float64"),
        ],
        ids=str,
    )
    def test_ids_keep_their_order_and_dtype(
        self, on_long: MLRForecaster, ids: Any, dtype: Any
    ) -> None:
        frame = long(ids=ids).astype({"item_id": dtype})
        fitted = MLRForecaster(**TINY).fit(frame)
        for forecast in (fitted.predict(), on_long.predict(frame)):
            assert forecast["item_id"].dtype == frame["item_id"].dtype
            assert list(forecast["item_id"].unique()) == list(ids)

    def test_levels_are_columns(self, on_long: MLRForecaster) -> None:
        forecast = on_long.predict(quantile_levels=(0.25, 0.9))
        assert list(forecast.columns) == ["item_id", "timestamp", "target", "0.25", "0.9"]
        assert_frame_equal(forecast.iloc[:, :3], on_long.predict())
        assert (forecast["0.25"] < forecast["target"]).all()

    def test_one_item_equals_the_wide_form(self, on_wide: MLRForecaster) -> None:
        values = wide()["a"]
        frame = pd.DataFrame({"unique_id": 7, "ds": values.index, "y": values.to_numpy()})
        forecast = on_wide.predict(frame)
        np.testing.assert_allclose(forecast["y"], on_wide.predict()["a"], rtol=1e-5, atol=1e-6)
        assert list(forecast["ds"]) == list(on_wide.predict().index)

    def test_zones_and_units_of_stamps_are_kept(self, on_long: MLRForecaster) -> None:
        frame = long()
        frame["timestamp"] = frame["timestamp"].dt.tz_localize("Asia/Kolkata").dt.as_unit("ms")
        assert on_long.predict(frame)["timestamp"].dtype == frame["timestamp"].dtype

    def test_thousands_of_series_in_seconds(self, on_long: MLRForecaster) -> None:
        frame = pd.DataFrame(
            {
                "item_id": np.repeat(np.arange(2000), 60),
                "timestamp": np.tile(pd.date_range("2024", periods=60, freq="h"), 2000),
                "target": np.random.default_rng(0).normal(size=120_000),
            }
        )
        started = time.perf_counter()
        forecast = on_long.predict(frame, quantile_levels=[0.1, 0.9])
        assert time.perf_counter() - started < 10
        assert forecast.shape == (2000 * PREDICTION, 5)
        assert np.isfinite(forecast["target"]).all()


class TestQuantiles:
    def test_trained_levels_rise_and_the_median_is_the_point(self, on_wide: MLRForecaster) -> None:
        forecast = on_wide.predict(quantile_levels=LEVELS)
        for name in ("a", "b"):
            values = forecast[name].to_numpy()
            assert (np.diff(values[:, 1:], axis=1) > 0).all()
            np.testing.assert_array_equal(forecast[name]["0.5"], forecast[name]["point"])

    def test_levels_between_are_interpolated(self, on_wide: MLRForecaster) -> None:
        forecast = on_wide.predict(quantile_levels=(0.1, 0.125, 0.2, 0.85, 0.8, 0.9))["b"]
        for level, below, above in (("0.125", "0.1", "0.2"), ("0.85", "0.8", "0.9")):
            low, middle, high = norm.ppf([float(below), float(level), float(above)])
            share = (middle - low) / (high - low)
            expected = (1 - share) * forecast[below] + share * forecast[above]
            np.testing.assert_allclose(forecast[level], expected)

    def test_levels_of_any_type(self, on_wide: MLRForecaster) -> None:
        expected = on_wide.predict(quantile_levels=(0.1, 0.9))
        for levels in (
            [1 - 0.9, 0.9],
            np.array([0.1, 0.9], dtype=np.float32),
            pd.Series([0.1, 0.9]),
        ):
            assert_frame_equal(on_wide.predict(quantile_levels=levels), expected)

    @pytest.mark.parametrize(
        ("levels", "error", "message"),
        [
            ((0.0,), ValueError, r"in \(0, 1\), to 6 decimals, got \(0.0,\)"),
            ((0.5, 1.0), ValueError, r"got \(0.5, 1.0\)"),
            ((0.5, 0.5), ValueError, "must be different levels"),
            ((), ValueError, r"got \(\)"),
            ((float("nan"),), ValueError, "nan"),
            (0.9, TypeError, r"must be a sequence such as \(0.1, 0.9\), got 0.9"),
            ("0.9", TypeError, "must be a sequence"),
            (("0.9",), TypeError, "must be numbers, got '0.9'"),
        ],
    )
    def test_levels_that_cannot_be_had(
        self, on_wide: MLRForecaster, levels: Any, error: type, message: str
    ) -> None:
        for call in (on_wide.predict, on_wide.backtest, on_wide.plot):
            with pytest.raises(error, match=f"`quantile_levels`.*{message}"):
                call(wide(), quantile_levels=levels)

    @pytest.mark.parametrize("loss", ["mae", "mse"])
    def test_a_point_loss_has_none(self, loss: str) -> None:
        fitted = MLRForecaster(**TINY, loss=loss).fit(wide())
        with pytest.raises(ValueError, match=f"loss='{loss}' forecasts a point only.*`calibrate`"):
            fitted.predict(quantile_levels=[0.5])


def test_many_columns_are_forecast_like_few(on_wide: MLRForecaster) -> None:
    frame = wide(60, [f"c{number}" for number in range(700)])
    few = on_wide.predict(frame.iloc[:, ::100], quantile_levels=[0.1])
    every = on_wide.predict(frame, quantile_levels=[0.1])
    np.testing.assert_allclose(every[few.columns], few, rtol=1e-5, atol=1e-5)


def test_the_frame_of_fit_can_be_freed() -> None:
    fitted = MLRForecaster(**TINY).fit(wide(5000))
    for array in (fitted.context_.values, fitted.context_.index.asi8):
        while array.base is not None and isinstance(array.base, np.ndarray):
            array = array.base
        assert len(array) == CONTEXT


def test_rolling_over_a_long_frame_copies_no_windows(on_wide: MLRForecaster) -> None:
    frame = wide(20_000, "a")
    on_wide.backtest(frame.iloc[:1000], step=1)
    tracemalloc.start()
    rolled = on_wide.backtest(frame, step=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    windows = len(rolled.cutoffs)
    assert windows == (20_000 - CONTEXT - PREDICTION) // 2 + 1
    # Point forecasts, actual values and cutoffs; with the contexts it would be twice as much.
    assert peak < 10 * windows * CONTEXT
