"""Scores against plain loops and hand numbers."""

import math

import numpy as np
import pytest

from mlrforecast import metrics

LEVELS = (0.1, 0.5, 0.9)


@pytest.fixture
def case():
    rng = np.random.default_rng(3)
    actual = rng.normal(size=(4, 5, 3)) * 3 + 1
    actual[0, 1, 2] = actual[2, :, 1] = np.nan
    forecast = rng.normal(size=(4, 5, 3))
    quantiles = np.sort(rng.normal(size=(4, 5, 3, 3)), axis=-1)
    return actual, forecast, quantiles


def observed_cells(actual):
    for index in np.ndindex(actual.shape):
        if not math.isnan(actual[index]):
            yield index, float(actual[index])


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def test_point_scores_equal_a_loop(case):
    actual, forecast, _ = case
    errors = [value - forecast[index] for index, value in observed_cells(actual)]
    sizes = [abs(value) + abs(forecast[index]) for index, value in observed_cells(actual)]
    assert len(errors) == 4 * 5 * 3 - 6
    assert metrics.mse(actual, forecast) == pytest.approx(mean(e * e for e in errors), abs=1e-14)
    assert metrics.mae(actual, forecast) == pytest.approx(mean(map(abs, errors)), abs=1e-14)
    expected = mean(2 * abs(e) / s for e, s in zip(errors, sizes, strict=True))
    assert metrics.smape(actual, forecast) == pytest.approx(expected, abs=1e-14)


def test_mase_averages_each_series_then_the_series(case):
    actual, forecast, _ = case
    scale = np.random.default_rng(1).uniform(0.5, 2, size=(4, 3))
    ratios = []
    for n in range(4):
        for c in range(3):
            errors = [
                abs(actual[n, f, c] - forecast[n, f, c])
                for f in range(5)
                if not math.isnan(actual[n, f, c])
            ]
            if errors:
                ratios.append(mean(errors) / scale[n, c])
    assert len(ratios) == 11
    assert metrics.mase(actual, forecast, scale) == pytest.approx(mean(ratios), abs=1e-14)


def test_one_row_of_scales_serves_all_windows(case):
    actual, forecast, _ = case
    row = np.array([[0.5, 1.0, 2.0]])
    repeated = metrics.mase(actual, forecast, np.repeat(row, 4, axis=0))
    assert metrics.mase(actual, forecast, row) == repeated


def test_quantile_scores_equal_a_loop(case):
    actual, _, quantiles = case
    losses = {level: [] for level in LEVELS}
    size = 0.0
    for index, value in observed_cells(actual):
        size += abs(value)
        for q, level in enumerate(LEVELS):
            error = value - quantiles[index][q]
            losses[level].append(2 * (level * error if error > 0 else (level - 1) * error))
    expected = mean(mean(values) for values in losses.values())
    assert metrics.quantile_loss(actual, quantiles, LEVELS) == pytest.approx(expected, abs=1e-14)
    expected = mean(sum(values) / size for values in losses.values())
    found = metrics.weighted_quantile_loss(actual, quantiles, LEVELS)
    assert found == pytest.approx(expected, abs=1e-14)


def test_median_loss_is_the_absolute_error(case):
    actual, forecast, _ = case
    loss = metrics.quantile_loss(actual, forecast[..., None], (0.5,))
    assert loss == pytest.approx(metrics.mae(actual, forecast), abs=1e-14)


def test_coverage_counts_both_ends(case):
    actual = np.array([[[1.0], [2.0], [3.0], [4.0], [np.nan]]])
    low = np.full_like(actual, 2.0)
    high = np.full_like(actual, 3.0)
    assert metrics.coverage(actual, low, high) == 0.5
    low[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="must not hold NaN"):
        metrics.coverage(actual, low, high)
    actual, _, quantiles = case
    inside = [
        quantiles[index][0] <= value <= quantiles[index][2]
        for index, value in observed_cells(actual)
    ]
    assert metrics.coverage(actual, quantiles[..., 0], quantiles[..., 2]) == mean(inside)


def test_seasonal_error_by_hand_and_by_loop():
    past = np.array([[[1.0], [2.0], [4.0], [np.nan], [9.0]]])
    # Pairs two rows apart: (1, 4) and (4, 9); the others touch the missing row.
    assert metrics.seasonal_error(past, 2)[0, 0] == 4.0
    values = np.random.default_rng(0).normal(size=(2, 50, 3))
    found = metrics.seasonal_error(values, 24)
    assert found.shape == (2, 3)
    for n in range(2):
        for c in range(3):
            steps = [abs(values[n, t, c] - values[n, t - 24, c]) for t in range(24, 50)]
            assert found[n, c] == pytest.approx(mean(steps), abs=1e-14)


def test_a_past_without_pairs_has_no_scale():
    past = np.full((1, 5, 2), np.nan)
    past[0, :, 1] = 3.0
    scale = metrics.seasonal_error(past, 1)
    assert np.isnan(scale[0, 0])
    assert scale[0, 1] == 0.0


def test_series_without_a_scale_are_left_out_and_counted():
    actual = np.ones((1, 2, 3))
    forecast = np.array([[[2.0, 9.0, 9.0], [2.0, 9.0, 9.0]]])
    with pytest.warns(UserWarning, match="2 of 3 windows are left out of MASE"):
        assert metrics.mase(actual, forecast, [[0.5, 0.0, np.nan]]) == 2.0
    with pytest.raises(ValueError, match="`scale` must be positive somewhere"):
        metrics.mase(actual, forecast, [[0.0, 0.0, np.nan]])


def test_series_with_a_scale_but_no_actual_raise():
    actual = np.array([[[np.nan, 1.0]]])
    with (
        pytest.warns(UserWarning, match="1 of 2 windows"),
        pytest.raises(ValueError, match="whose scale is usable"),
    ):
        metrics.mase(actual, np.ones((1, 1, 2)), [[1.0, 0.0]])


def test_zero_denominators():
    zeros = np.zeros((1, 2, 1))
    assert metrics.smape(zeros, zeros) == 0.0
    assert metrics.smape(zeros, zeros + 1) == 2.0
    with pytest.raises(ValueError, match="`actual` must hold a value other than zero"):
        metrics.weighted_quantile_loss(zeros, zeros[..., None], (0.5,))
    assert metrics.quantile_loss(zeros, zeros[..., None] + 1, (0.5,)) == 1.0


def test_a_missing_forecast_is_seen():
    forecast = np.array([[[np.nan], [1.0]]])
    assert math.isnan(metrics.mse(np.ones((1, 2, 1)), forecast))
    assert math.isnan(metrics.mae(np.ones((1, 2, 1)), forecast))


def test_integers_and_float32_are_scored_in_float64():
    actual = np.full((1, 1, 1), 16_777_217, dtype=np.int64)
    assert metrics.mae(actual, actual - 1) == 1.0
    assert metrics.mae(np.float32([[[0.5]]]), np.float32([[[0.25]]])) == 0.25


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda a: metrics.mse(a[0], a[0]),
            r"`actual` must have the shape \[N, F, C\], got \(2, 1\)",
        ),
        (
            lambda a: metrics.mae(a, a[:, :1]),
            r"`forecast` must have the shape of `actual` \(3, 2, 1\)",
        ),
        (lambda a: metrics.coverage(a, a, a[:1]), "`upper` must have the shape of `actual`"),
        (lambda a: metrics.mase(a, a, np.ones((2, 1))), r"`scale` must have the shape \[N, C\]"),
        (lambda a: metrics.quantile_loss(a, a, (0.5,)), r"`quantiles` must have the shape"),
        (
            lambda a: metrics.quantile_loss(a, a[..., None], (1.0,)),
            r"`quantile_levels` must lie in",
        ),
        (lambda a: metrics.mse(a * np.nan, a), "`actual` must hold at least one observed value"),
        (lambda a: metrics.seasonal_error(a, 2), r"`season_length` must lie in \[1, 1\]"),
        (lambda a: metrics.seasonal_error(a[0], 1), r"`past` must have the shape \[N, T, C\]"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.ones((3, 2, 1)))
