"""Scores against plain loops and hand numbers."""

import math

import numpy as np
import pytest

from mlrforecast import metrics

LEVELS = (0.1, 0.5, 0.9)
NAN = math.nan


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


def test_mase_averages_all_observed_values_alike(case):
    actual, forecast, _ = case
    scale = np.random.default_rng(1).uniform(0.5, 2, size=(4, 3))
    ratios = [
        abs(value - forecast[n, f, c]) / scale[n, c] for (n, f, c), value in observed_cells(actual)
    ]
    assert len(ratios) == 4 * 5 * 3 - 6
    assert metrics.mase(actual, forecast, scale) == pytest.approx(mean(ratios), abs=1e-14)


def test_mase_of_windows_with_gaps_by_hand():
    # Errors 1 and 1 of the first window, 4 of the second: their mean is 2, that of windows 2.5.
    actual = np.array([[[1.0], [1.0]], [[4.0], [NAN]]])
    assert metrics.mase(actual, np.zeros((2, 2, 1)), [[1.0]]) == 2.0


def test_rmse_is_the_root_of_the_mean(case):
    actual, forecast, _ = case
    assert metrics.rmse(actual, forecast) == math.sqrt(metrics.mse(actual, forecast))
    assert metrics.rmse([[[3.0], [4.0]]], [[[0.0], [0.0]]]) == math.sqrt(12.5)


def test_msis_equals_a_loop(case):
    actual, _, quantiles = case
    low, high = quantiles[..., 0], quantiles[..., 2]
    scale = np.random.default_rng(1).uniform(0.5, 2, size=(4, 3))
    scores = []
    for index, value in observed_cells(actual):
        score = high[index] - low[index]
        if value < low[index]:
            score += 2 / 0.2 * (low[index] - value)
        elif value > high[index]:
            score += 2 / 0.2 * (value - high[index])
        scores.append(score / scale[index[0], index[2]])
    found = metrics.msis(actual, low, high, scale, alpha=0.2)
    assert found == pytest.approx(mean(scores), abs=1e-13)


def test_msis_by_hand():
    # Widths 2; the actual values are 1 below, inside, at the end, and 3 above.
    actual = np.array([[[-1.0], [1.0], [2.0], [5.0]]])
    low, high = np.zeros((1, 4, 1)), np.full((1, 4, 1), 2.0)
    found = metrics.msis(actual, low, high, [[2.0]], alpha=0.5)
    assert found == (8 + 4 * 1 + 4 * 3) / 4 / 2


def test_scaled_quantile_loss_equals_a_loop(case):
    actual, forecast, quantiles = case
    scale = np.random.default_rng(1).uniform(0.5, 2, size=(4, 3))
    losses = []
    for index, value in observed_cells(actual):
        for q, level in enumerate(LEVELS):
            error = value - quantiles[index][q]
            loss = 2 * (level * error if error > 0 else (level - 1) * error)
            losses.append(loss / scale[index[0], index[2]])
    found = metrics.scaled_quantile_loss(actual, quantiles, LEVELS, scale)
    assert found == pytest.approx(mean(losses), abs=1e-14)
    median = metrics.scaled_quantile_loss(actual, forecast[..., None], (0.5,), scale)
    assert median == pytest.approx(metrics.mase(actual, forecast, scale), abs=1e-14)


@pytest.mark.parametrize("num_samples", [1, 2, 7])
def test_crps_equals_the_mean_over_all_pairs(case, num_samples):
    actual, _, _ = case
    samples = np.random.default_rng(2).normal(size=(*actual.shape, num_samples))
    samples[0, 0, 0] = 1.0  # ties
    scores = []
    for index, value in observed_cells(actual):
        drawn = samples[index]
        apart = mean(abs(x - y) for x in drawn for y in drawn)
        scores.append(mean(abs(x - value) for x in drawn) - apart / 2)
    assert metrics.crps(actual, samples) == pytest.approx(mean(scores), abs=1e-14)


def test_crps_is_the_integral_of_the_quantile_loss(case):
    actual, _, _ = case
    samples = np.sort(np.random.default_rng(2).normal(size=(*actual.shape, 8)), axis=-1)
    # Between k/8 and (k+1)/8 the quantile stays and the loss is a line: the midpoint is exact.
    levels = (np.arange(8) + 0.5) / 8
    loss = metrics.quantile_loss(actual, samples, levels)
    assert metrics.crps(actual, samples) == pytest.approx(loss, abs=1e-14)


def test_crps_of_one_sample_is_the_absolute_error_and_order_does_not_matter(case):
    actual, forecast, quantiles = case
    found = metrics.crps(actual, forecast[..., None])
    assert found == pytest.approx(metrics.mae(actual, forecast), abs=1e-14)
    backwards = metrics.crps(actual, quantiles[..., ::-1])
    assert backwards == metrics.crps(actual, quantiles)
    far = metrics.crps(actual + 1e9, quantiles + 1e9)
    assert far == pytest.approx(metrics.crps(actual, quantiles), abs=1e-6)


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


def test_each_scaled_score_leaves_out_the_same_series():
    actual = np.ones((1, 2, 3))
    far = np.array([[[2.0, 9.0, 9.0], [2.0, 9.0, 9.0]]])
    scale = [[0.5, 0.0, np.nan]]
    with pytest.warns(UserWarning, match="2 of 3 windows are left out of MSIS") as caught:
        assert metrics.msis(actual, far - 1, far, scale, alpha=0.2) == 2.0
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="2 of 3 windows are left out of the scaled quantile loss"):
        assert metrics.scaled_quantile_loss(actual, far[..., None], (0.5,), scale) == 2.0
    with pytest.raises(ValueError, match="`scale` must be positive somewhere"):
        metrics.msis(actual, far, far, [[0.0, 0.0, np.nan]], alpha=0.2)


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
    assert math.isnan(metrics.rmse(np.ones((1, 2, 1)), forecast))
    assert math.isnan(metrics.mase(np.ones((1, 2, 1)), forecast, [[1.0]]))
    assert math.isnan(metrics.msis(np.ones((1, 2, 1)), forecast, forecast, [[1.0]], 0.1))
    assert math.isnan(metrics.crps(np.ones((1, 2, 1)), np.stack([forecast] * 2, axis=-1)))


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
            r"`quantile_levels` must hold at least one level, all in \(0, 1\), got \(1.0,\)",
        ),
        (
            lambda a: metrics.quantile_loss(a, np.ones((3, 2, 1, 0)), ()),
            r"`quantile_levels` must hold at least one level",
        ),
        (lambda a: metrics.msis(a, a, a, [[1.0]], 1.0), r"`alpha` must lie in \(0, 1\), got 1.0"),
        (lambda a: metrics.msis(a, a[:1], a, [[1.0]], 0.1), "`lower` must have the shape of"),
        (lambda a: metrics.msis(a, a, a[:1], [[1.0]], 0.1), "`upper` must have the shape of"),
        (lambda a: metrics.crps(a, a), r"`samples` must have the shape \[N, F, C, K\].*least one"),
        (lambda a: metrics.crps(a, np.ones((3, 2, 1, 0))), r"`samples` must have .*\(3, 2, 1, 0\)"),
        (
            lambda a: metrics.scaled_quantile_loss(a, a[..., None], (0.5,), [[1.0], [1.0]]),
            r"`scale` must have the shape \[N, C\] = \(3, 1\)",
        ),
        (lambda a: metrics.mse(a * np.nan, a), "`actual` must hold at least one observed value"),
        (lambda a: metrics.seasonal_error(a, 2), r"`season_length` must lie in \[1, 1\]"),
        (lambda a: metrics.seasonal_error(a[0], 1), r"`past` must have the shape \[N, T, C\]"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.ones((3, 2, 1)))
