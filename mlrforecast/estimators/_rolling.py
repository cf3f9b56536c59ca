"""Windows that roll through a frame, and their forecasts."""

from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd

from mlrforecast import metrics
from mlrforecast._core.errors import DataError
from mlrforecast.data import ForecastWindows, Panel
from mlrforecast.estimators._inference import BATCH, Predictor, slices
from mlrforecast.models import EncoderConfig


@dataclass(frozen=True, eq=False)
class RollingForecast:
    """Forecasts from the windows inside a frame, beside what happened.

    Parameters
    ----------
    forecast, actual : ndarray of shape (N, F, C)
        Point forecasts and actual values of ``N`` windows; NaN where no value was observed.
    quantiles : ndarray of shape (N, F, C, Q), or None
        Quantiles of the levels that were asked for.
    cutoffs : DatetimeIndex or Index of int, of length N
        The last stamp that each forecast could read.
    item_ids : ndarray of length N
        The item of each window; None for a wide frame.
    """

    forecast: np.ndarray
    actual: np.ndarray
    quantiles: np.ndarray | None
    cutoffs: pd.Index
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


def rolling_windows(predictor: Predictor, panel: Panel, step: int) -> ForecastWindows:
    """Return every ``step``-th window of each series, counted back from its newest row.

    A series that is too short for a whole context has one window, of what there is.
    """
    config = predictor.model.config
    _check_lengths(panel, config)
    spare = panel.lengths - config.context_length - config.prediction_length
    counts = np.maximum(spare, 0) // step + 1
    series = np.repeat(np.arange(len(panel)), counts)
    newest = panel.lengths - config.prediction_length
    # Windows of a series that follow after each one.
    later = np.repeat(np.cumsum(counts), counts) - 1 - np.arange(len(series))
    return predictor.windows(panel, series, newest[series] - step * later)


def _check_lengths(panel: Panel, config: EncoderConfig) -> None:
    needed = config.prediction_length + 1
    short = np.flatnonzero(panel.lengths < needed)
    if len(short):
        others = f" ({len(short)} of {len(panel)} series are too short)" * (len(panel) > 1)
        raise DataError(
            f"A window needs {needed} rows (a row of context and prediction_length "
            f"{config.prediction_length}), but {panel.owner(int(short[0]))} has "
            f"{panel.lengths[short[0]]}{others}. Leave short series out."
        )


def roll(
    predictor: Predictor, windows: ForecastWindows, levels: tuple[float, ...] | None
) -> RollingForecast:
    """Forecast from windows and put what happened beside it."""
    panel, series = windows.panel, windows.series
    items = np.full(len(panel), None, dtype=object)
    if panel.layout.form == "long":
        items = np.fromiter(panel.labels, dtype=object, count=len(panel))
    point, quantiles = predictor.forecast(windows, levels)
    actual = np.empty_like(point)
    for rows in slices(len(windows), BATCH):
        actual[rows] = windows.actual(rows)
    return RollingForecast(
        point,
        actual,
        quantiles,
        panel.index[panel.bounds[series] + windows.cutoffs - 1],
        items[series],
    )


def scaled_error(rolled: RollingForecast, windows: ForecastWindows, season_length: int) -> float:
    """Return the mean absolute scaled error of forecasts from windows."""
    season = season_length if season_length < windows.context_length else 1
    scales = np.full((len(windows), windows.panel.num_channels), np.nan)
    if windows.context_length > 1:
        for rows in slices(len(windows), BATCH):
            scales[rows] = metrics.seasonal_error(windows.contexts(rows), season)
    return float(metrics.mase(rolled.actual, rolled.forecast, scales))
