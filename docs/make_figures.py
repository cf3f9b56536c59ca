"""Draw the pictures of the docs from what the library computes, so that they cannot drift.

Run it from the root of the repository; it writes into ``docs/img``::

    python docs/make_figures.py
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mlrforecast.ops import block_ids, check_levels, shared_levels

FOLDER = Path(__file__).parent / "img"
LENGTH = 64
RANKS = (4, 2, 2)
NAMES = ("whole", "halves", "quarters")
# From light to dark in one hue: the order survives grey print and every kind of colour blindness.
SHADES = ("#c6dbef", "#4292c6", "#08306b")
# A neutral colour for one level alone, as it stands for no number of levels.
SAME_BLOCK, EMPTY = "#8a8f98", "#f4f4f4"
INK = "#222222"


def main() -> None:
    """Draw every picture."""
    FOLDER.mkdir(exist_ok=True)
    draw_levels(FOLDER / "levels.png")


def draw_levels(path: Path) -> None:
    """Draw the blocks of each level, and the number of levels that each pair shares."""
    ranks, sizes = check_levels(LENGTH, RANKS)
    ids = block_ids(LENGTH, sizes).numpy()
    shared = shared_levels(LENGTH, sizes).numpy()
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
    for lvl, (block, rank, name) in enumerate(zip(ids, ranks, NAMES, strict=True)):
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
        handles=_legend(ranks),
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


if __name__ == "__main__":
    mpl.rcParams["font.family"] = "DejaVu Sans"
    main()
