"""Where a fused kernel walks: the blocks of each position and the tiles that share levels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mlrforecast.ops.attention._case import AttentionCase

__all__ = ["Evenness", "Span", "Walk", "edges_of_grid", "make_walk", "spacing_of_ids"]


class Evenness(NamedTuple):
    """How even the blocks of each level are."""

    alignment: tuple[int, ...]
    """What divides every start of a block, as a step of the queries and of the keys."""
    lengths: tuple[int, ...]
    """How many steps a block has in the mean, and 0 where each sequence has blocks of its own."""


def spacing_of_ids(case: AttentionCase) -> list[int]:
    """Return the alignment of the blocks of each level, and then how long they are."""
    levels = case.levels
    if levels.batched:
        return [1] * levels.num_levels + [0] * levels.num_levels
    starts = levels.starts()
    evenness = _evenness(starts, case.pairs.num_queries, levels.length)
    return [*evenness.alignment, *evenness.lengths]


def _evenness(starts: Sequence[Sequence[int]], num_queries: int, num_keys: int) -> Evenness:
    """Return how even blocks are that start at these steps; 0 is divided by everything."""
    alignment = (math.gcd(num_keys - num_queries, *of_level) for of_level in starts)
    return Evenness(tuple(alignment), tuple(num_keys // len(of_level) for of_level in starts))


@dataclass(frozen=True, slots=True)
class Walk:
    """What a kernel reads to walk over the tiles of its rows."""

    edges: Tensor
    """Where the block of each position begins and ends, int32 (2, B or 1, num_levels, S)."""
    places: Tensor
    """Borders between the tiles of each stage, int32 (B or 1, tiles, num_levels, 8)."""

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of a kernel; one partition may serve all sequences."""
        batched = self.edges.shape[1] > 1
        edge_step, place_step = self.edges.stride(1), self.places.stride(0)
        return (
            *self.edges.unbind(), edge_step if batched else 0,
            self.places, place_step if batched else 0,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Span:
    """Which rows and columns a kernel has, and in which order: steps of queries and of keys."""

    num_queries: int
    num_keys: int
    causal: bool
    by_keys: bool
    """Whether the rows are keys and the columns queries."""
    rows: int
    columns: int

    @property
    def cut(self) -> bool:
        """Whether the columns end inside a tile that no diagonal runs through."""
        if self.by_keys:
            return self.num_queries % self.columns != 0
        # The end of a causal sequence of keys is in tiles of the diagonal, mixed anyway.
        return not self.causal and self.num_keys % self.columns != 0


def _blocks_of_grid(sizes: tuple[int, ...], offset: int, length: int) -> tuple[int, ...]:
    """Return the steps of the blocks of each level, none longer than the sequence."""
    longest = length + offset
    return tuple(min(size or longest, longest) for size in sizes)


def _ids_of_grid(sizes: tuple[int, ...], offset: int, length: int) -> Tensor:
    """Return the block of each position."""
    steps = torch.arange(length)
    return torch.stack([(steps + offset) // size for size in sizes])


@lru_cache(maxsize=256)
def edges_of_grid(
    sizes: tuple[int, ...], offset: int, length: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return where the block of each position begins and ends, each int32 (num_levels, T)."""
    with torch.inference_mode(False):
        edges = _edges_of(_ids_of_grid(_blocks_of_grid(sizes, offset, length), offset, length))
        starts, ends = edges[:, 0].to(device).unbind()
    return starts, ends


@lru_cache(maxsize=256)
def _walk_of_grid(
    sizes: tuple[int, ...], offset: int, span: Span, device: torch.device
) -> tuple[Walk, Evenness]:
    """Return the walk over a grid of blocks, and its spacing; every layer asks for them."""
    length = span.num_keys
    sizes = _blocks_of_grid(sizes, offset, length)
    # What is born in inference mode could never be part of a training step.
    with torch.inference_mode(False):
        edges = _edges_of(_ids_of_grid(sizes, offset, length))
        walk = Walk(edges.to(device), _places_of(edges, span).to(device))
    starts = [[0, *range(size - offset % size, length, size)] for size in sizes]
    return walk, _evenness(starts, span.num_queries, length)


def make_walk(
    ids: Tensor | None,
    sizes: Sequence[int],
    offset: int,
    spacing: Sequence[int],
    span: Span,
    device: torch.device,
) -> tuple[Walk, Evenness]:
    """Return how a kernel walks, and the spacing of the blocks."""
    if ids is None:
        return _walk_of_grid(tuple(sizes), offset, span, device)
    edges = _edges_of(ids)
    half = len(spacing) // 2
    evenness = Evenness(tuple(spacing[:half]), tuple(spacing[half:]))
    return Walk(edges, _places_of(edges, span)), evenness


def _edges_of(ids: Tensor) -> Tensor:
    """Return the edges of blocks whose positions are neighbours, int32 (2, B or 1, L, S)."""
    length = ids.shape[-1]
    ids = ids.view(-1, *ids.shape[-2:])
    begins = torch.ones_like(ids, dtype=torch.bool)
    begins[..., 1:] = ids.diff(dim=-1) != 0
    steps = torch.arange(length, device=ids.device)
    starts = torch.where(begins, steps, 0).cummax(-1).values
    after = torch.where(begins, steps, length).roll(-1, -1)
    after[..., -1] = length
    ends = after.flip(-1).cummin(-1).values.flip(-1)
    return torch.stack([starts, ends]).to(torch.int32)


def _places_of(edges: Tensor, span: Span) -> Tensor:
    """Return the borders between the tiles of each stage, from left to right.

    Some pair of a tile shares a level, or all do: blocks follow each other, so those of the first
    row begin and end first. The six borders are those that ``_triton_kernels`` names.
    """
    shift = span.num_keys - span.num_queries
    num_rows, num_columns = span.num_queries, span.num_keys
    row_shift, column_shift = shift, 0
    if span.by_keys:
        num_rows, num_columns = num_columns, num_rows
        row_shift, column_shift = 0, shift
    first = torch.arange(0, num_rows, span.rows, device=edges.device)
    last = (first + span.rows).clamp(max=num_rows) - 1 + row_shift
    first = first + row_shift
    starts, ends = edges.unbind()
    some_low, all_low = starts[..., first], starts[..., last]
    all_high, some_high = ends[..., first], ends[..., last]
    if span.causal and span.by_keys:
        some_low, all_low = some_low.maximum(first), all_low.maximum(last)
    elif span.causal:
        all_high, some_high = all_high.minimum(first + 1), some_high.minimum(last + 1)
    floor = {"rounding_mode": "floor"}
    beyond = span.columns - 1
    some_low = (some_low - column_shift).clamp(min=0).div(span.columns, **floor)
    all_low = ((all_low - column_shift).clamp(min=0) + beyond).div(span.columns, **floor)
    all_high = (all_high - column_shift).clamp(min=0).div(span.columns, **floor)
    some_high = (some_high - column_shift).clamp(min=0, max=num_columns) + beyond
    some_high = some_high.div(span.columns, **floor).maximum(some_low)
    # Inside a stage lie the tiles of the finer ones; the finest has them all on its left side.
    middle = all_low[..., -1:, :].minimum(some_high[..., -1:, :])
    inner_low = torch.cat([some_low[..., 1:, :], middle], -2)
    inner_high = torch.cat([some_high[..., 1:, :], middle], -2)
    low, high = all_low.minimum(inner_low), all_high.maximum(inner_high)
    borders = (some_low, low, inner_low, inner_high, high, some_high, high, high)
    return torch.stack(borders, -1).transpose(-3, -2).to(torch.int32).contiguous()
