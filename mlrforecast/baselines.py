"""Forecasts that need no training: the floors that stand in every table.

Each takes the past ``[N, T, C]`` (windows, rows, channels) and returns ``[N, F, C]``. NaN in the
past is a missing value: the newest observed value of the same phase takes its place, and only a
phase that was never observed is forecast as NaN.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["profile_mean", "repeat_last", "seasonal_naive"]

Values = NDArray[np.float64]


def repeat_last(past: ArrayLike, prediction_length: int) -> Values:
    """Repeat the last observed value.

    Parameters
    ----------
    past : array of shape (N, T, C)
        Values before the forecast, oldest first.
    prediction_length : int
        Number of future steps F, at least 1.

    Returns
    -------
    array of shape (N, F, C)
        The forecast; NaN for a series that was never observed.

    Raises
    ------
    ValueError
        If ``past`` is not three-dimensional or empty, or the length is below 1.

    Examples
    --------
    >>> repeat_last([[[1.0], [3.0]]], prediction_length=2)[0, :, 0]
    array([3., 3.])
    """
    return seasonal_naive(past, prediction_length, season_length=1)


def seasonal_naive(past: ArrayLike, prediction_length: int, season_length: int) -> Values:
    """Repeat the last observed season.

    Parameters
    ----------
    past : array of shape (N, T, C)
        Values before the forecast, oldest first; at least one season.
    prediction_length : int
        Number of future steps F, at least 1.
    season_length : int
        Rows of one season, from 1 to T.

    Returns
    -------
    array of shape (N, F, C)
        The forecast; NaN for a phase that was never observed.

    Raises
    ------
    ValueError
        If ``past`` is not three-dimensional or shorter than a season, or a length is below 1.

    Examples
    --------
    >>> seasonal_naive([[[1.0], [2.0], [3.0]]], prediction_length=3, season_length=2)[0, :, 0]
    array([2., 3., 2.])
    """
    seasons = _seasons(past, prediction_length, season_length)
    newest = seasons[:, -1]
    if np.isnan(newest).any():
        seen = ~np.isnan(seasons)
        age = np.argmax(seen[:, ::-1], axis=1, keepdims=True)
        newest = np.take_along_axis(seasons[:, ::-1], age, axis=1)[:, 0]
    return _repeat(newest, prediction_length)


def profile_mean(
    past: ArrayLike, prediction_length: int, season_length: int, num_seasons: int
) -> Values:
    """Repeat the mean profile of the last seasons.

    Parameters
    ----------
    past : array of shape (N, T, C)
        Values before the forecast, oldest first; at least ``num_seasons`` seasons.
    prediction_length : int
        Number of future steps F, at least 1.
    season_length : int
        Rows of one season, e.g. 24 hours.
    num_seasons : int
        Number of seasons in the mean, at least 1; 7 days are the usual floor on hourly data.

    Returns
    -------
    array of shape (N, F, C)
        The forecast; each phase is the mean of its observed values, NaN if there is none.

    Raises
    ------
    ValueError
        If ``past`` is not three-dimensional or too short, or a length is below 1.

    Examples
    --------
    >>> past = [[[1.0], [2.0], [3.0], [6.0]]]
    >>> profile_mean(past, prediction_length=3, season_length=2, num_seasons=2)[0, :, 0]
    array([2., 4., 2.])
    """
    seasons = _seasons(past, prediction_length, season_length)
    if not 1 <= num_seasons <= seasons.shape[1]:
        raise ValueError(
            f"`num_seasons` must lie in [1, {seasons.shape[1]}], the whole seasons in `past`, "
            f"got {num_seasons}."
        )
    recent = seasons[:, -num_seasons:]
    seen = ~np.isnan(recent)
    count = seen.sum(axis=1)
    total = np.where(seen, recent, 0.0).sum(axis=1)
    profile = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return _repeat(profile, prediction_length)


def _seasons(past: ArrayLike, prediction_length: int, season_length: int) -> Values:
    """Cut the newest whole seasons of the past: ``[N, seasons, season_length, C]``."""
    values = np.asarray(past, dtype=np.float64)
    if values.ndim != 3:
        raise ValueError(f"`past` must have the shape [N, T, C], got {values.shape}.")
    windows, rows, channels = values.shape
    if rows == 0:
        raise ValueError(f"`past` must hold at least one row, got the shape {values.shape}.")
    if prediction_length < 1:
        raise ValueError(f"`prediction_length` must be at least 1, got {prediction_length}.")
    if not 1 <= season_length <= rows:
        raise ValueError(
            f"`season_length` must lie in [1, {rows}], the rows of `past`, got {season_length}."
        )
    count = rows // season_length
    newest = values[:, rows - count * season_length :]
    return newest.reshape(windows, count, season_length, channels)


def _repeat(season: Values, prediction_length: int) -> Values:
    """Continue one season ``[N, season_length, C]`` for F steps."""
    phases = np.arange(prediction_length) % season.shape[1]
    return season[:, phases]
