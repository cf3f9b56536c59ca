"""Windows that roll through a frame, and their forecasts, with or without refitting."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from mlrforecast._core.errors import DataError
from mlrforecast.data import ForecastWindows, Panel
from mlrforecast.estimators._forecasts import Forecasts
from mlrforecast.estimators._inference import BATCH, Predictor, slices
from mlrforecast.models import EncoderConfig

HELD_BACK = 5
"""A calibration reads the newest fifth of the longest series, unless told otherwise."""
NUM_CUTOFFS = 20
"""Cutoffs of a series in it, about."""


class Cutoffs(NamedTuple):
    """Where forecasts begin, ordered by series and inside a series from old to new.

    Parameters
    ----------
    series, num_rows : ndarray of int of shape (N,)
        The series of each window, and its rows before the forecast.
    places : ndarray of int of shape (N,)
        Windows of the same series that are newer.
    """

    series: np.ndarray
    num_rows: np.ndarray
    places: np.ndarray


def check_count(name: str, value: Any, *, least: int = 1) -> int:
    """Return a whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be an integer, got {value!r}.")
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}, got {value}.")
    return int(value)


def check_refit(refit: Any) -> int:
    """Return after how many cutoffs a network is fitted anew, 0 for never."""
    if isinstance(refit, bool | np.bool_):
        return int(refit)
    return check_count("refit", refit)


def find_cutoffs(panel: Panel, config: EncoderConfig, *, windows: int | None, step: int) -> Cutoffs:
    """Return the newest cutoffs of each series, ``step`` rows apart.

    Where ``windows`` is left open, those with a whole context before them, but at least one of
    each series. Series without room for a forecast have none, and a warning names them.
    """
    room = panel.lengths - config.prediction_length - 1
    check_room(panel, room, config.prediction_length)
    fitting = room // step + 1
    if windows is None:
        whole = (room + 1 - config.context_length) // step + 1
        counts = np.maximum(whole, np.minimum(fitting, 1))
    else:
        counts = np.minimum(fitting, windows)
    return newest_cutoffs(room + 1, np.where(room < 0, 0, counts), step)


def newest_cutoffs(newest: np.ndarray, counts: np.ndarray, step: int) -> Cutoffs:
    """Return some cutoffs of each series, ``step`` rows apart, the last after ``newest`` rows."""
    series = np.repeat(np.arange(len(counts)), counts)
    places = np.repeat(np.cumsum(counts), counts) - 1 - np.arange(len(series))
    return Cutoffs(series, newest[series] - step * places, places)


def check_room(panel: Panel, room: np.ndarray, prediction_length: int) -> None:
    """Warn of series that are too short for a window; raise a DataError if all are."""
    short = np.flatnonzero(room < 0)
    if not len(short):
        return
    message = (
        f"A window needs {prediction_length + 1} rows (a row of context and "
        f"prediction_length {prediction_length}), but {panel.owner(int(short[0]))} has "
        f"{panel.lengths[short[0]]}"
    )
    if len(short) == len(panel):
        others = f", and no other series has enough ({len(panel)} in all)" * (len(panel) > 1)
        raise DataError(f"{message}{others}. Pass more rows.")
    warnings.warn(
        f"{message}. It is left out, as are all that are too short: {len(short)} of {len(panel)} "
        "series.",
        UserWarning,
        stacklevel=4,
    )


def calibration_windows(
    panel: Panel, config: EncoderConfig, windows: int | None, step: int | None
) -> tuple[int, int]:
    """Return how many windows of a series a calibration reads, and how far they are apart.

    Left open, about 20 that lie in the newest fifth of the longest series, or the one that a
    horizon needs; where one of both is given, those ``prediction_length`` apart, or as many as
    there is room for.
    """
    horizon = config.prediction_length
    room = max(0, int(panel.lengths.max()) // HELD_BACK - horizon)
    if step is None:
        step = horizon if windows is not None else max(1, -(-room // (NUM_CUTOFFS - 1)))
    if windows is None:
        windows = room // step + 1
    return windows, step


def forecast_windows(
    predictor: Predictor, panel: Panel, cutoffs: Cutoffs, *, point_only: bool = False
) -> tuple[Forecasts, np.ndarray]:
    """Forecast from cutoffs; return the forecasts and what followed, (N, F, C)."""
    windows = predictor.windows(panel, cutoffs.series, cutoffs.num_rows)
    return predictor.forecast(windows, point_only=point_only), actual_values(windows)


def actual_values(windows: ForecastWindows) -> np.ndarray:
    """Return what followed each window, (N, F, C)."""
    shape = (len(windows), windows.prediction_length, windows.panel.num_channels)
    actual = np.empty(shape)
    for rows in slices(len(windows), BATCH):
        actual[rows] = windows.actual(rows)
    return actual


def forecast_refitted(
    fit: Callable[[Panel], Predictor], panel: Panel, cutoffs: Cutoffs, *, every: int, step: int
) -> tuple[Forecasts, np.ndarray]:
    """Forecast from cutoffs, each by a network that was fitted on rows before it alone.

    Networks are fitted before every ``every``-th cutoff, from the oldest on; cutoffs that are
    equally far from the newest row of their series have the same one.
    """
    places: list[np.ndarray] = []
    forecasts: list[Forecasts] = []
    actual: list[np.ndarray] = []
    newest = panel.lengths[cutoffs.series] - cutoffs.num_rows - step * cutoffs.places
    for oldest in range(int(cutoffs.places.max()), -1, -every):
        chosen = np.flatnonzero((cutoffs.places <= oldest) & (cutoffs.places > oldest - every))
        group = Cutoffs(*(part[chosen] for part in cutoffs))
        known = panel.lengths - newest[0] - step * oldest
        predictor = fit(training_rows(panel, np.maximum(known, 0)))
        found, happened = forecast_windows(predictor, panel, group)
        places.append(chosen)
        forecasts.append(found)
        actual.append(happened)
    order = np.argsort(np.concatenate(places))
    return _in_order(forecasts, order), np.concatenate(actual)[order]


def training_rows(panel: Panel, num_rows: np.ndarray) -> Panel:
    """Return the first rows of each series, without series that have too few to train on."""
    enough = num_rows >= 2
    if not enough.any():
        raise DataError(
            "No series has two rows before its oldest cutoff to train on. Pass more rows, fewer "
            "`windows`, or refit=False."
        )
    cropped = panel.head(num_rows)
    return cropped if enough.all() else cropped.select(np.flatnonzero(enough))


def _in_order(parts: list[Forecasts], order: np.ndarray) -> Forecasts:
    """Put forecasts of groups of windows together, in an order."""
    details = [part.details for part in parts if part.details is not None]
    return replace(
        parts[0],
        point=np.concatenate([part.point for part in parts])[order],
        details=np.concatenate(details)[order] if details else None,
        scale=np.concatenate([part.scale for part in parts])[order],
        varied=np.concatenate([part.varied for part in parts])[order],
    )
