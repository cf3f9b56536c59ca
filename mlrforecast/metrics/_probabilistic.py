"""Scores of quantiles, intervals and samples."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from mlrforecast.metrics import losses
from mlrforecast.metrics._checks import Values, like, observed_values, quantile_arrays


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
    pinball, _ = _pinball(actual, quantiles, quantile_levels)
    return float(np.mean(pinball))


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
    pinball, observed = _pinball(actual, quantiles, quantile_levels)
    size = np.abs(observed).sum()
    if size == 0:
        raise ValueError(
            "`actual` must hold a value other than zero: the weighted quantile loss divides by "
            "its summed size. Use `quantile_loss` for such data."
        )
    return float(np.mean(pinball.sum(axis=0) / size))


def crps(actual: ArrayLike, samples: ArrayLike) -> float:
    """Average the continuous ranked probability score of samples, without approximation.

    The score of one value is ``mean |x - a| - mean |x - x'| / 2`` over all samples ``x`` and all
    pairs of them, each with itself included: that of the empirical distribution. It is the integral
    of :func:`quantile_loss` over all levels, and of one sample the absolute error.

    Parameters
    ----------
    actual : array of shape (N, F, C)
        What came to be; NaN where it was not observed.
    samples : array of shape (N, F, C, K)
        ``K`` equally likely values, in any order, in the units of ``actual``.

    Returns
    -------
    float
        Mean CRPS, in the units of ``actual``.

    Raises
    ------
    ValueError
        If the shapes do not fit, there is no sample, or nothing was observed.

    References
    ----------
    Gneiting, Raftery (2007), "Strictly proper scoring rules, prediction, and estimation",
    equation 21.

    Examples
    --------
    >>> crps([[[1.0]]], [[[[2.0, 0.0]]]])
    0.5
    """
    observed, seen = observed_values(actual)
    drawn = np.asarray(samples, dtype=np.float64)
    if drawn.ndim != 4 or drawn.shape[:3] != observed.shape or drawn.shape[3] == 0:
        raise ValueError(
            f"`samples` must have the shape [N, F, C, K] with [N, F, C] = {observed.shape} and at "
            f"least one sample, got {drawn.shape}."
        )
    return float(np.mean(losses.sample_crps(observed[seen], drawn[seen])))


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
    observed, seen = observed_values(actual)
    low, high = like(observed, lower, "lower")[seen], like(observed, upper, "upper")[seen]
    if np.isnan(low).any() or np.isnan(high).any():
        raise ValueError("`lower` and `upper` must not hold NaN where `actual` was observed.")
    return float(np.mean(losses.inside(observed[seen], low, high)))


def _pinball(
    actual: ArrayLike, quantiles: ArrayLike, quantile_levels: Sequence[float]
) -> tuple[Values, Values]:
    """Twice the pinball loss of every observed value and level, and the observed values."""
    observed, seen = observed_values(actual)
    predicted, levels = quantile_arrays(observed, quantiles, quantile_levels)
    return losses.pinball_loss(observed[seen], predicted[seen], levels), observed[seen]
