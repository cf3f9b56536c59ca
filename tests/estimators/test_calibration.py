"""Conformal calibration: its order statistics, what it learns, and what it leaves alone."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from scipy.special import ndtri
from sklearn.base import clone

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError, ModelFileError
from mlrforecast.estimators._calibration import (
    LEAST,
    RollingResiduals,
    SplitResiduals,
    order_statistics,
)
from tests.estimators.frames import CONTEXT, PREDICTION, TINY, long, wide

LEVELS = [0.05, 0.1, 0.5, 0.75, 0.9, 0.99]


def loop_distance(sizes: list[float], level: float) -> float:
    """The signed distance of one level, from ordered sizes."""
    count, share = len(sizes), abs(2 * level - 1)
    number = math.ceil(round((count + 1) * share, 9))
    if number == 0:
        return 0.0
    if number <= count:
        reach = sizes[number - 1]
    else:
        ratio = ndtri((1 + share) / 2) / ndtri((1 + count / (count + 1)) / 2)
        reach = sizes[-1] * ratio
    return reach if level >= 0.5 else -reach


@pytest.mark.parametrize("count", [1, 9, 10, 19, 99, 200])
def test_order_statistics_equal_a_loop(count: int) -> None:
    random = np.random.default_rng(count)
    sizes = np.sort(random.exponential(size=count))
    levels = np.unique([*random.uniform(0, 1, 40), 0.05, 0.1, 0.5, 0.9, 0.95, 1e-6, 0.999999])
    expected = [loop_distance(list(sizes), level) for level in levels]
    found = order_statistics(sizes, levels)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert (np.diff(found) >= 0).all()
    np.testing.assert_allclose(
        order_statistics(sizes, levels[:24].reshape(6, 4)).ravel(), expected[:24], rtol=1e-12
    )


def test_the_interval_of_a_share_that_fits_is_one_of_the_sizes() -> None:
    # ceil(10 * 0.9) = 9, whatever 2 * 0.95 - 1 is in floating point.
    found = order_statistics(np.arange(1.0, 10.0), np.array([0.05, 0.95]))
    np.testing.assert_array_equal(found, [-9.0, 9.0])


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("count", [10, 40])
def test_exchangeable_residuals_are_covered(share: float, count: int) -> None:
    random = np.random.default_rng(0)
    levels = np.array([(1 - share) / 2, (1 + share) / 2])
    inside = 0
    trials = 4000
    for _ in range(trials):
        *old, new = random.standard_t(5, count + 1)
        low, high = order_statistics(np.sort(np.abs(old)), levels)
        inside += low <= new <= high
    if count + 1 >= (count + 1) * share + 1:
        # The promise of split conformal prediction; what is beyond the largest has none.
        assert inside / trials >= share - 3 * math.sqrt(share * (1 - share) / trials)
        assert inside / trials <= share + 1 / (count + 1) + 0.03


def test_rolling_residuals_equal_a_loop() -> None:
    random = np.random.default_rng(0)
    times = np.sort(random.integers(0, 50, 200))
    residuals = random.normal(size=200)
    cutoffs = np.array([-5, 0, 3, 20, 20, 49, 1000])
    rolling = RollingResiduals(residuals, times, cutoffs, 60, np.ones(3))
    levels = np.array([0.1, 0.6])
    found = rolling.at(levels)
    each = rolling.at(np.tile(levels, (3, 1)))
    assert found.shape == (7, 1, 1, 2)
    assert each.shape == (7, 3, 1, 2)
    for number, cutoff in enumerate(cutoffs):
        known = residuals[times <= cutoff][-60:]
        if len(known) < LEAST:
            known = residuals[:60]
        expected = SplitResiduals(known, np.ones(3)).at(levels)
        np.testing.assert_array_equal(found[number, 0, 0], expected)
        np.testing.assert_array_equal(each[number, :, 0], np.tile(expected, (3, 1)))


def fit(loss: str = "quantile", **options: Any) -> MLRForecaster:
    return MLRForecaster(**TINY, loss=loss, **options)


@pytest.mark.parametrize("loss", ["quantile", "mse", "mae", "normal", "student_t"])
@pytest.mark.parametrize("method", ["split", "rolling"])
def test_the_point_forecast_stays_and_quantiles_do_not_cross(loss: str, method: str) -> None:
    frame = wide()
    fitted = fit(loss).fit(frame)
    point = fitted.predict()
    assert fitted.calibrate(frame, method=method, refit=False) is fitted
    assert_frame_equal(fitted.predict(), point)
    found = fitted.predict(quantile_levels=LEVELS)
    for name in "ab":
        np.testing.assert_array_equal(found[name]["point"], point[name])
        quantiles = found[name].drop(columns="point").to_numpy()
        assert np.isfinite(quantiles).all()
        assert (np.diff(quantiles, axis=-1) >= 0).all()
        np.testing.assert_allclose(quantiles[:, 2], point[name], rtol=1e-6, atol=1e-6)


def test_quantiles_of_a_squared_error_are_residuals_of_windows() -> None:
    frame = wide()
    fitted = fit("mse").fit(frame).calibrate(frame, windows=5, refit=False)
    rolled = fitted.backtest(frame, windows=5)
    scale = np.stack(
        [frame[:rows].tail(CONTEXT).std(ddof=0).to_numpy() for rows in rolled.num_rows]
    )[:, None]
    errors = (rolled.actual - rolled.forecast) / scale
    sizes = np.abs(errors).mean(axis=(0, 2))
    np.testing.assert_allclose(fitted.calibration_.step_scale, sizes, rtol=1e-4)
    expected = np.sort((errors / sizes[:, None]).ravel())
    np.testing.assert_allclose(np.sort(fitted.calibration_.residuals), expected, rtol=1e-4)
    found = fitted.predict(frame, quantile_levels=[0.9])
    last = frame.tail(CONTEXT).std(ddof=0)
    number = math.ceil(61 * 0.8)
    for name in "ab":
        reach = np.sort(np.abs(expected))[number - 1] * sizes * last[name]
        width = found[name]["0.9"] - found[name]["point"]
        np.testing.assert_allclose(width, reach, rtol=1e-4)


def test_refit_learns_from_a_second_network() -> None:
    frame = wide()
    fitted = fit().fit(frame)
    weights = {name: part.clone() for name, part in fitted.model_.state_dict().items()}
    fitted.calibrate(frame, windows=4)
    assert all((part == weights[name]).all() for name, part in fitted.model_.state_dict().items())
    other = clone(fitted).fit(frame[: -4 * PREDICTION])
    other.calibrate(frame, windows=4, refit=False)
    np.testing.assert_allclose(
        fitted.calibration_.residuals, other.calibration_.residuals, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(fitted.calibration_.known_at, other.calibration_.known_at)
    own = clone(fitted).fit(frame).calibrate(frame, windows=4, refit=False)
    assert not np.allclose(fitted.calibration_.residuals, own.calibration_.residuals, rtol=1e-4)


def test_coverage_of_the_windows_that_calibrated() -> None:
    frame = wide(300)
    fitted = fit().fit(frame[:150]).calibrate(frame, windows=20, refit=False)
    rolled = fitted.backtest(frame, windows=20, quantile_levels=[0.1, 0.9])
    inside = (rolled.quantiles[..., 0] <= rolled.actual) & (
        rolled.actual <= rolled.quantiles[..., 1]
    )
    assert inside.mean() == pytest.approx(0.8, abs=0.01)
    report = fitted.calibration_.coverage
    assert list(report.index) == [0.5, 0.8, 0.9, 0.95]
    assert list(report.columns) == ["before", "after", "width"]
    np.testing.assert_allclose(report["after"], report.index, atol=0.12)


def test_rolling_follows_newer_rows_and_split_does_not() -> None:
    frame = wide(400)
    # Growth that no context tells of: errors are larger in units of its scale.
    frame.iloc[250:] += 1.2 ** np.arange(150)[:, None]
    calm = frame[:250]
    split = fit().fit(calm).calibrate(calm, refit=False)
    rolling = clone(split).fit(calm).calibrate(calm, method="rolling", refit=False)
    widths = {}
    for name, fitted in (("split", split), ("rolling", rolling)):
        found = fitted.predict(frame, quantile_levels=[0.1, 0.9])["a"]
        widths[name] = (found["0.9"] - found["0.1"]).mean()
    assert widths["rolling"] > 1.2 * widths["split"]
    # Nothing is newer than what was read: both have the same residuals.
    levels = [0.1, 0.9]
    assert_frame_equal(
        split.predict(calm, quantile_levels=levels), rolling.predict(calm, quantile_levels=levels)
    )
    # The newer rows change no calibration.
    assert rolling.calibration_.known_at.max() < frame.index[250].value // 1000


def test_rolling_before_the_calibrated_rows_uses_the_stored_residuals() -> None:
    frame = wide(300)
    fitted = fit().fit(frame).calibrate(frame, method="rolling", windows=4, refit=False)
    split = clone(fitted).fit(frame).calibrate(frame, windows=4, refit=False)
    old = frame[:100]
    np.testing.assert_allclose(
        fitted.predict(old, quantile_levels=LEVELS), split.predict(old, quantile_levels=LEVELS)
    )
    np.testing.assert_allclose(
        fitted.backtest(old, quantile_levels=LEVELS).quantiles,
        split.backtest(old, quantile_levels=LEVELS).quantiles,
    )


@pytest.mark.parametrize("method", ["split", "rolling"])
@pytest.mark.parametrize("loss", ["quantile", "mse", "student_t"])
def test_saving_keeps_every_bit(tmp_path: Path, method: str, loss: str) -> None:
    frame = wide()
    fitted = fit(loss).fit(frame).calibrate(frame, method=method, refit=False)
    fitted.save(tmp_path / "model")
    again = MLRForecaster.load(tmp_path / "model")
    one, other = fitted.calibration_, again.calibration_
    assert (one.method, one.step, one.num_windows) == (other.method, other.step, other.num_windows)
    for name in ("residuals", "known_at", "step_scale"):
        assert getattr(one, name).dtype == getattr(other, name).dtype
        if name != "known_at" or method == "rolling":
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert_frame_equal(one.coverage, other.coverage, check_exact=True)
    newer = wide(200)
    assert_frame_equal(
        fitted.predict(newer, quantile_levels=LEVELS),
        again.predict(newer, quantile_levels=LEVELS),
        check_exact=True,
    )


def test_altered_files_are_refused(tmp_path: Path) -> None:
    frame = wide()
    fit().fit(frame).calibrate(frame, refit=False).save(tmp_path / "model")
    (file,) = (tmp_path / "model").glob("calibration-*.safetensors")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ModelFileError):
        MLRForecaster.load(tmp_path / "model")
    file.unlink()
    with pytest.raises(ModelFileError):
        MLRForecaster.load(tmp_path / "model")
    file.write_bytes(whole)
    MLRForecaster.load(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    text = config.read_text()
    for name, value in (("method", "jackknife"), ("step", 0), ("num_windows", True)):
        document = json.loads(text)
        document["calibration"][name] = value
        config.write_text(json.dumps(document))
        with pytest.raises(ModelFileError):
            MLRForecaster.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "jackknife"}, ValueError, "`method` must be one of split, rolling"),
        ({"windows": 0}, ValueError, "`windows` must be at least 1"),
        ({"windows": 1.5}, TypeError, "`windows` must be an integer"),
        ({"step": 0}, ValueError, "`step` must be at least 1"),
        ({"X": wide(PREDICTION)}, DataError, "needs 7 rows"),
        ({"X": wide(60) * np.nan}, DataError, "at least 10 actual values|no|missing|observed"),
        ({"X": wide(60, freq="D")}, DataError, "frequency|freq|steps"),
        ({"X": 3}, TypeError, "3|int"),
    ],
)
def test_errors_leave_the_forecaster_as_it_was(
    options: dict[str, Any], error: type, message: str
) -> None:
    frame = wide()
    fitted = fit().fit(frame).calibrate(frame, refit=False)
    calibration, forecast = fitted.calibration_, fitted.predict(quantile_levels=LEVELS)
    with pytest.raises(error, match=message):
        fitted.calibrate(**{"X": frame, "refit": False} | options)
    assert fitted.calibration_ is calibration
    assert_frame_equal(fitted.predict(quantile_levels=LEVELS), forecast)


def test_too_few_values() -> None:
    frame = wide(80)
    fitted = fit().fit(frame)
    frame.iloc[-PREDICTION:] = np.nan
    frame.iloc[-1, 0] = 1.0
    with pytest.raises(DataError, match=r"at least 10 actual values .* gives 1"):
        fitted.calibrate(frame, windows=1, refit=False)
    assert fitted.calibration_ is None


def test_fit_resets_the_calibration() -> None:
    frame = wide()
    fitted = fit().fit(frame).calibrate(frame, refit=False)
    assert fitted.calibration_ is not None
    assert fitted.fit(frame).calibration_ is None


def test_series_of_a_long_frame_share_residuals() -> None:
    frame = long()
    fitted = fit().fit(frame).calibrate(frame, windows=3)
    assert len(fitted.calibration_.residuals) == 3 * 3 * PREDICTION
    assert (np.diff(fitted.calibration_.known_at) >= 0).all()
    assert pd.Index(fitted.calibration_.coverage.index).name == "nominal"


def test_counts_stay_counts() -> None:
    frame = wide(150)
    frame[:] = np.random.default_rng(0).poisson(2.0, frame.shape)
    fitted = fit("negative_binomial").fit(frame).calibrate(frame, refit=False)
    for name in "ab":
        found = fitted.predict(quantile_levels=LEVELS)[name].drop(columns="point").to_numpy()
        np.testing.assert_array_equal(found, np.round(found))
        assert (found >= 0).all()
        assert (np.diff(found, axis=-1) >= 0).all()


@pytest.mark.parametrize("loss", ["quantile", "mse"])
def test_a_constant_goes_on_without_an_interval(loss: str) -> None:
    frame = wide(200).assign(a=5.0)
    fitted = MLRForecaster(**TINY, loss=loss).fit(frame).calibrate(frame)
    forecast = fitted.predict(quantile_levels=[0.025, 0.5, 0.975])
    np.testing.assert_array_equal(forecast["a"], 5.0)
    assert (forecast["b"]["0.025"] < forecast["b"]["0.975"]).all()
