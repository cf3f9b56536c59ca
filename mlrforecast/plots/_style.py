"""What all pictures share: colours, axes, time below them, legends above them."""

from collections.abc import Sequence
from typing import Any

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

# Okabe and Ito's palette, which stays apart for every common form of colour blindness; without
# its yellow, which is too pale for a line, and with a grey.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, GREY, INK = "#56B4E9", "#CC79A7", "#7F7F7F", "#111111"
SERIES = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, INK)
GRID = "#E6E6E6"

FORECAST, HISTORY, ACTUAL = BLUE, GREY, INK


def at_least_one(count: int, name: str) -> int:
    """Return a count of things to draw."""
    if count < 1:
        raise ValueError(f"`{name}` must be at least 1, got {count}.")
    return count


def check_table(table: pd.DataFrame, name: str, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Return a frame if it holds rows and some ``columns``."""
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"`{name}` must be a DataFrame, got {type(table).__name__}.")
    if table.empty:
        raise ValueError(f"`{name}` must not be empty, got the shape {table.shape}.")
    if missing := [column for column in columns if column not in table.columns]:
        raise ValueError(
            f"`{name}` must have the columns {', '.join(columns)}; {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing."
        )
    return table


def stacked_axes(ax: Axes | Sequence[Axes] | NDArray[Any] | None, count: int) -> NDArray[Any]:
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
            "Pass `columns`, `items` or `max_items` to draw fewer."
        )
    return given


def one_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """Give the caller's axes, or that of a new figure."""
    if ax is None:
        return plt.subplots(figsize=(width, height), layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise TypeError(f"`ax` must be one axes, got {type(ax).__name__}.")
    return ax


def mark_time(axes: NDArray[Any], index: pd.Index) -> None:
    """Write dates below the axes, those of a time zone in its local time, or whole numbers."""
    zone = index.tz if isinstance(index, pd.DatetimeIndex) else None
    for axis in axes:
        if isinstance(index, pd.DatetimeIndex):
            dates = mdates.AutoDateLocator(zone, minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
            axis.xaxis.set_major_locator(dates)
            formatter = mdates.ConciseDateFormatter(dates, zone)  # type: ignore[no-untyped-call]
            axis.xaxis.set_major_formatter(formatter)
        elif pd.api.types.is_integer_dtype(index.dtype):
            whole_numbers(axis)


def whole_numbers(axis: Axes) -> None:
    """Write only whole numbers below an axes."""
    axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True))


def clean(axis: Axes, *, grid: str = "y") -> None:
    """Leave the frame out and draw a pale grid below the data."""
    axis.spines[["top", "right"]].set_visible(False)
    if grid:
        axis.grid(axis=grid, color=GRID, linewidth=0.7)  # type: ignore[arg-type]
    axis.set_axisbelow(True)


def legend_above(axis: Axes, handles: Sequence[Any], labels: Sequence[str], columns: int) -> None:
    """Set a legend of at most ``columns`` columns above the data."""
    axis.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.01),
        ncols=min(len(labels), columns),
        frameon=False,
        borderaxespad=0.0,
        handlelength=1.6,
        columnspacing=1.6,
    )


def legend_of_lines(axis: Axes) -> None:
    """Set the legend of forecasts as the eye reads them: past, truth, line, bands."""
    first = ("history", "actual", "forecast")
    handles, labels = axis.get_legend_handles_labels()
    places = [first.index(label) if label in first else len(first) for label in labels]
    order = sorted(range(len(labels)), key=places.__getitem__)
    chosen = [handles[place] for place in order], [labels[place] for place in order]
    legend_above(axis, *chosen, columns=len(labels))


def more(hidden: int, what: str) -> str:
    """Say that so many are not drawn."""
    return f"and {hidden} more {what}{'s' if hidden > 1 else ''}, not drawn"
