"""Losses of single values, which the scores average.

Arrays may have any shape; a NaN in an actual or forecast value makes its loss NaN. The arrays are
taken as they are: the scores of :mod:`mlrforecast.metrics` check theirs.
"""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


def relative_error(actual: Values, forecast: Values) -> Values:
    """Return ``2 |a - f| / (|a| + |f|)`` of ``actual`` and ``forecast``; 0 where both are zero.

    Examples
    --------
    >>> relative_error(np.array([1.0, 0.0]), np.array([3.0, 0.0]))
    array([1., 0.])
    """
    error = np.abs(forecast - actual)
    size = np.abs(forecast) + np.abs(actual)
    ratio: Values = np.divide(error, size, out=np.zeros_like(error), where=size != 0)
    return 2 * ratio


def pinball_loss(actual: Values, quantiles: Values, levels: Values) -> Values:
    """Return twice the pinball loss of ``actual`` at the ``quantiles`` (..., Q) of ``levels`` (Q,).

    Examples
    --------
    >>> pinball_loss(np.array([3.0]), np.array([[1.0, 2.0]]), np.array([0.1, 0.5]))
    array([[0.4, 1. ]])
    """
    error = actual[..., None] - quantiles
    return 2 * np.maximum(levels * error, (levels - 1) * error)


def interval_score(actual: Values, lower: Values, upper: Values, alpha: float) -> Values:
    """Score how wide ``lower`` to ``upper`` is, and how far ``actual`` is outside.

    The width, and ``2 / alpha`` times the distance: ``alpha`` of the values may be outside.

    Examples
    --------
    >>> interval_score(np.array([1.0, 4.0]), np.zeros(2), np.array([2.0, 3.0]), alpha=0.2)
    array([ 2., 13.])
    """
    below = np.maximum(lower - actual, 0)
    above = np.maximum(actual - upper, 0)
    return upper - lower + 2 / alpha * (below + above)


def inside(actual: Values, lower: Values, upper: Values) -> Values:
    """Return 1 where ``actual`` lies in ``lower`` to ``upper``, ends included, and 0 elsewhere.

    Examples
    --------
    >>> inside(np.array([1.0, 5.0]), np.zeros(2), np.array([1.0, 2.0]))
    array([1., 0.])
    """
    unknown = np.isnan(actual) | np.isnan(lower) | np.isnan(upper)
    return np.where(unknown, np.nan, (lower <= actual) & (actual <= upper))


def sample_crps(actual: Values, samples: Values) -> Values:
    """Return the CRPS of ``actual`` and the empirical distribution of ``samples`` (..., K).

    The mean distance of a sample from the actual value, less half the mean distance of two samples.

    Examples
    --------
    >>> sample_crps(np.array([1.0]), np.array([[0.0, 2.0]]))
    array([0.5])
    """
    # Sorted, the distances of all pairs are a weighted sum, O(K log K) in all.
    ordered = np.sort(samples - actual[..., None], axis=-1)
    count = ordered.shape[-1]
    weights = (2 * np.arange(count) + 1 - count) / count**2
    return np.asarray(np.abs(ordered).mean(axis=-1) - ordered @ weights)
