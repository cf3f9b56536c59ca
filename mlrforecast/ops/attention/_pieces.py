"""Cut nested blocks into dense pieces of attention, and pack equal pieces together."""

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor

__all__ = ["Pieces", "cut_into_pieces", "window"]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Equal rectangles of the score matrix, one every ``stride`` steps, no row in two of them."""

    shared: int
    """Levels that the two sides of every pair share."""
    q_start: int
    k_start: int
    q_length: int
    k_length: int
    stride: int
    count: int
    causal: bool
    """Whether only the lower triangle counts (a block that attends to itself)."""


@lru_cache(maxsize=64)
def cut_into_pieces(
    length: int, starts: tuple[tuple[int, ...], ...], causal: bool
) -> tuple[Pieces, ...]:
    """Cover each pair that shares a block once, by rectangles that share one number of levels.

    ``starts`` holds where the blocks of each level begin; a coarser level's are among a finer
    one's. The finest blocks attend to themselves. Siblings (blocks of one level in one block of
    the level above) are halved again and again, and at each cut the right half attends to the left
    one, and the other way round unless ``causal``: few large pieces instead of one for each pair.
    """
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    finest = len(starts) - 1

    def add(depth: int, shared: int, q_side: tuple[int, int], k_side: tuple[int, int]) -> None:
        (q_start, q_end), (k_start, k_end) = q_side, k_side
        key = (depth, shared, q_end - q_start, k_end - k_start, k_start - q_start)
        groups[key].append(q_start)

    def halve(edges: Sequence[int], depth: int, shared: int) -> None:
        siblings = len(edges) - 1
        if siblings < 2:
            return
        # A power of two on the left keeps the pieces of different parents equal.
        middle = 1 << ((siblings - 1).bit_length() - 1)
        left, right = (edges[0], edges[middle]), (edges[middle], edges[-1])
        add(depth, shared, right, left)
        if not causal:
            add(depth, shared, left, right)
        halve(edges[: middle + 1], depth + 1, shared)
        halve(edges[middle:], depth + 1, shared)

    def descend(start: int, end: int, lvl: int) -> None:
        if lvl == finest:
            add(0, lvl + 1, (start, end), (start, end))
            return
        edges = _edges(start, end, starts[lvl + 1])
        halve(edges, depth=1, shared=lvl + 1)
        for child in itertools.pairwise(edges):
            descend(*child, lvl + 1)

    roots = _edges(0, length, starts[0])
    for root in itertools.pairwise(roots):
        descend(*root, 0)
    return tuple(
        Pieces(shared, at, at + shift, q_length, k_length, stride, count, causal and not depth)
        for (depth, shared, q_length, k_length, shift), at_all in sorted(groups.items())
        for at, stride, count in _progressions(sorted(at_all))
    )


def window(x: Tensor, start: int, length: int, pieces: Pieces) -> Tensor:
    """View (B, H, T, ...) as the windows of its pieces: (B, H, count, length, ...)."""
    reach = (pieces.count - 1) * pieces.stride + length
    windows = x.narrow(2, start, reach).unfold(2, length, pieces.stride)
    return windows.movedim(-1, 3)


def _edges(start: int, end: int, starts: tuple[int, ...]) -> list[int]:
    """Return where the blocks of one level begin inside [start, end), and ``end``."""
    return [*starts[bisect_left(starts, start) : bisect_left(starts, end)], end]


def _progressions(starts: list[int]) -> Iterator[tuple[int, int, int]]:
    """Split sorted numbers into runs of one step: (first, step, count)."""
    begin = 0
    while begin < len(starts):
        step = starts[begin + 1] - starts[begin] if begin + 1 < len(starts) else 1
        end = begin + 1
        while end < len(starts) and starts[end] - starts[end - 1] == step:
            end += 1
        yield starts[begin], step, end - begin
        begin = end
