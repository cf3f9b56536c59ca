"""Frames of every form and kind of time, from fit to forecast."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal, assert_index_equal, assert_series_equal

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from mlrforecast.estimators import _fitting as module
from tests.estimators.frames import CONTEXT, PREDICTION, TINY, long, wide


@pytest.fixture(scope="module")
def expected(on_wide: MLRForecaster) -> np.ndarray:
    return on_wide.predict().to_numpy()


class TestArrays:
    def test_of_two_axes(self) -> None:
        values = wide().to_numpy()
        fitted = MLRForecaster(**TINY).fit(values)
        assert fitted.freq_ == 1
        forecast = fitted.predict()
        assert isinstance(forecast, np.ndarray)
        assert forecast.shape == (PREDICTION, 2)
        np.testing.assert_array_equal(fitted.predict(values), forecast)
        levels = fitted.predict(quantile_levels=[0.1, 0.5, 0.9])
        assert levels.shape == (PREDICTION, 2, 3)
        np.testing.assert_array_equal(levels[..., 1], forecast)

    def test_of_one_axis(self) -> None:
        fitted = MLRForecaster(**TINY).fit(wide()["a"].to_numpy())
        assert fitted.predict().shape == (PREDICTION,)
        assert fitted.predict(quantile_levels=[0.1, 0.9]).shape == (PREDICTION, 2)
        assert fitted.predict(wide().to_numpy()).shape == (PREDICTION, 2)

    def test_without_a_calendar_they_are_forecast_as_frames_are(self) -> None:
        plain = TINY | {"calendar": False, "season_length": 24}
        on_array = MLRForecaster(**plain).fit(wide().to_numpy())
        np.testing.assert_array_equal(
            on_array.predict(), MLRForecaster(**plain).fit(wide()).predict()
        )
        assert on_array.encoding_.cycles == ()

    def test_they_are_left_alone(self) -> None:
        values = wide().to_numpy()
        values.setflags(write=False)
        copy = values.copy()
        fitted = MLRForecaster(**TINY).fit(values)
        fitted.predict(values), fitted.backtest(values, step=1), fitted.check_leakage(values)
        np.testing.assert_array_equal(values, copy)

    def test_rolling_cutoffs_are_row_numbers(self) -> None:
        fitted = MLRForecaster(**TINY).fit(wide().to_numpy())
        rolled = fitted.backtest(wide().to_numpy(), step=10)
        assert list(rolled.cutoffs) == list(range(CONTEXT - 1, 120 - PREDICTION, 10))


def test_a_series_comes_back_as_one(on_wide: MLRForecaster) -> None:
    forecast = on_wide.predict(wide()["a"])
    assert_series_equal(forecast, on_wide.predict()["a"], rtol=1e-5, atol=1e-6, check_freq=False)
    with_levels = on_wide.predict(wide()["a"], quantile_levels=[0.9])
    assert list(with_levels.columns) == ["point", "0.9"]


@pytest.mark.parametrize(
    ("index", "ahead"),
    [
        (pd.RangeIndex(120), range(120, 126)),
        (pd.Index(range(0, 600, 5)), range(600, 630, 5)),
        (pd.Index(range(1905, 2025), name="year"), range(2025, 2031)),
    ],
    ids=["0, 1, ...", "0, 5, ...", "years"],
)
def test_integer_time_goes_on(index: pd.Index, ahead: range) -> None:
    fitted = MLRForecaster(**TINY).fit(wide().set_axis(index))
    forecast = fitted.predict()
    assert list(forecast.index) == list(ahead)
    assert forecast.index.name == index.name
    assert fitted.freq_ == ahead.step
    assert fitted.season_length_ == 1
    assert np.isfinite(fitted.score(wide().set_axis(index)))


def test_time_in_a_column(on_wide: MLRForecaster, expected: np.ndarray) -> None:
    for frame in (wide().reset_index(), wide().reset_index().astype({"date": str})):
        forecast = on_wide.predict(frame, quantile_levels=[0.9])
        assert list(forecast.columns) == ["date", "a", "a_0.9", "b", "b_0.9"]
        np.testing.assert_array_equal(forecast[["a", "b"]], expected)
        assert list(forecast["date"]) == list(on_wide.predict().index)


def test_periods(on_wide: MLRForecaster, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(on_wide.predict(wide().to_period("h")), expected)


def test_items_and_time_in_the_index(on_long: MLRForecaster) -> None:
    indexed = long().set_index(["item_id", "timestamp"])
    forecast = on_long.predict(indexed)
    assert_frame_equal(forecast.reset_index(), on_long.predict())


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_frames_of_other_libraries(library: str) -> None:
    pytest.importorskip(library)
    made = {
        "polars": lambda f: pytest.importorskip("polars").from_pandas(f),
        "pyarrow": lambda f: pytest.importorskip("pyarrow").Table.from_pandas(f),
    }[library]
    frame = made(long())
    fitted = MLRForecaster(**TINY).fit(frame)
    forecast = fitted.predict(quantile_levels=[0.9])
    assert type(forecast) is type(frame)
    expected = MLRForecaster(**TINY).fit(long()).predict(quantile_levels=[0.9])
    for name in expected:
        found = forecast[name].to_pylist() if library == "pyarrow" else forecast[name].to_list()
        assert found == expected[name].tolist()


class TestSummerTime:
    # Both changes of the clock in 2024: in the history, and in the forecast.
    STARTS = ("2024-03-29 05:00", "2024-03-26 03:00", "2024-10-25 05:00", "2024-10-22 03:00")

    @pytest.mark.parametrize("start", STARTS)
    @pytest.mark.parametrize("freq", ["h", "15min"])
    def test_steps_of_the_clock(self, start: str, freq: str) -> None:
        whole = wide(120 + PREDICTION, freq=freq)
        index = pd.date_range(start, periods=len(whole), freq=freq, tz="Europe/Berlin")
        frame = whole.set_axis(index)
        fitted = MLRForecaster(**TINY).fit(frame[:-PREDICTION])
        assert fitted.freq_ == freq
        assert_index_equal(fitted.predict().index, index[-PREDICTION:])
        roll = fitted.backtest(frame, step=1)
        assert roll.cutoffs[-1] == index[-PREDICTION - 1]
        assert str(roll.cutoffs.tz) == "Europe/Berlin"

    @pytest.mark.parametrize("freq", ["D", "W-SUN", "MS"])
    def test_days_begin_at_local_midnight(self, freq: str) -> None:
        index = pd.date_range("2023-11-05", periods=60, freq=freq, tz="Europe/Berlin")
        fitted = MLRForecaster(**TINY).fit(wide(60).set_axis(index)[:-PREDICTION])
        forecast = fitted.predict()
        assert_index_equal(forecast.index, index[-PREDICTION:])
        assert set(forecast.index.hour) == {0}

    def test_known_covariates_across_a_change(self) -> None:
        index = pd.date_range("2024-10-22 03:00", periods=126, freq="h", tz="Europe/Berlin")
        frame = wide(126).set_axis(index)
        fitted = MLRForecaster(**TINY, target="a", known_covariates=["b"]).fit(frame[:120])
        assert_index_equal(fitted.predict(future=frame[120:]).index, index[120:])
        with pytest.raises(DataError, match="zone"):
            fitted.predict(future=frame[120:].tz_localize(None))


class TestScaling:
    def test_kinds_differ_and_all_are_finite(self) -> None:
        frame = wide().assign(spikes=np.where(np.arange(120) % 17 == 3, 1e6, wide()["a"]))
        forecasts = {}
        for scaling in ("standard", "robust", "mean_abs"):
            fitted = MLRForecaster(**TINY, scaling=scaling).fit(frame)
            assert fitted.config_.scaling == scaling
            forecasts[scaling] = fitted.predict().to_numpy()
            assert np.isfinite(forecasts[scaling]).all()
        for one, other in (("standard", "robust"), ("robust", "mean_abs")):
            assert not np.allclose(forecasts[one], forecasts[other])

    @pytest.mark.parametrize("scaling", ["standard", "robust", "mean_abs"])
    def test_the_network_is_given_what_it_would_make_of_plain_values(self, scaling: str) -> None:
        frame = (wide() + 3.0).astype("float32")
        fitted = MLRForecaster(**TINY, scaling=scaling, calendar=False).fit(frame)
        context = torch.tensor(frame.to_numpy()[None, -CONTEXT:])
        with torch.no_grad():
            point, _ = fitted.model_(context)
        np.testing.assert_allclose(fitted.predict(), point[0], rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize(
        ("scaling", "centre", "spread"),
        [
            ("standard", np.mean, np.std),
            ("robust", np.median, lambda x: np.diff(np.quantile(x, [0.25, 0.75]))[0] / 1.349),
            ("mean_abs", lambda x: 0.0, lambda x: np.mean(np.abs(x))),
        ],
    )
    def test_series_are_trained_on_in_its_unit(
        self, scaling: str, centre: Any, spread: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stores: list[Any] = []

        def record(model: Any, store: Any, options: Any, *, validation: Any, **_: Any) -> int:
            stores.append(store)
            return 1

        monkeypatch.setattr(module, "train", record)
        MLRForecaster(**TINY, scaling=scaling).fit(wide()["b"])
        values = wide()["b"].to_numpy()
        expected = (values - centre(values)) / spread(values)
        np.testing.assert_allclose(stores[0].buffer, expected, rtol=1e-3, atol=1e-3)

    def test_spikes_do_not_move_the_robust_scale(self) -> None:
        spiky = wide().assign(a=np.where(np.arange(120) == 110, 1e5, wide()["a"]))
        spread = {}
        # The linear map reads the spike itself, however it is scaled.
        options = TINY | {"linear_share": 0.0}
        for scaling in ("standard", "robust"):
            fitted = MLRForecaster(**options, scaling=scaling).fit(wide())
            change = fitted.predict(spiky) - fitted.predict()
            spread[scaling] = change["a"].abs().max()
        assert spread["robust"] < 0.1 * spread["standard"]

    @pytest.mark.parametrize("scaling", ["standard", "robust", "mean_abs"])
    @pytest.mark.parametrize("size", [1e-9, 1e12])
    def test_units_do_not_matter(self, scaling: str, size: float) -> None:
        fitted = MLRForecaster(**TINY, scaling=scaling).fit(wide())
        forecast = fitted.predict(size * wide())
        np.testing.assert_allclose(forecast, size * fitted.predict(), rtol=1e-4, atol=1e-5 * size)

    @pytest.mark.parametrize("value", [0.0, 0.1, -7e11])
    @pytest.mark.parametrize("scaling", ["standard", "robust"])
    def test_a_constant_stays_constant(self, scaling: str, value: float) -> None:
        fitted = MLRForecaster(**TINY, scaling=scaling).fit(wide())
        forecast = fitted.predict(wide().assign(a=value))
        np.testing.assert_allclose(forecast["a"], value, rtol=1e-12)

    def test_of_zeros_by_their_size_come_zeros(self) -> None:
        fitted = MLRForecaster(**TINY, scaling="mean_abs").fit(wide())
        assert (fitted.predict(wide().assign(a=0.0))["a"] == 0.0).all()


class TestShortSeries:
    def test_they_are_trained_on_beside_long_ones(self) -> None:
        frame = long(("z", "b", "m", "q"), (80, 2, 9, CONTEXT))
        fitted = MLRForecaster(**TINY).fit(frame)
        forecast = fitted.predict(quantile_levels=[0.1])
        assert np.isfinite(forecast.select_dtypes("number").to_numpy()).all()
        assert list(forecast["item_id"].unique()) == ["z", "b", "m", "q"]

    def test_all_may_be_short(self) -> None:
        fitted = MLRForecaster(**TINY).fit(long(rows=(2, 3, 5)))
        assert np.isfinite(fitted.predict()["target"]).all()

    def test_a_series_of_one_row_is_named(self) -> None:
        frame = long(("z", "b", "m", "q"), (80, 1, 70, 1))
        with pytest.raises(DataError, match=r"series 'b' has 1 \(2 of 4 series are too short\)"):
            MLRForecaster(**TINY).fit(frame)


class TestGapsAndIrregularStamps:
    def test_what_the_error_proposes_works(self) -> None:
        frame = wide().drop(wide().index[[50, 51]])
        with pytest.raises(DataError, match="fill='missing'"):
            MLRForecaster(**TINY).fit(frame)
        filled = MLRForecaster(**TINY, fill="missing").fit(frame)
        whole = wide()
        whole.iloc[50:52] = np.nan
        assert_frame_equal(filled.predict(), MLRForecaster(**TINY).fit(whole).predict())
        assert_frame_equal(filled.predict(frame), filled.predict(whole))

    def test_resampling(self) -> None:
        index = wide(480, freq="15min").index + pd.to_timedelta(np.arange(480) % 7, unit="s")
        frame = wide(480).set_axis(index)
        with pytest.raises(DataError, match="resample="):
            MLRForecaster(**TINY).fit(frame)
        fitted = MLRForecaster(**TINY, resample="mean", freq="h").fit(frame)
        means = frame.resample("h").mean()
        assert_frame_equal(fitted.predict(), MLRForecaster(**TINY).fit(means).predict())
        assert fitted.freq_ == "h"


def test_a_target_leaves_the_other_columns_out(on_wide: MLRForecaster) -> None:
    frame = wide().assign(note="text", b=wide()["b"])[["note", "b", "a"]]
    fitted = MLRForecaster(**TINY, target=["a", "b"]).fit(frame)
    assert_frame_equal(fitted.predict(), on_wide.predict())
    assert list(MLRForecaster(**TINY, target="b").fit(frame).predict().columns) == ["b"]


def test_ids_like_numbers_stay_text_in_the_order_of_the_frame(on_long: MLRForecaster) -> None:
    frame = long(("000858", "2", "0858")).sample(frac=1, random_state=1)
    forecast = on_long.predict(frame)
    assert list(forecast["item_id"].unique()) == list(frame["item_id"].unique())
    assert list(on_long.backtest(frame, step=500).item_ids) == list(frame["item_id"].unique())
