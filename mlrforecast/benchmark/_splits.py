"""Which rows a run learns from and which it is scored on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Values = NDArray[np.float64]

_CHUNK = 128
_NUM_FOLDS = 3


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Means over all windows and channels, of all steps and, squared, of each."""

    mse: float
    mae: float
    mse_by_step: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Split:
    """Rows of one fit: ``train`` is learnt from, ``scored`` gives the result."""

    name: str
    train: range
    scored: range
    validation: range


def make_splits(rows: Mapping[str, slice], *, final: bool) -> list[Split]:
    """Cut the folds, which end before the first test row, or the one final split.

    The last fold is the standard validation slice. Each earlier one starts and ends half a slice
    sooner, so that every fold scores as many windows as the test does.
    """
    train, validation, test = (
        range(rows[name].start, rows[name].stop) for name in ("train", "validation", "test")
    )
    if final:
        return [Split(name="test", train=train, scored=test, validation=validation)]
    splits = []
    for number in range(1, _NUM_FOLDS + 1):
        earlier = (_NUM_FOLDS - number) * (len(validation) // 2)
        scored = range(validation.start - earlier, validation.stop - earlier)
        splits.append(
            Split(
                name=f"fold{number}",
                train=range(train.start, train.stop - earlier),
                scored=scored,
                validation=scored,
            )
        )
    return splits


def standardise(frame: pd.DataFrame, train: range) -> pd.DataFrame:
    """Subtract the mean and divide by the population standard deviation of the train rows."""
    known = frame.iloc[train.start : train.stop]
    spread = known.std(ddof=0)
    return (frame - known.mean()) / spread.where(spread > 0, 1.0)


def num_windows(scored: range, horizon: int) -> int:
    """Count the windows of stride 1 whose every step lies in the scored rows."""
    windows = len(scored) - horizon + 1
    if windows < 1:
        raise ValueError(
            f"`horizons` must be at most {len(scored)}, the rows that are scored, got {horizon}."
        )
    return windows


def future_windows(values: Values, scored: range, horizon: int) -> Values:
    """View the steps of every window: [N, F, C]."""
    num_windows(scored, horizon)
    return _windows(values[scored.start : scored.stop], horizon)


def past_windows(values: Values, scored: range, horizon: int, length: int) -> Values:
    """View the ``length`` rows before every window: [N, T, C]."""
    if scored.start < length:
        raise ValueError(
            f"`context_length` must be at most {scored.start}, the rows before the first scored "
            f"one, got {length}."
        )
    return _windows(values[scored.start - length : scored.stop - horizon], length)


def _windows(values: Values, length: int) -> Values:
    return sliding_window_view(values, length, axis=0).transpose(0, 2, 1)


def mean_errors(actual: Values, forecast_of: Callable[[slice], Values]) -> Errors:
    """Average errors over all windows, steps and channels, a few windows at a time.

    The views of all windows together would fill gigabytes once they are copied. What was not
    observed is left out; a step that was never observed has the error NaN.
    """
    squared = np.zeros(actual.shape[1])
    seen = np.zeros(actual.shape[1], dtype=np.int64)
    absolute = 0.0
    for start in range(0, len(actual), _CHUNK):
        rows = slice(start, start + _CHUNK)
        observed = ~np.isnan(actual[rows])
        errors = np.where(observed, forecast_of(rows) - actual[rows], 0.0)
        squared += np.square(errors).sum(axis=(0, 2))
        absolute += float(np.abs(errors).sum())
        seen += observed.sum(axis=(0, 2))
    if not (total := int(seen.sum())):
        raise ValueError("The scored rows hold no observed value.")
    by_step = np.divide(squared, seen, out=np.full(len(seen), np.nan), where=seen > 0)
    return Errors(
        mse=float(squared.sum()) / total,
        mae=absolute / total,
        mse_by_step=tuple(by_step.tolist()),
    )
