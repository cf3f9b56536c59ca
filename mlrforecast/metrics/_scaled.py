"""Scores in units of the seasonal error of each series."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from mlrforecast.metrics import losses
from mlrforecast.metrics._checks import (
    Values,
    like,
    observed_values,
    quantile_arrays,
    three_axes,
    usable_scales,
)


def seasonal_error(past: ArrayLike, season_length: int) -> Values:
    """Average the absolute steps of each series from one season to the next: the scale of MASE.

    Parameters
    ----------
    past : array of shape (N, T, C)
        Values before the forecast; pairs with a NaN are left out.
    season_length : int
        Rows of one season, from 1 to ``T - 1``.

    Returns
    -------
    array of shape (N, C)
        Mean of ``|past[t] - past[t - season_length]|``; NaN where no pair was observed.

    Raises
    ------
    ValueError
        If ``past`` is not three-dimensional or not longer than a season.

    Examples
    --------
    >>> seasonal_error([[[1.0], [2.0], [4.0]]], season_length=1)
    array([[1.5]])
    """
    values = three_axes(past, "past", "[N, T, C]")
    if not 1 <= season_length < values.shape[1]:
        raise ValueError(
            f"`season_length` must lie in [1, {values.shape[1] - 1}], shorter than `past` "
            f"({values.shape[1]} rows), got {season_length}."
        )
    steps = np.abs(values[:, season_length:] - values[:, :-season_length])
    seen = ~np.isnan(steps)
    count = seen.sum(axis=1)
    total = np.where(seen, steps, 0.0).sum(axis=1)
    scale: Values = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    return scale


def mase(actual: ArrayLike, forecast: ArrayLike, scale: ArrayLike) -> float:
    """Average the absolute errors in units of each series' own seasonal error.

    Every absolute error is divided by the scale of its series; the mean over all observed values is
    returned. Where the scale is zero (a constant past) or NaN (no past) the ratio is undefined:
    such series are left out, and a warning counts them.

    Parameters
    ----------
    actual : array of shape (N, F, C)
        What came to be; NaN where it was not observed.
    forecast : array of shape (N, F, C)
        Point forecast, in the units of ``actual``.
    scale : array of shape (N, C)
        Seasonal error of each series, as :func:`seasonal_error` gives it; ``(1, C)`` is repeated.

    Returns
    -------
    float
        Mean absolute scaled error; 1 is as good as the in-sample seasonal naive forecast.

    Raises
    ------
    ValueError
        If the shapes do not fit, nothing was observed, or no series has a usable scale.

    Warns
    -----
    UserWarning
        If some, but not all, series have no usable scale.

    References
    ----------
    Hyndman, Koehler (2006), "Another look at measures of forecast accuracy".

    Examples
    --------
    >>> mase([[[1.0], [2.0]]], [[[1.0], [4.0]]], scale=[[0.5]])
    2.0
    """
    observed, seen = observed_values(actual)
    predicted = like(observed, forecast, "forecast")
    scales, kept = usable_scales(scale, seen, "MASE")
    return float(np.mean(np.abs(predicted - observed)[kept] / scales[kept]))


def msis(
    actual: ArrayLike, lower: ArrayLike, upper: ArrayLike, scale: ArrayLike, alpha: float
) -> float:
    """Average the scores of intervals in units of each series' own seasonal error.

    The score of an interval is its width, and ``2 / alpha`` times the distance of the actual value
    from it: both wide and missed ones cost. Series without a scale are left out as in :func:`mase`.

    Parameters
    ----------
    actual : array of shape (N, F, C)
        What came to be; NaN where it was not observed.
    lower, upper : array of shape (N, F, C)
        The quantiles ``alpha / 2`` and ``1 - alpha / 2``, in the units of ``actual``.
    scale : array of shape (N, C)
        Seasonal error of each series, as :func:`seasonal_error` gives it; ``(1, C)`` is repeated.
    alpha : float in (0, 1)
        Share of the values that should fall outside, e.g. 0.05 for a 95 % interval.

    Returns
    -------
    float
        Mean scaled interval score.

    Raises
    ------
    ValueError
        If the shapes do not fit, ``alpha`` lies outside (0, 1), nothing was observed, or no series
        has a usable scale.

    Warns
    -----
    UserWarning
        If some, but not all, series have no usable scale.

    References
    ----------
    Makridakis, Spiliotis, Assimakopoulos (2020), "The M4 Competition", section 2.

    Examples
    --------
    >>> msis([[[1.0], [4.0]]], [[[0.0], [0.0]]], [[[2.0], [3.0]]], scale=[[0.5]], alpha=0.2)
    15.0
    """
    if not 0 < alpha < 1:
        raise ValueError(f"`alpha` must lie in (0, 1), got {alpha}.")
    observed, seen = observed_values(actual)
    low, high = like(observed, lower, "lower"), like(observed, upper, "upper")
    scales, kept = usable_scales(scale, seen, "MSIS")
    score = losses.interval_score(observed[kept], low[kept], high[kept], alpha)
    return float(np.mean(score / scales[kept]))


def scaled_quantile_loss(
    actual: ArrayLike, quantiles: ArrayLike, quantile_levels: Sequence[float], scale: ArrayLike
) -> float:
    """Average the quantile loss in units of each series' own seasonal error.

    Twice the pinball loss, so that of level 0.5 is :func:`mase`. Series without a scale are left
    out as there.

    Parameters
    ----------
    actual : array of shape (N, F, C)
        What came to be; NaN where it was not observed.
    quantiles : array of shape (N, F, C, Q)
        Forecast quantiles, in the units of ``actual``.
    quantile_levels : sequence of Q floats in (0, 1)
        The level of each entry of the last axis.
    scale : array of shape (N, C)
        Seasonal error of each series, as :func:`seasonal_error` gives it; ``(1, C)`` is repeated.

    Returns
    -------
    float
        Mean scaled quantile loss over all observed values and levels.

    Raises
    ------
    ValueError
        If the shapes do not fit, a level lies outside (0, 1), nothing was observed, or no series
        has a usable scale.

    Warns
    -----
    UserWarning
        If some, but not all, series have no usable scale.

    Examples
    --------
    >>> scaled_quantile_loss([[[3.0]]], [[[[1.0, 2.0]]]], (0.1, 0.5), scale=[[2.0]])
    0.35
    """
    observed, seen = observed_values(actual)
    predicted, levels = quantile_arrays(observed, quantiles, quantile_levels)
    scales, kept = usable_scales(scale, seen, "the scaled quantile loss")
    pinball = losses.pinball_loss(observed[kept], predicted[kept], levels)
    return float(np.mean(pinball / scales[kept][:, None]))
