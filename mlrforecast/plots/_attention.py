"""Where the weights of attention go: a bar for each layer, cut into levels."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.ticker import PercentFormatter

from mlrforecast.plots._style import check_table, clean, legend_above, one_axes

__all__ = ["plot_attention"]

# From light to dark in one hue, as in the pictures of levels: the order survives grey print.
_SHADES = ("#deebf7", "#9ecae1", "#4292c6", "#2171b5", "#08519c", "#08306b")
_NO_LEVEL = "#c9ccd1"
_COLUMNS = ("layer", "level", "block", "share", "distance")
_NARROW = 0.06


def plot_attention(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw how the weights of each layer are shared out among its levels.

    A bar is a layer and its parts are the levels, from the coarsest to the finest. The last bar,
    where the table has a column ``even_share``, shows what the parts would be if all pairs of
    steps had the same weight: what a level has beyond that, the network has learnt.

    Parameters
    ----------
    table : DataFrame
        A row for each layer and level, with the columns ``layer``, ``level``, ``block``,
        ``share`` and ``distance``, and perhaps ``even_share``, as
        ``MLRForecaster.attention_by_level`` returns it.
    ax : Axes, optional
        Where to draw. A new figure by default.

    Returns
    -------
    Axes
        ``axes.figure`` is the figure, to show, change or save.

    Raises
    ------
    ValueError
        If ``table`` is empty or has not these columns.
    TypeError
        If ``table`` is not a DataFrame.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib import pyplot as plt
    >>> table = pd.DataFrame(
    ...     {
    ...         "layer": [1, 1],
    ...         "level": [1, 2],
    ...         "block": [336, 168],
    ...         "share": [0.4, 0.6],
    ...         "distance": [150.0, 40.0],
    ...     }
    ... )
    >>> axis = plot_attention(table)
    >>> [label.get_text() for label in axis.get_yticklabels()]
    ['layer 1']
    >>> plt.close(axis.figure)
    """
    check_table(table, "table", _COLUMNS)
    bars = _bars(table)
    axis = one_axes(ax, 8.0, 1.3 + 0.55 * len(bars))
    levels = sorted(set(table["level"]))
    for place, (_, shares, distance) in enumerate(bars):
        _draw_bar(axis, place, levels, shares)
        if distance is not None:
            shown = f"{distance:.{0 if distance >= 10 else 1}f}"
            axis.text(1.015, place, shown, va="center", fontsize=9)
    axis.text(1.015, -0.62, "mean distance\nin steps", va="bottom", fontsize=9)
    axis.set_yticks(range(len(bars)), [name for name, _, _ in bars])
    axis.set_ylim(len(bars) - 0.5, -0.5)
    axis.set_xlim(0, 1)
    axis.xaxis.set_major_formatter(PercentFormatter(1.0))
    axis.set_xlabel("share of the attention weights")
    clean(axis, grid="")
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    _set_legend(axis, table, levels)
    return axis


def _bars(table: pd.DataFrame) -> list[tuple[str, dict[Any, float], float | None]]:
    """Return the name, the share of each level, and the mean distance of each bar."""
    bars: list[tuple[str, dict[Any, float], float | None]] = []
    for layer, rows in table.groupby("layer", sort=True):
        shares = dict(zip(rows["level"], rows["share"], strict=True))
        distance = float((rows["share"] * rows["distance"].fillna(0.0)).sum())
        bars.append((f"layer {layer}", shares, distance))
    if "even_share" in table.columns:
        layered = table[table["level"] > 0]
        parts = {
            tuple(rows[["level", "even_share"]].round(6).itertuples(index=False, name=None))
            for _, rows in layered.groupby("layer")
        }
        # Layers of different blocks have no such bar in common.
        if len(parts) == 1:
            bars.append(("if even", dict(parts.pop()), None))
    return bars


def _draw_bar(axis: Axes, place: int, levels: list[Any], shares: dict[Any, float]) -> None:
    """Draw the parts of one bar, with their percentages where there is room."""
    left = 0.0
    for level in levels:
        share = float(shares.get(level, 0.0))
        colour = _colour(level, levels)
        axis.barh(place, share, left=left, height=0.62, color=colour, edgecolor="white")
        if share >= _NARROW:
            dark = sum(to_rgb(colour)) < 1.6
            axis.text(
                left + share / 2,
                place,
                f"{share:.0%}",
                ha="center",
                va="center",
                color="white" if dark else "#222222",
                fontsize=9,
            )
        left += share


def _colour(level: Any, levels: list[Any]) -> str:
    """Return the shade of a level, the finest the darkest."""
    if level == 0:
        return _NO_LEVEL
    real = [other for other in levels if other > 0]
    place = real.index(level)
    last = len(_SHADES) - 1
    return _SHADES[round(last * (place + 0.5) / len(real))]


def _set_legend(axis: Axes, table: pd.DataFrame, levels: list[Any]) -> None:
    """Say what each shade stands for, above the bars."""
    labels, handles = [], []
    for level in levels:
        blocks = sorted(set(table.loc[table["level"] == level, "block"].dropna()))
        size = f", {blocks[0]:g} steps" if len(blocks) == 1 else ""
        labels.append(f"level {level}{size}" if level else "no level")
        handles.append(axis.barh(0, 0, color=_colour(level, levels)))
    legend_above(axis, handles, labels, columns=4)
