"""Cut nested blocks into dense pieces of attention, and pack equal pieces together."""

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

__all__ = ["Pieces", "cut_into_pieces"]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Equal rectangles of the score matrix, one every ``stride`` steps, no row in two of them."""

    shared: int
    """Levels that the two sides of every pair share; on the diagonal some pairs share more."""
    q_start: int
    k_start: int
    q_length: int
    k_length: int
    stride: int
    count: int
    diagonal: bool
    """Whether the pieces are steps that attend to themselves: the only ones with a future."""
    inner: tuple[tuple[int, ...], ...] = ()
    """Where in a piece the blocks of each finer level begin; of pieces on the diagonal alone."""


@lru_cache(maxsize=64)
def cut_into_pieces(
    length: int, starts: tuple[tuple[int, ...], ...], causal: bool, leaf: int = 0
) -> tuple[Pieces, ...]:
    """Cover each pair that shares a block once, by rectangles.

    ``starts`` holds where the blocks of each level begin; a coarser level's are among a finer
    one's. Siblings (blocks of one level in one block of the level above) are halved again and
    again, and at each cut the right half attends to the left one, and the other way round unless
    ``causal``: few large pieces instead of one for each pair. What is left attends to itself: the
    finest blocks, or the first run of siblings of at most ``leaf`` steps, whatever finer levels
    there are. With a ``leaf`` finest blocks are halved like siblings if ``causal``, so that no
    more than such a square is computed for its lower triangle alone.
    """
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)

    def edges_in(start: int, end: int, lvl: int) -> Sequence[int]:
        if lvl < len(starts):
            blocks = starts[lvl]
            inside = blocks[bisect_left(blocks, start) : bisect_left(blocks, end)]
        else:
            inside = tuple(range(start, end, leaf if leaf and causal else end - start))
        return (*inside, end)

    def add(depth: int, shared: int, q_side: tuple[int, int], k_side: tuple[int, int]) -> None:
        (q_start, q_end), (k_start, k_end) = q_side, k_side
        inner = (
            ()
            if depth
            else tuple(
                tuple(edge - q_start for edge in edges_in(q_start, q_end, lvl)[:-1])
                for lvl in range(shared, len(starts))
            )
        )
        key = (depth, shared, q_end - q_start, k_end - k_start, k_start - q_start, inner)
        groups[key].append(q_start)

    def cover(edges: Sequence[int], depth: int, lvl: int) -> None:
        start, end = edges[0], edges[-1]
        while len(edges) == 2 and lvl < len(starts):
            lvl, depth = lvl + 1, 1
            edges = edges_in(start, end, lvl)
        if len(edges) == 2 or end - start <= leaf:
            add(0, lvl, (start, end), (start, end))
            return
        # A power of two on the left keeps the pieces of different parents equal.
        middle = 1 << ((len(edges) - 2).bit_length() - 1)
        left, right = (start, edges[middle]), (edges[middle], end)
        add(depth, lvl, right, left)
        if not causal:
            add(depth, lvl, left, right)
        cover(edges[: middle + 1], depth + 1, lvl)
        cover(edges[middle:], depth + 1, lvl)

    for root in itertools.pairwise(edges_in(0, length, 0)):
        cover(root, 1, 0)
    return tuple(
        Pieces(shared, at, at + shift, q_length, k_length, stride, count, not depth, inner)
        for (depth, shared, q_length, k_length, shift, inner), at_all in sorted(groups.items())
        for at, stride, count in _progressions(sorted(at_all))
    )


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
