"""Multi-level attention on a CPU: products of tiles that stay in the cache.

A tile is a rectangle of scores, or some equal rectangles. Its scores contract only the columns of
the levels that its two sides share, which PyTorch's own kernel for a CPU cannot: it wants heads as
wide as the values. Nothing of the size of the scores is kept; the backward pass makes each tile
again. Scores are laid out with the keys first, (keys, queries), and count powers of 2: reductions
over keys and ``exp2`` are faster than those over the last axis and ``exp``.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from mlrforecast.ops.attention._pieces import Pieces, cut_into_pieces

__all__ = ["Problem", "attend_tiles", "attend_tiles_backward"]

_Views: TypeAlias = tuple[Any, ...]

LEAF = 32
"""Steps that attend to themselves as one tile, with a mask for each level that cuts them."""

ROWS, KEYS = 256, 512
"""Largest sides of a tile."""

PART = 2**17
"""Scores of a tile for each thread, half a mebibyte: two such tiles stay in the cache of a core."""

LEAVES = 2**16
"""The same of leaves, whose queries, keys and values are as many as the scores."""

STEPS = 4096
"""Steps of the heads that are worked on together."""

SAFE = 40.0
"""Scores, in powers of 2, up to which a row may do without its largest one subtracted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is attended, beside the tensors."""

    starts: tuple[tuple[int, ...], ...]
    """Where the blocks of each level begin."""
    ranks: tuple[int, ...]
    scale: float
    causal: bool
    divide: bool
    """Whether a score is divided by the number of levels that the pair shares."""


class _Scratch:
    """Memory that tile after tile is written to: new memory would be made ready each time."""

    def __init__(self, like: Tensor, dtype: torch.dtype) -> None:
        self._like, self._dtype = like, dtype
        self._buffers: dict[str, Tensor] = {}
        self._views: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """Return the memory of this name in a shape, with what was left in it."""
        if (view := self._views.get((name, shape))) is not None:
            return view
        size = math.prod(shape)
        if name not in self._buffers or self._buffers[name].numel() < size:
            self._buffers[name] = self._like.new_empty(size, dtype=self._dtype)
        view = self._views[name, shape] = self._buffers[name][:size].view(shape)
        return view

    def product(
        self, name: str, x: Tensor, y: Tensor, factor: float = 1.0, *, add: bool = False
    ) -> Tensor:
        """Multiply pairs of matrices with each other and a factor; add them to what is there."""
        out = self.take(name, x.shape[0], x.shape[1], y.shape[2])
        return torch.baddbmm(out, x, y, beta=int(add), alpha=factor, out=out)


class _Levels:
    """What the pairs of pieces share: columns for all of them, and of each finer level for some."""

    def __init__(self, pieces: Pieces, problem: Problem, like: Tensor) -> None:
        ends = (0, *itertools.accumulate(problem.ranks))
        self.pieces = pieces
        self.columns = [(0, ends[pieces.shared])]
        self.same: list[Tensor] = []
        self.factor = problem.scale
        self.shares = self.future = None
        if pieces.inner:
            blocks = like.new_zeros(len(pieces.inner), pieces.k_length)
            for row, starts in zip(blocks, pieces.inner, strict=True):
                row[list(starts)] = 1
            blocks = blocks.cumsum(1)
            self.columns += itertools.pairwise(ends[pieces.shared :])
            self.same = [(row[:, None] == row).to(like.dtype) for row in blocks]
        if problem.divide and pieces.inner:
            self.shares = 1 / (pieces.shared + torch.stack(self.same).sum(0))
        elif problem.divide:
            self.factor /= pieces.shared
        if pieces.diagonal and problem.causal:
            self.future = like.new_full((pieces.k_length, pieces.q_length), -math.inf).tril_(-1)


@dataclass(frozen=True, slots=True)
class _Side:
    """The queries or the keys of tiles: windows of the steps of some heads, ``most`` in a tile."""

    start: int
    length: int
    stride: int
    count: int
    most: int

    def tiles(
        self, x: Tensor, begin: int = 0, end: int = 1, *, last: bool = False
    ) -> tuple[Tensor, ...]:
        """View columns of (steps, R), tile by tile, as (windows, length, columns).

        With ``last`` the steps are the last axis.
        """
        step, column = x.stride()
        sizes, strides = (self.length, end - begin), (step, column)
        view = x.as_strided(
            (self.count, *(sizes[::-1] if last else sizes)),
            (self.stride * step, *(strides[::-1] if last else strides)),
            x.storage_offset() + self.start * step + begin * column,
        )
        return (view,) if self.count <= self.most else torch.split(view, self.most)


def _sides(pieces: Pieces, heads: int, length: int) -> Iterator[tuple[list[_Side], list[_Side]]]:
    """Cut pieces of so many heads into tiles: yield sides whose every pair is a row of tiles."""
    height, width = min(pieces.q_length, ROWS), min(pieces.k_length, KEYS)
    outer, inner = (heads, length), (pieces.count, pieces.stride)
    if pieces.count == 1 or pieces.count * pieces.stride == length:
        # The windows of one head end where those of the next begin: they are one row of windows.
        outer, inner = (1, 0), (heads * pieces.count, length // pieces.count)
    elif pieces.count < heads:
        outer, inner = inner, outer
    size = LEAVES if pieces.inner else PART
    most = max(1, size * torch.get_num_threads() // (height * width))
    count, stride = inner

    def cut(start: int, full: int, step: int) -> list[_Side]:
        return [
            _Side(start + at, min(step, full - at), stride, count, most)
            for at in range(0, full, step)
        ]

    for at in range(0, outer[0] * outer[1] or 1, outer[1] or 1):
        yield (
            cut(pieces.q_start + at, pieces.q_length, height),
            cut(pieces.k_start + at, pieces.k_length, width),
        )


class _Heads:
    """Some heads, their steps end to end, and their scores tile by tile."""

    def __init__(self, call: "_Call", items: slice, heads: slice, first: int) -> None:
        self.call = call
        self._items, self._heads = items, heads
        self.q, self.k, self.v = (self.cut(x) for x in (call.q, call.k, call.v))
        self.steps = slice(first, first + len(self.q))
        self.number = len(self.q) // call.q.shape[2]
        self.hidden = None
        if call.hidden is not None:
            hidden = call.hidden[items]
            self.hidden = hidden.repeat_interleave(self.number // len(hidden), 0).view(-1, 1)

    def cut(self, x: Tensor) -> Tensor:
        """Return these heads of (B, H, T, R), (steps, R)."""
        return x[self._items, self._heads].to(self.call.dtype).reshape(-1, x.shape[-1])

    def are_safe(self) -> bool:
        """Return whether no score can leave the range in which powers of 2 of them are precise."""
        lengths = [float(torch.linalg.vector_norm(x, dim=-1).max()) for x in (self.q, self.k)]
        return lengths[0] * lengths[1] * self.call.problem.scale <= SAFE * math.log(2)

    def sides(self) -> Iterator[tuple[_Levels, list[_Side], list[_Side]]]:
        """Yield the sides of all tiles, and what they share."""
        for levels in self.call.levels:
            for rows, keys in _sides(levels.pieces, self.number, self.call.q.shape[2]):
                yield levels, rows, keys

    def of_queries(self, levels: _Levels, side: _Side) -> Iterator[tuple[Tensor, ...]]:
        """Yield what the scores of a tile read of its queries."""
        return zip(*(side.tiles(self.q, *x, last=True) for x in levels.columns), strict=True)

    def of_keys(self, levels: _Levels, side: _Side) -> Iterator[tuple[Tensor, ...]]:
        """Yield what the scores of a tile read of its keys."""
        views = [side.tiles(self.k, *x) for x in levels.columns]
        if self.hidden is not None:
            views.append(side.tiles(self.hidden))
        return zip(*views, strict=True)

    def scores(
        self, levels: _Levels, queries: tuple[Tensor, ...], keys: tuple[Tensor, ...]
    ) -> Tensor:
        """Return the scores of a tile, (windows, keys, queries)."""
        factor = levels.factor / math.log(2)
        product = self.call.scratch.product
        scores = product("scores", keys[0], queries[0], factor)
        for lvl, same in enumerate(levels.same, start=1):
            scores.addcmul_(product("slopes", keys[lvl], queries[lvl], factor), same)
        if levels.shares is not None:
            scores.mul_(levels.shares)
        if levels.future is not None:
            scores.add_(levels.future)
        if self.hidden is not None:
            scores.add_(keys[-1])
        return scores


class _Call:
    """One call: the tensors (B, H, T, R), and what all heads have in common."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, problem: Problem
    ) -> None:
        self.q, self.k, self.v, self.problem = q, k, v, problem
        self.dtype = torch.promote_types(q.dtype, torch.float32)
        self.scratch = _Scratch(q, self.dtype)
        self.hidden = None
        if key_mask is not None:
            self.hidden = torch.zeros_like(key_mask, dtype=self.dtype)
            self.hidden.masked_fill_(~key_mask, -math.inf)
        like = q.new_empty(0, dtype=self.dtype)
        self.levels = [
            _Levels(pieces, problem, like)
            for pieces in cut_into_pieces(q.shape[2], problem.starts, problem.causal, LEAF)
        ]

    def parts(self) -> Iterator[_Heads]:
        """Cut the heads of all sequences into parts of some steps."""
        batch, heads, length, _ = self.q.shape
        most = max(torch.get_num_threads(), STEPS // length)
        items, each = max(1, most // heads), min(heads, most)
        for item, head in itertools.product(range(0, batch, items), range(0, heads, each)):
            first = (item * heads + head) * length
            yield _Heads(self, slice(item, item + items), slice(head, head + each), first)


def _tables(sides: list[_Side], views: Callable[[_Side], Iterable[_Views]]) -> list[list[_Views]]:
    """Return the views of each tile along the sides, row of tiles by row of tiles."""
    return [list(row) for row in zip(*(views(side) for side in sides), strict=True)]


def attend_tiles(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, problem: Problem
) -> tuple[Tensor, Tensor]:
    """Return the output and the log-sum-exp of each row, in powers of 2; infinity in empty rows."""
    call = _Call(q, k, v, key_mask, problem)
    width = v.shape[3]
    out = q.new_empty(*q.shape[:3], width)
    lse = q.new_empty(q.shape[:3], dtype=call.dtype)
    for heads in call.parts():
        peak = None if heads.are_safe() else _largest(heads)
        kept = out.view(-1, width)[heads.steps]
        mixed = kept if kept.dtype == call.dtype else call.scratch.take("mixed", *kept.shape)
        total = _mix(heads, peak, mixed)
        empty = total == 0
        torch.div(mixed, total.masked_fill_(empty, 1), out=kept)
        total.log2_().masked_fill_(empty, math.inf)
        lse.view(-1, 1)[heads.steps] = total if peak is None else total.add_(peak)
    return out, lse


def _mix(heads: _Heads, peak: Tensor | None, mixed: Tensor) -> Tensor:
    """Write the weighted sums of values, and return the sums of weights, of scores less a peak."""
    scratch = heads.call.scratch
    steps, width = mixed.zero_().shape
    total = scratch.take("total", steps, 1).zero_()
    peaks = total if peak is None else peak

    def of_queries(side: _Side) -> Iterator[tuple[Any, ...]]:
        stats = (side.tiles(x, last=True) for x in (peaks, total))
        return zip(heads.of_queries(levels, side), *stats, side.tiles(mixed, 0, width), strict=True)

    def of_keys(side: _Side) -> Iterator[tuple[Any, ...]]:
        return zip(heads.of_keys(levels, side), side.tiles(heads.v, 0, width), strict=True)

    for levels, rows, keys in heads.sides():
        for row, others in zip(_tables(rows, of_queries), _tables(keys, of_keys), strict=True):
            for query, peak_part, total_part, mixed_part in row:
                for number, (key, value) in enumerate(others):
                    scores = heads.scores(levels, query, key)
                    weights = (scores if peak is None else scores.sub_(peak_part)).exp2_()
                    total_part.add_(weights.sum(1, keepdim=True))
                    part = scratch.product("sums", weights.mT, value, add=number > 0)
                mixed_part.add_(part)
    return total


def _largest(heads: _Heads) -> Tensor:
    """Return the largest score of each query."""
    peak = heads.call.scratch.take("peak", len(heads.q), 1)
    peak.fill_(torch.finfo(peak.dtype).min / 2)
    for levels, rows, keys in heads.sides():
        others = _tables(keys, partial(heads.of_keys, levels))
        for side in rows:
            tiles = zip(
                heads.of_queries(levels, side), side.tiles(peak, last=True), others, strict=True
            )
            for query, part, keys_of in tiles:
                for key in keys_of:
                    scores = heads.scores(levels, query, key)
                    torch.maximum(part, scores.amax(1, keepdim=True), out=part)
    return peak


def attend_tiles_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    key_mask: Tensor | None,
    problem: Problem,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values."""
    call = _Call(q, k, v, key_mask, problem)
    grads = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
    for heads in call.parts():
        one, row_lse = heads.cut(grad), lse.view(-1, 1)[heads.steps]
        if safe := heads.are_safe():
            # Instead of each weight its row of the gradient is divided by the sum of weights.
            one = torch.mul(one, row_lse.neg().exp2_(), out=call.scratch.take("grad", *one.shape))
        mean = torch.mul(one, heads.cut(out), out=call.scratch.take("slopes", *one.shape))
        stats = None if safe else row_lse, mean.sum(-1, keepdim=True)
        kept = [x.view(-1, x.shape[-1])[heads.steps] for x in grads]
        precise = kept[2].dtype == call.dtype
        grad_v = kept[2] if precise else call.scratch.take("grad_v", *kept[2].shape)
        found = (*_gradients(heads, one, *stats, grad_v), grad_v)
        for x, part in zip(kept, found, strict=True):
            if x is not part:
                x.copy_(part)
    return grads


def _gradients(
    heads: _Heads, grad: Tensor, lse: Tensor | None, mean: Tensor, grad_v: Tensor
) -> tuple[Tensor, Tensor]:
    """Write the gradient of the values, and return those of queries and keys."""
    scratch = heads.call.scratch
    product = scratch.product
    steps, width = grad_v.zero_().shape
    rank = heads.q.shape[1]
    # Columns apart, for few of them at a time are added to. A length that is no power of two keeps
    # them from falling on each other in the cache.
    grad_q, grad_k = (
        scratch.take(name, rank, steps + 16).zero_()[:, :steps].mT for name in ("grad_q", "grad_k")
    )

    def of_queries(side: _Side) -> Iterator[tuple[Any, ...]]:
        stats = (side.tiles(x, last=True) for x in (mean if lse is None else lse, mean))
        grads = (side.tiles(grad, 0, width), side.tiles(grad, 0, width, last=True))
        sums = zip(*(side.tiles(grad_q, *x, last=True) for x in levels.columns), strict=True)
        return zip(heads.of_queries(levels, side), *stats, *grads, sums, strict=True)

    def of_keys(side: _Side) -> Iterator[tuple[Any, ...]]:
        values = (side.tiles(x, 0, width) for x in (heads.v, grad_v))
        last = zip(*(side.tiles(heads.k, *x, last=True) for x in levels.columns), strict=True)
        sums = zip(*(side.tiles(grad_k, *x, last=True) for x in levels.columns), strict=True)
        return zip(heads.of_keys(levels, side), *values, last, sums, strict=True)

    for levels, rows, keys in heads.sides():
        for row, others in zip(_tables(rows, of_queries), _tables(keys, of_keys), strict=True):
            for query, lse_part, mean_part, grad_part, grad_last, query_sums in row:
                for number, (key, value, value_sum, key_last, key_sums) in enumerate(others):
                    scores = heads.scores(levels, query, key)
                    weights = (scores if lse is None else scores.sub_(lse_part)).exp2_()
                    value_sum.add_(product("sums", weights, grad_part))
                    slopes = product("slopes", value, grad_last).sub_(mean_part).mul_(weights)
                    if levels.shares is not None:
                        slopes.mul_(levels.shares)
                    for lvl, key_sum in enumerate(key_sums):
                        some = slopes
                        if lvl > 0:
                            some = torch.mul(slopes, levels.same[lvl - 1], out=weights)
                        key_sum.add_(product("sums", query[lvl], some.mT, levels.factor))
                        name = f"sums of queries {lvl}"
                        part = product(name, key_last[lvl], some, levels.factor, add=number > 0)
                        if number == len(others) - 1:
                            query_sums[lvl].add_(part)
    return grad_q, grad_k
