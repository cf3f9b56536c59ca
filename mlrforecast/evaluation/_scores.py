"""Scores of a backtest, in all or by item, cutoff or step."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import pandas as pd

from mlrforecast.metrics import losses

if TYPE_CHECKING:
    from mlrforecast.evaluation._backtest import Backtest

By: TypeAlias = Literal["item", "cutoff", "step"]


def score_table(
    backtest: "Backtest", by: By | None = None, *, scale: np.ndarray | None = None
) -> pd.Series | pd.DataFrame:
    """Return the scores of all windows, or of each item, cutoff or step.

    A score that is undefined in a group is NaN there: where nothing was observed, where no scale is
    positive (MASE, MSIS), where all values are zero (WQL). ``scale`` is that of the backtest, for
    who has it already.
    """
    scale = backtest.scale() if scale is None else scale
    groups, labels = _groups(backtest, by)
    seen = ~np.isnan(backtest.actual)
    group = np.broadcast_to(groups, seen.shape)[seen]
    scale = np.broadcast_to(scale[:, None], seen.shape)[seen]
    quantiles = None if backtest.quantiles is None else backtest.quantiles[seen]
    mean = _GroupMean(group, len(labels), np.isfinite(scale) & (scale > 0))
    actual = backtest.actual[seen]
    columns = dict(_point_scores(mean, actual, backtest.forecast[seen], scale))
    if quantiles is not None:
        levels = np.asarray(backtest.quantile_levels)
        columns |= dict(_quantile_scores(mean, actual, quantiles, levels, scale))
    table = pd.DataFrame(columns, index=labels)
    return table if by is not None else table.iloc[0].rename(None)


def mirrored_pairs(levels: np.ndarray) -> list[tuple[int, int]]:
    """Return the places of the levels that bound an interval, ``q`` and ``1 - q``, widest first."""
    pairs = [
        (low, high)
        for low in range(len(levels))
        for high in range(len(levels))
        if levels[low] < 0.5 and np.isclose(levels[low] + levels[high], 1, rtol=0, atol=1e-9)
    ]
    return sorted(pairs, key=lambda pair: float(levels[pair[0]]))


class _GroupMean:
    """Means over the values of each group; NaN for a group without any."""

    def __init__(self, group: np.ndarray, size: int, usable: np.ndarray) -> None:
        self._group = group
        self._size = size
        self._usable = usable

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Average all values of a group."""
        return self._divide(values, self._group)

    def scaled(self, values: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Average the values of a group, each in units of its scale, where that is usable."""
        usable = self._usable
        return self._divide(values[usable] / scale[usable], self._group[usable])

    def _divide(self, values: np.ndarray, group: np.ndarray) -> np.ndarray:
        count = np.bincount(group, minlength=self._size)
        total = np.bincount(group, weights=values, minlength=self._size)
        return _ratio(total, count)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Divide; NaN where the denominator is zero."""
    empty = np.full(above.shape, np.nan)
    return np.asarray(np.divide(above, below, out=empty, where=below > 0))


def _groups(backtest: "Backtest", by: By | None) -> tuple[np.ndarray, pd.Index]:
    """Return the group of each value, to be broadcast to (N, F, C), and the labels of groups."""
    steps, channels = backtest.actual.shape[1:]
    if by is None:
        return np.zeros((1, 1, 1), dtype=np.intp), pd.RangeIndex(1)
    if by == "step":
        return np.arange(steps)[None, :, None], pd.RangeIndex(1, steps + 1, name="step")
    if by == "cutoff":
        codes, cutoffs = pd.factorize(backtest.cutoffs, sort=True)
        return codes[:, None, None], pd.Index(cutoffs, name="cutoff")
    if by == "item":
        labels = backtest.panel.labels
        if isinstance(labels, pd.MultiIndex):
            labels = pd.Index(labels.tolist(), tupleize_cols=False)
        if backtest.panel.layout.form != "long":
            return np.arange(channels)[None, None, :], labels.rename("item_id")
        codes, found = pd.factorize(backtest.series)
        return codes[:, None, None], labels[found].rename("item_id")
    raise ValueError(f"`by` must be None, 'item', 'cutoff' or 'step', got {by!r}.")


def _point_scores(
    mean: _GroupMean, actual: np.ndarray, forecast: np.ndarray, scale: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the scores of point forecasts by name."""
    error = np.abs(forecast - actual)
    square = mean(error**2)
    yield "MSE", square
    yield "MAE", mean(error)
    yield "RMSE", np.sqrt(square)
    yield "MASE", mean.scaled(error, scale)
    yield "sMAPE", mean(losses.relative_error(actual, forecast))


def _quantile_scores(
    mean: _GroupMean,
    actual: np.ndarray,
    quantiles: np.ndarray,
    levels: np.ndarray,
    scale: np.ndarray,
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the scores of quantiles by name."""
    pinball = mean(losses.pinball_loss(actual, quantiles, levels).mean(axis=-1))
    yield "WQL", _ratio(pinball, mean(np.abs(actual)))
    yield "CRPS", pinball
    pairs = mirrored_pairs(levels)
    for low, high in pairs:
        name = f"coverage {_percent(levels[low])}"
        yield name, mean(losses.inside(actual, quantiles[:, low], quantiles[:, high]))
    for low, high in pairs[:1]:
        alpha = 2 * float(levels[low])
        score = losses.interval_score(actual, quantiles[:, low], quantiles[:, high], alpha)
        yield f"MSIS {_percent(levels[low])}", mean.scaled(score, scale)


def _percent(level: float) -> str:
    """Name the interval above a level, such as ``"80%"`` above 0.1."""
    return f"{round(100 * (1 - 2 * level), 6):g}%"
