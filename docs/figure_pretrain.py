"""Losses and scores of pretrained models, from the results of ``benchmarks/pretrain.py``."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "pretrain"
COLOURS = {"mlr": "#0072B2", "standard": "#E69F00", "seasonal_naive": "#7F7F7F"}
HEADS = {"tokens": "tokens, cross-entropy", "quantiles": "patches, quantile loss"}


def draw(folder: Path) -> None:
    """Draw the loss of each head, and its scores beside a seasonal naive forecast.

    Of several first weights those of the largest factor are drawn. Nothing is drawn until a run
    has been committed.
    """
    if not (RESULTS / "losses.csv").exists():
        return
    losses, scores = (_of_one_start(RESULTS / f"{name}.csv") for name in ("losses", "scores"))
    heads = [head for head in HEADS if (losses["head"] == head).any()]
    figure, axes = plt.subplots(
        2, len(heads), figsize=(5 * len(heads), 6.4), squeeze=False, layout="constrained"
    )
    for column, head in enumerate(heads):
        _curves(axes[0, column], losses[losses["head"] == head], head)
        _bars(axes[1, column], scores, head)
    figure.savefig(folder / "pretrain.png", dpi=110)
    plt.close(figure)


def _of_one_start(file: Path) -> pd.DataFrame:
    """Read a table, without the models that others of their head outdo in their first weights."""
    table = pd.read_csv(file)
    factors = table["initial_factor"].fillna(0)
    return table[factors == factors.groupby(table["head"]).transform("max")]


def _curves(axis: Axes, losses: pd.DataFrame, head: str) -> None:
    """Draw the loss against the steps, a mean of a hundred each."""
    for attention, rows in losses.groupby("attention"):
        curve = rows.groupby("step")["loss"].mean().rolling(10, min_periods=1).mean()
        axis.plot(curve.index, curve, color=COLOURS[attention], label=attention)
    axis.set_title(HEADS[head], loc="left", fontsize=10)
    axis.set_xlabel("step")
    axis.set_ylabel("training loss")
    axis.legend(frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _bars(axis: Axes, scores: pd.DataFrame, head: str) -> None:
    """Draw the MASE on each data set, a group of bars each."""
    own = scores[scores["head"].isin([head, "seasonal_naive"])].copy()
    own["model"] = own["attention"].fillna("seasonal_naive")
    table = own.pivot_table(index="dataset", columns="model", values="mase")
    places = np.arange(len(table))
    for number, model in enumerate(name for name in COLOURS if name in table):
        axis.bar(
            places + 0.27 * (number - 1), table[model], 0.25, color=COLOURS[model], label=model
        )
    axis.set_xticks(places, table.index, rotation=30, ha="right", fontsize=8)
    axis.set_ylabel("MASE")
    axis.legend(frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
