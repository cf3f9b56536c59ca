"""Sample paths, and horizons that are shorter or longer than the trained one."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from mlrforecast.estimators import _paths
from tests.estimators.frames import CONTEXT, PREDICTION, TINY, long, wide

LEVELS = [0.1, 0.5, 0.9]


def walk(rows: int = 400, columns: int = 3) -> pd.DataFrame:
    """Random walks."""
    steps = np.random.default_rng(1).normal(size=(rows, columns))
    return pd.DataFrame(
        steps.cumsum(axis=0), index=wide(rows).index, columns=list("abcdef")[:columns]
    )


@pytest.fixture(scope="module")
def on_walk() -> MLRForecaster:
    return MLRForecaster(**TINY | {"max_steps": 150, "learning_rate": 0.01}).fit(walk())


def covered(rows: int = 120) -> pd.DataFrame:
    """A long frame with a covariate that is known in advance."""
    frame = long(rows=(rows, rows, rows))
    return frame.assign(promo=np.arange(len(frame)) % 5.0)


@pytest.mark.parametrize("horizon", [1, 4, PREDICTION, np.int64(3)])
@pytest.mark.parametrize("levels", [None, LEVELS])
def test_a_shorter_forecast_is_the_start_of_the_same(
    on_wide: MLRForecaster, on_long: MLRForecaster, horizon: int, levels: Any
) -> None:
    whole = on_wide.predict(quantile_levels=levels)
    found = on_wide.predict(prediction_length=horizon, quantile_levels=levels)
    assert_frame_equal(found, whole[:horizon], check_exact=True)
    whole = on_long.predict(quantile_levels=levels)
    found = on_long.predict(prediction_length=horizon, quantile_levels=levels)
    expected = whole.groupby("item_id", sort=False).head(horizon).reset_index(drop=True)
    assert_frame_equal(found, expected, check_exact=True)


@pytest.mark.parametrize("levels", [None, LEVELS])
def test_longer_forecasts_begin_like_shorter_ones(on_wide: MLRForecaster, levels: Any) -> None:
    one, two, three, odd = (
        on_wide.predict(prediction_length=steps, quantile_levels=levels)
        for steps in (PREDICTION, 2 * PREDICTION, 3 * PREDICTION, PREDICTION + 2)
    )
    assert len(three) == 3 * PREDICTION
    assert (np.diff(three.index) == np.timedelta64(1, "h")).all()
    assert_frame_equal(two[:PREDICTION], one, check_freq=False)
    # The paths of two blocks are the first ones of three.
    assert_frame_equal(three[: 2 * PREDICTION], two, check_freq=False)
    assert_frame_equal(two[: PREDICTION + 2], odd, check_freq=False)
    if levels is not None:
        quantiles = three["a"][["0.1", "0.5", "0.9"]].to_numpy()
        assert (np.diff(quantiles, axis=-1) >= 0).all()


def test_longer_point_forecasts_read_those_before_them(on_wide: MLRForecaster) -> None:
    frame = wide()
    expected = []
    for _ in range(3):
        block = on_wide.predict(frame)
        expected.append(block)
        frame = pd.concat([frame, block])
    found = on_wide.predict(wide(), prediction_length=3 * PREDICTION)
    np.testing.assert_allclose(found, pd.concat(expected), rtol=1e-5, atol=1e-5)
    # Levels change no point forecast.
    again = on_wide.predict(wide(), prediction_length=3 * PREDICTION, quantile_levels=LEVELS)
    np.testing.assert_array_equal(again["b"]["point"], found["b"])


def test_quantiles_widen_as_uncertainty_adds_up(on_walk: MLRForecaster) -> None:
    found = on_walk.predict(prediction_length=5 * PREDICTION, quantile_levels=LEVELS)
    width = np.mean([found[name]["0.9"] - found[name]["0.1"] for name in "abc"], axis=0)
    blocks = width.reshape(5, PREDICTION).mean(axis=1)
    assert (blocks[1:] > blocks[0]).all()
    assert blocks[-1] > 1.3 * blocks[0]


@pytest.mark.parametrize("horizon", [PREDICTION, 2 * PREDICTION + 1])
def test_no_series_depends_on_another(
    on_long: MLRForecaster, horizon: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = long()
    options = {"prediction_length": horizon}
    levels = on_long.predict(frame, quantile_levels=LEVELS, **options)
    samples = on_long.predict_samples(frame, num_samples=5, **options)
    for item in "zbm":
        alone = frame[frame["item_id"] == item]
        for whole, part in (
            (levels, on_long.predict(alone, quantile_levels=LEVELS, **options)),
            (samples, on_long.predict_samples(alone, num_samples=5, **options)),
        ):
            expected = whole[whole["item_id"] == item].reset_index(drop=True)
            assert_frame_equal(part, expected, rtol=1e-4, atol=1e-4)
    # Nor on how many share the memory.
    monkeypatch.setattr(_paths, "BLOCK", 1)
    assert_frame_equal(
        on_long.predict(frame, quantile_levels=LEVELS, **options), levels, rtol=1e-4, atol=1e-4
    )


def test_no_column_depends_on_another(
    on_wide: MLRForecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = on_wide.predict(wide(), prediction_length=15, quantile_levels=LEVELS)
    alone = on_wide.predict(wide()[["b"]], prediction_length=15, quantile_levels=LEVELS)
    assert_frame_equal(alone["b"], whole["b"], rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(_paths, "BLOCK", 1)
    again = on_wide.predict(wide(), prediction_length=15, quantile_levels=LEVELS)
    assert_frame_equal(again, whole, rtol=1e-4, atol=1e-4)


def test_longer_forecasts_read_known_covariates_of_all_steps() -> None:
    whole = covered()
    known = whole.groupby("item_id", sort=False).cumcount() < 100
    past, future = whole[known], whole[~known]
    fitted = MLRForecaster(**TINY, known_covariates=["promo"]).fit(past)
    found = fitted.predict(past, future=future, prediction_length=20, quantile_levels=LEVELS)
    assert len(found) == 60
    changed = future.assign(
        promo=future["promo"] + 10 * (future.groupby("item_id").cumcount() > 12)
    )
    other = fitted.predict(past, future=changed, prediction_length=20)
    place = found.groupby("item_id").cumcount()
    same = place < 2 * PREDICTION
    np.testing.assert_allclose(other["target"][same], found["target"][same], rtol=1e-5)
    assert not np.allclose(other["target"][~same], found["target"][~same], rtol=1e-5)
    short = future[~((future["item_id"] == "b") & (future.groupby("item_id").cumcount() == 15))]
    with pytest.raises(DataError) as caught:
        fitted.predict(past, future=short, prediction_length=20)
    missing = future[future["item_id"] == "b"]["timestamp"].iloc[15]
    assert str(missing) in str(caught.value)
    assert "'b'" in str(caught.value)
    # Sooner than that there is nothing missing.
    assert len(fitted.predict(past, future=short, prediction_length=15)) == 45
    shorter = future[future.groupby("item_id").cumcount() < 3]
    assert len(fitted.predict(past, future=shorter, prediction_length=3)) == 9
    with pytest.raises(DataError, match="future"):
        fitted.predict(past, prediction_length=20)


@pytest.mark.parametrize("horizon", [0, -1, 2.5, True, "3"])
@pytest.mark.parametrize("call", ["predict", "predict_samples"])
def test_horizons_out_of_range(on_wide: MLRForecaster, call: str, horizon: Any) -> None:
    error = ValueError if type(horizon) is int else TypeError
    with pytest.raises(error, match="`prediction_length` must be"):
        getattr(on_wide, call)(prediction_length=horizon)


def sample_names(count: int) -> list[str]:
    return [f"sample_{number}" for number in range(count)]


@pytest.mark.parametrize("loss", ["quantile", "normal", "student_t"])
def test_samples_have_the_quantiles_of_the_forecast(loss: str) -> None:
    fitted = MLRForecaster(**TINY, loss=loss).fit(wide())
    count = 4000
    samples = fitted.predict_samples(num_samples=count)
    levels = [0.1, 0.3, 0.5, 0.7, 0.9]
    quantiles = fitted.predict(quantile_levels=levels)
    for name in "ab":
        assert list(samples[name].columns) == ["point", *sample_names(count)]
        drawn = samples[name][sample_names(count)].to_numpy()
        for level in levels:
            below = (drawn <= quantiles[name][f"{level:g}"].to_numpy()[:, None]).mean(axis=1)
            np.testing.assert_allclose(below, level, atol=0.04)
    assert_frame_equal(
        samples.xs("point", axis=1, level=1) if samples.columns.nlevels == 2 else samples,
        fitted.predict(),
        check_names=False,
    )


def test_samples_beyond_the_horizon_have_the_quantiles_of_the_forecast(
    on_walk: MLRForecaster,
) -> None:
    steps, count = 2 * PREDICTION, 200
    samples = on_walk.predict_samples(prediction_length=steps, num_samples=count)["a"]
    quantiles = on_walk.predict(prediction_length=steps, quantile_levels=[0.2, 0.8])["a"]
    for level in (0.2, 0.8):
        limit = quantiles[f"{level:g}"].to_numpy()[:, None]
        below = (samples[sample_names(count)].to_numpy() <= limit).mean(axis=1)
        np.testing.assert_allclose(below, level, atol=0.15)


def test_steps_of_a_path_depend_on_each_other(on_walk: MLRForecaster) -> None:
    assert on_walk.dependence_.shape == (PREDICTION,)
    assert on_walk.dependence_[0] == 1
    assert on_walk.dependence_[1] > 0.3
    samples = on_walk.predict_samples(num_samples=2000)["a"][sample_names(2000)].to_numpy()
    found = np.corrcoef(samples)
    for lag in range(1, PREDICTION):
        mean = np.diagonal(found, lag).mean()
        assert mean == pytest.approx(on_walk.dependence_[lag], abs=0.15)
    assert samples.sum(axis=0).std() > 1.3 * np.sqrt((samples.std(axis=1) ** 2).sum())


@pytest.mark.parametrize("horizon", [3, PREDICTION, 2 * PREDICTION])
def test_samples_repeat_by_seed(on_long: MLRForecaster, horizon: int) -> None:
    options = {"prediction_length": horizon, "num_samples": 7}
    one = on_long.predict_samples(seed=5, **options)
    assert list(one.columns) == ["item_id", "timestamp", "target", *sample_names(7)]
    assert len(one) == 3 * horizon
    assert_frame_equal(on_long.predict_samples(seed=5, **options), one, check_exact=True)
    other = on_long.predict_samples(seed=6, **options)
    assert (one["sample_0"] != other["sample_0"]).any()
    np.testing.assert_array_equal(one["target"], other["target"])


def test_samples_of_arrays(on_wide: MLRForecaster) -> None:
    values = wide().to_numpy()
    fitted = MLRForecaster(**TINY).fit(values)
    assert fitted.predict_samples(num_samples=1).shape == (PREDICTION, 2, 1)
    assert fitted.predict_samples(values[:, 0], num_samples=5).shape == (PREDICTION, 5)
    assert fitted.predict_samples(prediction_length=9, num_samples=5).shape == (9, 2, 5)


def test_samples_of_counts_are_counts() -> None:
    frame = wide()
    frame[:] = np.random.default_rng(0).poisson(3.0, frame.shape)
    fitted = MLRForecaster(**TINY, loss="negative_binomial").fit(frame)
    drawn = fitted.predict_samples(prediction_length=10, num_samples=20)["a"][sample_names(20)]
    assert (drawn >= 0).all(axis=None)
    np.testing.assert_array_equal(drawn, np.round(drawn))


def test_a_point_forecast_has_samples_once_it_is_calibrated() -> None:
    fitted = MLRForecaster(**TINY, loss="mse").fit(wide())
    with pytest.raises(ValueError, match="calibrate"):
        fitted.predict_samples()
    fitted.calibrate(wide(), refit=False)
    drawn = fitted.predict_samples(prediction_length=13, num_samples=9)["a"][sample_names(9)]
    assert np.isfinite(drawn).all(axis=None)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_samples": 0}, ValueError, "`num_samples` must be at least 1, got 0"),
        ({"num_samples": 2.0}, TypeError, r"`num_samples` must be an integer, got 2\.0"),
        ({"num_samples": True}, TypeError, "`num_samples` must be an integer, got True"),
        ({"seed": -1}, ValueError, "`seed` must be at least 0, got -1"),
        ({"seed": None}, TypeError, "`seed` must be an integer, got None"),
    ],
)
def test_arguments_out_of_range(
    on_wide: MLRForecaster, options: dict[str, Any], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        on_wide.predict_samples(**options)


def test_contexts_without_values_are_refused_or_missing(on_wide: MLRForecaster) -> None:
    frame = wide()
    frame.iloc[-CONTEXT:, 0] = np.nan
    with pytest.raises(DataError):
        on_wide.predict_samples(frame, num_samples=2)
