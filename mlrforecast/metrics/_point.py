"""Scores of point forecasts, in their own unit or relative to the values."""

import numpy as np
from numpy.typing import ArrayLike

from mlrforecast.metrics._checks import observed_pairs
from mlrforecast.metrics.losses import relative_error


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
    observed, predicted = observed_pairs(actual, forecast)
    return float(np.mean((predicted - observed) ** 2))


def rmse(actual: ArrayLike, forecast: ArrayLike) -> float:
    """Return the root of the squared error averaged over all windows, steps and channels.

    Parameters
    ----------
    actual : array of shape (N, F, C)
        What came to be; NaN where it was not observed.
    forecast : array of shape (N, F, C)
        Point forecast, in the units of ``actual``.

    Returns
    -------
    float
        Root mean squared error, in the units of ``actual``: the root of the mean over all values,
        not a mean of roots.

    Raises
    ------
    ValueError
        If the shapes differ, are not three-dimensional, or nothing was observed.

    Examples
    --------
    >>> rmse([[[1.0], [2.0]]], [[[2.0], [9.0]]])
    5.0
    """
    return float(np.sqrt(mse(actual, forecast)))


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
    observed, predicted = observed_pairs(actual, forecast)
    return float(np.mean(np.abs(predicted - observed)))


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
    return float(np.mean(relative_error(*observed_pairs(actual, forecast))))
