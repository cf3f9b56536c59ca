"""Whether intervals hold as many values as they promise."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from mlrforecast.plots._style import (
    BLUE,
    GREY,
    SERIES,
    VERMILION,
    check_table,
    clean,
    legend_above,
    one_axes,
)

__all__ = ["plot_coverage"]

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def plot_coverage(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the share of values that intervals held against the share that they promised.

    On the diagonal intervals are as wide as they should be; above it they are too wide, below it
    too narrow.

    Parameters
    ----------
    table : DataFrame
        Indexed by the nominal coverage, in [0, 1], with a column for each series of points, such
        as ``"before"`` and ``"after"`` a calibration. Those without a number are left out, and so
        is a column ``"width"``, which compares the widths of intervals.
    ax : Axes, optional
        Where to draw. A new figure by default.

    Returns
    -------
    Axes
        ``axes.figure`` is the figure, to show, change or save.

    Raises
    ------
    ValueError
        If ``table`` is empty or holds no coverage, or its index is not of numbers in [0, 1].
    TypeError
        If ``table`` is not a DataFrame.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib import pyplot as plt
    >>> table = pd.DataFrame({"before": [0.4, 0.7], "after": [0.5, 0.8]}, index=[0.5, 0.8])
    >>> axis = plot_coverage(table)
    >>> axis.get_xlabel()
    'nominal coverage'
    >>> plt.close(axis.figure)
    """
    check_table(table, "table")
    nominal = _nominal(table)
    columns = table.drop(columns="width", errors="ignore").dropna(axis=1, how="all")
    if columns.empty:
        raise ValueError("`table` must hold a coverage, got none but missing ones.")
    order = np.argsort(nominal)
    axis = one_axes(ax, 4.8, 4.8)
    (diagonal,) = axis.plot([0, 1], [0, 1], color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    for number, name in enumerate(columns):
        axis.plot(
            nominal[order],
            columns.iloc[:, number].to_numpy(dtype=float)[order],
            color=_colour(name, number),
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=5,
            linewidth=1.6,
            zorder=3,
            clip_on=False,
        )
    axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="nominal coverage", ylabel="values inside")
    axis.set_aspect("equal")
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_formatter(PercentFormatter(1.0))
    clean(axis, grid="both")
    names = [str(name) for name in columns]
    legend_above(axis, [*axis.get_lines()[1:], diagonal], [*names, "exact"], columns=3)
    return axis


def _colour(name: Any, number: int) -> str:
    """Return the colour of a column; that of forecasts for what a calibration made of them."""
    return {"before": VERMILION, "after": BLUE}.get(name, SERIES[number % len(SERIES)])


def _nominal(table: pd.DataFrame) -> np.ndarray:
    """Return the index as numbers, if they are coverages."""
    numeric = pd.api.types.is_numeric_dtype(table.index.dtype)
    nominal = table.index.to_numpy(dtype=float) if numeric else np.array([np.nan])
    if not ((nominal >= 0) & (nominal <= 1)).all():
        raise ValueError(
            "`table` must be indexed by nominal coverages in [0, 1], got "
            f"{list(table.index[:4])}{'...' if len(table) > 4 else ''}."
        )
    return nominal
