"""Forecasts from many cutoffs over what happened."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from mlrforecast.plots._fan import draw_fan
from mlrforecast.plots._style import (
    ACTUAL,
    HISTORY,
    at_least_one,
    check_table,
    clean,
    legend_of_lines,
    mark_time,
    more,
    stacked_axes,
)

__all__ = ["plot_backtest"]

_COLUMNS = ("item_id", "cutoff", "timestamp", "actual", "forecast")


def plot_backtest(
    frame: pd.DataFrame,
    *,
    items: Sequence[Hashable] | None = None,
    max_items: int = 4,
    max_cutoffs: int = 8,
    ax: Axes | Sequence[Axes] | NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw what happened and, over it, the forecast from each cutoff with a fan of its quantiles.

    Items are drawn below each other on one time axis, a dashed line at each cutoff. Forecasts that
    would lie on one another, as those from every row do, are thinned out: the newest is drawn, and
    then always the next older one that ends before it begins.

    Parameters
    ----------
    frame : DataFrame
        A row for each item, cutoff and step, with the columns ``item_id``, ``cutoff`` (the last
        stamp that a forecast could read), ``timestamp``, ``actual``, ``forecast``, and one for
        each quantile level, such as ``"0.9"``: the ``frame`` of a
        :class:`mlrforecast.evaluation.Backtest`.
    items : sequence of hashable, optional
        Items to draw, in this order. All of them by default.
    max_items : int, default 4
        Most items that are drawn; the others are counted below the last axes.
    max_cutoffs : int, default 8
        Most cutoffs of an item, the newest, from which forecasts are drawn.
    ax : Axes or sequence of Axes, optional
        Where to draw, one per drawn item. A new figure by default.

    Returns
    -------
    array of Axes
        One per drawn item. ``axes[0].figure`` is the figure, to show, change or save.

    Raises
    ------
    ValueError
        If the frame is empty, a column, an item or an axes is missing, or a number is less than 1.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib import pyplot as plt
    >>> frame = pd.DataFrame(
    ...     {
    ...         "item_id": "shop",
    ...         "cutoff": [9, 9, 11, 11],
    ...         "timestamp": [10, 11, 12, 13],
    ...         "actual": [5.0, 6.0, 5.0, 7.0],
    ...         "forecast": [5.5, 5.5, 6.0, 6.0],
    ...     }
    ... )
    >>> axes = plot_backtest(frame)
    >>> axes[0].get_ylabel()
    'shop'
    >>> plt.close(axes[0].figure)
    """
    check_table(frame, "frame", _COLUMNS)
    names = _items(frame, items)
    shown = names[: at_least_one(max_items, "max_items")]
    at_least_one(max_cutoffs, "max_cutoffs")
    axes = stacked_axes(ax, len(shown))
    for axis, name in zip(axes, shown, strict=True):
        rows = frame[_is_item(frame["item_id"], name)].sort_values(["cutoff", "timestamp"])
        cutoffs = _apart(rows, max_cutoffs)
        _draw_forecasts(axis, rows, cutoffs)
        _draw_actual(axis, rows[rows["timestamp"] > cutoffs[0]])
        axis.set_ylabel(str(name))
        clean(axis)
        axis.margins(x=0.01)
    mark_time(axes, pd.Index(frame["timestamp"]))
    if (hidden := len(names) - len(shown)) > 0:
        axes[-1].set_xlabel(more(hidden, "item"))
    legend_of_lines(axes[0])
    return axes


def _items(frame: pd.DataFrame, items: Sequence[Hashable] | None) -> list[Any]:
    """Choose the items to draw: those asked for, or all."""
    held = list(dict.fromkeys(frame["item_id"]))
    if items is None:
        return held
    if isinstance(items, str) or not isinstance(items, Sequence | np.ndarray | pd.Index):
        raise TypeError(f"`items` must be a sequence of items, got {items!r}.")
    wanted = list(items)
    missing = [name for name in wanted if name not in held]
    if missing:
        raise ValueError(f"`items` must be among those of `frame`, which has no {missing[0]!r}.")
    if not wanted:
        raise ValueError("`items` must name at least one item, got none.")
    return wanted


def _is_item(column: pd.Series, name: Any) -> NDArray[np.bool_]:
    """Tell which rows are those of an item, which may be a tuple."""
    return np.fromiter((value == name for value in column), dtype=bool, count=len(column))


def _apart(rows: pd.DataFrame, most: int) -> list[Any]:
    """Return the newest cutoffs whose forecasts do not lie on one another, oldest first."""
    ends = rows.groupby("cutoff", sort=True)["timestamp"].max()
    chosen: list[Any] = []
    for cutoff, end in zip(reversed(ends.index), reversed(list(ends)), strict=True):
        if not chosen or end <= chosen[0]:
            chosen.insert(0, cutoff)
        if len(chosen) == most:
            break
    return chosen


def _draw_forecasts(axis: Axes, rows: pd.DataFrame, cutoffs: list[Any]) -> None:
    """Draw the forecast from each of some cutoffs, and a mark where it begins."""
    names = {float(name): name for name in rows.columns if name not in _COLUMNS and _is_level(name)}
    for number, cutoff in enumerate(cutoffs):
        window = rows[rows["cutoff"] == cutoff].set_index("timestamp")
        levels = {level: window[name] for level, name in names.items()}
        draw_fan(axis, window["forecast"], levels, labelled=number == 0)
        axis.axvline(cutoff, color=HISTORY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)


def _is_level(name: Any) -> bool:
    """Tell whether a column is named by a quantile level."""
    try:
        return 0 < float(name) < 1
    except (TypeError, ValueError):
        return False


def _draw_actual(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw what happened, with a gap where no window was."""
    pieces = []
    newest = None
    for cutoff, window in rows.groupby("cutoff", sort=True):
        if newest is not None:
            if cutoff > newest:
                pieces.append(pd.Series([np.nan], index=pd.Index([newest])))
            window = window[window["timestamp"] > newest]
        pieces.append(window.set_index("timestamp")["actual"])
        newest = pieces[-1].index[-1] if len(window) else newest
    xs = [stamp for piece in pieces for stamp in piece.index]
    ys = np.concatenate([piece.to_numpy(dtype=float) for piece in pieces])
    axis.plot(
        xs,
        ys,
        color=ACTUAL,
        linewidth=0.9,
        marker="o" if len(ys) == 1 else None,
        markersize=3,
        label="actual",
        zorder=4,
    )
