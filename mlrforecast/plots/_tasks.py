"""The two tasks beside forecasting as pictures: errors by point, and how models scale."""

from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import (
    FixedLocator,
    LogFormatterSciNotation,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
    ScalarFormatter,
)
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray
from scipy.stats import t as student

from mlrforecast.plots._style import (
    GREY,
    INK,
    ORANGE,
    SERIES,
    check_table,
    clean,
    legend_above,
    one_axes,
    whole_numbers,
)

__all__ = ["plot_error_by_point", "plot_scaling"]

_Values = NDArray[np.float64]

COMPARATORS = ("averaging", "k_nearest_neighbours", "least_squares", "ridge", "zero")
"""Methods that are drawn dashed: the names of the comparators of in-context regression."""

_DASHED: dict[str, Any] = {
    "averaging": {"color": GREY, "linestyle": (0, (1, 1.5))},
    "k_nearest_neighbours": {"color": ORANGE, "linestyle": (0, (4, 1.5, 1, 1.5))},
    "least_squares": {"color": INK, "linestyle": (0, (5, 2))},
    "ridge": {"color": GREY, "linestyle": (0, (5, 2))},
    "zero": {"color": INK, "linestyle": (0, (1, 2.5))},
}
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_MODELS = tuple(colour for colour in SERIES if colour not in (ORANGE, INK))
"""Colours of models: those that no comparator has."""
_ABOVE, _BELOW = 10.0, 1e-3
"""Largest error that is shown, relative to that of models; smallest, relative to the median."""
_NEAR = 10.0
"""Largest over smallest value up to which a logarithmic axis has plain numbers; up to
its square, it has one mark between two powers of ten."""
_FEW = 8
_APART = 2.5
"""Points between lines whose places are the same."""


def plot_error_by_point(
    table: pd.DataFrame, *, ax: Axes | None = None, label: str = "model"
) -> Axes:
    """Draw the squared error at each point of a sequence, for one method or several.

    Models are solid and comparators dashed. The bands are 95% intervals of the mean error, by its
    standard error relative to it. The error is on a logarithmic scale around the errors of models:
    those of least squares, which may be mere rounding or explode, are cut. An error of exactly 0
    is left out.

    Parameters
    ----------
    table : DataFrame
        A row a point, with the columns ``point`` (points seen before), ``error`` and, for bands,
        ``standard_error``; with several methods, a column ``method`` with their names.
    ax : Axes, optional
        Where to draw. A new figure by default.
    label : str, default "model"
        Name of the only method of a table without the column ``method``.

    Returns
    -------
    Axes
        ``axes.figure`` is the figure, to show, change or save.

    Raises
    ------
    ValueError
        If ``table`` is empty, lacks a column, has a point of a method twice, or no error above 0.
    TypeError
        If ``table`` is not a DataFrame.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib import pyplot as plt
    >>> table = pd.DataFrame({"point": [0, 1, 2], "error": [1.0, 0.5, 0.1]})
    >>> axis = plot_error_by_point(table, label="MLR")
    >>> axis.get_xlabel(), axis.get_yscale()
    ('points seen', 'log')
    >>> plt.close(axis.figure)
    """
    check_table(table, "table", ("point", "error"))
    if "method" not in table.columns:
        table = table.assign(method=label)
    if (twice := table[["method", "point"]].duplicated()).any():
        method, point = table.loc[twice, ["method", "point"]].iloc[0]
        raise ValueError(
            f"`table` must have each point of a method once, got point {point} of {method!r} twice."
        )
    low, high = _error_range(table)
    axis = one_axes(ax, 8.0, 4.2)
    names = [str(name) for name in table["method"].unique()]
    models = [name for name in names if name not in COMPARATORS]
    # Models first in the legend, and above the comparators.
    for name in (*models, *(name for name in names if name in COMPARATORS)):
        rows = table[table["method"].astype(str) == name].sort_values("point")
        colour = _MODELS[models.index(name) % len(_MODELS)] if name in models else ""
        style = _DASHED.get(name) or {"color": colour, "zorder": 4}
        error = rows["error"].where(rows["error"] > 0)
        axis.plot(rows["point"], error, label=_words(name), linewidth=1.7, **style)
        if "standard_error" in rows:
            # On the scale of the axis, where a lower end is never negative.
            factor = np.exp(1.96 * rows["standard_error"] / error)
            bounds = error / factor, error * factor
            axis.fill_between(rows["point"], *bounds, color=style["color"], alpha=0.18, linewidth=0)
    axis.set_yscale("log")
    axis.set_ylim(low, high)
    axis.set_xlabel("points seen")
    axis.set_ylabel("squared error")
    whole_numbers(axis)
    clean(axis)
    axis.margins(x=0.02)
    _legend(axis)
    return axis


def _error_range(table: pd.DataFrame) -> tuple[float, float]:
    """Return the ends of the error axis, which models set where there are any."""
    errors = table["error"].to_numpy(dtype=float)
    is_shown = np.isfinite(errors) & (errors > 0)
    if not is_shown.any():
        raise ValueError("`table` must hold an error above 0, got none.")
    is_model = ~table["method"].astype(str).isin(COMPARATORS).to_numpy() & is_shown
    if is_model.any():
        low, high = errors[is_model].min(), errors[is_model].max()
    else:
        low = high = np.median(errors[is_shown])
        low = max(low * _BELOW, errors[is_shown].min())
    return float(low / 2), float(min(high * _ABOVE, 1.6 * errors[is_shown].max()))


def plot_scaling(
    table: pd.DataFrame,
    x: str,
    y: str,
    hue: str,
    *,
    ax: Axes | None = None,
    interval: float | None = 0.95,
) -> Axes:
    """Draw an error or a loss against compute or width, a line for each kind of model.

    Both axes are logarithmic. A line goes through the geometric means over all rows of a place,
    such as the seeds of a setting, which stand behind it as rings. The bar is the confidence
    interval of that mean by Student's t distribution on the logarithms, so that it never reaches 0.
    A place of one run has none. Kinds that share places are drawn a little beside each other.

    Parameters
    ----------
    table : DataFrame
        A row a run.
    x, y, hue : str
        Columns: where a run stands and what it reached, both above 0, and its kind.
    ax : Axes, optional
        Where to draw. A new figure by default.
    interval : float or None, default 0.95
        Confidence of the bars, in (0, 1); None leaves them out.

    Returns
    -------
    Axes
        ``axes.figure`` is the figure, to show, change or save.

    Raises
    ------
    ValueError
        If ``table`` is empty or lacks a column, a number is not finite and above 0, or the
        interval is not in (0, 1).
    TypeError
        If ``table`` is not a DataFrame.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib import pyplot as plt
    >>> table = pd.DataFrame(
    ...     {"width": [64, 128, 64, 128], "error": [0.4, 0.2, 0.3, 0.1], "score": list("aabb")}
    ... )
    >>> axis = plot_scaling(table, "width", "error", "score")
    >>> axis.get_xscale(), [text.get_text() for text in axis.get_legend().get_texts()]
    ('log', ['a', 'b'])
    >>> plt.close(axis.figure)
    """
    check_table(table, "table", (x, y, hue))
    if interval is not None and not 0 < interval < 1:
        raise ValueError(f"`interval` must be in (0, 1) or None, got {interval!r}.")
    for column in (x, y):
        _check_above_zero(table[column], column)
    axis = one_axes(ax, 8.0, 4.6)
    kinds = list(table[hue].unique())
    apart = _APART if table[[x, hue]].drop_duplicates()[x].duplicated().any() else 0.0
    for number, kind in enumerate(kinds):
        rows = table[table[hue] == kind]
        colour = SERIES[number % len(SERIES)]
        marker = _MARKERS[(number + number // len(SERIES)) % len(_MARKERS)]
        places, mean, low, high = _means(rows, x, y, interval)
        (line,) = axis.plot(
            places, mean, color=colour, marker=marker, markersize=5, linewidth=1.7, zorder=4
        )
        line.set_label(str(kind))
        known = np.isfinite(low) & (interval is not None)
        bars = axis.vlines(places[known], low[known], high[known], color=colour, linewidth=1.1)
        several = rows[rows[x].duplicated(keep=False)]
        rings = axis.scatter(several[x], several[y], s=9, linewidth=0.8, zorder=3)
        rings.set(facecolor="white", edgecolor=colour)
        # Beside each other, where bars of several kinds would hide each other; only now, since the
        # limits of the axes are to be those of the data.
        shift = apart * (number - (len(kinds) - 1) / 2)
        beside = axis.transData + ScaledTranslation(shift / 72, 0, axis.figure.dpi_scale_trans)
        line.set_transform(beside)
        bars.set_transform(beside)
        rings.set_offset_transform(beside)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(_words(x))
    axis.set_ylabel(_words(y))
    _mark(axis.xaxis, table[x].to_numpy(dtype=float), "values")
    _mark(axis.yaxis, table[y].to_numpy(dtype=float), "numbers")
    clean(axis, grid="both")
    _legend(axis)
    return axis


def _check_above_zero(values: pd.Series, column: str) -> None:
    """Check that every value has a place on a logarithmic axis."""
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=float)
    if len(wrong := values[~(np.isfinite(numbers) & (numbers > 0))]):
        raise ValueError(
            f"`table` must have finite numbers above 0 in {column!r}, got {wrong.tolist()[0]!r}."
        )


def _means(
    rows: pd.DataFrame, x: str, y: str, interval: float | None
) -> tuple[_Values, _Values, _Values, _Values]:
    """Return places, and the mean of each with its interval, which is NaN for one run."""
    logs = pd.Series(np.log(rows[y].to_numpy(dtype=float)))
    groups = logs.groupby(rows[x].to_numpy(dtype=float), sort=True)
    mean, count = groups.mean(), groups.size()
    quantile = student.ppf(0.5 + (interval or 0.0) / 2, count.clip(lower=2) - 1)
    reach = (quantile * groups.std() / np.sqrt(count)).to_numpy()
    middle = mean.to_numpy()
    low, high = np.exp(middle - reach), np.exp(middle + reach)
    return mean.index.to_numpy(dtype=float), np.exp(middle), low, high


def _mark(side: Axis, values: _Values, at: Literal["values", "numbers"]) -> None:
    """Write plain numbers at a logarithmic axis where powers of ten alone would be too few."""
    places = np.unique(values)
    if at == "values" and len(places) <= _FEW and places[-1] < 1e5:
        side.set_major_locator(FixedLocator(list(places)))
        side.set_major_formatter(ScalarFormatter())
    elif places[-1] / places[0] < _NEAR and places[-1] < 1e5 and places[0] > 1e-3:
        side.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        side.set_major_formatter(ScalarFormatter())
    elif places[-1] / places[0] < _NEAR**2:
        side.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        everywhere = (np.inf, np.inf)
        side.set_major_formatter(LogFormatterSciNotation(minor_thresholds=everywhere))
    else:
        return
    side.set_minor_locator(NullLocator())
    side.set_minor_formatter(NullFormatter())


def _words(name: str) -> str:
    """Return a name as it is read."""
    return name.replace("_", " ").replace("flops", "FLOPs")


def _legend(axis: Axes) -> None:
    """Name the lines above the data, in as many columns as their names leave room for."""
    handles, labels = axis.get_legend_handles_labels()
    longest = max(map(len, labels))
    legend_above(axis, handles, labels, columns=max(1, min(5, 80 // (longest + 6))))
