"""One step of a generation by a fused kernel that is split over the kept steps.

The kernels themselves are in ``_decode_kernels``; here they are made an operator of PyTorch with
fake tensors, so that compilers see one operator. It has no gradients.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mlrforecast.ops.attention._inputs import carries_tangent
from mlrforecast.ops.attention._launches import (
    ABSENT,
    AVAILABLE,
    FUSION,
    INTERPRETED,
    power_of_two,
    sum_dtype,
)

__all__ = ["decode_attention", "decode_refusal"]

_WIDEST = 256
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def decode_refusal(q: Tensor, keys: Sequence[Tensor], v: Tensor) -> str | None:
    """Return why a step cannot be served, or None.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries of the newest steps.
    keys : sequence of Tensor of shape (B, G, S_lvl, ranks[lvl])
        Keys of each level.
    v : Tensor of shape (B, G, S, V)
        Values.

    Returns
    -------
    str or None
    """
    if not AVAILABLE:
        return ABSENT
    if q.device.type != "cuda" and not INTERPRETED:
        return f"it runs on a GPU of NVIDIA, and the tensors are on {q.device.type}"
    if any(x.device != q.device for x in (*keys, v)):
        return "its tensors must be on one device"
    if q.shape[2] != 1:
        return f"it attends from one newest step, and there are {q.shape[2]}"
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, *keys, v)):
        return "it has no gradients, and an input requires them; run it under torch.no_grad()"
    if carries_tangent(q, *keys, v):
        return "it has no derivative in forward mode, and an input carries a tangent"
    if any(k.dtype != q.dtype for k in keys):
        return f"it compares queries and keys of one dtype, and `q` is {q.dtype}"
    if not INTERPRETED and any(x.dtype not in _DTYPES for x in (q, v)):
        return f"its kernels have float16, bfloat16 and float32, got {q.dtype} and {v.dtype}"
    width = max(*(k.shape[3] for k in keys), v.shape[3])
    if width > _WIDEST:
        return f"its kernels serve levels and values of at most {_WIDEST} columns, got {width}"
    return None


def decode_attention(
    q: Tensor,
    keys: Sequence[Tensor],
    v: Tensor,
    *,
    length: int,
    block_sizes: Sequence[int | None],
    window: int | None,
    key_mask: Tensor | None,
    scales: Sequence[float],
    divide_by_shared_levels: bool,
    attend_unshared: bool,
    splits: int = 0,
) -> Tensor:
    """Attend from the newest step.

    Parameters
    ----------
    q : Tensor of shape (B, H, 1, R)
        Queries, not scaled.
    keys : sequence of Tensor of shape (B, G, S_lvl, ranks[lvl])
        Keys of the newest steps of each level. Steps may lie further apart than their columns
        need, as in a cache with spare room; the columns of a step must be neighbours, or they are
        copied.
    v : Tensor of shape (B, G, S, V)
        Values of the newest steps.
    length : int
        Steps of the sequence so far.
    block_sizes : sequence of int or None, one per level
        Steps of a block; None for the whole sequence.
    window : int, optional
        How far the coarsest level looks, whatever its blocks.
    key_mask : bool Tensor of shape (B, S), optional
        True where a key may be attended.
    scales : sequence of float, one per level
        Factor of each level.
    divide_by_shared_levels : bool
        Whether a score is divided by the number of levels that count for it.
    attend_unshared : bool
        Whether steps for which no level counts are attended with score 0.
    splits : int, default 0
        Programs that share the steps of one head; 0 for as many as fill the GPU.

    Returns
    -------
    Tensor of shape (B, H, 1, V)
        In the dtype of ``v``; 0 in rows that may attend no key.
    """
    out: Tensor = torch.ops.mlrforecast.mlr_decode(
        q,
        list(keys),
        v,
        key_mask,
        length,
        [0 if size is None else size for size in block_sizes],
        window,
        list(scales),
        divide_by_shared_levels,
        attend_unshared,
        splits,
    )
    return out


_STAGES = 3
_TILE_BYTES = {False: 55 * 1024, True: 40 * 1024}
"""Most bytes of a tile, where a program has all steps of a head and where it shares them."""
_SMALL_TILE = 28 * 1024
"""Bytes of a tile of which three programs rather than two fill a multiprocessor best."""
_MOST_SPLITS = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tiles:
    """How the kernel is cut and launched."""

    columns: int
    warps: int
    stages: int
    staged: bool
    strided: bool


@lru_cache(maxsize=256)
def _tiles(row_bytes: int, split: bool) -> _Tiles:
    """Return the tiles for steps of so many bytes, levels and values together.

    Two programs are to find room on a multiprocessor, so that one loads while the other computes.
    While a tile is computed, those of the other stages are on their way.
    """
    if INTERPRETED:
        return _Tiles(columns=32, warps=4, stages=1, staged=True, strided=True)
    columns = 128
    while columns > 16 and columns * row_bytes > _TILE_BYTES[split]:
        columns //= 2
    return _Tiles(columns=columns, warps=4, stages=_STAGES, staged=True, strided=split)


@lru_cache(maxsize=1024)
def _num_splits(programs: int, tiles: int, room: int) -> int:
    """Return how many programs share the tiles of one head.

    The fewest that keep the GPU nearly as busy as the best number does: each wave of programs
    takes as long as a full one.
    """
    if 4 * room <= programs:
        return 1
    busy = [
        (programs * splits / room) / math.ceil(programs * splits / room)
        for splits in range(1, max(1, min(tiles // 2, _MOST_SPLITS)) + 1)
    ]
    return 1 + next(i for i, share in enumerate(busy) if share >= 0.95 * max(busy))


@lru_cache(maxsize=16)
def _multiprocessors(device: torch.device) -> int:
    """Return how many multiprocessors a GPU has; a few in Triton's interpreter."""
    if device.type != "cuda":
        return 2
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@lru_cache(maxsize=256)
def _constants(
    ranks: tuple[int, ...],
    steps: tuple[int, ...],
    units: tuple[int, ...],
    scales: tuple[float, ...],
    group: int,
    dtype: torch.dtype,
    tiles: _Tiles,
) -> dict[str, Any]:
    """Return what the kernel is compiled for, and how it is launched; the values come last."""
    from triton import language as tl

    ranks, value_width = ranks[:-1], ranks[-1]
    levels = len(ranks)
    counts = [levels]
    if tiles.staged:
        counts = [1 << i for i in range(levels.bit_length()) if 1 << i < levels] + counts
    largest = max(scales)
    return {
        "GROUP": group,
        "RANKS": ranks,
        "UPTO": tuple(itertools.accumulate(ranks, initial=0)),
        "WIDTHS": tuple(power_of_two(rank) for rank in ranks),
        "STEPS": steps[:-1],
        "UNITS": units[:-1],
        "RELATIVE": tuple(scale / largest for scale in scales),
        "COUNTS": tuple(counts),
        "LEVELS": levels,
        "VALUES": value_width,
        "VALUE_WIDTH": power_of_two(value_width),
        "VALUE_STEP": steps[-1],
        "VALUE_UNIT": units[-1],
        "STRIDED": tiles.strided,
        "ROWS": power_of_two(group),
        "COLUMNS": tiles.columns,
        "STAGES": tiles.stages,
        # Products of float32 are those of float32, as in PyTorch's own attention.
        "PRECISION": "ieee",
        "SUM": tl.float64 if dtype == torch.float64 else tl.float32,
        "num_warps": tiles.warps,
        **FUSION,
    }


def _layout(
    tensors: Sequence[Tensor],
) -> tuple[tuple[int, ...], list[int], tuple[int, ...], tuple[int, ...], list[int]]:
    """Return how the keys of each level lie in memory, and the values last.

    Their columns and their steps; the elements from one step to the next; the neighbouring elements
    that may be loaded at once from the start of any step; and in units of those what lies between
    the sequences and between the heads of each.
    """
    ranks, counts, steps, units = [], [], [], []
    outer: list[int] = []
    for x in tensors:
        _, _, count, rank = x.shape
        batch, head, step, _ = x.stride()
        if count == 1:
            # The stride of a single step means nothing, and would be compiled in.
            step = rank
        unit = math.gcd(step, batch, head, 16 // x.element_size())
        ranks.append(rank)
        counts.append(count)
        steps.append(step)
        units.append(unit)
        outer += (batch // unit, head // unit)
    return tuple(ranks), counts, tuple(steps), tuple(units), outer


@lru_cache(maxsize=256)
def _row_bytes(ranks: tuple[int, ...], key_bytes: int, value_bytes: int) -> int:
    """Return the bytes that a step takes in a tile."""
    *keys, values = (power_of_two(rank) for rank in ranks)
    return sum(keys) * key_bytes + values * value_bytes


def _begins(
    length: int, kept: int, key_steps: Sequence[int], sizes: Sequence[int], window: int | None
) -> list[int]:
    """Return the first of the kept steps that each level counts for."""
    newest, oldest = length - 1, length - kept
    firsts = [newest // size * size if size else 0 for size in sizes]
    if window is not None:
        firsts[0] = newest - window
    # A level cannot count for steps that it did not keep.
    pairs = zip(firsts, key_steps, strict=True)
    return [max(first - oldest, kept - steps) for first, steps in pairs]


def _odd(numbers: Sequence[int]) -> tuple[int, ...]:
    """Return numbers of a tuple as Triton does not compile them in, whatever their values."""
    return tuple([2 * number + 3 for number in numbers])


def _decode(
    q: Tensor,
    keys: Sequence[Tensor],
    v: Tensor,
    key_mask: Tensor | None,
    length: int,
    block_sizes: Sequence[int],
    window: int | None,
    scales: Sequence[float],
    divide: bool,
    attend_unshared: bool,
    splits: int,
) -> Tensor:
    """Return the output of one step, from the programs of each key head."""
    from mlrforecast.ops.attention import _decode_kernels as kernels

    q, v, *keys = (x if x.stride(3) == 1 else x.contiguous() for x in (q, v, *keys))
    batch, num_heads = q.shape[:2]
    num_groups, kept, value_width = v.shape[1:]
    ranks, key_steps, steps, units, outer = _layout((*keys, v))
    begins = _begins(length, kept, key_steps[:-1], block_sizes, window)
    first_step = 0 if attend_unshared else max(0, min(begins))

    row_bytes = _row_bytes(ranks, q.element_size(), v.element_size())
    programs = batch * num_groups
    if splits == 0:
        columns = _tiles(row_bytes, True).columns
        count = -(-kept // columns) - first_step // columns
        each = 3 if columns * row_bytes <= _SMALL_TILE else 2
        splits = _num_splits(programs, count, each * _multiprocessors(q.device))
    tiles = _tiles(row_bytes, splits > 1)
    group = num_heads // num_groups
    constants = _constants(ranks, steps, units, tuple(scales), group, q.dtype, tiles)
    out = v.new_empty(batch, num_heads, 1, value_width)
    parts = out
    if splits > 1:
        size = batch * num_heads * splits * (value_width + 2)
        parts = v.new_empty(size, dtype=sum_dtype(q))
    mask = q if key_mask is None else key_mask
    if mask.stride(-1) != 1:
        mask = mask.contiguous()
    # Triton launches on the current device, which need not be that of the tensors.
    with torch.cuda.device_of(q):
        kernels.attend[(programs, splits)](
            q, tuple(keys), v, mask if key_mask is None else mask.view(torch.uint8), parts,
            *q.stride()[:2],
            _odd(outer[:-2:2]), _odd(outer[1:-2:2]), _odd(begins),
            _odd([kept - steps for steps in key_steps[:-1]]), *outer[-2:], mask.stride(0),
            num_groups, kept, first_step, splits, max(scales) * math.log2(math.e),
            MASKED=key_mask is not None, DIVIDE=divide, SPLIT=splits > 1, **constants,
        )  # fmt: skip
        if splits > 1:
            most = max(2, 1 << (splits - 1).bit_length())
            kernels.merge[(batch * num_heads,)](
                parts, out, splits, MOST=most, CHUNK=min(most, 16), VALUES=value_width,
                VALUE_WIDTH=constants["VALUE_WIDTH"], SUM=constants["SUM"], num_warps=4, **FUSION,
            )  # fmt: skip
    return out


def _fake(
    q: Tensor,
    keys: Sequence[Tensor],
    v: Tensor,
    key_mask: Tensor | None,
    length: int,
    block_sizes: Sequence[int],
    window: int | None,
    scales: Sequence[float],
    divide: bool,
    attend_unshared: bool,
    splits: int,
) -> Tensor:
    return v.new_empty(q.shape[0], q.shape[1], 1, v.shape[3])


# Not by `custom_op`: its wrappers take longer than the kernel of a single request.
torch.library.define(
    "mlrforecast::mlr_decode", torch.library.infer_schema(_decode, mutates_args=())
)
torch.library.impl("mlrforecast::mlr_decode", ("cpu", "cuda"), _decode)
torch.library.register_fake("mlrforecast::mlr_decode", _fake)
