"""Launch the kernels for NVIDIA's Hopper, for the cases they are made for."""

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

__all__ = ["PROGRAM_ROWS", "Levels", "attend", "differentiate", "serves"]

PROGRAM_ROWS = 128
"""Borders of blocks are multiples of it, or inside one tile of so many steps."""

_TRUSTED = False
"""Not before their errors on a GPU are measured: until then they ran in float64 on a CPU alone."""

_WIDEST = 128
_SHORTEST = 1024
"""Steps from which these kernels are faster than those for any GPU."""

_WIDTHS = (16, 32, 64, 128)

_FORWARD_COLUMNS, _FORWARD_DEPTH = 128, 2
_BACKWARD_COLUMNS, _BACKWARD_DEPTH = 64, 3


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
    """Return whether queries, keys and values are attended by these kernels.

    Parameters
    ----------
    q, k, v : Tensor of shape (B, H, T, R), (B, G, S, R), (B, G, S, V)
    levels : Levels

    Returns
    -------
    bool
    """
    length = q.shape[2]
    return (
        _TRUSTED
        and q.device.type == "cuda"
        and q.dtype.itemsize == 2
        and length == k.shape[2] >= _SHORTEST
        and (levels.causal or length % PROGRAM_ROWS == 0)
        and max(q.shape[3], v.shape[3]) <= _WIDEST
        and _num_coarse(levels.sizes, levels.offset, length) is not None
        and abilities(q.device)[0][0] == 9
        and describable(q, k, v)
    )


def _num_coarse(sizes: Sequence[int], offset: int, length: int) -> int | None:
    """Count the levels that have no border inside a tile of the diagonal; None if others do."""
    if offset % PROGRAM_ROWS:
        return None
    inside = [size % PROGRAM_ROWS != 0 and size < length + offset for size in sizes]
    coarse = inside.index(True) if True in inside else len(inside)
    fits = coarse > 0 and all(PROGRAM_ROWS % size == 0 for size in sizes[coarse:])
    return coarse if fits else None


@lru_cache(maxsize=256)
def _layout(
    levels: Levels, length: int, value_columns: int, group: int, columns: int, depth: int
) -> Any:
    """Return what a kernel is specialised by."""
    from mlrforecast.ops.attention._hopper_tiles import Layout

    upto, padded = column_spans(levels.ranks)
    return Layout(
        upto=upto,
        padded=padded,
        levels=len(levels.ranks),
        coarse=_num_coarse(levels.sizes, levels.offset, length) or 0,
        value_columns=value_columns,
        value_width=power_of_two(value_columns),
        group=group,
        columns=columns,
        depth=depth,
        causal=levels.causal,
        scaled=levels.scaled,
        divide=levels.divide,
    )


def _describe(x: Tensor, layout: Any, width: int) -> Any:
    """Return the descriptor of the tiles of so many columns."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from mlrforecast.ops.attention._hopper_tiles import shared_layout

    shape = [1, 1, layout.columns, width]
    return TensorDescriptor(x, list(x.shape), list(x.stride()), shape, shared_layout(width, 4))


def _describe_widths(x: Tensor, layout: Any) -> list[Any]:
    """Return the descriptors of all the tiles of ``x`` that there are."""
    return [_describe(x, layout, width) if width in layout.padded else 0 for width in _WIDTHS]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    levels: Levels,
) -> tuple[Tensor, Tensor]:
    """Return the output (B, H, T, V) and the log-sum-exp (B, H, T), in units of log 2."""
    from mlrforecast.ops.attention import _hopper_forward as kernels

    batch, num_heads, length, _ = q.shape
    value_columns = v.shape[3]
    out = q.new_empty(batch, num_heads, length, value_columns)
    lse = q.new_empty(batch, num_heads, length, dtype=sum_dtype(q))
    group = num_heads // k.shape[1]
    layout = _layout(levels, length, value_columns, group, _FORWARD_COLUMNS, _FORWARD_DEPTH)
    with torch.cuda.device_of(q):
        kernels.forward[(-(-length // PROGRAM_ROWS), batch * num_heads)](
            *strided(q), column_factors(q, levels.ranks, levels.scales),
            *_describe_widths(k, layout), _describe(v, layout, layout.value_width),
            *strided(out), lse, *edges_of_grid(levels.sizes, levels.offset, length, q.device),
            num_heads, length, max(levels.scales) * math.log2(math.e), layout, num_warps=4,
            **FUSION,
        )  # fmt: skip
    return out, lse


def differentiate(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    levels: Levels,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values."""
    from mlrforecast.ops.attention import _hopper_backward as kernels

    if not describable(grad):
        grad = grad.contiguous()
    batch, num_heads, length, _ = q.shape
    num_groups, value_columns = k.shape[1], v.shape[3]
    group = num_heads // num_groups
    layout = _layout(levels, length, value_columns, group, _BACKWARD_COLUMNS, _BACKWARD_DEPTH)
    programs = -(-length // PROGRAM_ROWS)
    grad_q, grad_k, grad_v = (x.new_empty(x.shape) for x in (q, k, v))
    scaled_q = q.new_empty(q.shape) if levels.scaled else q
    moments = lse.new_empty(2, batch, num_heads, programs * PROGRAM_ROWS)
    edges = edges_of_grid(levels.sizes, levels.offset, length, q.device)
    scale = max(levels.scales)
    numbers = (length, scale * math.log2(math.e), scale, layout)
    with torch.cuda.device_of(q):
        kernels.backward_queries[(programs, batch * num_heads)](
            *strided(q), column_factors(q, levels.ranks, levels.scales), *strided(k),
            *_describe_widths(k, layout), _describe(v, layout, layout.value_width),
            *strided(out, grad), lse, moments, *strided(grad_q, scaled_q), *edges, num_heads,
            *numbers, num_warps=4, **FUSION,
        )  # fmt: skip
        # Now that the moments and the scaled queries are there.
        kernels.backward_keys[(programs, batch * num_groups)](
            *strided(scaled_q, k, v), *_describe_widths(scaled_q, layout),
            _describe(grad, layout, layout.value_width), moments, *strided(grad_k, grad_v), *edges,
            num_groups, *numbers, num_warps=4, **FUSION,
        )  # fmt: skip
    return grad_q, grad_k, grad_v
