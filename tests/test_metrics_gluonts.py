"""Scores against those of ``gluonts.ev``, on the same arrays."""

import numpy as np
import pytest

from mlrforecast import metrics

ev = pytest.importorskip("gluonts.ev.metrics")
ts_stats = pytest.importorskip("gluonts.ev.ts_stats")

LEVELS = (0.025, 0.1, 0.5, 0.9, 0.975)
SEASON = 4


@pytest.fixture(params=range(3), ids="seed {}".format)
def case(request):
    """Arrays with zeros, missing values, and series without a scale."""
    rng = np.random.default_rng(request.param)
    actual = rng.normal(size=(12, 7, 2)).round(1) * 3
    actual[rng.random(actual.shape) < 0.2] = 0.0
    actual[rng.random(actual.shape) < 0.2] = np.nan
    actual[3, :, 0] = np.nan
    past = rng.normal(size=(12, 30, 2))
    past[rng.random(past.shape) < 0.1] = np.nan
    past[1, :, 1] = 5.0  # constant
    past[2, :, 0] = np.nan
    forecast = rng.normal(size=actual.shape)
    quantiles = np.sort(rng.normal(size=(*actual.shape, len(LEVELS))), axis=-1) * 2
    return actual, forecast, quantiles, past


def theirs(definition, case, scale=None):
    """The score of GluonTS over all axes."""
    actual, forecast, quantiles, _ = case
    data = {"label": np.ma.masked_invalid(actual), "mean": forecast, "point": forecast}
    data |= {str(level): quantiles[..., q] for q, level in enumerate(LEVELS)}
    if scale is not None:
        data["seasonal_error"] = scale[:, None, :]
    return float(definition(axis=None).update(data).get())


def scale_of(case):
    return metrics.seasonal_error(case[3], SEASON)


def test_seasonal_error(case):
    past = case[3]
    found = scale_of(case)
    masked = ts_stats.seasonal_error(np.ma.masked_invalid(past), SEASON, time_axis=1)
    np.testing.assert_allclose(found, masked[:, 0].filled(np.nan), rtol=1e-12)
    assert found[1, 1] == 0
    assert np.isnan(found[2, 0])


def test_point_scores(case):
    actual, forecast, _, _ = case
    for ours, definition in [
        (metrics.mse, ev.MSE("point")),
        (metrics.mae, ev.MAE("point")),
        (metrics.rmse, ev.RMSE("point")),
        (metrics.smape, ev.SMAPE("point")),
    ]:
        assert ours(actual, forecast) == pytest.approx(theirs(definition, case), rel=1e-12)


def test_smape_counts_two_zeros_that_gluonts_leaves_out(case):
    actual, forecast, _, _ = case
    forecast[actual == 0] = 0.0
    observed, zeros = (~np.isnan(actual)).sum(), (actual == 0).sum()
    assert zeros > 5
    expected = theirs(ev.SMAPE("point"), case) * (observed - zeros) / observed
    assert metrics.smape(actual, forecast) == pytest.approx(expected, rel=1e-12)


def test_quantile_scores(case):
    actual, _, quantiles, _ = case
    found = metrics.weighted_quantile_loss(actual, quantiles, LEVELS)
    expected = theirs(ev.MeanWeightedSumQuantileLoss(LEVELS), case)
    assert found == pytest.approx(expected, rel=1e-12)
    found = metrics.quantile_loss(actual, quantiles, LEVELS)
    expected = theirs(ev.MeanSumQuantileLoss(LEVELS), case) / (~np.isnan(actual)).sum()
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("low", "high"), [(0, 4), (1, 3)])
def test_coverage_is_the_difference_of_two_of_gluonts(case, low, high):
    actual, _, quantiles, _ = case
    found = metrics.coverage(actual, quantiles[..., low], quantiles[..., high])
    below, upto = (theirs(ev.Coverage(LEVELS[q]), case) for q in (low, high))
    assert found == pytest.approx(upto - below, rel=1e-12)


@pytest.mark.filterwarnings("ignore:.* windows are left out:UserWarning")
def test_scaled_scores_leave_out_the_same_series(case):
    actual, forecast, quantiles, _ = case
    scale = scale_of(case)
    found = metrics.mase(actual, forecast, scale)
    assert found == pytest.approx(theirs(ev.MASE("point"), case, scale), rel=1e-12)
    for alpha, low, high in [(0.05, 0, 4), (0.2, 1, 3)]:
        found = metrics.msis(actual, quantiles[..., low], quantiles[..., high], scale, alpha)
        assert found == pytest.approx(theirs(ev.MSIS(alpha), case, scale), rel=1e-12)
    found = metrics.scaled_quantile_loss(actual, quantiles, LEVELS, scale)
    expected = theirs(ev.AverageMeanScaledQuantileLoss(LEVELS), case, scale)
    assert found == pytest.approx(expected, rel=1e-12)
