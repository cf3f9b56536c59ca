"""Windows that roll through a frame, and their forecasts."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data import Panel, Series
from mlrforecast.estimators._inference import forecast
from mlrforecast.models import EncoderConfig, EncoderForecaster


class Windows(NamedTuple):
    """Views of the windows inside one series.

    Parameters
    ----------
    context : ndarray of shape (N, T, C)
        Contexts.
    actual : ndarray of shape (N, F, C)
        The steps that follow them.
    cutoffs : DatetimeIndex of length N
        The last stamp of each context.
    """

    context: np.ndarray
    actual: np.ndarray
    cutoffs: pd.DatetimeIndex


@dataclass(frozen=True, eq=False)
class RollingForecast:
    """Forecasts from the windows inside a frame, beside what happened.

    Parameters
    ----------
    forecast, actual : ndarray of shape (N, F, C)
        Point forecasts and actual values of ``N`` windows; NaN where no value was observed.
    quantiles : ndarray of shape (N, F, C, Q), or None
        Quantiles of the levels that were asked for.
    cutoffs : DatetimeIndex of length N
        The last stamp that each forecast could read.
    item_ids : ndarray of length N
        The item of each window; None for a wide frame.
    """

    forecast: np.ndarray
    actual: np.ndarray
    quantiles: np.ndarray | None
    cutoffs: pd.DatetimeIndex
    item_ids: np.ndarray

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{field.name}: {getattr(getattr(self, field.name), 'shape', None)}"
            for field in fields(self)
        )
        return f"RollingForecast({shapes})"


def check_step(step: Any) -> int:
    """Return the rows from one window to the next."""
    if isinstance(step, bool) or not isinstance(step, Integral):
        raise TypeError(f"`step` must be an integer, got {step!r}.")
    if step < 1:
        raise ValueError(f"`step` must be at least 1, got {step}.")
    return int(step)


def rolling_windows(item: Series, config: EncoderConfig, step: int) -> Windows:
    """Return views of every ``step``-th window of a series, counted back from its newest row."""
    size = config.context_length + config.prediction_length
    rows = len(item.index)
    if rows < size:
        raise DataError(
            f"A window needs {size} rows (context_length {config.context_length} + "
            f"prediction_length {config.prediction_length}), but {item.owner} has {rows}."
        )
    views = np.lib.stride_tricks.sliding_window_view(item.values, size, axis=0)
    views = views[(rows - size) % step :: step].swapaxes(1, 2)
    starts = np.arange((rows - size) % step, rows - size + 1, step)
    return Windows(
        views[:, : config.context_length],
        views[:, config.context_length :],
        item.index[starts + config.context_length - 1],
    )


def _join(
    panel: Panel, windows: Sequence[Windows], point: np.ndarray, quantiles: np.ndarray | None
) -> RollingForecast:
    """Put the forecasts of all windows of a panel beside what happened."""
    counts = [len(part.cutoffs) for part in windows]
    ids = np.empty(len(windows), dtype=object)
    ids[:] = [item.item_id for item in panel.series]
    actual = [part.actual for part in windows]
    cutoffs = windows[0].cutoffs.append([part.cutoffs for part in windows[1:]])
    return RollingForecast(
        point,
        actual[0] if len(actual) == 1 else np.concatenate(actual),
        quantiles,
        pd.DatetimeIndex(cutoffs),
        np.repeat(ids, counts),
    )


def roll(
    model: EncoderForecaster,
    panel: Panel,
    step: int,
    levels: tuple[float, ...] | None,
    accelerator: str,
) -> tuple[RollingForecast, list[Windows]]:
    """Forecast from every window inside a panel; also return the windows of each series."""
    windows = [rolling_windows(item, model.config, step) for item in panel.series]
    contexts = [part.context for part in windows]
    return _join(panel, windows, *forecast(model, contexts, levels, accelerator)), windows
