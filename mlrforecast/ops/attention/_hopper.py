"""Launch the kernel for NVIDIA's Hopper, for the cases that it is made for."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mlrforecast.ops.attention._launches import (
    FUSION,
    abilities,
    column_factors,
    column_spans,
    describable,
    power_of_two,
    strided,
    sum_dtype,
)
from mlrforecast.ops.attention._walks import edges_of_grid

__all__ = ["TILE", "Levels", "attend", "serves"]

TILE = 128
"""Steps of a tile: borders of blocks are multiples of it, or inside one tile."""

_WIDTHS = (16, 32, 64, 128)
"""Columns of the tiles."""

_NARROW = 64
_SHORTEST, _SHORTEST_NARROW = 8192, 16384
"""Steps from which this kernel is faster than that for any GPU; see the notes of the benchmark."""

_DEEPEST = 4
"""More tiles in flight bring nothing."""

_SHARED_BYTES = 227 * 1024
"""Of a multiprocessor, for one program."""


class Levels(NamedTuple):
    """How scores are made of levels, all nested blocks of even steps."""

    ranks: tuple[int, ...]
    scales: tuple[float, ...]
    sizes: tuple[int, ...]
    """Steps of the blocks of each level; 0 for all steps."""
    offset: int
    """Steps that came before the first."""
    causal: bool
    divide: bool
    """Whether a score is divided by the number of levels that the pair shares."""

    @property
    def scaled(self) -> bool:
        """Whether the columns of the queries have factors."""
        return min(self.scales) < max(self.scales)


def serves(q: Tensor, k: Tensor, v: Tensor, levels: Levels) -> bool:
    """Return whether queries, keys and values are attended by this kernel.

    Parameters
    ----------
    q, k, v : Tensor of shape (B, H, T, R), (B, G, S, R), (B, G, S, V)
    levels : Levels

    Returns
    -------
    bool
    """
    length, widest = q.shape[2], max(q.shape[3], v.shape[3])
    return (
        q.device.type == "cuda"
        and q.dtype.itemsize == 2
        and length == k.shape[2] >= (_SHORTEST if widest > _NARROW else _SHORTEST_NARROW)
        and (levels.causal or length % TILE == 0)
        and widest <= _WIDTHS[-1]
        and _num_coarse(levels.sizes, levels.offset, length) is not None
        and abilities(q.device)[0][0] == 9
        and describable(q, k, v)
    )


def _num_coarse(sizes: Sequence[int], offset: int, length: int) -> int | None:
    """Count the levels that have no border inside a tile of the diagonal; None if others do."""
    if offset % TILE:
        return None
    inside = [size % TILE != 0 and size < length + offset for size in sizes]
    coarse = inside.index(True) if True in inside else len(inside)
    fits = coarse > 0 and all(TILE % size == 0 for size in sizes[coarse:])
    return coarse if fits else None


@lru_cache(maxsize=256)
def _layout(levels: Levels, length: int, value_columns: int, group: int) -> Any:
    """Return what a kernel is specialised by."""
    from mlrforecast.ops.attention._hopper_kernel import Layout

    upto, padded = column_spans(levels.ranks)
    value_width = power_of_two(value_columns)
    step_bytes = 2 * (padded[-1] + value_width)
    room = _SHARED_BYTES - 2 * TILE * padded[-1] - 1024  # the queries, and barriers
    return Layout(
        upto=upto,
        padded=padded,
        levels=len(levels.ranks),
        coarse=_num_coarse(levels.sizes, levels.offset, length) or 0,
        value_columns=value_columns,
        value_width=value_width,
        group=group,
        depth=min(_DEEPEST, room // (TILE * step_bytes)),
        causal=levels.causal,
        scaled=levels.scaled,
        divide=levels.divide,
    )


def _describe(x: Tensor, layout: Any, width: int) -> Any:
    """Return the descriptor of the tiles of so many columns."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from mlrforecast.ops.attention._hopper_kernel import shared_layout

    shape = [1, 1, TILE, width]
    return TensorDescriptor(x, list(x.shape), list(x.stride()), shape, shared_layout(width, 4))


def _describe_widths(x: Tensor, layout: Any) -> list[Any]:
    """Return the descriptors of all the tiles of ``x`` that there are."""
    return [_describe(x, layout, width) if width in layout.padded else 0 for width in _WIDTHS]


def attend(q: Tensor, k: Tensor, v: Tensor, levels: Levels) -> tuple[Tensor, Tensor]:
    """Return the output (B, H, T, V) and the log-sum-exp (B, H, T), in units of log 2."""
    from mlrforecast.ops.attention._hopper_kernel import forward

    batch, num_heads, length, _ = q.shape
    value_columns = v.shape[3]
    out = q.new_empty(batch, num_heads, length, value_columns)
    lse = q.new_empty(batch, num_heads, length, dtype=sum_dtype(q))
    group = num_heads // k.shape[1]
    layout = _layout(levels, length, value_columns, group)
    with torch.cuda.device_of(q):
        forward[(-(-length // TILE), batch * num_heads)](
            *strided(q), column_factors(q, levels.ranks, levels.scales),
            *_describe_widths(k, layout), _describe(v, layout, layout.value_width),
            *strided(out), lse, *edges_of_grid(levels.sizes, levels.offset, length, q.device),
            num_heads, length, max(levels.scales) * math.log2(math.e), layout, num_warps=4,
            **FUSION,
        )  # fmt: skip
    return out, lse
