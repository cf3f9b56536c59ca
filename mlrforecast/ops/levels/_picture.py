"""The picture of a partition: blocks, the map of effective ranks, and a heat-map of scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlrforecast.ops._checks import integer

__all__ = ["MOST_STEPS", "check_row", "check_scores", "draw_levels"]

MOST_STEPS = 1024
"""Rows and columns of a map, at most: longer sequences are thinned out evenly."""

# Neighbouring blocks differ in lightness, so they stay apart in grey and for all eyes; a block
# that comes again has its colour again.
_BLOCKS = ("#08306b", "#9ecae1", "#2171b5", "#deebf7", "#4292c6", "#c6dbef")
_EMPTY = "#e8e8e8"
_MOST_EDGES = 64
_MOST_RANKS = 12


def draw_levels(
    ids: NDArray[np.int64], ranks: Sequence[int], scores: NDArray[np.floating[Any]] | None
) -> NDArray[Any]:
    """Draw the ``ids`` (num_levels, S) of levels with ``ranks``, and ``scores`` (T, S)."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    num_levels, count = len(ids), 2 + (scores is not None)
    height = max(3.6, 0.5 * num_levels + 1.2)
    _, axes = plt.subplots(
        1,
        count,
        figsize=(4.6 * count + 0.8, height),
        width_ratios=(1.25, *[1] * (count - 1)),
        layout="constrained",
    )
    _draw_blocks(axes[0], ids, ranks)
    _draw_ranks(axes[1], ids, ranks)
    if scores is not None:
        _draw_scores(axes[2], scores, ids.shape[1])
    for side in [axis.xaxis for axis in axes] + [axis.yaxis for axis in axes[1:]]:
        side.set_major_locator(MaxNLocator(6, integer=True))
        side.set_major_formatter(StrMethodFormatter("{x:.0f}"))
    return np.asarray(axes)


def check_row(sequence: int, batch: int) -> int:
    """Return the number of a sequence if there is such a one."""
    row = integer(sequence, "sequence")
    if not 0 <= row < batch:
        raise ValueError(f"`sequence` must lie in [0, {batch}), got {row}.")
    return row


def check_scores(scores: Tensor | NDArray[Any] | None, length: int) -> NDArray[Any] | None:
    """Return scores as an array, if their shape is (T, S)."""
    if scores is None:
        return None
    if isinstance(scores, Tensor):
        scores = scores.detach().to("cpu", torch.float64).numpy()
    found = np.asarray(scores, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] != length or not 0 < found.shape[0] <= length:
        raise ValueError(
            f"`scores` must have the shape (T, S) with S = {length} and T from 1 to S, got "
            f"{found.shape}. Of scores (B, H, T, S), draw one head: scores[0, 0]."
        )
    return found


def _draw_blocks(axis: Any, ids: NDArray[np.int64], ranks: Sequence[int]) -> None:
    """Draw a strip for each level, coarse on top."""
    from matplotlib.colors import to_rgb

    palette = np.array([to_rgb(colour) for colour in _BLOCKS])
    length = ids.shape[1]
    labels = []
    for lvl, (row, rank) in enumerate(zip(ids, ranks, strict=True)):
        _, first, block = np.unique(row, return_index=True, return_inverse=True)
        # Blocks are coloured in the order in which they come.
        place = first.argsort().argsort()[block]
        extent = (-0.5, length - 0.5, lvl + 0.4, lvl - 0.4)
        axis.imshow(palette[place % len(palette)][None], extent=extent, aspect="auto")
        edges = np.flatnonzero(np.diff(row)) + 0.5
        if len(edges) <= _MOST_EDGES:
            axis.vlines(edges, lvl - 0.4, lvl + 0.4, color="white", linewidth=1.2)
        noun = "block" if len(first) == 1 else "blocks"
        labels.append(f"level {lvl + 1}: {len(first)} {noun}\nrank {rank}")
    axis.set_xlim(-0.5, length - 0.5)
    axis.set_ylim(len(ids) - 0.4, -0.6)
    axis.set_yticks(range(len(ids)), labels)
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.set(xlabel="step", title="blocks of each level")


def _draw_ranks(axis: Any, ids: NDArray[np.int64], ranks: Sequence[int]) -> None:
    """Draw in how many columns each pair is compared."""
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm, ListedColormap

    length = ids.shape[1]
    kept = ids[:, np.linspace(0, length - 1, min(length, MOST_STEPS)).round().astype(int)]
    found = np.zeros((kept.shape[1], kept.shape[1]), dtype=np.int64)
    for row, rank in zip(kept, ranks, strict=True):
        found += rank * (row[:, None] == row[None, :])
    values = np.unique(found)
    shades = colormaps["Blues"](np.linspace(0.2, 1.0, len(values)))
    if values[0] == 0:
        shades[0] = (1, 1, 1, 1)
    image = axis.imshow(
        np.searchsorted(values, found),
        cmap=ListedColormap(shades),
        norm=BoundaryNorm(np.arange(len(values) + 1) - 0.5, len(values)),
        interpolation="nearest",
        extent=(-0.5, length - 0.5, length - 0.5, -0.5),
    )
    named = np.unique(np.linspace(0, len(values) - 1, min(len(values), _MOST_RANKS)).round())
    bar = axis.figure.colorbar(image, ax=axis, shrink=0.8, ticks=named)
    bar.ax.set_yticklabels([str(values[int(place)]) for place in named])
    bar.ax.tick_params(length=0)
    axis.set(xlabel="key step", ylabel="query step", title="columns in which a pair is compared")


def _draw_scores(axis: Any, scores: NDArray[np.floating[Any]], length: int) -> None:
    """Draw scores or weights; what is not finite stays empty."""
    from matplotlib import colormaps

    shown = np.ma.masked_invalid(scores)
    low, high = (float(shown.min()), float(shown.max())) if shown.count() else (0.0, 1.0)
    signed = low < 0
    colours = colormaps["PuOr" if signed else "cividis"].with_extremes(bad=_EMPTY)
    reach = max(-low, high)
    first = length - scores.shape[0]
    image = axis.imshow(
        shown,
        cmap=colours,
        vmin=-reach if signed else 0.0,
        vmax=reach,
        interpolation="nearest" if max(scores.shape) <= MOST_STEPS else "antialiased",
        extent=(-0.5, length - 0.5, length - 0.5, first - 0.5),
        aspect="auto" if first else "equal",
    )
    axis.figure.colorbar(image, ax=axis, shrink=0.8)
    axis.set(xlabel="key step", ylabel="query step", title="scores")
