"""A sweep at a glance: which parameters were tried, how trials learnt, what the score rests on."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter
from sklearn.ensemble import RandomForestRegressor
from sklearn.inspection import permutation_importance

from mlrforecast.plots._parallel import draw_axes, draw_line, scale_of, score_scale
from mlrforecast.plots._style import (
    BLUE,
    GREY,
    INK,
    VERMILION,
    check_table,
    clean,
    legend_above,
    whole_numbers,
)

__all__ = ["plot_sweep"]

_HORIZON = "prediction_length"
_TRIALS = ("trial", "status", "score")
_CURVES = ("trial", "iteration", "fold", "score")
_ENOUGH = 10
"""Finished trials from which on the importance of parameters can be estimated at all."""
_REPEATS = 20
_SHADES = LinearSegmentedColormap.from_list("sweep", ["#003A5C", BLUE, "#C9DDEA"])
"""From the best trial to the worst."""
_FAILED, _STOPPED = (0, (1, 2)), (0, (4, 2))


class _Sweep(NamedTuple):
    """What is drawn of a sweep: scores that can be compared, and how they are called."""

    trials: pd.DataFrame
    curves: pd.DataFrame
    parameters: list[str]
    score: str
    best: list[int]
    """The best trial; with several horizons that of each."""
    most: float
    """The largest score that the scales have a place for."""


def plot_sweep(
    trials: pd.DataFrame, curves: pd.DataFrame, *, metric: str, parameters: Sequence[str]
) -> Figure:
    """Draw the trials of a sweep, how they learnt, and which parameters the score rests on.

    Above, parallel coordinates: a line for each trial through its parameters to its score, dark
    for a good one, the best in orange. Below, on the left, the score of each trial in the course of
    its training, fold after fold; on the right, how much the score rests on each parameter: by how
    much a random forest, which has learnt the scores of the finished trials from their parameters,
    errs more when a parameter is shuffled. It says nothing before ten trials have finished, and
    little before many more have.

    With several prediction lengths, whose scores cannot be compared, the score is how far a trial
    lies above the best of its prediction length.

    Parameters
    ----------
    trials : DataFrame
        A row a trial, with the columns ``trial``, ``status`` (``"finished"``, ``"stopped"``,
        ``"failed"`` or ``"unfinished"``), ``score`` (lower is better) and the parameters.
    curves : DataFrame
        A row a report, with the columns ``trial``, ``iteration``, ``fold`` and ``score``; it may
        be empty.
    metric : str
        What the score is.
    parameters : sequence of str
        Columns of ``trials`` that were searched.

    Returns
    -------
    Figure
        The figure, to show, change or save.

    Raises
    ------
    ValueError
        If ``trials`` is empty, a column is missing, or no parameter is named.
    TypeError
        If ``trials`` or ``curves`` is no DataFrame.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib import pyplot as plt
    >>> trials = pd.DataFrame(
    ...     {"trial": [0, 1], "status": "finished", "score": [0.8, 0.7], "width": [16, 32]}
    ... )
    >>> curves = pd.DataFrame(
    ...     {"trial": [0, 1], "iteration": 1, "fold": 1, "score": [0.8, 0.7]}
    ... )
    >>> figure = plot_sweep(trials, curves, metric="MASE", parameters=["width"])
    >>> len(figure.axes)
    3
    >>> plt.close(figure)
    """
    names = list(parameters)
    if not names:
        raise ValueError("`parameters` must name at least one column of `trials`, got none.")
    check_table(trials, "trials", (*_TRIALS, *names))
    if not isinstance(curves, pd.DataFrame):
        raise TypeError(f"`curves` must be a DataFrame, got {type(curves).__name__}.")
    if not curves.empty:
        check_table(curves, "curves", _CURVES)
    sweep = _comparable(trials, curves, names, metric)
    width = max(10.5, 1.45 * (len(names) + 1))
    figure = plt.figure(figsize=(width, 8.0), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(1.25, 1.0), width_ratios=(1.25, 1.0))
    _draw_trials(figure.add_subplot(grid[0, :]), sweep)
    _draw_curves(figure.add_subplot(grid[1, 0]), sweep)
    _draw_importance(figure.add_subplot(grid[1, 1]), sweep)
    return figure


def _comparable(
    trials: pd.DataFrame, curves: pd.DataFrame, parameters: list[str], metric: str
) -> _Sweep:
    """Return trials whose scores can be compared, the best finished one first."""
    trials = trials.assign(score=trials["score"].astype(float))
    curves = curves.assign(score=curves["score"].astype(float)) if len(curves) else curves
    finished = trials.assign(score=trials["score"].where(trials["status"] == "finished"))
    name, groups = metric, pd.Series(0, index=trials.index)
    if _HORIZON in parameters and trials[_HORIZON].nunique() > 1:
        groups = trials[_HORIZON]
        best = finished.groupby(_HORIZON)["score"].min()
        by_trial = trials.set_index("trial")[_HORIZON].map(best)
        trials = trials.assign(score=trials["score"] - trials["trial"].map(by_trial))
        if len(curves):
            curves = curves.assign(score=curves["score"] - curves["trial"].map(by_trial))
        name = f"{metric} above the best\nof the horizon"
    first = finished.dropna(subset="score").sort_values("score", kind="stable").groupby(groups)
    best_trials = [int(trial) for trial in first["trial"].first()]
    order = trials["score"].where(trials["status"] == "finished").to_numpy()
    trials = trials.iloc[np.argsort(order, kind="stable")].reset_index(drop=True)
    return _Sweep(trials, curves, parameters, name, best_trials, _most(trials))


def _most(trials: pd.DataFrame) -> float:
    """Return the score beyond which a trial has gone astray and would flatten all others."""
    scores = trials["score"][np.isfinite(trials["score"])]
    if len(scores) < 4:
        return float("inf")
    low, middle, upper = np.quantile(scores, [0.0, 0.5, 0.75])
    most = upper + 2.0 * max(upper - low, middle - low)
    return float("inf") if scores.max() <= most else float(most)


def _styles(sweep: _Sweep) -> list[dict[str, Any]]:
    """Return how each trial is drawn: the best in orange, above all others."""
    trials = sweep.trials
    finished = int((trials["status"] == "finished").sum())
    styles: list[dict[str, Any]] = []
    for place, (trial, status) in enumerate(zip(trials["trial"], trials["status"], strict=True)):
        if status != "finished":
            dashes = _STOPPED if status == "stopped" else _FAILED
            styles.append({"color": GREY, "linestyle": dashes, "linewidth": 0.9, "zorder": 1})
        elif trial in sweep.best:
            styles.append({"color": VERMILION, "linewidth": 2.4, "zorder": 4})
        else:
            shade = _SHADES(place / max(finished - 1, 1))
            order = 3 - place / finished
            styles.append({"color": shade, "linewidth": 1.2, "zorder": order})
    return styles


def _draw_trials(axis: Axes, sweep: _Sweep) -> None:
    """Draw a line for each trial through its parameters to its score."""
    trials = sweep.trials
    scores = trials["score"].where(~trials["status"].isin(["failed", "unfinished"]))
    scales = [scale_of(trials[name]) for name in sweep.parameters]
    scales.append(score_scale(scores.to_numpy(dtype=float), sweep.most))
    for row, style in enumerate(_styles(sweep)):
        line = {key: value for key, value in style.items() if key != "color"}
        positions = [float(scale.positions[row]) for scale in scales]
        draw_line(axis, positions, edgecolor=style["color"], **line)
    draw_axes(axis, [*sweep.parameters, sweep.score], scales)
    counts = trials["status"].value_counts()
    shown = [name for name in _LEGEND if counts.get(name, 0)]
    handles = [Line2D([], [], **_LEGEND[name]) for name in shown]
    labels = [f"{name} ({counts[name]})" for name in shown]
    if sweep.best:
        handles.insert(0, Line2D([], [], color=VERMILION, linewidth=2.4))
        numbers = ", ".join(map(str, sweep.best))
        labels.insert(0, f"best: trial{'s' if len(sweep.best) > 1 else ''} {numbers}")
    legend_above(axis, handles, labels, columns=5)


_LEGEND: dict[str, dict[str, Any]] = {
    "finished": {"color": BLUE, "linewidth": 1.4},
    "stopped": {"color": GREY, "linestyle": _STOPPED},
    "failed": {"color": GREY, "linestyle": _FAILED},
    "unfinished": {"color": GREY, "linestyle": _FAILED},
}


def _draw_curves(axis: Axes, sweep: _Sweep) -> None:
    """Draw the score of each trial in the course of its training."""
    axis.set_title("In the course of the training", loc="left", fontsize=10)
    curves = sweep.curves
    clean(axis)
    if curves.empty or not np.isfinite(curves["score"]).any():
        _say(axis, "No trial has reported a score.")
        return
    for trial, style in zip(sweep.trials["trial"], _styles(sweep), strict=True):
        curve = curves[curves["trial"] == trial].sort_values("iteration")
        dot = "o" if len(curve) == 1 else None
        axis.plot(curve["iteration"], curve["score"], marker=dot, markersize=3, **style)
    firsts = curves.groupby("fold")["iteration"].min()
    for fold, first in firsts.items():
        if first > firsts.min():
            axis.axvline(first - 0.5, color=INK, linewidth=0.7, linestyle=(0, (2, 3)), zorder=0)
        axis.annotate(
            f"fold {fold}",
            (first - 0.4, 0.02),
            xycoords=("data", "axes fraction"),
            va="bottom",
            fontsize=8,
            color=GREY,
        )
    seen = curves["score"][np.isfinite(curves["score"])]
    low, high = seen.min(), min(seen.max(), np.quantile(seen, 0.95) * 1.1, sweep.most)
    # The curve of the best trial is never cut.
    best = curves["score"][curves["trial"].isin(sweep.best)]
    high = max(high, best[np.isfinite(best)].max()) if len(best) else high
    margin = 0.06 * (high - low) or 0.1
    axis.set_ylim(low - 2.0 * margin, high + margin)
    whole_numbers(axis)
    axis.set_xlabel("report")
    axis.set_ylabel(sweep.score.replace("\n", " "))


def _draw_importance(axis: Axes, sweep: _Sweep) -> None:
    """Draw how much the score rests on each parameter."""
    axis.set_title("What the score rests on", loc="left", fontsize=10)
    finished = sweep.trials[sweep.trials["status"] == "finished"]
    finished = finished[np.isfinite(finished["score"])]
    names = [name for name in sweep.parameters if finished[name].map(str).nunique() > 1]
    # A score above the best of its horizon says nothing of the horizon.
    names = [name for name in names if name != _HORIZON or len(sweep.best) == 1]
    clean(axis, grid="x")
    if len(finished) < _ENOUGH or not names:
        _say(
            axis,
            f"Only {len(finished)} trials have finished:\n{_ENOUGH} are the least to tell.",
        )
        return
    table, fit = _importance(finished, names)
    places = range(len(table))
    axis.barh(
        places,
        table["importance"],
        xerr=table["std"],
        height=0.62,
        color=BLUE,
        error_kw={"ecolor": INK, "elinewidth": 1.0, "capsize": 2.5},
    )
    axis.set_yticks(list(places), table["parameter"])
    axis.set_ylim(len(table) - 0.4, -0.6)
    axis.set_xlim(left=0.0)
    axis.xaxis.set_major_formatter(PercentFormatter(1.0))
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel(
        f"share of all importance, of {len(finished)} trials\n"
        f"(a forest explains {max(fit, 0.0):.0%} of the scores that it did not see)"
    )


def _importance(finished: pd.DataFrame, names: list[str]) -> tuple[pd.DataFrame, float]:
    """Return the importance of each parameter, and the share of the scores that is explained."""
    inputs = np.column_stack([scale_of(finished[name]).positions for name in names])
    # Ranks: a trial that went astray is then no more than the last one.
    target = finished["score"].rank().to_numpy()
    forest = RandomForestRegressor(200, min_samples_leaf=2, oob_score=True, random_state=0)
    forest.fit(inputs, target)
    found = permutation_importance(forest, inputs, target, n_repeats=_REPEATS, random_state=0)
    mean = np.maximum(found.importances_mean, 0.0)
    total = mean.sum() or 1.0
    table = pd.DataFrame(
        {"parameter": names, "importance": mean / total, "std": found.importances_std / total}
    )
    table = table.sort_values("importance", ascending=False, kind="stable")
    return table, float(forest.oob_score_)


def _say(axis: Axes, text: str) -> None:
    """Write in place of a picture why there is none."""
    axis.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axis.transAxes)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    axis.grid(False)
