"""TSMixup: convex combinations of pieces of series."""

from collections.abc import Sequence
from typing import Any

import joblib  # type: ignore[import-untyped]  # it has no types
import numpy as np

from mlrforecast.pretraining._checks import above_zero, at_least, entries, workers
from mlrforecast.pretraining._checks import series as checked

__all__ = ["tsmixup"]


def tsmixup(
    datasets: Sequence[Sequence[Any]],
    num_series: int,
    *,
    max_series: int = 3,
    alpha: float = 1.5,
    min_length: int = 128,
    max_length: int = 2048,
    seed: int = 0,
    num_workers: int = 1,
) -> list[np.ndarray]:
    """Mix pieces of one to ``max_series`` series, each divided by its mean absolute value.

    The data sets of the pieces are drawn with equal probability, their weights from a symmetric
    Dirichlet distribution, and their common length uniformly.

    Parameters
    ----------
    datasets : sequence of sequences of arrays of shape (T,)
        The series of each data set; NaN is a missing value, and so is what it is mixed into.
        Those that are shorter than ``min_length`` are left out.
    num_series : int
        Series to make.
    max_series : int
        Most series in one mixture.
    alpha : float
        Concentration of the weights: they are more equal the larger it is.
    min_length, max_length : int
        Range of the length of a mixture, which is at most that of its shortest series.
    seed : int
        Each mixture has a stream of its own, as in :func:`kernel_synth`.
    num_workers : int
        Processes that draw at the same time; -1 for all cores.

    Returns
    -------
    list of ndarray of shape (T,), float32
        The mixtures.

    Raises
    ------
    ValueError
        If an argument is out of its range, a series is no row of finite values and NaN, or a data
        set has no series of ``min_length`` steps.
    TypeError
        If an argument is of the wrong type.

    References
    ----------
    Ansari et al., "Chronos: Learning the Language of Time Series", 2024, arXiv 2403.07815.

    Examples
    --------
    >>> hours, days = [np.arange(1.0, 301)], [np.ones(200), np.arange(150.0) % 7]
    >>> mixed = tsmixup([hours, days], 4, max_length=160)
    >>> [128 <= len(series) <= 160 for series in mixed]
    [True, True, True, True]
    """
    num_series, max_series = (
        at_least(1, "num_series", num_series),
        at_least(1, "max_series", max_series),
    )
    min_length, seed = at_least(1, "min_length", min_length), at_least(0, "seed", seed)
    max_length = at_least(min_length, "max_length", max_length)
    alpha, num_workers = above_zero("alpha", alpha), workers(num_workers)
    usable = [
        _usable(series, min_length, number)
        for number, series in enumerate(entries("datasets", datasets))
    ]
    if not usable:
        raise ValueError("`datasets` must hold at least one data set, got none.")
    draw = joblib.delayed(_draw)
    return list(
        joblib.Parallel(n_jobs=num_workers)(
            draw(usable, seed, number, max_series, alpha, min_length, max_length)
            for number in range(num_series)
        )
    )


def _usable(series: Sequence[Any], min_length: int, number: int) -> list[np.ndarray]:
    """Return the series of a data set that are long enough."""
    name = f"datasets[{number}]"
    arrays = [
        checked(f"{name}[{place}]", each, np.float64)
        for place, each in enumerate(entries(name, series))
    ]
    found = [array for array in arrays if len(array) >= min_length]
    if not found:
        raise ValueError(
            f"`datasets[{number}]` must hold a series of at least `min_length`={min_length} steps; "
            f"its {len(arrays)} series have at most {max(map(len, arrays), default=0)}."
        )
    return found


def _draw(
    datasets: list[list[np.ndarray]],
    seed: int,
    number: int,
    max_series: int,
    alpha: float,
    min_length: int,
    max_length: int,
) -> np.ndarray:
    """Make one mixture."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
    count = int(rng.integers(1, max_series + 1))
    chosen = []
    for place in rng.integers(len(datasets), size=count):
        series = datasets[place]
        chosen.append(series[rng.integers(len(series))])
    longest = min(max_length, *map(len, chosen))
    length = int(rng.integers(min_length, longest + 1))
    weights = rng.dirichlet(np.full(count, alpha))
    mixed = np.zeros(length)
    for weight, series in zip(weights, chosen, strict=True):
        first = rng.integers(len(series) - length + 1)
        piece = series[first : first + length]
        mixed += weight * piece / _mean_absolute(piece)
    return mixed.astype(np.float32)


def _mean_absolute(piece: np.ndarray) -> float:
    """Return the mean absolute value of what is observed, 1 where that is 0 or nothing is."""
    seen = piece[~np.isnan(piece)]
    return float(np.abs(seen).mean()) or 1.0 if len(seen) else 1.0
