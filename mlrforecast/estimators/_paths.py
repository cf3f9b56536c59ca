"""Sample paths, and horizons beyond the trained one: forecasts that read forecasts."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from scipy.linalg import toeplitz
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from mlrforecast.data import Panel
from mlrforecast.estimators._forecasts import Forecasts
from mlrforecast.estimators._inference import Predictor, slices

NUM_WINDOWS = 256
"""Windows from which the dependence of the errors of a forecast is learnt."""
NUM_PATHS = 40
NUM_LEVELS = 25
"""Paths that stand for the uncertainty of what a forecast beyond the trained horizon reads, and
quantiles that are kept of the forecast from each."""
BLOCK = 2**25
"""Numbers of all paths that are held at once."""

Forecast = Callable[..., Forecasts]


def learn_dependence(predictor: Predictor, panel: Panel, *, seed: int) -> Float[np.ndarray, " F"]:
    """Return how errors some steps apart correlate inside a forecast, over windows of a panel.

    The residuals become normal scores by their ranks, so that only their order counts.
    """
    steps = predictor.model.config.prediction_length
    rng = np.random.default_rng(seed)
    lengths = panel.lengths
    series = rng.choice(len(panel), size=NUM_WINDOWS, p=lengths / lengths.sum())
    # From a whole context on, where there is one and a whole horizon after it.
    last = np.maximum(lengths[series] - steps, 1)
    first = np.minimum(predictor.model.config.context_length, last)
    cutoffs = np.minimum(rng.integers(first, last + 1), lengths[series] - 1)
    if panel.layout.form == "long":
        # Covariates are encoded of the series that are read alone.
        numbers, series = np.unique(series, return_inverse=True)
        panel = panel.select(numbers)
    windows = predictor.windows(panel, series, cutoffs)
    residuals = predictor.forecast(windows).residuals_of(windows.actual(slice(None)))
    return _correlations(np.moveaxis(residuals, 1, 2).reshape(-1, steps))


def _correlations(residuals: Float[np.ndarray, "W F"]) -> Float[np.ndarray, " F"]:
    """Return the correlation of normal scores some steps apart."""
    seen = ~np.isnan(residuals)
    steps = residuals.shape[1]
    correlations: np.ndarray = np.eye(steps)[0]
    if not seen.any():
        return correlations
    scores = np.zeros_like(residuals)
    scores[seen] = ndtri(rankdata(residuals[seen]) / (seen.sum() + 1))
    size = 2 ** int(np.ceil(np.log2(2 * steps)))
    sums, counts = (_lagged_sums(part, size)[:steps] for part in (scores, seen.astype(float)))
    counts = np.round(counts)
    found = np.divide(sums, counts, out=np.zeros(steps), where=counts > 0)
    if found[0] <= 0:
        return correlations
    return np.asarray(np.clip(found / found[0], -1, 1))


def _lagged_sums(values: Float[np.ndarray, "W F"], size: int) -> np.ndarray:
    """Return the sums of products some steps apart, over all windows."""
    spectrum = np.abs(np.fft.rfft(values, n=size, axis=1)) ** 2
    return np.asarray(np.fft.irfft(spectrum.sum(axis=0), n=size))


def draw_noise(
    dependence: Float[np.ndarray, " F"], *, num_blocks: int, num_paths: int, seed: int
) -> Float[np.ndarray, "blocks F K"]:
    """Draw normal scores that depend on each other inside a block of steps."""
    values, vectors = np.linalg.eigh(toeplitz(dependence))
    # Correlations that were found one by one may be those of no matrix: the nearest one is taken.
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    root /= np.sqrt((root**2).sum(axis=1, keepdims=True))
    half = -(-num_paths // 2)
    draws = np.random.default_rng(seed).standard_normal((num_blocks, len(dependence), half))
    # Each with its mirror image: the middle of all paths is then exact sooner.
    return np.asarray(root @ np.concatenate([draws, -draws], axis=-1)[..., :num_paths])


def sample_paths(
    forecast: Forecast,
    panel: Panel,
    num_rows: np.ndarray,
    horizon: int,
    noise: Float[np.ndarray, "blocks F K"],
) -> Float[np.ndarray, "S H C K"]:
    """Draw paths of the steps after ``num_rows`` rows of each series.

    Parameters
    ----------
    forecast : callable
        ``forecast(panel, num_rows)`` forecasts from the rows before ``num_rows``.
    panel : Panel
        The series with at least ``horizon`` rows after ``num_rows``.
    num_rows : ndarray of int of shape (S,)
        Rows of each series that are known.
    horizon : int
        Steps to draw.
    noise : ndarray of shape (blocks, F, K)
        Normal scores, the same for every series, so that no series depends on another.

    Returns
    -------
    ndarray of shape (S, horizon, C, K)
        The paths.
    """
    first = forecast(panel, num_rows).quantiles(ndtr(noise[0]))
    if len(noise) == 1:
        return first[:, :horizon]
    paths = [
        np.concatenate(
            [part for part, _ in _walk(forecast, panel, num_rows, first, noise, path)], axis=1
        )[:, :horizon]
        for path in range(noise.shape[2])
    ]
    return np.stack(paths, axis=-1)


def _walk(
    forecast: Forecast,
    panel: Panel,
    num_rows: np.ndarray,
    first: Float[np.ndarray, "S F C K"],
    noise: Float[np.ndarray, "blocks F K"],
    path: int,
) -> Iterator[tuple[np.ndarray, Forecasts | None]]:
    """Yield the blocks (S, F, C) of one path, each with the forecast that it was drawn from."""
    steps = first.shape[1]
    block = first[..., path]
    yield block, None
    for number in range(1, len(noise)):
        panel = _with_values(panel, num_rows + (number - 1) * steps, block)
        found = forecast(panel, num_rows + number * steps)
        block = found.quantiles(ndtr(noise[number, :, path, None]))[..., 0]
        yield block, found


def _with_values(panel: Panel, num_rows: np.ndarray, block: Float[np.ndarray, "S F C"]) -> Panel:
    """Return a panel with values written behind ``num_rows`` rows of each series."""
    series = np.arange(len(panel))
    rows, outside = panel.places(series, num_rows[:, None] + np.arange(block.shape[1]))
    values = panel.values.copy()
    values[rows[~outside]] = block[~outside]
    return replace(panel, values=values)


def roll_point(
    forecast: Forecast, panel: Panel, num_rows: np.ndarray, horizon: int
) -> Float[np.ndarray, "S H C"]:
    """Forecast beyond the trained horizon by reading the point forecast as if it had come true."""
    blocks: list[np.ndarray] = []
    done = 0
    while done < horizon:
        block = forecast(panel, num_rows + done).point
        blocks.append(block)
        panel = _with_values(panel, num_rows + done, block)
        done += block.shape[1]
    return np.concatenate(blocks, axis=1)[:, :horizon]


def roll_quantiles(
    forecast: Forecast,
    panel: Panel,
    horizon: int,
    levels: Float[np.ndarray, " Q"],
    noise: Float[np.ndarray, "blocks F K"],
) -> Float[np.ndarray, "S H C Q"]:
    """Forecast quantiles beyond the trained horizon, over what the steps before it may become.

    The first block has the quantiles of the forecast itself. After it, the forecasts from all
    paths are mixed with equal weights. The panel ends with the ``horizon`` rows to forecast.
    """
    each = horizon * noise.shape[2] * NUM_LEVELS
    if panel.layout.form == "long":
        cut = slices(len(panel), max(1, BLOCK // each))
        parts = [panel.select(np.arange(len(panel))[part]) for part in cut]
    else:
        cut = slices(panel.num_channels, max(1, BLOCK // each))
        parts = [
            replace(panel, labels=panel.labels[part], values=panel.values[:, part]) for part in cut
        ]
    rolled = [_roll_part(forecast, part, horizon, levels, noise) for part in parts]
    return np.concatenate(rolled, axis=0 if panel.layout.form == "long" else 2)


def _roll_part(
    forecast: Forecast, panel: Panel, horizon: int, levels: np.ndarray, noise: np.ndarray
) -> Float[np.ndarray, "S H C Q"]:
    """Forecast quantiles of so much of a panel that all paths fit into memory."""
    num_rows = panel.lengths - horizon
    found = forecast(panel, num_rows)
    own, first = found.quantiles(levels), found.quantiles(ndtr(noise[0]))
    grid = (np.arange(NUM_LEVELS) + 0.5) / NUM_LEVELS
    rest = horizon - own.shape[1]
    mixed = np.empty((len(panel), rest, panel.num_channels, noise.shape[2], NUM_LEVELS))
    for path in range(noise.shape[2]):
        walk = _walk(forecast, panel, num_rows, first, noise, path)
        grids = [later.quantiles(grid) for _, later in walk if later is not None]
        mixed[..., path, :] = np.concatenate(grids, axis=1)[:, :rest]
    pooled = np.quantile(mixed.reshape(*mixed.shape[:3], -1), levels, axis=-1)
    return np.concatenate([own, np.moveaxis(pooled, 0, -1)], axis=1)
