"""Errors by how far ahead a forecast looks."""

import pandas as pd
from matplotlib.axes import Axes

from mlrforecast.plots._style import (
    SERIES,
    check_table,
    clean,
    legend_above,
    one_axes,
    whole_numbers,
)

__all__ = ["plot_error_by_step"]

_DASHES = ("-", "--", ":", "-.")


def plot_error_by_step(
    errors: pd.DataFrame, *, ylabel: str = "error", ax: Axes | None = None
) -> Axes:
    """Draw the error of each model over the steps ahead.

    Parameters
    ----------
    errors : DataFrame
        A row for each step ahead, from 1, and a column for each model.
    ylabel : str, default "error"
        What the errors are, such as ``"MAE"``.
    ax : Axes, optional
        Where to draw. A new figure by default.

    Returns
    -------
    Axes
        ``axes.figure`` is the figure, to show, change or save.

    Raises
    ------
    ValueError
        If ``errors`` is empty.
    TypeError
        If ``errors`` is not a DataFrame.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib import pyplot as plt
    >>> errors = pd.DataFrame({"MLR": [1.0, 1.2], "seasonal naive": [1.5, 1.5]}, index=[1, 2])
    >>> axis = plot_error_by_step(errors, ylabel="MAE")
    >>> axis.get_xlabel(), axis.get_ylabel()
    ('steps ahead', 'MAE')
    >>> plt.close(axis.figure)
    """
    check_table(errors, "errors")
    axis = one_axes(ax, 8.0, 3.8)
    for number in range(errors.shape[1]):
        colour = SERIES[number % len(SERIES)]
        dashes = _DASHES[number // len(SERIES) % len(_DASHES)]
        axis.plot(
            errors.index,
            errors.iloc[:, number],
            dashes,
            color=colour,
            linewidth=1.8,
            marker="o" if len(errors) <= 31 else None,
            markersize=3.5,
            zorder=3 + 1 / (1 + number),
        )
    axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
    axis.set_xlabel("steps ahead")
    axis.set_ylabel(ylabel)
    whole_numbers(axis)
    clean(axis)
    axis.margins(x=0.02)
    if len(errors) == 1:
        axis.set_xlim(errors.index[0] - 1, errors.index[0] + 1)
    legend_above(axis, axis.get_lines(), [str(name) for name in errors.columns], columns=5)
    return axis
