"""Draw the size of activations against the width, from the committed results."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "mup" / "coordinate_check.csv"
SCORES = (
    "standard",
    "sliding_window",
    "global_window",
    "mlr",
    "mlr_window",
    "bilinear_mlr",
    "bilinear_btt",
    "bilinear",
)
# One hue for each parametrisation, from light to dark over the steps.
HUES = {"mup": "Blues", "standard": "Oranges"}
LABELS = {"mup": "muP", "standard": "standard"}
INK = "#222222"
QUANTITIES = {
    "attention_output": "output of attention",
    "block_output": "output of a block",
    "logits": "logits",
    "scores": "spread of a query's scores",
}
# Eight lines in a panel: colours that stay apart in every kind of colour blindness, and marks.
LINES = (
    ("#000000", "o"),
    ("#e69f00", "s"),
    ("#56b4e9", "^"),
    ("#009e73", "v"),
    ("#0072b2", "D"),
    ("#d55e00", "P"),
    ("#cc79a7", "X"),
    ("#7f7f7f", "*"),
)


def draw(folder: Path) -> None:
    """Draw both pictures into a folder."""
    results = pd.read_csv(RESULTS, keep_default_na=False)
    sizes = results.groupby(
        ["attention", "parametrization", "options", "step", "width"], as_index=False
    )[list(QUANTITIES)].mean()
    _draw_scores(sizes, folder / "coordinate_check.png")
    _draw_quantities(sizes, folder / "coordinate_check_activations.png")


def _draw_scores(sizes: pd.DataFrame, path: Path) -> None:
    """Draw a panel for each score: the output of a block, a line for each step."""
    figure = Figure(figsize=(10, 5.6), dpi=160)
    panels = figure.subplots(2, 4, sharex=True, sharey=True)
    steps = sorted(sizes["step"].unique())[1:]
    for axes, score in zip(panels.flat, SCORES, strict=True):
        for parametrization, hue in HUES.items():
            rows = _case(sizes, score, parametrization)
            for step in steps:
                line = rows[rows["step"] == step]
                colour = colormaps[hue](0.3 + 0.7 * step / steps[-1])
                axes.plot(line["width"], line["block_output"], color=colour, marker="o", ms=3)
        _label_widths(axes, sizes)
        axes.set_title(score, fontsize=11)
    figure.supylabel("mean absolute output of a block", fontsize=11, x=0.005)
    figure.supxlabel("width of the model", fontsize=11, y=0.085)
    figure.legend(
        handles=[
            Line2D([], [], color=colormaps[hue](shade), marker="o", ms=4, label=label)
            for parametrization, hue in HUES.items()
            for shade, label in (
                (0.3 + 0.7 / steps[-1], f"{LABELS[parametrization]}, after step 1"),
                (1.0, f"after step {steps[-1]}"),
            )
        ],
        loc="lower center",
        ncols=4,
        frameon=False,
        fontsize=11,
    )
    figure.subplots_adjust(left=0.075, right=0.99, top=0.94, bottom=0.19, wspace=0.08, hspace=0.2)
    figure.savefig(path)


def _draw_quantities(sizes: pd.DataFrame, path: Path) -> None:
    """Draw a panel for each activation under muP after the last step, a line for each score."""
    figure = Figure(figsize=(10, 3.9), dpi=160)
    panels = figure.subplots(1, 4, sharex=True)
    last = sizes[sizes["step"] == sizes["step"].max()]
    for axes, (quantity, name) in zip(panels, QUANTITIES.items(), strict=True):
        for score, (colour, mark) in zip(SCORES, LINES, strict=True):
            line = _case(last, score, "mup")
            axes.plot(line["width"], line[quantity], color=colour, marker=mark, ms=5, label=score)
            plain = last[(last["attention"] == score) & (last["parametrization"] == "mup")]
            plain = plain[plain["options"] == ""]
            if score.startswith("bilinear") and len(line) and (line["options"] != "").all():
                axes.plot(
                    plain["width"],
                    plain[quantity],
                    color=colour,
                    marker=mark,
                    ms=5,
                    linestyle="--",
                    mfc="white",
                    label=f"{score}, $1/\\sqrt{{D}}$",
                )
        _label_widths(axes, sizes)
        low, high = axes.get_ylim()
        centre, half = np.sqrt(low * high), max(4.0, np.sqrt(high / low))
        axes.set_ylim(centre / half, centre * half)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.set_title(name, fontsize=11)
    figure.supxlabel("width of the model", fontsize=11, y=0.205)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5, frameon=False, fontsize=10)
    figure.subplots_adjust(left=0.05, right=0.99, top=0.92, bottom=0.33, wspace=0.22)
    figure.savefig(path)


def _case(sizes: pd.DataFrame, score: str, parametrization: str) -> pd.DataFrame:
    """Return the rows of a score; under muP those with the option that it asks for, if any."""
    rows = sizes[(sizes["attention"] == score) & (sizes["parametrization"] == parametrization)]
    return rows[rows["options"] == rows["options"].max()]


def _label_widths(axes: Axes, sizes: pd.DataFrame) -> None:
    """Make both axes logarithmic, with the widths as ticks."""
    widths = sorted(sizes["width"].unique())
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(widths, [str(width) for width in widths])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="minor", length=0)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=9, colors=INK)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
