"""Quantiles of any level, of each loss."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from mlrforecast.estimators._forecasts import Forecasts, interpolate_levels
from tests.estimators.frames import PREDICTION, TINY, long, wide

LOSSES = ("quantile", "normal", "student_t", "negative_binomial")
TRAINED = (0.1, 0.3, 0.5, 0.9)


def counts(rows: int = 120) -> pd.DataFrame:
    """Two series of counts, many of them zero."""
    rates = 1.5 + np.exp(wide(rows, ("a",)).to_numpy()) * [1, 20]
    values = np.random.default_rng(0).poisson(rates).astype(float)
    return pd.DataFrame(values, index=wide(rows).index, columns=["a", "b"])


@pytest.fixture(scope="module")
def by_loss() -> dict[str, MLRForecaster]:
    return {
        loss: MLRForecaster(**TINY, loss=loss).fit(
            counts() if loss == "negative_binomial" else wide()
        )
        for loss in LOSSES
    }


def random_levels(seed: int, size: int = 30) -> list[float]:
    """Levels in any order, some far out and some close together."""
    random = np.random.default_rng(seed)
    levels = [*random.uniform(0, 1, size), 1e-6, 1e-3, 0.5, 0.500001, 0.999, 0.999999]
    return list(random.permutation(np.unique(np.round(levels, 6))))


def table(forecast: pd.DataFrame, levels: list[float]) -> np.ndarray:
    """Quantiles (F, C, Q) of a wide forecast."""
    names = [f"{level:g}" for level in levels]
    return np.stack([forecast[name][names].to_numpy() for name in "ab"], axis=1)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_any_levels_in_any_order_never_cross(
    by_loss: dict[str, MLRForecaster], loss: str, seed: int
) -> None:
    levels = random_levels(seed)
    found = table(by_loss[loss].predict(quantile_levels=levels), levels)
    assert np.isfinite(found).all()
    ordered = found[..., np.argsort(levels)]
    assert (np.diff(ordered, axis=-1) >= 0).all()
    assert (ordered[..., -1] > ordered[..., 0]).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_level_does_not_depend_on_the_others(
    by_loss: dict[str, MLRForecaster], loss: str
) -> None:
    levels = [0.77, 0.05, 0.5]
    found = table(by_loss[loss].predict(quantile_levels=levels), levels)
    for number, level in enumerate(levels):
        alone = table(by_loss[loss].predict(quantile_levels=[level]), [level])
        np.testing.assert_allclose(found[..., number], alone[..., 0], rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_quantiles_leave_the_point_forecast_alone(
    by_loss: dict[str, MLRForecaster], loss: str
) -> None:
    point = by_loss[loss].predict()
    found = by_loss[loss].predict(quantile_levels=[0.2])
    for name in "ab":
        np.testing.assert_array_equal(found[name]["point"], point[name])
    if loss in ("quantile", "normal", "student_t"):
        median = table(by_loss[loss].predict(quantile_levels=[0.5]), [0.5])[..., 0]
        np.testing.assert_allclose(median, point, rtol=1e-6)


@pytest.mark.parametrize("trained", [TRAINED, (0.2, 0.6), (0.05, 0.06, 0.07)])
def test_interpolation_is_exact_for_normal_distributions(trained: tuple[float, ...]) -> None:
    random = np.random.default_rng(0)
    mean, deviation = random.normal(size=(2, 3, 4, 5, 1))
    deviation = np.abs(deviation) + 0.1
    given = stats.norm.ppf(np.array(trained), mean, deviation)
    levels = np.array([1e-5, 0.01, 0.1, 0.25, 0.3, 0.5, 0.77, 0.9, 0.999, 1 - 1e-5])
    found = interpolate_levels(given, trained, levels)
    np.testing.assert_allclose(found, stats.norm.ppf(levels, mean, deviation), rtol=1e-8, atol=1e-8)
    # Levels of each step.
    levels = random.uniform(0.001, 0.999, (4, 6))
    found = interpolate_levels(given, trained, levels)
    expected = stats.norm.ppf(levels[:, None, :], mean, deviation)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_interpolation_hits_the_trained_levels() -> None:
    given = np.sort(np.random.default_rng(1).normal(size=(2, 3, 1, 4)), axis=-1)
    found = interpolate_levels(given, TRAINED, np.array(TRAINED))
    np.testing.assert_allclose(found, given, rtol=1e-12, atol=1e-12)


def test_one_trained_level_is_the_only_one() -> None:
    given = np.arange(6.0).reshape(1, 6, 1, 1)
    for levels in (np.array([0.3]), np.full((6, 1), 0.3)):
        np.testing.assert_array_equal(interpolate_levels(given, (0.3,), levels), given)
    fitted = MLRForecaster(**TINY, quantile_levels=(0.3,)).fit(wide())
    assert np.isfinite(table(fitted.predict(quantile_levels=[0.3]), [0.3])).all()
    with pytest.raises(ValueError, match=r"must be \(0\.3,\), the only one that was trained"):
        fitted.predict(quantile_levels=[0.4])


def forecasts_of(fitted: MLRForecaster, frame: pd.DataFrame) -> Forecasts:
    panel = fitted._read(frame)
    windows = fitted._predictor.windows(panel, np.zeros(5, int), np.arange(60, 65))
    return fitted._predictor.forecast(windows)


@pytest.mark.parametrize("loss", LOSSES)
def test_levels_of_each_step_equal_a_loop(by_loss: dict[str, MLRForecaster], loss: str) -> None:
    fitted = by_loss[loss]
    found = forecasts_of(fitted, counts() if loss == "negative_binomial" else wide())
    levels = np.random.default_rng(3).uniform(0.001, 0.999, (PREDICTION, 7))
    together = found.quantiles(levels)
    assert together.shape == (5, PREDICTION, 2, 7)
    for step in range(PREDICTION):
        alone = found.quantiles(levels[step])[:, step]
        np.testing.assert_allclose(together[:, step], alone, rtol=1e-9, atol=1e-9)


def test_counts_have_quantiles_that_are_counts(by_loss: dict[str, MLRForecaster]) -> None:
    levels = random_levels(5)
    found = table(by_loss["negative_binomial"].predict(quantile_levels=levels), levels)
    assert (found >= 0).all()
    np.testing.assert_array_equal(found, np.round(found))
    point = by_loss["negative_binomial"].predict()
    assert (point > 0).all(axis=None)


@pytest.mark.parametrize("value", [-1.0, 2.5, 1e-3])
def test_values_that_are_no_counts_are_refused(no_training: None, value: float) -> None:
    forecaster = MLRForecaster(**TINY, loss="negative_binomial")
    frame = counts()
    frame.iloc[17, 1] = value
    with pytest.raises(DataError, match=rf"needs counts.*'b'.*{value:g}"):
        forecaster.fit(frame)
    table = long()
    table["target"] = 3.0
    table.loc[(table["item_id"] == "m").idxmax() + 5, "target"] = value
    with pytest.raises(DataError, match=rf"needs counts.*'m'.*{value:g}"):
        forecaster.fit(table)
    assert not hasattr(forecaster, "model_")


def test_counts_may_be_missing() -> None:
    frame = counts()
    frame.iloc[10:30, 0] = np.nan
    frame["b"] = np.nan
    frame.iloc[-5:, 1] = 0
    fitted = MLRForecaster(**TINY, loss="negative_binomial").fit(frame)
    found = table(fitted.predict(quantile_levels=[0.1, 0.9]), [0.1, 0.9])
    assert np.isfinite(found).all()
    assert (found >= 0).all()


@pytest.mark.parametrize("loss", ["mse", "mae"])
@pytest.mark.parametrize("call", ["predict", "backtest", "predict_samples"])
def test_point_losses_have_no_quantiles(loss: str, call: str) -> None:
    fitted = MLRForecaster(**TINY, loss=loss).fit(wide())
    options: dict[str, Any] = {} if call == "predict_samples" else {"quantile_levels": [0.5]}
    with pytest.raises(ValueError, match=f"loss='{loss}' .*`calibrate`"):
        getattr(fitted, call)(wide(), **options)


@pytest.mark.parametrize("levels", [[], [0.0], [1.0], [0.5, 0.5], [-0.1], [float("nan")]])
@pytest.mark.parametrize("loss", LOSSES)
def test_levels_out_of_range(
    by_loss: dict[str, MLRForecaster], loss: str, levels: list[float]
) -> None:
    with pytest.raises(ValueError, match=r"`quantile_levels` must be"):
        by_loss[loss].predict(quantile_levels=levels)
