"""KernelSynth: series drawn from Gaussian processes whose kernels are composed at random."""

from collections.abc import Callable
from functools import partial

import joblib  # type: ignore[import-untyped]  # it has no types
import numpy as np
import scipy.linalg
from jaxtyping import Float

from mlrforecast.pretraining._checks import at_least, workers

__all__ = ["kernel_synth"]

_PERIODS = {
    "hours and parts of them": (24, 48, 96, 168, 336, 672),
    "days": (7, 14, 30, 60, 365, 730),
    "weeks": (4, 26, 52),
    "months": (4, 6, 12),
    "quarters": (4, 16, 40),
    "minutes": (10, 60),
}
"""Steps of the periodic kernels: seasons of series of common frequencies, and their multiples."""

_Kernel = Callable[[np.ndarray], np.ndarray]


def kernel_synth(
    num_series: int,
    *,
    length: int = 1024,
    max_kernels: int = 5,
    seed: int = 0,
    num_workers: int = 1,
) -> Float[np.ndarray, "N T"]:
    """Draw series from Gaussian processes with random compositions of kernels.

    For each series one to ``max_kernels`` kernels are drawn from a bank (constant, white noise,
    linear, squared exponential, rational quadratic, periodic), and put together by sums and
    products; then a path of the process over the unit interval is drawn.

    Parameters
    ----------
    num_series : int
        Series to draw.
    length : int
        Steps of each.
    max_kernels : int
        Most kernels in one composition.
    seed : int
        Each series has a stream of its own: series ``i`` is the same whatever ``num_series`` and
        ``num_workers`` are, up to float rounding.
    num_workers : int
        Processes that draw at the same time; -1 for all cores.

    Returns
    -------
    ndarray of shape (num_series, length), float32
        The series, of the scales that their kernels have.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    TypeError
        If an argument is no whole number.

    References
    ----------
    Ansari et al., "Chronos: Learning the Language of Time Series", 2024, arXiv 2403.07815.

    Examples
    --------
    >>> series = kernel_synth(3, length=64, seed=1)
    >>> series.shape, bool((series[:2] == kernel_synth(2, length=64, seed=1)).all())
    ((3, 64), True)
    """
    num_series, length = at_least(1, "num_series", num_series), at_least(2, "length", length)
    max_kernels, seed = at_least(1, "max_kernels", max_kernels), at_least(0, "seed", seed)
    num_workers = workers(num_workers)
    draw = joblib.delayed(_draw)
    drawn = joblib.Parallel(n_jobs=num_workers)(
        draw(seed, number, length, max_kernels) for number in range(num_series)
    )
    return np.stack(drawn)


def _draw(seed: int, number: int, length: int, max_kernels: int) -> np.ndarray:
    """Draw one series."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
    covariance = _composed(rng, length, max_kernels)
    return np.asarray(_root(covariance) @ rng.standard_normal(length), dtype=np.float32)


def _composed(rng: np.random.Generator, length: int, max_kernels: int) -> np.ndarray:
    """Return the covariance of a random composition of kernels."""
    bank = _bank(length)
    steps = np.linspace(0.0, 1.0, length)
    chosen = [
        bank[place] for place in rng.integers(len(bank), size=rng.integers(1, max_kernels + 1))
    ]
    covariance = chosen[0](steps)
    for kernel in chosen[1:]:
        other = kernel(steps)
        covariance = covariance + other if rng.random() < 0.5 else covariance * other
    return np.asarray(covariance)


def _bank(length: int) -> list[_Kernel]:
    """Return the kernels to choose from, each a function from steps to their covariance."""
    periods = [period / length for group in _PERIODS.values() for period in group]
    return [
        _stationary(np.ones_like),
        *(_stationary(partial(_white, size)) for size in (0.1, 1.0)),
        *(partial(_linear, offset) for offset in (0.0, 1.0, 10.0)),
        *(_stationary(partial(_squared_exponential, width)) for width in (0.1, 1.0, 10.0)),
        *(_stationary(partial(_rational_quadratic, mixture)) for mixture in (0.1, 1.0, 10.0)),
        *(_stationary(partial(_periodic, period)) for period in periods),
    ]


def _white(size: float, distance: np.ndarray) -> np.ndarray:
    return np.asarray(size * (distance == 0))


def _linear(offset: float, steps: np.ndarray) -> np.ndarray:
    return np.asarray(offset**2 + np.outer(steps, steps))


def _squared_exponential(width: float, distance: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-0.5 * (distance / width) ** 2))


def _rational_quadratic(mixture: float, distance: np.ndarray) -> np.ndarray:
    return np.asarray((1 + distance**2 / (2 * mixture)) ** -mixture)


def _periodic(period: float, distance: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-2 * np.sin(np.pi * distance / period) ** 2))


def _stationary(of_distance: Callable[..., np.ndarray]) -> _Kernel:
    """Return the kernel that depends on the distance of two steps alone."""

    def covariance(steps: np.ndarray) -> np.ndarray:
        return np.asarray(scipy.linalg.toeplitz(of_distance(steps - steps[0])))

    return covariance


def _root(covariance: np.ndarray) -> np.ndarray:
    """Return a lower triangular root; what rounding made indefinite gets a little more noise."""
    size = float(np.diag(covariance).mean()) or 1.0
    identity = np.eye(len(covariance))
    for noise in 10.0 ** np.arange(-12, -1):
        try:
            return np.asarray(np.linalg.cholesky(covariance + noise * size * identity))
        except np.linalg.LinAlgError:
            continue
    raise AssertionError("a covariance is positive semi-definite")
