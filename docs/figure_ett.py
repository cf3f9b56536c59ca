"""Forecast errors by step ahead, and the forecast of a week, from committed results."""

from pathlib import Path

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import (
    FixedLocator,
    LogLocator,
    NullFormatter,
    NullLocator,
    StrMethodFormatter,
)

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "ett"
ORDER = ("ETTh1_M_final", "ETTh2_M_final", "ETTh1_OT_final", "exchange_rate_M_final")
HORIZON = 336
# Label, colour, width and dashes; what is drawn later lies above.
LINES = {
    "repeat_last": ("repeat the last value", "#B3B3B3", 1.0, "-"),
    "seasonal_naive_24": ("seasonal naive, 24 steps", "#8C8C8C", 1.0, (0, (4, 2))),
    "seasonal_naive_168": ("seasonal naive, 168 steps", "#666666", 1.0, (0, (1, 1.5))),
    "profile_7d": ("mean of the last 7 times 24 steps", "#262626", 1.1, (0, (6, 2, 1, 2))),
    "standard": ("MLRForecaster, standard attention", "#E69F00", 2.6, "-"),
    "mlr": ("MLRForecaster, MLR attention", "#0072B2", 1.3, "-"),
}


def draw(folder: Path, results: Path = RESULTS) -> None:
    """Draw both pictures, each once its results are there."""
    if files := final_files(results):
        _draw_errors(folder / "ett_error_by_step.png", files)
    if (week := results / "week.csv").is_file():
        _draw_week(folder / "ett_week.png", pd.read_csv(week, parse_dates=["timestamp"]))


def final_files(results: Path) -> list[Path]:
    """List the files of test windows, those named in ``ORDER`` before the others."""
    files = {path.stem: path for path in sorted(results.glob("*_final.csv"))}
    names = [
        *(name for name in ORDER if name in files),
        *(name for name in files if name not in ORDER),
    ]
    return [files[name] for name in names]


def _draw_errors(path: Path, files: list[Path]) -> None:
    """Draw a panel for each file."""
    columns = min(2, len(files))
    rows = -(-len(files) // columns)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(4.9 * columns, 3.2 * rows + 0.6),
        squeeze=False,
        layout="constrained",
    )
    for axis, file in zip(axes.flat, files, strict=False):
        _errors(axis, pd.read_csv(file).fillna({"attention": ""}))
    for axis in axes.flat[len(files) :]:
        axis.set_axis_off()
    handles = {
        label: line
        for axis in axes.flat
        for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=columns, frameon=False,
        fontsize=9,
    )  # fmt: skip
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _errors(axis: Axes, runs: pd.DataFrame) -> None:
    """Draw the mean squared error of each model against the step, a mean over seeds."""
    horizon = HORIZON if (runs["horizon"] == HORIZON).any() else runs["horizon"].max()
    runs = runs[runs["horizon"] == horizon]
    for name, (label, colour, width, dashes) in LINES.items():
        own = runs[(runs["model"] == name) | (runs["attention"] == name)]
        if own.empty:
            continue
        errors = np.mean(
            [np.array(text.split(), dtype=float) for text in own["mse_by_step"]], axis=0
        )
        axis.plot(
            np.arange(1, horizon + 1), errors, color=colour, linewidth=width, linestyle=dashes,
            label=label,
        )  # fmt: skip
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(1, horizon)
    axis.xaxis.set_major_locator(FixedLocator([1, 6, 24, 96, horizon]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_minor_formatter(NullFormatter())
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_formatter(StrMethodFormatter("{x:g}"))
    dataset, target = runs.iloc[0][["dataset", "target"]]
    axis.set_title(
        f"{dataset}, {'all series' if target == 'M' else target}", loc="left", fontsize=10
    )
    axis.set_xlabel("step ahead")
    axis.set_ylabel("mean squared error")
    axis.grid(color="#E6E6E6", linewidth=0.7)
    axis.spines[["top", "right"]].set_visible(False)


def _draw_week(path: Path, rows: pd.DataFrame) -> None:
    """Draw a panel for each series: two days, the forecast of a week, and what came to be."""
    channels = rows["channel"].unique()
    figure, axes = plt.subplots(
        len(channels), 1, figsize=(9.0, 1.9 * len(channels) + 0.6), sharex=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    levels = [name for name in rows.columns if name.startswith("quantile_")]
    for axis, channel in zip(axes.flat, channels, strict=True):
        here = rows[rows["channel"] == channel].set_index("timestamp")
        ahead = here.dropna(subset="forecast")
        if levels:
            shares = [name.removeprefix("quantile_") for name in levels]
            axis.fill_between(
                ahead.index, ahead[levels[0]], ahead[levels[-1]], color="#0072B2", alpha=0.18,
                linewidth=0, label=f"quantiles {shares[0]} to {shares[-1]}",
            )  # fmt: skip
        axis.plot(here.index, here["actual"], color="#4D4D4D", linewidth=1.1, label="actual")
        axis.plot(ahead.index, ahead["forecast"], color="#0072B2", linewidth=1.6, label="forecast")
        axis.axvline(ahead.index[0], color="#7F7F7F", linewidth=0.9, linestyle=(0, (4, 3)))
        axis.set_ylabel(channel)
        axis.margins(x=0)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1, 0].xaxis.set_major_locator(mdates.DayLocator())
    axes[-1, 0].xaxis.set_major_formatter(mdates.DateFormatter("%a %d %b"))
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)
