"""Draw partitions: the levels of the front page, and what ``Levels.plot`` shows."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mlrforecast.ops import (
    Levels,
    calendar_block_ids,
    document_block_ids,
    mlr_scores,
    nested_block_ids,
    propose_ranks,
)

LENGTH = 64
RANKS = (4, 2, 2)
NAMES = ("whole", "halves", "quarters")
# From light to dark in one hue: the order survives grey print and every kind of colour blindness.
SHADES = ("#c6dbef", "#4292c6", "#08306b")
# A neutral colour for one level alone, as it stands for no number of levels.
SAME_BLOCK, EMPTY = "#8a8f98", "#f4f4f4"
INK = "#222222"


def draw(folder: Path) -> None:
    """Draw every picture of levels."""
    _draw_front(folder / "levels.png")
    _save(_calendar().plot(), folder / "levels_calendar.png")
    documents = _documents()
    _save(documents.plot(_scores(documents)), folder / "levels_documents.png")
    _save(Levels(1024, (32, 8, 6, 4, 4, 4, 4, 2)).plot(), folder / "levels_long.png")


def _calendar() -> Levels:
    """Cut a quarter of hourly steps into months, weeks and days."""
    stamps = pd.date_range("2024-01-10", "2024-04-10", freq="h", tz="Europe/Berlin")
    ids = calendar_block_ids(stamps, ("month", "week", "day"))
    return Levels(len(stamps), propose_ranks(32, len(stamps), 0.5, block_ids=ids), block_ids=ids)


def _documents() -> Levels:
    """Pack three documents into one sequence, with finer blocks inside them."""
    ids = nested_block_ids(document_block_ids([40, 64, 24]), block_sizes=(16, 4))
    return Levels(128, (8, 4, 4), block_ids=ids)


def _scores(levels: Levels) -> torch.Tensor:
    """Score smooth random queries and keys; pairs without a common block stay empty."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, levels.length, levels.width, generator=generator).cumsum(-2) / 8
    scores = mlr_scores(q, k, ranks=levels.ranks, block_ids=levels.ids())[0, 0]
    return scores.masked_fill(levels.shared() == 0, -torch.inf)


def _save(axes: np.ndarray, path: Path) -> None:
    """Write a figure and close it."""
    axes[0].figure.savefig(path, dpi=130)
    plt.close(axes[0].figure)


def _draw_front(path: Path) -> None:
    """Draw the blocks of each level, and the number of levels that each pair shares."""
    levels = Levels(LENGTH, RANKS)
    ids, shared = levels.ids().numpy(), levels.shared().numpy()
    figure = Figure(figsize=(10, 3.1), dpi=200)
    grid = figure.add_gridspec(
        1,
        7,
        width_ratios=(1, 0.13, 1, 0.13, 1, 0.18, 1.6),
        wspace=0.04,
        left=0.04,
        right=0.815,
        top=0.88,
        bottom=0.13,
    )
    for lvl, (block, rank, name) in enumerate(zip(ids, RANKS, NAMES, strict=True)):
        axes = figure.add_subplot(grid[2 * lvl])
        same = block[:, None] == block[None, :]
        _paint(axes, same.astype(int), (EMPTY, SAME_BLOCK))
        axes.set_title(f"level {lvl + 1}: {name}", fontsize=11)
        axes.set_xlabel(f"rank {rank}", fontsize=11)
        if lvl == 0:
            axes.set_ylabel("query step", fontsize=11)
    for at, sign in ((1, "+"), (3, "+"), (5, "=")):
        _sign(figure.add_subplot(grid[at]), sign)
    axes = figure.add_subplot(grid[6])
    _paint(axes, shared - 1, SHADES)
    axes.set_title("levels that a pair shares", fontsize=11, weight="bold")
    axes.set_xlabel("key step", fontsize=11)
    axes.set_xticks([0, LENGTH - 1], ["0", str(LENGTH - 1)])
    axes.legend(
        handles=_legend(RANKS),
        loc="center left",
        bbox_to_anchor=(1.03, 0.5),
        frameon=False,
        fontsize=11,
        handlelength=1.2,
        handleheight=1.2,
        labelspacing=1.1,
    )
    figure.savefig(path)


def _legend(ranks: tuple[int, ...]) -> list[Patch]:
    """Say what each shade stands for."""
    return [
        Patch(
            facecolor=SHADES[count - 1],
            edgecolor=INK,
            linewidth=0.5,
            label=f"{count} level{'s' if count > 1 else ''}:\nscore of rank {sum(ranks[:count])}",
        )
        for count in range(len(ranks), 0, -1)
    ]


def _paint(axes: Axes, values: np.ndarray, colours: tuple[str, ...]) -> None:
    """Fill a square of pairs, without ticks."""
    axes.imshow(
        values, cmap=ListedColormap(colours), vmin=0, vmax=len(colours) - 1, interpolation="nearest"
    )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.tick_params(length=0, labelsize=9)


def _sign(axes: Axes, sign: str) -> None:
    """Write an operator between two squares."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, sign, ha="center", va="center", fontsize=17, transform=axes.transAxes)
