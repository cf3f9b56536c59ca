"""Forecast scores: numpy arrays in, one float out.

Every array of values is laid out ``[N, F, C]``: windows (or series), future steps, channels. A NaN
in ``actual`` is a missing value and is left out; a NaN in a forecast is a fault and makes the score
NaN, so that it is seen.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "coverage",
    "mae",
    "mase",
    "mse",
    "quantile_loss",
    "seasonal_error",
    "smape",
    "weighted_quantile_loss",
]

Values = NDArray[np.float64]


def mse(actual: ArrayLike, forecast: ArrayLike) -> float:
    """Average the squared errors over all windows, steps and channels.

    Parameters
    ----------
    actual : array of shape (N, F, C)
        What came to be; NaN where it was not observed.
    forecast : array of shape (N, F, C)
        Point forecast, in the units of ``actual``.

    Returns
    -------
    float
        Mean squared error, in squared units.

    Raises
    ------
    ValueError
        If the shapes differ, are not three-dimensional, or nothing was observed.

    Examples
    --------
    >>> mse([[[1.0], [2.0]]], [[[1.0], [4.0]]])
    2.0
    """
    observed, predicted, seen = _pair(actual, forecast, "forecast")
    return float(np.mean((predicted - observed)[seen] ** 2))


def mae(actual: ArrayLike, forecast: ArrayLike) -> float:
    """Average the absolute errors over all windows, steps and channels.

    Parameters
    ----------
    actual : array of shape (N, F, C)
        What came to be; NaN where it was not observed.
    forecast : array of shape (N, F, C)
        Point forecast, in the units of ``actual``.

    Returns
    -------
    float
        Mean absolute error, in the units of ``actual``.

    Raises
    ------
    ValueError
        If the shapes differ, are not three-dimensional, or nothing was observed.

    Examples
    --------
    >>> mae([[[1.0], [2.0]]], [[[1.0], [4.0]]])
    1.0
    """
    observed, predicted, seen = _pair(actual, forecast, "forecast")
    return float(np.mean(np.abs(predicted - observed)[seen]))


def smape(actual: ArrayLike, forecast: ArrayLike) -> float:
    """Average the symmetric relative errors ``2 |a - f| / (|a| + |f|)``, between 0 and 2.

    This is the M4 definition as a fraction: the competition prints 100 times this number, and some
    libraries half of it. A step where both values are zero counts as an error of 0.

    Parameters
    ----------
    actual : array of shape (N, F, C)
        What came to be; NaN where it was not observed.
    forecast : array of shape (N, F, C)
        Point forecast, in the units of ``actual``.

    Returns
    -------
    float
        Symmetric mean absolute percentage error, a fraction.

    Raises
    ------
    ValueError
        If the shapes differ, are not three-dimensional, or nothing was observed.

    References
    ----------
    Makridakis, Spiliotis, Assimakopoulos (2020), "The M4 Competition", section 2.

    Examples
    --------
    >>> smape([[[1.0], [0.0]]], [[[3.0], [0.0]]])
    0.5
    """
    observed, predicted, seen = _pair(actual, forecast, "forecast")
    error = np.abs(predicted - observed)[seen]
    size = (np.abs(predicted) + np.abs(observed))[seen]
    return float(np.mean(2 * np.divide(error, size, out=np.zeros_like(error), where=size != 0)))


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
    values = _three_axes(past, "past", "[N, T, C]")
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

    Each window and channel is averaged over its observed steps and divided by its scale; the mean
    over those is returned. Where the scale is zero (a constant past) or NaN (no past) the ratio is
    undefined: such series are left out, and a warning counts them.

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
    observed, predicted, seen = _pair(actual, forecast, "forecast")
    scales = _scales(scale, observed.shape)
    usable = np.isfinite(scales) & (scales > 0)
    if not usable.all():
        _report_unusable(int((~usable).sum()), usable.size)
    error = np.where(seen, np.abs(predicted - observed), 0.0).sum(axis=1)
    count = seen.sum(axis=1)
    kept = usable & (count > 0)
    if not kept.any():
        raise ValueError("`actual` holds no observed value in the series whose scale is usable.")
    return float(np.mean(error[kept] / count[kept] / scales[kept]))


def quantile_loss(
    actual: ArrayLike, quantiles: ArrayLike, quantile_levels: Sequence[float]
) -> float:
    """Average twice the pinball loss over all windows, steps, channels and levels.

    The factor 2 makes the loss at level 0.5 equal to the mean absolute error.

    Parameters
    ----------
    actual : array of shape (N, F, C)
        What came to be; NaN where it was not observed.
    quantiles : array of shape (N, F, C, Q)
        Forecast quantiles, in the units of ``actual``.
    quantile_levels : sequence of Q floats in (0, 1)
        The level of each entry of the last axis.

    Returns
    -------
    float
        Mean quantile loss, in the units of ``actual``.

    Raises
    ------
    ValueError
        If the shapes do not fit, a level lies outside (0, 1), or nothing was observed.

    Examples
    --------
    >>> quantile_loss([[[3.0]]], [[[[1.0, 2.0]]]], quantile_levels=(0.1, 0.5))
    0.7
    """
    losses, _ = _pinball(actual, quantiles, quantile_levels)
    return float(np.mean(losses))


def weighted_quantile_loss(
    actual: ArrayLike, quantiles: ArrayLike, quantile_levels: Sequence[float]
) -> float:
    """Divide the summed quantile loss by the summed size of the actual values (WQL).

    Parameters
    ----------
    actual : array of shape (N, F, C)
        What came to be; NaN where it was not observed.
    quantiles : array of shape (N, F, C, Q)
        Forecast quantiles, in the units of ``actual``.
    quantile_levels : sequence of Q floats in (0, 1)
        The level of each entry of the last axis.

    Returns
    -------
    float
        Mean over the levels of ``2 sum(pinball) / sum(|actual|)``, a fraction.

    Raises
    ------
    ValueError
        If the shapes do not fit, a level lies outside (0, 1), nothing was observed, or every
        observed value is zero, where the ratio is undefined.

    Examples
    --------
    >>> weighted_quantile_loss([[[2.0]]], [[[[1.0, 2.0]]]], quantile_levels=(0.5, 0.9))
    0.25
    """
    losses, observed = _pinball(actual, quantiles, quantile_levels)
    size = np.abs(observed).sum()
    if size == 0:
        raise ValueError(
            "`actual` must hold a value other than zero: the weighted quantile loss divides by "
            "its summed size. Use `quantile_loss` for such data."
        )
    return float(np.mean(losses.sum(axis=0) / size))


def coverage(actual: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Count how often the actual value lies between two quantiles, both ends included.

    Parameters
    ----------
    actual : array of shape (N, F, C)
        What came to be; NaN where it was not observed.
    lower, upper : array of shape (N, F, C)
        The ends of the interval, e.g. the quantiles 0.1 and 0.9 of an 80 % interval.

    Returns
    -------
    float
        Share of the observed values inside; 0.8 is ideal for an 80 % interval.

    Raises
    ------
    ValueError
        If the shapes differ, are not three-dimensional, nothing was observed, or an end is NaN.

    Examples
    --------
    >>> coverage([[[1.0], [5.0]]], [[[0.0], [0.0]]], [[[1.0], [2.0]]])
    0.5
    """
    observed, low, seen = _pair(actual, lower, "lower")
    _, high, _ = _pair(actual, upper, "upper")
    if np.isnan(low[seen]).any() or np.isnan(high[seen]).any():
        raise ValueError("`lower` and `upper` must not hold NaN where `actual` was observed.")
    return float(np.mean(((low <= observed) & (observed <= high))[seen]))


def _three_axes(array: ArrayLike, name: str, layout: str) -> Values:
    values = np.asarray(array, dtype=np.float64)
    if values.ndim != 3:
        raise ValueError(f"`{name}` must have the shape {layout}, got {values.shape}.")
    return values


def _pair(
    actual: ArrayLike, forecast: ArrayLike, name: str
) -> tuple[Values, Values, NDArray[np.bool_]]:
    """Check two arrays of one shape; return them and where the first was observed."""
    observed = _three_axes(actual, "actual", "[N, F, C]")
    predicted = _three_axes(forecast, name, "[N, F, C]")
    if observed.shape != predicted.shape:
        raise ValueError(
            f"`{name}` must have the shape of `actual` {observed.shape}, got {predicted.shape}."
        )
    return observed, predicted, _observed(observed)


def _observed(actual: Values) -> NDArray[np.bool_]:
    seen = ~np.isnan(actual)
    if not seen.any():
        raise ValueError(
            f"`actual` must hold at least one observed value, got {actual.size} values, all NaN."
        )
    return seen


def _scales(scale: ArrayLike, shape: tuple[int, ...]) -> Values:
    """Check the scale of MASE and repeat one row over all windows."""
    scales = np.asarray(scale, dtype=np.float64)
    windows, _, channels = shape
    if scales.shape not in {(windows, channels), (1, channels)}:
        raise ValueError(
            f"`scale` must have the shape [N, C] = {(windows, channels)} (or one row), "
            f"got {scales.shape}."
        )
    return np.broadcast_to(scales, (windows, channels))


def _report_unusable(unusable: int, series: int) -> None:
    if unusable == series:
        raise ValueError(
            f"`scale` must be positive somewhere, got zero or NaN for all {series} windows: their "
            "past is constant or missing, so the scaled error is undefined."
        )
    warnings.warn(
        f"{unusable} of {series} windows are left out of MASE: their scale is zero or NaN "
        "(constant or missing past).",
        UserWarning,
        stacklevel=3,
    )


def _pinball(
    actual: ArrayLike, quantiles: ArrayLike, quantile_levels: Sequence[float]
) -> tuple[Values, Values]:
    """Twice the pinball loss of every observed value and level, and the observed values."""
    observed = _three_axes(actual, "actual", "[N, F, C]")
    predicted = np.asarray(quantiles, dtype=np.float64)
    levels = np.asarray(quantile_levels, dtype=np.float64)
    if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"`quantile_levels` must lie in (0, 1), got {quantile_levels}.")
    if predicted.shape != (*observed.shape, levels.size):
        raise ValueError(
            f"`quantiles` must have the shape [N, F, C, Q] = {(*observed.shape, levels.size)}, "
            f"got {predicted.shape}."
        )
    seen = _observed(observed)
    error = observed[seen][:, None] - predicted[seen]
    return 2 * np.maximum(levels * error, (levels - 1) * error), observed[seen]
