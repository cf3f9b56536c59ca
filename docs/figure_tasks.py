"""Runs of in-context regression and of language models, from their committed results.

A file of runs whose results are not there is left out.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from mlrforecast.plots import plot_error_by_point, plot_scaling
from mlrforecast.tasks import read_results
from mlrforecast.tasks.in_context_regression import build_function, comparator_errors

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
BOTTLENECKS = ("bottleneck-16", "bottleneck-32", "bottleneck-64")
NAMES = {
    "standard": "standard",
    "sliding_window": "sliding window",
    "global_window": "global + window",
    "mlr": "MLR",
    "bilinear_btt": "BTT",
    "bilinear_mlr": "bilinear MLR",
    "bilinear": "bilinear",
}
GREY = "#7F7F7F"


def draw(folder: Path, results: Path = RESULTS) -> list[str]:
    """Draw what there are results of, and return the names of the pictures."""
    wanted: list[tuple[str, str, str, Callable[..., plt.Figure]]] = [
        *(("icl", name, f"icl_{name}", _bottleneck) for name in BOTTLENECKS),
        *(("icl", name, f"icl_{name}_points", _points) for name in BOTTLENECKS),
        ("lm", "scaling", "lm_scaling", _scaling),
        ("lm", "levels", "lm_levels", _levels),
        ("lm", "mup", "lm_mup", _mup),
        ("lm", "long", "lm_long", _long),
    ]
    drawn = []
    for task, name, picture, make in wanted:
        if (found := runs_of(task, name, results)) is None:
            continue
        if make is _points and not _error_files(results / task / name):
            continue
        figure = make(*found, results / task / name)
        figure.savefig(folder / f"{picture}.png", dpi=100)
        plt.close(figure)
        drawn.append(f"{picture}.png")
    return drawn


def runs_of(
    task: str, name: str, results: Path = RESULTS
) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Return the finished runs of a file and their curves, each with its kind, if there are any."""
    if not (results / task / name / "runs.csv").is_file():
        return None
    runs, curves = read_results(results / task / name)
    runs = runs[runs["status"] == "finished"]
    if runs.empty:
        return None
    kinds = {row["hash"]: kind(row) for _, row in runs.iterrows()}
    curves = curves[curves["hash"].isin(kinds)]
    return (
        runs.assign(kind=runs["hash"].map(kinds)),
        curves.assign(kind=curves["hash"].map(kinds)),
    )


def kind(run: pd.Series) -> str:
    """Name the score of a run, as lines and tables have it."""
    attention = str(run["attention"])
    if run["task"] == "in_context_regression" and attention == "standard":
        heads = int(run["num_heads"])
        return f"{heads} heads" if heads > 1 else "1 head"
    return NAMES.get(attention, attention)


def _panels(count: int) -> tuple[plt.Figure, list[Axes]]:
    figure, axes = plt.subplots(1, count, figsize=(5.2 * count, 4.4), layout="constrained")
    return figure, list(axes) if count > 1 else [axes]


def _bottleneck(runs: pd.DataFrame, curves: pd.DataFrame, folder: Path) -> plt.Figure:
    """Draw the error at the last point against the training and against the width."""
    del curves, folder
    figure, axes = _panels(2)
    others = _comparators(runs.iloc[0])
    for axis, x in zip(axes, ("training_flops", "width"), strict=True):
        plot_scaling(runs, x, "score", "kind", ax=axis)
        axis.set_ylabel("squared error at the last point")
        for name, error in others.items():
            if error > runs["score"].min() / 10:
                axis.axhline(error, color=GREY, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
                axis.annotate(
                    str(name).replace("_", " "), (1, error), xycoords=("axes fraction", "data"),
                    ha="right", va="bottom", fontsize=7, color=GREY,
                )  # fmt: skip
    # A head is as wide as the points at this width; what is left of it is the bottleneck.
    edge = 8 * int(runs["num_dims"].iloc[0])
    low, high = axes[1].get_xlim()
    if low < edge < high:
        axes[1].axvline(edge, color=GREY, linewidth=0.9, zorder=1)
        axes[1].annotate(
            "8 heads as wide as points ", (edge, 0.02), xycoords=("data", "axes fraction"),
            ha="right", fontsize=7, color=GREY, rotation=90,
        )  # fmt: skip
    return figure


def _comparators(run: pd.Series) -> pd.Series:
    """Return the error of each comparator at the last point."""
    options = json.loads(run["function_options"]) if run["function_options"] else {}
    dims = int(run["num_dims"])
    points = 2 * dims if pd.isna(run["num_points"]) else int(run["num_points"])
    episodes = int(run["evaluation_episodes"])
    function = build_function(run["function"], **options)
    table = comparator_errors(function, points, dims, num_episodes=episodes)
    return table[table["point"] == points - 1].set_index("method")["error"]


def _error_files(folder: Path) -> list[Path]:
    """Find what ``mlrforecast icl eval --out errors-<run>.csv`` wrote."""
    return sorted(folder.glob("errors*.csv"))


def _points(runs: pd.DataFrame, curves: pd.DataFrame, folder: Path) -> plt.Figure:
    """Draw the error at each point of the evaluated models, beside the comparators."""
    del runs, curves
    tables = pd.concat([pd.read_csv(path) for path in _error_files(folder)], ignore_index=True)
    figure, (axis,) = _panels(1)
    figure.set_size_inches(9.5, 4.6)
    plot_error_by_point(tables.drop_duplicates(["method", "point"]), ax=axis)
    return figure


def _with_rates(frame: pd.DataFrame, rates: pd.Series) -> pd.DataFrame:
    """Add the learning rate to the kind of each run, by its hash."""
    of_runs = frame["hash"].map(rates).map("{:g}".format)
    return frame.assign(kind=frame["kind"] + ", rate " + of_runs)


def _scaling(runs: pd.DataFrame, curves: pd.DataFrame, folder: Path) -> plt.Figure:
    """Draw the loss against the compute, the width and, at one width, the tokens."""
    del folder
    rates = runs.set_index("hash")["learning_rate"]
    runs, curves = _with_rates(runs, rates), _with_rates(curves, rates)
    figure, axes = _panels(3)
    plot_scaling(runs, "paper_flops", "score", "kind", ax=axes[0])
    plot_scaling(runs, "width", "score", "kind", ax=axes[1])
    seeds = runs.groupby("width")["seed"].nunique()
    width = seeds[seeds == seeds.max()].index.max()
    plot_scaling(curves[curves["width"] == width], "tokens", "score", "kind", ax=axes[2])
    for axis in axes:
        # One for all three, in the room that the figure has below.
        axis.get_legend().remove()
    lines, names = axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=len(names), frameon=False)
    axes[2].set_title(f"width {int(width)}", fontsize=9, loc="right")
    for axis in axes:
        axis.set_ylabel("loss, nats a token")
    return figure


def _levels(runs: pd.DataFrame, curves: pd.DataFrame, folder: Path) -> plt.Figure:
    """Draw the loss of each list of ranks, and its scores' cost beside it."""
    del curves, folder
    runs = runs.assign(list=[json.loads(ranks) for ranks in runs["ranks"]])
    runs = runs.assign(levels=runs["list"].map(len)).sort_values(["levels", "score"])
    figure, (axis,) = _panels(1)
    figure.set_size_inches(8.0, 0.8 + 0.34 * len(runs))
    names = [", ".join(map(str, ranks)) for ranks in runs["list"]]
    axis.scatter(runs["score"], names, c=[f"C{levels}" for levels in runs["levels"]], zorder=3)
    axis.invert_yaxis()
    axis.grid(axis="x", color="#E5E5E5")
    axis.set_xlabel("loss, nats a token")
    axis.set_ylabel("ranks")
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _mup(runs: pd.DataFrame, curves: pd.DataFrame, folder: Path) -> plt.Figure:
    """Draw the loss against the learning rate, a line a width, with muP and without."""
    del curves, folder
    rules = sorted(runs["parametrization"].unique())
    figure, axes = _panels(len(rules))
    low, high = runs["score"].min() * 0.98, runs["score"].max() * 1.02
    for axis, rule in zip(axes, rules, strict=True):
        here = runs[runs["parametrization"] == rule].sort_values("width")
        named = here.assign(kind="width " + here["width"].astype(int).astype(str))
        plot_scaling(named, "learning_rate", "score", "kind", ax=axis)
        axis.set_title({"mup": "muP"}.get(rule, rule), fontsize=9, loc="right")
        axis.set_ylabel("loss, nats a token")
        axis.set_ylim(low, high)
    return figure


def _long(runs: pd.DataFrame, curves: pd.DataFrame, folder: Path) -> plt.Figure:
    """Draw the loss against the length of the context."""
    del curves, folder
    figure, (axis,) = _panels(1)
    runs = _with_rates(runs, runs.set_index("hash")["learning_rate"])
    plot_scaling(runs, "context_length", "score", "kind", ax=axis)
    axis.legend(loc="upper left", frameon=False)
    axis.set_ylabel("loss, nats a token")
    return figure
