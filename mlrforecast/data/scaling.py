"""Scalers: how values of any size and level are brought to one unit, and exactly back."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from jaxtyping import Float

from mlrforecast.data._storage import blocks

Scaling: TypeAlias = Literal["standard", "robust", "mean_abs"]

SCALINGS: tuple[Scaling, ...] = get_args(Scaling)

NORMAL_IQR = 1.3489795003921634
"""Distance between the quartiles of the standard normal distribution."""

LEAST_IQR = 1e-6
"""Robust scales below this share of the standard deviation are not used: what is left of the
spread is then rounding, and an outlier would not fit into float32."""


class Scaled(NamedTuple):
    """Values in a common unit, and the way back.

    Parameters
    ----------
    values : ndarray
        Scaled values, NaN where missing.
    loc, scale : ndarray
        ``values * scale + loc`` gives the values back, to twelve digits of the largest.
    """

    values: np.ndarray
    loc: np.ndarray
    scale: np.ndarray


def scale_windows(
    values: Float[np.ndarray, "B T C"], scaling: Scaling | None = "standard"
) -> Scaled:
    """Scale each channel of each window by its own observed values.

    Neither a large level nor the size of the values costs accuracy: both are taken out before
    anything is squared.

    Parameters
    ----------
    values : ndarray of shape (B, T, C)
        Windows, NaN where missing.
    scaling : {"standard", "robust", "mean_abs"}, optional
        Mean and standard deviation; median and distance of the quartiles as a share of that of a
        normal distribution (the standard deviation where the quartiles are as good as equal); or
        0 and the mean of the absolute values. None leaves the values as they are.

    Returns
    -------
    Scaled
        ``loc`` and ``scale`` have the shape (B, 1, C). A constant becomes exactly 0 with scale 1
        (with ``"mean_abs"``, exactly 1 or -1; zeros stay 0 with scale 1). Where nothing was
        observed, ``loc`` is 0 and ``scale`` 1.

    Raises
    ------
    ValueError
        If the scaling is unknown.

    Examples
    --------
    >>> scaled = scale_windows(np.array([[[10.0], [np.nan], [14.0]]]))
    >>> scaled.values.ravel().tolist(), scaled.loc.item(), scaled.scale.item()
    ([-1.0, nan, 1.0], 12.0, 2.0)
    """
    num_windows, length, num_channels = values.shape
    columns = np.ascontiguousarray(values.swapaxes(1, 2)).reshape(-1)
    bounds = np.arange(num_windows * num_channels + 1) * length
    scaled = scale_runs(columns, bounds, scaling)
    shape = (num_windows, 1, num_channels)
    return Scaled(
        scaled.values.reshape(num_windows, num_channels, length).swapaxes(1, 2),
        scaled.loc.reshape(shape),
        scaled.scale.reshape(shape),
    )


def scale_runs(
    values: Float[np.ndarray, " N"], bounds: np.ndarray, scaling: Scaling | None = "standard"
) -> Scaled:
    """Scale runs that stand one after the other, each by its own observed values.

    Parameters
    ----------
    values : ndarray of shape (N,)
        Values of all runs, NaN where missing.
    bounds : ndarray of int of shape (S + 1,)
        Run ``s`` has the values ``bounds[s]`` to ``bounds[s + 1] - 1``, at least one.
    scaling : {"standard", "robust", "mean_abs"}, optional
        As in :func:`scale_windows`.

    Returns
    -------
    Scaled
        ``loc`` and ``scale`` have the shape (S,).

    Raises
    ------
    ValueError
        If the scaling is unknown.

    Examples
    --------
    >>> scaled = scale_runs(np.array([1.0, 3.0, 5.0, 5.0]), np.array([0, 2, 4]))
    >>> scaled.values.tolist(), scaled.loc.tolist(), scaled.scale.tolist()
    ([-1.0, 1.0, 0.0, 0.0], [2.0, 5.0], [1.0, 1.0])
    """
    if scaling is None:
        return Scaled(values, np.zeros(len(bounds) - 1), np.ones(len(bounds) - 1))
    if scaling not in SCALINGS:
        raise ValueError(f"`scaling` must be one of {', '.join(SCALINGS)}, got {scaling!r}.")
    runs = _Runs(values, bounds)
    if scaling == "mean_abs":
        sizes = np.abs(values)
        size = runs.largest(sizes)
        sizes /= runs.spread_out(size)
        scale = runs.mean(sizes) * size
        scale[scale == 0] = 1.0
        return Scaled(values / runs.spread_out(scale), np.zeros_like(scale), scale)
    level = runs.newest(values)
    centred = values - runs.spread_out(level)
    size = runs.largest(np.abs(centred))
    centred /= runs.spread_out(size)
    mean = runs.mean(centred)
    deviation = np.sqrt(runs.mean(np.square(centred - runs.spread_out(mean))))
    if scaling == "robust":
        lower, mean, upper = runs.quartiles(centred)
        distance = (upper - lower) / NORMAL_IQR
        deviation = np.where(distance > LEAST_IQR * deviation, distance, deviation)
    deviation[deviation == 0] = 1.0
    centred -= runs.spread_out(mean)
    centred /= runs.spread_out(deviation)
    return Scaled(centred, level + mean * size, deviation * size)


class Summary(NamedTuple):
    """What the observed values of a column are like.

    Parameters
    ----------
    observed : int
        How many there are.
    loc, scale : float
        Mean and standard deviation, as :func:`scale_runs` gives them of one run.
    least, largest : float
        The least and the largest, infinite where nothing is observed.
    """

    observed: int
    loc: float
    scale: float
    least: float
    largest: float


def summarise(values: Float[np.ndarray, " N"]) -> Summary:
    """Summarise the observed values of a column, block by block.

    Parameters
    ----------
    values : ndarray of shape (N,)
        The column, NaN where missing, in memory or in a file.

    Returns
    -------
    Summary

    Examples
    --------
    >>> summarise(np.array([1.0, np.nan, 3.0]))
    Summary(observed=2, loc=2.0, scale=1.0, least=1.0, largest=3.0)
    """
    count, level, least, largest = 0, 0.0, np.inf, -np.inf
    for block in blocks(len(values)):
        part = values[block]
        part = part[~np.isnan(part)]
        if len(part):
            count, level = count + len(part), float(part[-1])
            least, largest = min(least, float(part.min())), max(largest, float(part.max()))
    # As in `scale_runs`: neither the level nor the size of the values costs accuracy.
    size = (max(largest - level, level - least) if count else 0.0) or 1.0
    centre = _mean(values, count, lambda part: (part - level) / size)
    variance = _mean(values, count, lambda part: np.square((part - level) / size - centre))
    scale = float(np.sqrt(variance)) or 1.0
    return Summary(count, level + centre * size, scale * size, least, largest)


def _mean(values: np.ndarray, count: int, function: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return the mean of a function of the ``count`` observed values, 0 where there are none."""
    total = 0.0
    for block in blocks(len(values)):
        found = function(values[block])
        total += float(np.add.reduceat(np.where(np.isnan(found), 0.0, found), [0])[0])
    return total / max(count, 1)


def deviations(values: Float[np.ndarray, "N C"], bounds: np.ndarray) -> Float[np.ndarray, "S C"]:
    """Return the standard deviation of each run of rows, 1 where it is 0.

    Parameters
    ----------
    values : ndarray of shape (N, C)
        Values of all runs, NaN where missing.
    bounds : ndarray of int of shape (S + 1,)
        As in :func:`scale_runs`.

    Returns
    -------
    ndarray of shape (S, C)
        Standard deviation of the observed values.

    Examples
    --------
    >>> deviations(np.array([[1.0], [3.0], [5.0], [5.0]]), np.array([0, 2, 4])).ravel().tolist()
    [1.0, 1.0]
    """
    return np.stack([scale_runs(column, bounds).scale for column in values.T], axis=-1)


class _Runs:
    """Statistics of the observed values of each run; runs without one have the neutral value."""

    def __init__(self, values: np.ndarray, bounds: np.ndarray) -> None:
        self.starts = bounds[:-1]
        self.lengths = np.diff(bounds)
        self.observed = ~np.isnan(values)
        self.is_complete = bool(self.observed.all())
        self.counts = self.lengths
        if not self.is_complete:
            self.counts = np.add.reduceat(self.observed, self.starts, dtype=np.int64)

    def spread_out(self, statistic: np.ndarray) -> np.ndarray:
        """Repeat the statistic of each run for its values."""
        return np.repeat(statistic, self.lengths)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean of each run, 0 where nothing is observed."""
        total = np.add.reduceat(self._filled(values), self.starts)
        return np.asarray(total / np.maximum(self.counts, 1))

    def largest(self, values: np.ndarray) -> np.ndarray:
        """Return the largest of the values, none below 0, in each run; 1 where that is 0."""
        largest = np.maximum.reduceat(self._filled(values), self.starts)
        return np.where(largest == 0, 1.0, largest)

    def newest(self, values: np.ndarray) -> np.ndarray:
        """Return the last observed value of each run, 0 where nothing is observed."""
        if self.is_complete:
            return np.asarray(values[self.starts + self.lengths - 1])
        places = np.where(self.observed, np.arange(len(values)), -1)
        last = np.maximum.reduceat(places, self.starts)
        return np.where(self.counts > 0, values[np.maximum(last, 0)], 0.0)

    def quartiles(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the three quartiles of each run, 0 where nothing is observed."""
        ordered = np.empty_like(values)
        # Few lengths can differ: a hundred different ones already need five thousand rows.
        for length in np.unique(self.lengths):
            places = self.starts[self.lengths == length, None] + np.arange(length)
            # Missing values stand last.
            ordered[places] = np.sort(values[places], axis=1)
        found = [self._quantile(ordered, share) for share in (0.25, 0.5, 0.75)]
        return found[0], found[1], found[2]

    def _quantile(self, ordered: np.ndarray, share: float) -> np.ndarray:
        """Interpolate linearly between the ordered values of each run."""
        place = share * np.maximum(self.counts - 1, 0)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, np.maximum(self.counts - 1, 0))
        low, high = ordered[self.starts + below], ordered[self.starts + above]
        quantile = low + (place - below) * (high - low)
        return np.where(self.counts > 0, quantile, 0.0)

    def _filled(self, values: np.ndarray) -> np.ndarray:
        """Put 0 where nothing is observed."""
        return values if self.is_complete else np.where(self.observed, values, 0.0)
