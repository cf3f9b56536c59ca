"""Series as they are, with the rows of their splits."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from mlrforecast.plots._style import (
    ACTUAL,
    GREEN,
    ORANGE,
    SKY,
    clean,
    legend_above,
    mark_time,
    stacked_axes,
)

__all__ = ["plot_series"]

_SHADES = {"validation": ORANGE, "test": SKY}


def plot_series(
    series: Mapping[str, pd.Series],
    *,
    splits: Mapping[str, slice] | None = None,
    ax: Axes | Sequence[Axes] | NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw series below each other, the rows of their splits shaded.

    Parameters
    ----------
    series : mapping of str to Series
        Values of each, indexed by time stamps or by numbers; gaps where they are missing.
    splits : mapping of str to slice, optional
        Rows of each series that are shaded, by name; ``"train"`` is not shaded.
    ax : Axes or sequence of Axes, optional
        Where to draw, one a series. A new figure by default.

    Returns
    -------
    array of Axes
        One a series. ``axes[0].figure`` is the figure, to show, change or save.

    Raises
    ------
    ValueError
        If there is no series, or one is empty.

    Examples
    --------
    >>> values = pd.Series([3.0, 1.0, 4.0, 1.0], name="load")
    >>> axes = plot_series({"load": values}, splits={"test": slice(-2, None)})
    >>> [text.get_text() for text in axes[0].get_legend().get_texts()]
    ['test']
    >>> from matplotlib import pyplot as plt
    >>> plt.close(axes[0].figure)
    """
    if not series or any(values.empty for values in series.values()):
        raise ValueError("`series` must hold series with values, got none or an empty one.")
    axes = stacked_axes(ax, len(series))
    for axis, (name, values) in zip(axes, series.items(), strict=True):
        axis.plot(values.index, values.to_numpy(), color=ACTUAL, linewidth=0.8, zorder=2)
        axis.set_ylabel(str(name))
        axis.margins(x=0.01)
        clean(axis)
        for split, rows in (splits or {}).items():
            span = values.index[rows]
            if split != "train" and len(span):
                shade = _SHADES.get(split, GREEN)
                axis.axvspan(span[0], span[-1], color=shade, alpha=0.25, linewidth=0, label=split)
        mark_time(axes[-1:], values.index)
    handles, labels = axes[0].get_legend_handles_labels()
    if labels:
        legend_above(axes[0], handles, labels, columns=len(labels))
    return axes
