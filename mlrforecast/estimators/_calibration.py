"""Conformal calibration: quantiles from the residuals of windows that training did not see."""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import ndtri

from mlrforecast._core.errors import DataError
from mlrforecast.data import Panel
from mlrforecast.estimators._backtest import Cutoffs, newest_cutoffs
from mlrforecast.estimators._forecasts import Forecasts
from mlrforecast.metrics import losses

__all__ = ["Calibration"]

Method: TypeAlias = Literal["split", "rolling"]

METHODS: tuple[Method, ...] = get_args(Method)
INTERVALS = (0.5, 0.8, 0.9, 0.95)
"""Nominal coverages of the intervals that a calibration reports."""
LEAST = 10
"""Fewer residuals say nothing about a tail."""
MOST = 200_000
"""Residuals that are kept at most; they are thinned out evenly."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """What :meth:`MLRForecaster.calibrate` has learnt.

    A residual is an actual value minus the centre of its forecast, in units of the forecast's own
    spread on that side. The interval of a level reaches as far to both sides of the centre, in
    these units, as that share of all residuals did.

    Parameters
    ----------
    method : {"split", "rolling"}
        Whether the residuals stay as they are, or the newest ones before each cutoff count.
    residuals : ndarray of shape (R,)
        Residuals, from old to new.
    known_at : ndarray of int64 of shape (R,)
        When each was known: microseconds since 1970, or integer time. A split calibration does
        not read it, and one that was loaded has the order only: 0, 1, 2, ...
    step_scale : ndarray of shape (F,)
        Factor of the spread at each step: 1 where the forecast has a spread of its own, otherwise
        the mean size of the residuals of that step in scales of the context.
    step : int
        Rows from one window to the next.
    num_windows : int
        Windows of one series that were read.
    coverage : DataFrame
        For the nominal coverage of each row, the share of actual values inside the interval
        ``before`` and ``after`` calibration, and ``width``, the mean of the widths after over
        those before. What is after was found by calibrating each half of the windows, the older
        and the newer one, with the other. NaN where there is no such number.

    References
    ----------
    Lei, G'Sell, Rinaldo, Tibshirani, Wasserman, Distribution-Free Predictive Inference for
    Regression, JASA 2018: split conformal prediction with locally weighted residuals. Romano,
    Patterson, Candès, Conformalized Quantile Regression, NeurIPS 2019: a side for each tail.
    """

    method: Method
    residuals: Float[np.ndarray, " R"]
    known_at: Int[np.ndarray, " R"]
    step_scale: Float[np.ndarray, " F"]
    step: int
    num_windows: int
    coverage: pd.DataFrame

    def __repr__(self) -> str:
        return (
            f"Calibration(method: {self.method}, windows: {self.num_windows}, "
            f"residuals: {len(self.residuals)})"
        )


class SplitResiduals:
    """The same residuals for every window.

    Parameters
    ----------
    residuals : ndarray of shape (R,)
        Residuals in any order, none of them NaN.
    step_scale : ndarray of shape (F,)
        See :class:`Calibration`.
    """

    def __init__(self, residuals: np.ndarray, step_scale: np.ndarray) -> None:
        self.sizes = np.sort(np.abs(residuals))
        self.step_scale = step_scale

    def at(self, levels: np.ndarray) -> np.ndarray:
        """Return residuals of some levels, which are (Q,) or (F, Q), for (W, F, C, Q)."""
        moves = order_statistics(self.sizes, levels)
        return moves if levels.ndim == 1 else moves[None, :, None, :]


class RollingResiduals:
    """For each window the newest residuals that were known at its cutoff.

    Parameters
    ----------
    residuals, known_at : ndarray of shape (R,)
        All residuals and when they were known, in order of time.
    cutoffs : ndarray of int64 of shape (W,)
        Cutoff of each window in the same unit.
    count : int
        Residuals that a window reads.
    step_scale : ndarray of shape (F,)
        See :class:`Calibration`.
    """

    def __init__(
        self,
        residuals: np.ndarray,
        known_at: np.ndarray,
        cutoffs: np.ndarray,
        count: int,
        step_scale: np.ndarray,
    ) -> None:
        ends = np.searchsorted(known_at, cutoffs, side="right")
        # A cutoff with as good as nothing before it has the oldest ones.
        ends = np.where(ends < min(LEAST, len(residuals)), min(count, len(residuals)), ends)
        self.ends, self.places = np.unique(ends, return_inverse=True)
        self.sizes = np.abs(residuals)
        self.count = count
        self.step_scale = step_scale

    def at(self, levels: np.ndarray) -> np.ndarray:
        """Return residuals of some levels, which are (Q,) or (F, Q), for (W, F, C, Q)."""
        moves = np.stack(
            [
                order_statistics(np.sort(self.sizes[max(0, end - self.count) : end]), levels)
                for end in self.ends
            ]
        )[self.places]
        return moves[:, None, None, :] if levels.ndim == 1 else moves[:, :, None, :]


def order_statistics(sizes: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the distance from the centre at each level, from ordered sizes of residuals.

    The interval between the levels p and 1 - p holds the share c = |2 p - 1|. Of R ordered sizes,
    the one with number ceil((R + 1) c) bounds it. Beyond the largest, distances go on as those of
    a normal distribution do.
    """
    count = len(sizes)
    shares = np.abs(2 * levels - 1)
    # Not 0.9 * 10 = 9.000000000000001.
    numbers = np.ceil(np.round((count + 1) * shares, 9)).astype(np.int64)
    reach = sizes[np.clip(numbers, 1, count) - 1] * (numbers > 0)
    furthest = ndtri((1 + count / (count + 1)) / 2)
    reach = np.where(numbers > count, reach * ndtri((1 + shares) / 2) / furthest, reach)
    return np.asarray(np.where(levels < 0.5, -reach, reach))


def calibrate(
    forecasts: Forecasts,
    actual: Float[np.ndarray, "W F C"],
    *,
    panel: Panel,
    cutoffs: Cutoffs,
    method: Method,
    step: int,
) -> Calibration:
    """Learn from forecasts of windows and what followed.

    Parameters
    ----------
    forecasts : Forecasts
        Forecasts of a network that has not seen what followed, without calibration.
    actual : ndarray of shape (W, F, C)
        What followed, NaN where missing.
    panel : Panel
        Where the windows are.
    cutoffs : Cutoffs
        The windows.
    method, step
        See :class:`Calibration`.

    Raises
    ------
    DataError
        If there are too few residuals.
    """
    measured = forecasts.residuals_of(actual)
    step_scale = np.ones(actual.shape[1])
    if not forecasts.has_quantiles:
        step_scale = _size_of_steps(measured)
        measured /= step_scale[:, None]
    residuals, times = _with_times(measured, panel, cutoffs)
    if len(residuals) < LEAST:
        raise DataError(
            f"A calibration needs at least {LEAST} actual values to compare forecasts with, but "
            f"`X` gives {len(residuals)}, not counting those after constants. Pass more rows, or "
            "a larger `windows`."
        )
    order = np.argsort(times, kind="stable")
    if len(order) > MOST:
        order = order[np.linspace(0, len(order) - 1, MOST).round().astype(np.int64)]
    return Calibration(
        method=method,
        residuals=residuals[order],
        known_at=times[order],
        step_scale=step_scale,
        step=step,
        num_windows=int(cutoffs.places.max()) + 1,
        coverage=_report(forecasts, actual, measured, step_scale, _newer_half(cutoffs.series)),
    )


def _size_of_steps(residuals: Float[np.ndarray, "W F C"]) -> Float[np.ndarray, " F"]:
    """Return the mean size of the residuals of each step; 1 where there are none."""
    seen = ~np.isnan(residuals)
    counts = seen.sum(axis=(0, 2))
    sizes = np.where(seen, np.abs(residuals), 0.0).sum(axis=(0, 2)) / np.maximum(counts, 1)
    return np.where(sizes > 0, sizes, 1.0)


def _with_times(
    residuals: Float[np.ndarray, "W F C"], panel: Panel, cutoffs: Cutoffs
) -> tuple[np.ndarray, np.ndarray]:
    """Return the residuals that there are, and when each was known."""
    first = panel.bounds[cutoffs.series] + cutoffs.num_rows
    known_at = ticks(panel.index)[first[:, None] + np.arange(residuals.shape[1])]
    seen = ~np.isnan(residuals)
    return residuals[seen], np.broadcast_to(known_at[..., None], residuals.shape)[seen]


def _report(
    forecasts: Forecasts,
    actual: np.ndarray,
    residuals: np.ndarray,
    step_scale: np.ndarray,
    newer: np.ndarray,
) -> pd.DataFrame:
    """Return coverage before and after, the latter of each half by the residuals of the other."""
    levels = np.array([[(1 - share) / 2, (1 + share) / 2] for share in INTERVALS]).ravel()
    before = after = np.full((*actual.shape, len(levels)), np.nan)
    if forecasts.has_quantiles:
        before = forecasts.quantiles(levels)
    others = [residuals[half][~np.isnan(residuals[half])] for half in (~newer, newer)]
    if min(map(len, others)) >= LEAST:
        halves = [
            replace(forecasts, residuals=SplitResiduals(other, step_scale)).quantiles(levels)
            for other in others
        ]
        after = np.where(newer[:, None, None, None], halves[0], halves[1])
    rows = []
    for number in range(0, len(levels), 2):
        bounds = [(part[..., number], part[..., number + 1]) for part in (before, after)]
        held = [_mean(losses.inside(actual, lower, upper)) for lower, upper in bounds]
        narrow, wide = (_mean(upper - lower) for lower, upper in bounds)
        rows.append((*held, wide / narrow if narrow else np.nan))
    index = pd.Index(INTERVALS, name="nominal")
    return pd.DataFrame(rows, columns=["before", "after", "width"], index=index)


def _mean(values: np.ndarray) -> float:
    """Return the mean of the numbers that there are, NaN if there are none."""
    seen = ~np.isnan(values)
    return float(values[seen].mean()) if seen.any() else float("nan")


def ticks(index: pd.Index) -> np.ndarray:
    """Return stamps as numbers that can be compared in any frame and file."""
    if isinstance(index, pd.DatetimeIndex):
        return np.asarray(index.as_unit("us").asi8)
    return np.asarray(index, dtype=np.int64)


def check_method(method: str) -> Method:
    """Return the method of a name."""
    for known in METHODS:
        if method == known:
            return known
    raise ValueError(f"`method` must be one of {', '.join(METHODS)}, got {method!r}.")


def _newer_half(series: np.ndarray) -> np.ndarray:
    """Tell of windows, ordered by series and time, which are in the newer half of their series."""
    _, first, counts = np.unique(series, return_index=True, return_counts=True)
    if counts.max(initial=0) == 1:
        # One window each: every other series stands for the newer half.
        return np.asarray(np.arange(len(series)) % 2 == 1)
    places = np.arange(len(series)) - np.repeat(first, counts)
    return np.asarray(places >= np.repeat((counts + 1) // 2, counts))


def newer_cutoffs(calibration: Calibration, panel: Panel, horizon: int) -> Cutoffs:
    """Return the cutoffs in a panel whose forecasts a calibration has not seen in full."""
    newer = ticks(panel.index) > calibration.known_at.max()
    rows = np.add.reduceat(newer, panel.bounds[:-1], dtype=np.int64)
    counts = np.minimum(-(-rows // calibration.step), calibration.num_windows)
    room = (panel.lengths - horizon - 1) // calibration.step + 1
    counts = np.clip(counts, 0, np.maximum(room, 0))
    return newest_cutoffs(panel.lengths - horizon, counts, calibration.step)


def rolling_residuals(
    calibration: Calibration,
    forecasts: Forecasts,
    actual: Float[np.ndarray, "W F C"],
    *,
    panel: Panel,
    cutoffs: Cutoffs,
    now: np.ndarray,
) -> RollingResiduals:
    """Add the residuals of newer windows in a panel to a calibration, as they are known ``now``."""
    measured = forecasts.residuals_of(actual) / calibration.step_scale[:, None]
    found, times = _with_times(measured, panel, cutoffs)
    newer = times > calibration.known_at.max()
    residuals = np.concatenate([calibration.residuals, found[newer]])
    times = np.concatenate([calibration.known_at, times[newer]])
    order = np.argsort(times, kind="stable")
    return RollingResiduals(
        residuals[order],
        times[order],
        now,
        len(calibration.residuals),
        calibration.step_scale,
    )
