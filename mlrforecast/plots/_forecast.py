"""The end of a history and the forecast that follows it."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from mlrforecast.plots._fan import draw_fan
from mlrforecast.plots._style import (
    ACTUAL,
    HISTORY,
    at_least_one,
    clean,
    legend_of_lines,
    mark_time,
    more,
    stacked_axes,
)

__all__ = ["plot_forecast"]


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
    >>> import pandas as pd
    >>> index = pd.date_range("2024-01-01", periods=4, freq="h")
    >>> frame = pd.DataFrame({"load": [1.0, 2.0, 3.0, 4.0]}, index=index)
    >>> axes = plot_forecast(frame[:2], frame[2:])
    >>> axes[0].get_ylabel()
    'load'
    >>> from matplotlib import pyplot as plt
    >>> plt.close(axes[0].figure)
    """
    past, future = _frame(history, "history"), _frame(forecast, "forecast")
    truth = None if actual is None else _frame(actual, "actual")
    names = _names(past, future, columns)
    shown = names[: at_least_one(max_items, "max_items")]
    rows = 3 * len(future) if history_length is None else history_length
    past = past.iloc[-at_least_one(rows, "history_length") :]
    axes = stacked_axes(ax, len(shown))
    for axis, name in zip(axes, shown, strict=True):
        draw_fan(axis, *_curves(future, name, quantiles))
        _draw_values(axis, past, truth, name)
        axis.set_ylabel(str(name))
    mark_time(axes, past.index)
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


def _draw_values(axis: Axes, past: pd.DataFrame, truth: pd.DataFrame | None, name: Any) -> None:
    """Draw what was observed before the forecast and, thin, after it."""
    axis.plot(past.index, past[name], color=HISTORY, linewidth=1.1, label="history", zorder=2)
    if truth is not None:
        if name not in truth.columns:
            raise ValueError(f"`actual` must hold the column {name!r}, got {list(truth.columns)}.")
        axis.plot(truth.index, truth[name], color=ACTUAL, linewidth=0.9, label="actual", zorder=4)
    axis.axvline(past.index[-1], color=HISTORY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)


def _finish(axes: NDArray[Any], *, hidden: int) -> None:
    """Set the grid and the one legend, which stands above the data."""
    for axis in axes:
        clean(axis)
        axis.margins(x=0.01)
    if hidden:
        axes[-1].set_xlabel(more(hidden, "column"))
    legend_of_lines(axes[0])
