"""How much a forecast rests on each covariate."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from mlrforecast.plots._style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    at_least_one,
    check_table,
    clean,
    legend_above,
    more,
    one_axes,
)

__all__ = ["plot_importance"]

_COLUMNS = ("covariate", "role", "importance", "std")
_ROLES = {"known": BLUE, "past": ORANGE, "static": GREEN, "calendar": PURPLE}


def plot_importance(table: pd.DataFrame, ax: Axes | None = None, *, max_rows: int = 20) -> Axes:
    """Draw how much the error rises when a covariate is shuffled, the most important on top.

    Parameters
    ----------
    table : DataFrame
        A row for each covariate, with the columns ``covariate``, ``role``, ``importance`` (rise
        of the error as a share of it) and ``std``, its spread over the repeats, as
        ``MLRForecaster.permutation_importance`` returns it.
    ax : Axes, optional
        Where to draw. A new figure by default.
    max_rows : int, default 20
        Most covariates that are drawn; the others are counted below.

    Returns
    -------
    Axes
        ``axes.figure`` is the figure, to show, change or save.

    Raises
    ------
    ValueError
        If ``table`` is empty or has not these columns, or ``max_rows`` is less than 1.
    TypeError
        If ``table`` is not a DataFrame.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib import pyplot as plt
    >>> table = pd.DataFrame(
    ...     {
    ...         "covariate": ["price", "noise"],
    ...         "role": ["known", "past"],
    ...         "importance": [0.6, 0.0],
    ...         "std": [0.05, 0.01],
    ...     }
    ... )
    >>> axis = plot_importance(table)
    >>> [label.get_text() for label in axis.get_yticklabels()]
    ['price', 'noise']
    >>> plt.close(axis.figure)
    """
    check_table(table, "table", _COLUMNS)
    rows = table.sort_values("importance", ascending=False, kind="stable")
    shown = rows.head(at_least_one(max_rows, "max_rows"))
    axis = one_axes(ax, 8.0, 1.5 + 0.32 * len(shown))
    axis.barh(
        range(len(shown)),
        shown["importance"],
        xerr=shown["std"],
        height=0.66,
        color=[_ROLES.get(role, GREY) for role in shown["role"]],
        error_kw={"ecolor": INK, "elinewidth": 1.0, "capsize": 2.5},
    )
    axis.axvline(0, color=GREY, linewidth=0.8)
    axis.set_yticks(range(len(shown)), [str(name) for name in shown["covariate"]])
    axis.set_ylim(len(shown) - 0.5, -0.5)
    axis.xaxis.set_major_formatter(PercentFormatter(1.0))
    hidden = len(rows) - len(shown)
    note = f"\n{more(hidden, 'covariate')}" if hidden else ""
    axis.set_xlabel(f"rise of the error when shuffled{note}")
    clean(axis, grid="x")
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    roles = list(dict.fromkeys(shown["role"]))
    handles = [axis.barh(0, 0, color=_ROLES.get(role, GREY)) for role in roles]
    legend_above(axis, handles, [str(role) for role in roles], columns=4)
    return axis
