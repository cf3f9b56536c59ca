"""Simple forecasts: the floors that stand in every table.

Each takes the past ``[N, T, C]`` (windows, rows, channels) and returns ``[N, F, C]``. NaN in the
past is a missing value. The functions need no training: the newest observed value of the same phase
takes the place of a missing one, and only a phase that was never observed is forecast as NaN.
:class:`LinearBaseline` is fitted to windows.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import Ridge

__all__ = ["LinearBaseline", "profile_mean", "repeat_last", "seasonal_naive"]

Values = NDArray[np.float64]


class LinearBaseline:
    """Forecast by one linear map from the past of a channel to its future.

    The last value of the past is taken off before the map and put back after it, as in NLinear, and
    the map has no constant: the forecast of ``a * past + b`` is that of ``past``, times ``a``, plus
    ``b``. One map serves all channels of all windows. It is the ridge regression on the windows
    given, found in closed form.

    A missing value of the past is the last observed one before it, or the first observed one of
    its window where there is none. A channel without any value is left out of the fit and forecast
    as NaN.

    Parameters
    ----------
    alpha : float, default 1.0
        Penalty of the squared weights, above 0, in units of the mean square of the inputs, so that
        the unit of the values does not matter. It counts as much as so many windows.

    Attributes
    ----------
    weights_ : ndarray of shape (F, T)
        The map, once fitted: weights of the past less its last value.

    References
    ----------
    Zeng, Chen, Zhang, Xu (2023), "Are transformers effective for time series forecasting?".
    Toner, Darlow (2024), "An analysis of linear time series forecasting models", on the fit in
    closed form.

    Examples
    --------
    >>> values = np.tile([0.0, 1.0, 4.0], 10)
    >>> past = np.stack([values[first : first + 6] for first in range(20)])[..., None]
    >>> future = np.stack([values[first + 6 : first + 9] for first in range(20)])[..., None]
    >>> model = LinearBaseline(alpha=1e-9).fit(past, future)
    >>> model.predict(10 * past[:1] + 3).round(3).ravel().tolist()
    [3.0, 13.0, 43.0]
    """

    def __init__(self, *, alpha: float = 1.0) -> None:
        if not alpha > 0:
            raise ValueError(f"`alpha` must be above 0, got {alpha}.")
        self.alpha = alpha
        self.weights_: Values | None = None

    def fit(self, past: ArrayLike, future: ArrayLike) -> "LinearBaseline":
        """Fit the map to windows; all of them count alike, so give series in comparable units.

        Parameters
        ----------
        past : array of shape (N, T, C)
            Values before each forecast, oldest first.
        future : array of shape (N, F, C)
            The values that followed. A channel of a window that lacks one of them is left out.

        Returns
        -------
        LinearBaseline
            Itself.

        Raises
        ------
        ValueError
            If the shapes do not fit, or no window has an observed past and a complete future.
        """
        before = _three_axes(past, "past", "[N, T, C]")
        after = _three_axes(future, "future", "[N, F, C]")
        if before.shape[::2] != after.shape[::2]:
            raise ValueError(
                f"`future` must have the windows and channels of `past` {before.shape}, "
                f"got {after.shape}."
            )
        inputs, last = _less_last(before)
        targets = after - last
        known = ~(np.isnan(last[:, 0]) | np.isnan(targets).any(axis=1))
        if not known.any():
            raise ValueError(
                "`past` and `future` must hold a window with an observed past and a complete "
                f"future, got none in {len(before)} windows of {before.shape[2]} channels."
            )
        self.weights_ = self._solve(
            inputs.transpose(0, 2, 1)[known], targets.transpose(0, 2, 1)[known]
        )
        return self

    def predict(self, past: ArrayLike) -> Values:
        """Forecast from windows.

        Parameters
        ----------
        past : array of shape (N, T, C)
            Values before each forecast, oldest first; ``T`` as in the fit.

        Returns
        -------
        array of shape (N, F, C)
            The forecast; NaN for a channel that was never observed.

        Raises
        ------
        ValueError
            If it was not fitted, or ``past`` has another shape.
        """
        if self.weights_ is None:
            raise ValueError("`LinearBaseline` must be fitted first: call `fit`.")
        before = _three_axes(past, "past", "[N, T, C]")
        if before.shape[1] != self.weights_.shape[1]:
            raise ValueError(
                f"`past` must hold {self.weights_.shape[1]} rows as in the fit, "
                f"got {before.shape[1]}."
            )
        inputs, last = _less_last(before)
        return np.asarray(self.weights_ @ inputs + last)

    def _solve(self, inputs: Values, targets: Values) -> Values:
        """Return the weights ``[F, T]`` of flat inputs ``[M, T]`` and targets ``[M, F]``."""
        size = np.mean(inputs**2)
        if size == 0:
            return np.zeros((targets.shape[1], inputs.shape[1]))
        ridge = Ridge(alpha=self.alpha * size, fit_intercept=False).fit(inputs, targets)
        return np.asarray(ridge.coef_).reshape(targets.shape[1], inputs.shape[1])


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


def _three_axes(array: ArrayLike, name: str, layout: str) -> Values:
    """Return an array of three axes and at least one row in float64."""
    values = np.asarray(array, dtype=np.float64)
    if values.ndim != 3:
        raise ValueError(f"`{name}` must have the shape {layout}, got {values.shape}.")
    if values.shape[1] == 0:
        raise ValueError(f"`{name}` must hold at least one row, got the shape {values.shape}.")
    return values


def _seasons(past: ArrayLike, prediction_length: int, season_length: int) -> Values:
    """Cut the newest whole seasons of the past: ``[N, seasons, season_length, C]``."""
    values = _three_axes(past, "past", "[N, T, C]")
    windows, rows, channels = values.shape
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


def _less_last(past: Values) -> tuple[Values, Values]:
    """Fill the past ``[N, T, C]``, take off its last value, and return both.

    Where nothing was observed the first is zero and the last value ``[N, 1, C]`` NaN.
    """
    seen = ~np.isnan(past)
    rows = np.arange(past.shape[1])[:, None]
    newest = np.maximum.accumulate(np.where(seen, rows, -1), axis=1)
    source = np.where(newest < 0, np.argmax(seen, axis=1)[:, None], newest)
    filled = np.take_along_axis(past, source, axis=1)
    last = filled[:, -1:]
    return np.nan_to_num(filled - last), last
