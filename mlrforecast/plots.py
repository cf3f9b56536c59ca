"""Forecast pictures: frames in, matplotlib axes out; nothing is shown and nothing is saved."""

from collections.abc import Sequence
from typing import Any

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

__all__ = ["plot_forecast"]

# Blue against grey and black stays apart for every common form of colour blindness and in print.
_FORECAST = "#0072B2"
_HISTORY = "#7F7F7F"
_ACTUAL = "#111111"


def plot_forecast(
    history: pd.DataFrame | pd.Series,
    forecast: pd.DataFrame | pd.Series,
    *,
    quantiles: Sequence[float] | None = None,
    actual: pd.DataFrame | pd.Series | None = None,
    columns: Sequence[str] | None = None,
    history_length: int | None = None,
    max_items: int = 4,
    ax: Axes | Sequence[Axes] | NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw the recent past and the forecast of each column, with a fan of its quantiles.

    Columns are drawn below each other on one time axis. Levels that mirror each other (0.1 and
    0.9) become one band, the widest the palest; 0.5 or the point forecast is the line, and a level
    without a mirror image is dotted.

    Parameters
    ----------
    history : DataFrame or Series
        Wide values before the forecast, indexed by time stamps or by numbers.
    forecast : DataFrame or Series
        Wide forecast. Its columns are those of ``history``, or pairs (column, "point" | "0.1" |
        ...), as ``MLRForecaster.predict(quantile_levels=...)`` returns.
    quantiles : sequence of float in (0, 1), optional
        Levels to draw, out of those in ``forecast``. All of them by default.
    actual : DataFrame or Series, optional
        What came to be, drawn as a thin line over the forecast.
    columns : sequence of str, optional
        Columns to draw, in this order. Those of ``forecast`` by default.
    history_length : int, optional
        Rows of ``history`` to draw, the newest. Three times the forecast by default.
    max_items : int, default 4
        Most columns that are drawn; the others are counted below the last axes.
    ax : Axes or sequence of Axes, optional
        Where to draw, one per drawn column. A new figure by default.

    Returns
    -------
    array of Axes
        One per drawn column. ``axes[0].figure`` is the figure, to show, change or save.

    Raises
    ------
    ValueError
        If a frame is empty, or a column, a level or an axes is missing.

    Examples
    --------
    >>> index = pd.date_range("2024-01-01", periods=4, freq="h")
    >>> frame = pd.DataFrame({"load": [1.0, 2.0, 3.0, 4.0]}, index=index)
    >>> axes = plot_forecast(frame[:2], frame[2:])
    >>> axes[0].get_ylabel()
    'load'
    >>> plt.close(axes[0].figure)
    """
    past, future = _frame(history, "history"), _frame(forecast, "forecast")
    truth = None if actual is None else _frame(actual, "actual")
    names = _names(past, future, columns)
    shown = names[: _at_least_one(max_items, "max_items")]
    rows = 3 * len(future) if history_length is None else history_length
    past = past.iloc[-_at_least_one(rows, "history_length") :]
    axes = _axes(ax, len(shown))
    for axis, name in zip(axes, shown, strict=True):
        _draw_fan(axis, *_curves(future, name, quantiles))
        _draw_values(axis, past, truth, name)
        axis.set_ylabel(str(name))
    _mark_time(axes, past.index)
    _finish(axes, hidden=len(names) - len(shown))
    return axes


def _frame(values: pd.DataFrame | pd.Series, name: str) -> pd.DataFrame:
    """Check one frame; a series becomes a frame of one column."""
    if isinstance(values, pd.Series):
        values = values.to_frame(values.name if values.name is not None else "value")
    if not isinstance(values, pd.DataFrame):
        raise TypeError(f"`{name}` must be a DataFrame or a Series, got {type(values).__name__}.")
    if values.empty:
        raise ValueError(f"`{name}` must not be empty, got the shape {values.shape}.")
    return values


def _at_least_one(count: int, name: str) -> int:
    if count < 1:
        raise ValueError(f"`{name}` must be at least 1, got {count}.")
    return count


def _names(past: pd.DataFrame, future: pd.DataFrame, columns: Sequence[str] | None) -> list[Any]:
    """Choose the columns to draw: those asked for, or all that were forecast."""
    outer = list(dict.fromkeys(future.columns.get_level_values(0)))
    names = outer if columns is None else list(columns)
    for name in names:
        for frame, held in (("history", list(past.columns)), ("forecast", outer)):
            if name not in held:
                raise ValueError(f"`{frame}` must hold the column {name!r}, got {held}.")
    if not names:
        raise ValueError("`columns` must name at least one column, got none.")
    return names


def _axes(ax: Axes | Sequence[Axes] | NDArray[Any] | None, count: int) -> NDArray[Any]:
    """Give one axes per column: the caller's, or those of a new figure."""
    if ax is None:
        height = 1.2 + 2.1 * count if count > 1 else 3.8
        figure, grid = plt.subplots(
            count, 1, sharex=True, squeeze=False, figsize=(9.5, height), layout="constrained"
        )
        figure.align_ylabels()
        return np.asarray(grid[:, 0])
    given = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if len(given) != count:
        raise ValueError(
            f"`ax` must hold one axes per drawn column ({count}), got {len(given)}. "
            "Pass `columns` or `max_items` to draw fewer."
        )
    return given


def _curves(
    future: pd.DataFrame, name: Any, quantiles: Sequence[float] | None
) -> tuple[pd.Series, dict[float, pd.Series]]:
    """Split the forecast of one column into its line and its quantiles, level -> values."""
    if future.columns.nlevels == 1:
        if quantiles:
            raise ValueError(
                f"`forecast` holds no quantiles, asked for {list(quantiles)}. Pass the frame that "
                "`predict(quantile_levels=...)` returns."
            )
        return future[name], {}
    held = future[name]
    levels = {float(label): held[label] for label in held.columns if label != "point"}
    wanted = sorted(levels) if quantiles is None else sorted(float(level) for level in quantiles)
    missing = [level for level in wanted if level not in levels]
    if missing:
        raise ValueError(f"`quantiles` must be among {sorted(levels)}, got {missing}.")
    line = levels[0.5] if 0.5 in levels else held["point"]
    return line, {level: levels[level] for level in wanted if level != 0.5}


def _draw_fan(axis: Axes, line: pd.Series, levels: dict[float, pd.Series]) -> None:
    """Draw nested bands, the widest first, then single levels and the line."""
    mirror = {round(level, 9): level for level in levels}
    pairs = [
        (level, mirror[round(1 - level, 9)])
        for level in levels
        if level < 0.5 and round(1 - level, 9) in mirror
    ]
    for number, (low, high) in enumerate(pairs):
        axis.fill_between(
            line.index,
            levels[low],
            levels[high],
            color=_FORECAST,
            alpha=0.18 + 0.14 * number,
            linewidth=0,
            label=f"{100 * (high - low):.3g} % interval",
            zorder=1 + 0.1 * number,
        )
    paired = {level for pair in pairs for level in pair}
    for level in sorted(set(levels) - paired):
        axis.plot(
            line.index,
            levels[level],
            ":",
            color=_FORECAST,
            linewidth=1,
            label=f"quantile {level:g}",
        )
    axis.plot(line.index, line, color=_FORECAST, linewidth=1.8, label="forecast", zorder=3)


def _draw_values(axis: Axes, past: pd.DataFrame, truth: pd.DataFrame | None, name: Any) -> None:
    """Draw what was observed before the forecast and, thin, after it."""
    axis.plot(past.index, past[name], color=_HISTORY, linewidth=1.1, label="history", zorder=2)
    if truth is not None:
        if name not in truth.columns:
            raise ValueError(f"`actual` must hold the column {name!r}, got {list(truth.columns)}.")
        axis.plot(truth.index, truth[name], color=_ACTUAL, linewidth=0.9, label="actual", zorder=4)
    axis.axvline(past.index[-1], color=_HISTORY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)


def _mark_time(axes: NDArray[Any], index: pd.Index) -> None:
    """Write dates below the axes, those of a time zone in its local time, or whole numbers."""
    zone = index.tz if isinstance(index, pd.DatetimeIndex) else None
    for axis in axes:
        if isinstance(index, pd.DatetimeIndex):
            dates = mdates.AutoDateLocator(zone, minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
            axis.xaxis.set_major_locator(dates)
            formatter = mdates.ConciseDateFormatter(dates, zone)  # type: ignore[no-untyped-call]
            axis.xaxis.set_major_formatter(formatter)
        elif pd.api.types.is_integer_dtype(index.dtype):
            axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True))


def _finish(axes: NDArray[Any], *, hidden: int) -> None:
    """Set the grid and the one legend, which stands above the data."""
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#E6E6E6", linewidth=0.7)
        axis.set_axisbelow(True)
        axis.margins(x=0.01)
    if hidden:
        axes[-1].set_xlabel(f"and {hidden} more column{'s' if hidden > 1 else ''}, not drawn")
    handles, labels = axes[0].get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda place: _legend_place(labels[place]))
    axes[0].legend(
        [handles[place] for place in order],
        [labels[place] for place in order],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.01),
        ncols=len(labels),
        frameon=False,
        borderaxespad=0.0,
        handlelength=1.6,
        columnspacing=1.6,
    )


def _legend_place(label: str) -> int:
    """Order the legend as the eye reads the picture: past, truth, line, bands."""
    first = ("history", "actual", "forecast")
    return first.index(label) if label in first else len(first)
