"""Multi-level attention by fused kernels, which contract far pairs over few columns.

The kernels themselves are in ``_triton_kernels``; here they are operators of PyTorch, with fake
tensors and gradients of their own, so that compilers, graphs and checkpointing see one operator.
"""

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast.ops._layout import constant
from mlrforecast.ops.attention._case import AttentionCase, nesting_refusal

__all__ = [
    "ABSENT",
    "AVAILABLE",
    "INTERPRETED",
    "power_of_two",
    "refusal",
    "sum_dtype",
    "triton_attention",
]

_WIDEST = 256
_WIDE_TILE_BYTES = 160 * 1024
"""What the tiles of heads of more than 128 columns take."""


def _is_available() -> bool:
    """Whether a Triton is there that the kernels compile with."""
    try:
        major, minor = version("triton").split(".")[:2]
    except PackageNotFoundError:
        return False
    return (int(major), int(minor)) >= (3, 6)


AVAILABLE = _is_available()
"""Whether there is a Triton that the kernels compile with."""

ABSENT = "it needs the package triton, 3.6 or later, as it comes with PyTorch for a GPU"
"""Why nothing is served without it."""

INTERPRETED = AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
"""Whether the kernels run on the CPU, in Triton's interpreter: slow, to check them."""


def refusal(case: AttentionCase) -> str | None:
    """Return why a case cannot be served, or None.

    Parameters
    ----------
    case : AttentionCase
        The checked call.

    Returns
    -------
    str or None
    """
    if not AVAILABLE:
        return ABSENT
    reason = None if INTERPRETED else _device_refusal(case)
    if reason is not None:
        return reason
    if case.link != "softmax":
        return "it computes softmax attention only, and `link` is 'identity'"
    if case.dtype == torch.float64 and not INTERPRETED:
        return "its kernels have no float64"
    width = max(case.levels.width, case.value_width)
    if width > _WIDEST:
        return f"its kernels serve heads of at most {_WIDEST} columns, got {width}"
    return _partition_refusal(case)


def _device_refusal(case: AttentionCase) -> str | None:
    """Return why the kernels do not run where the tensors are, or None."""
    if case.device.type != "cuda" or torch.version.hip is not None:
        return f"it runs on a GPU of NVIDIA, and the tensors are on {case.device.type}"
    capability, shared_bytes = _abilities(case.device)
    if capability < (8, 0):
        return f"it needs a GPU of compute capability 8.0, and this one has {capability}"
    width = max(case.levels.width, case.value_width)
    if width > 128 and shared_bytes < _WIDE_TILE_BYTES:
        return f"heads of {width} columns want more shared memory than this GPU has"
    return None


@lru_cache(maxsize=16)
def _abilities(device: torch.device) -> tuple[tuple[int, int], int]:
    """Return the compute capability of a GPU and the shared memory that a program may have."""
    properties = torch.cuda.get_device_properties(device)
    return (properties.major, properties.minor), getattr(
        properties, "shared_memory_per_block_optin", 0
    )


def _partition_refusal(case: AttentionCase) -> str | None:
    """Return why the blocks cannot be walked from near to far, or None."""
    pairs, levels = case.pairs, case.levels
    if pairs.of_two_sequences:
        return "it attends within one sequence, and `query_block_ids` are those of another"
    if pairs.window is not None:
        return "it needs blocks on every level, and the coarsest has a window"
    if levels.block_sizes is None and torch.compiler.is_compiling():
        return "torch.compile cannot trace where `block_ids` change"
    return nesting_refusal(case)


def triton_attention(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    v: Float[Tensor, "B G S V"],
    case: AttentionCase,
    key_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H T V"]:
    """Attend by one fused kernel.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries.
    k : Tensor of shape (B, G, S, R)
        Keys.
    v : Tensor of shape (B, G, S, V)
        Values.
    case : AttentionCase
        The checked call.
    key_mask : bool Tensor of shape (B, S), optional
        True where a key may be attended.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``; 0 in rows that may attend no key.
    """
    levels = case.levels
    seed = ids = None
    if case.dropout_p > 0:
        seed = torch.randint(2**31 - 1, (1,), device=q.device)
    sizes, spacing = [size or 0 for size in levels.block_sizes or ()], []
    if levels.block_sizes is None:
        ids, spacing = levels.ids(case.device), _spacing_of_ids(case)
    out: Tensor = torch.ops.mlrforecast.mlr_attention(
        q,
        k,
        v,
        ids,
        key_mask,
        seed,
        list(levels.ranks),
        list(case.scales),
        sizes,
        levels.offset,
        spacing,
        case.causal,
        case.divide_by_shared_levels,
        case.dropout_p,
    )[0]
    return out


def _spacing_of_ids(case: AttentionCase) -> list[int]:
    """Return the alignment of the blocks of each level, and then how long they are."""
    levels = case.levels
    if levels.batched:
        return [1] * levels.num_levels + [0] * levels.num_levels
    starts = levels.starts()
    alignment, lengths = _spacing(starts, case.pairs.num_queries, levels.length)
    return [*alignment, *lengths]


def _spacing(
    starts: Sequence[Sequence[int]], num_queries: int, num_keys: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return what divides every start of a block of each level, and how long blocks are.

    Starts count as steps of the queries and of the keys; 0 is divided by everything. Lengths are
    means, and 0 where each sequence has blocks of its own.
    """
    alignment = (math.gcd(num_keys - num_queries, *of_level) for of_level in starts)
    return tuple(alignment), tuple(num_keys // len(of_level) for of_level in starts)


@dataclass(frozen=True, slots=True)
class _Walk:
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
class _Span:
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


@lru_cache(maxsize=256)
def _walk_of_grid(
    sizes: tuple[int, ...], offset: int, span: _Span, device: torch.device
) -> tuple[_Walk, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the walk over a grid of blocks, and its spacing; every layer asks for them."""
    length = span.num_keys
    longest = length + offset
    sizes = tuple(min(size or longest, longest) for size in sizes)
    # What is born in inference mode could never be part of a training step.
    with torch.inference_mode(False):
        steps = torch.arange(length)
        edges = _edges_of(torch.stack([(steps + offset) // size for size in sizes]))
        walk = _Walk(edges.to(device), _places_of(edges, span).to(device))
    starts = [[0, *range(size - offset % size, length, size)] for size in sizes]
    return walk, _spacing(starts, span.num_queries, length)


def _walk(
    ids: Tensor | None,
    sizes: Sequence[int],
    offset: int,
    spacing: Sequence[int],
    span: _Span,
    device: torch.device,
) -> tuple[_Walk, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return how a kernel walks, and the spacing of the blocks."""
    if ids is None:
        return _walk_of_grid(tuple(sizes), offset, span, device)
    edges = _edges_of(ids)
    half = len(spacing) // 2
    return _Walk(edges, _places_of(edges, span)), (tuple(spacing[:half]), tuple(spacing[half:]))


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


def _places_of(edges: Tensor, span: _Span) -> Tensor:
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


class _Launch(NamedTuple):
    """How a kernel is launched."""

    rows: int
    columns: int
    warps: int
    registers: int | None
    """Most registers of a thread: fewer let more programs run side by side."""
    depth: int
    """Tiles in flight where a stage has many."""
    described_from: int
    """The fewest columns of a tile that the copy engine loads: it is slow at narrow ones."""

    @property
    def options(self) -> dict[str, int]:
        """The keyword arguments of a launch."""
        if INTERPRETED:
            return {}
        options = {"num_warps": self.warps}
        return options if self.registers is None else options | {"maxnreg": self.registers}


_WIDTHS = (16, 32, 64, 128, 256)

# The fastest of those tried on an H200 at 8192 steps, see benchmarks/kernels/NOTES.md.
_HALF_PRECISION = {
    ("forward", 64): _Launch(64, 64, 4, 128, 3, 64),
    ("backward_queries", 64): _Launch(64, 64, 4, 168, 3, 64),
    ("backward_keys", 64): _Launch(64, 64, 4, 168, 2, 16),
    ("forward", 128): _Launch(64, 64, 4, 168, 2, 16),
    ("backward_queries", 128): _Launch(64, 64, 4, 168, 2, 16),
    ("backward_keys", 128): _Launch(64, 64, 4, None, 3, 128),
    ("forward", 256): _Launch(64, 64, 8, None, 2, 64),
    ("backward_queries", 256): _Launch(64, 32, 8, None, 2, 64),
    ("backward_keys", 256): _Launch(64, 32, 8, None, 2, 64),
}
_FULL_PRECISION = _Launch(32, 32, 4, None, 2, 16)
_INTERPRETED = _Launch(16, 16, 4, None, 1, 16)

_FEW_LEVELS = 4
_FLAT_UP_TO = 2048
"""Steps up to which one loop over all tiles is faster than a narrower one for each level."""

_FLAT_DEPTH = 2
"""Tiles in flight there."""

_MANY_TILES = 6
"""Tiles of a stage from which it pays to load some ahead."""


def _launch(name: str, dtype: torch.dtype, width: int) -> _Launch:
    """Return how a kernel is launched for heads of so many columns."""
    if INTERPRETED:
        return _INTERPRETED
    if dtype.itemsize > 2:
        return _FULL_PRECISION
    return _HALF_PRECISION[name, max(64, power_of_two(width))]


@lru_cache(maxsize=256)
def _layout(
    launch: _Launch,
    ranks: tuple[int, ...],
    alignment: tuple[int, ...],
    lengths: tuple[int, ...],
    value_width: int,
    group: int,
    dtype: torch.dtype,
    causal: bool,
    masked: bool,
    scaled: bool,
    divide: bool,
    dropout: bool,
    cut: bool,
    described: bool,
) -> Any:
    """Return what a kernel is specialised by; ``cut``: see :class:`_Span`."""
    from triton import language as tl

    from mlrforecast.ops.attention._triton_kernels import Layout

    upto = tuple(itertools.accumulate(ranks, initial=0))
    padded = tuple(power_of_two(end) for end in upto[1:])
    coarse = 0 if cut else _coarse(alignment, launch.rows, launch.columns)
    flat = 1 < coarse == len(ranks) <= _FEW_LEVELS and max(lengths) <= _FLAT_UP_TO
    return Layout(
        upto=upto,
        padded=padded,
        widths=tuple(power_of_two(rank) for rank in ranks),
        halvings=(0, *(_halvings(wide, narrow) for narrow, wide in itertools.pairwise(padded))),
        kinds=tuple(_halvings(width, _WIDTHS[0]) for width in padded),
        depths=(_FLAT_DEPTH,) * len(ranks) if flat else _depths(lengths, padded, launch),
        levels=len(ranks),
        coarse=coarse,
        first_mixed=min(coarse, len(ranks) - causal),
        values=value_width,
        value_width=power_of_two(value_width),
        group=group,
        causal=causal,
        masked=masked,
        scaled=scaled,
        divide=divide,
        dropout=dropout,
        rank_step=math.gcd(*upto),
        flat=flat,
        described=described,
        described_from=launch.described_from,
        rows=launch.rows,
        columns=launch.columns,
        # Products of float32 are those of float32, as in PyTorch's own attention.
        precision="ieee",
        sum=tl.float64 if dtype == torch.float64 else tl.float32,
    )


def _depths(lengths: Sequence[int], widths: Sequence[int], launch: _Launch) -> tuple[int, ...]:
    """Return how many tiles of each stage are in flight.

    One where there are few anyway, and where they are the widest: room for more of those would
    leave a multiprocessor with fewer programs.
    """
    longest = lengths[0]
    beyond = [longer - shorter for longer, shorter in itertools.pairwise((*lengths, 0))]
    widest = widths[-1] if widths[0] < widths[-1] else 2 * widths[-1]
    many = [longest == 0 or steps >= _MANY_TILES * launch.columns for steps in beyond]
    return tuple(
        launch.depth if pays and width < widest else 1
        for pays, width in zip(many, widths, strict=True)
    )


def power_of_two(width: int) -> int:
    """Return the width that a product of tiles takes for so many columns."""
    return max(_WIDTHS[0], 1 << (width - 1).bit_length())


def _halvings(wide: int, narrow: int) -> int:
    """Return how often one power of two is to be halved to become another."""
    return (wide // narrow).bit_length() - 1


def _coarse(alignment: Sequence[int], *sizes: int) -> int:
    """Count the levels, from the coarsest on, that have no border inside a tile."""
    inside = [any(step % size for size in sizes) for step in alignment]
    return inside.index(True) if True in inside else len(inside)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ids: Tensor | None,
    key_mask: Tensor | None,
    seed: Tensor | None,
    ranks: Sequence[int],
    scales: Sequence[float],
    sizes: Sequence[int],
    offset: int,
    spacing: Sequence[int],
    causal: bool,
    divide: bool,
    dropout_p: float,
) -> tuple[Tensor, Tensor]:
    """Return the output and the log-sum-exp of each row, in units of log 2."""
    from mlrforecast.ops.attention import _triton_kernels as kernels

    q, k, v = (_columns_together(x) for x in (q, k, v))
    batch, num_heads, num_queries, width = q.shape
    num_keys, value_width = v.shape[2:]
    out = q.new_empty(batch, num_heads, num_queries, value_width)
    lse = q.new_empty(batch, num_heads, num_queries, dtype=sum_dtype(q))
    switches = causal, key_mask is not None, min(scales) < max(scales), divide, dropout_p > 0
    launch = _launch("forward", q.dtype, max(width, value_width))
    span = _Span(num_queries, num_keys, causal, False, launch.rows, launch.columns)
    walk, evenness = _walk(ids, sizes, offset, spacing, span, q.device)
    layout = _layout(
        launch, tuple(ranks), *evenness, value_width, num_heads // k.shape[1], q.dtype, *switches,
        span.cut, _describable(k, v),
    )  # fmt: skip
    # Triton launches on the current device, which need not be that of the tensors.
    with torch.cuda.device_of(q):
        kernels.forward[(-(-num_queries // launch.rows), batch * num_heads)](
            *_strided(q), _factors(q, ranks, scales), *_strided(k, v),
            *_descriptors(layout, k, v), *_strided(out), lse,
            *walk.arguments, *_optional(q, key_mask, seed), dropout_p,
            num_heads, num_queries, num_keys, max(scales) * math.log2(math.e),
            layout, **launch.options,
        )  # fmt: skip
    return out, lse


def _attend_fake(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ids: Tensor | None,
    key_mask: Tensor | None,
    seed: Tensor | None,
    ranks: Sequence[int],
    scales: Sequence[float],
    sizes: Sequence[int],
    offset: int,
    spacing: Sequence[int],
    causal: bool,
    divide: bool,
    dropout_p: float,
) -> tuple[Tensor, Tensor]:
    out = q.new_empty(*q.shape[:3], v.shape[3])
    return out, q.new_empty(q.shape[:3], dtype=sum_dtype(q))


def _differentiate(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    ids: Tensor | None,
    key_mask: Tensor | None,
    seed: Tensor | None,
    ranks: Sequence[int],
    scales: Sequence[float],
    sizes: Sequence[int],
    offset: int,
    spacing: Sequence[int],
    causal: bool,
    divide: bool,
    dropout_p: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values."""
    from mlrforecast.ops.attention import _triton_kernels as kernels

    q, k, v, grad = (_columns_together(x) for x in (q, k, v, grad))
    batch, num_heads, num_queries, width = q.shape
    num_groups, num_keys, value_width = v.shape[1:]
    grad_q, grad_k, grad_v = (x.new_empty(x.shape) for x in (q, k, v))
    means = torch.empty_like(lse)
    scaled = min(scales) < max(scales)
    scaled_q = torch.empty_like(grad_q) if scaled else q
    switches = causal, key_mask is not None, scaled, divide, dropout_p > 0
    what = (value_width, num_heads // num_groups, q.dtype, *switches)
    rest = (*_optional(q, key_mask, seed), dropout_p)
    numbers = (num_queries, num_keys, max(scales) * math.log2(math.e), max(scales))
    with torch.cuda.device_of(q):
        launch = _launch("backward_queries", q.dtype, max(width, value_width))
        span = _Span(num_queries, num_keys, causal, False, launch.rows, launch.columns)
        walk, evenness = _walk(ids, sizes, offset, spacing, span, q.device)
        layout = _layout(launch, tuple(ranks), *evenness, *what, span.cut, _describable(k, v))
        kernels.backward_queries[(-(-num_queries // launch.rows), batch * num_heads)](
            *_strided(q), _factors(q, ranks, scales), *_strided(k, v),
            *_descriptors(layout, k, v), *_strided(out, grad), lse, means,
            *_strided(grad_q, scaled_q), *walk.arguments, *rest, num_heads, *numbers,
            layout, **launch.options,
        )  # fmt: skip
        # Now that the means of the slopes and the scaled queries are there.
        launch = _launch("backward_keys", q.dtype, max(width, value_width))
        span = _Span(num_queries, num_keys, causal, True, launch.rows, launch.columns)
        walk, evenness = _walk(ids, sizes, offset, spacing, span, q.device)
        layout = _layout(
            launch, tuple(ranks), *evenness, *what, span.cut, _describable(scaled_q, grad)
        )
        kernels.backward_keys[(-(-num_keys // launch.rows), batch * num_groups)](
            *_strided(scaled_q, k, v), *_descriptors(layout, scaled_q, grad), *_strided(grad),
            lse, means, *_strided(grad_k, grad_v), *walk.arguments, *rest, num_groups, *numbers,
            layout, **launch.options,
        )  # fmt: skip
    return grad_q, grad_k, grad_v


def _differentiate_fake(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    ids: Tensor | None,
    key_mask: Tensor | None,
    seed: Tensor | None,
    ranks: Sequence[int],
    scales: Sequence[float],
    sizes: Sequence[int],
    offset: int,
    spacing: Sequence[int],
    causal: bool,
    divide: bool,
    dropout_p: float,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_q, grad_k, grad_v = (x.new_empty(x.shape) for x in (q, k, v))
    return grad_q, grad_k, grad_v


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ids, key_mask, seed, *options = inputs
    ctx.save_for_backward(q, k, v, *output, ids, key_mask, seed)
    ctx.mark_non_differentiable(output[1])
    ctx.options = options


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    gradients = torch.ops.mlrforecast.mlr_attention_backward(grad, *ctx.saved_tensors, *ctx.options)
    return (*gradients, *[None] * 11)


def _not_twice(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    """Refuse second derivatives: without this they would be missing, and nobody told."""
    raise RuntimeError(
        "The backend 'triton' has no second derivatives. Use backend='reference' for a gradient "
        "penalty, a Hessian or per-sample gradients."
    )


# Not by `custom_op`: its wrappers take longer than the kernel does on a short sequence.
for _name, _op, _fake in (
    ("mlrforecast::mlr_attention", _attend, _attend_fake),
    ("mlrforecast::mlr_attention_backward", _differentiate, _differentiate_fake),
):
    torch.library.define(_name, torch.library.infer_schema(_op, mutates_args=()))
    torch.library.impl(_name, ("cpu", "cuda"), _op)
    torch.library.register_fake(_name, _fake)
torch.library.register_autograd(
    "mlrforecast::mlr_attention", _backward, setup_context=_keep_for_backward
)
torch.library.register_autograd("mlrforecast::mlr_attention_backward", _not_twice)


def sum_dtype(x: Tensor) -> torch.dtype:
    """Return what sums are taken in."""
    return torch.promote_types(x.dtype, torch.float32)


def _columns_together(x: Tensor) -> Tensor:
    """Return a tensor whose columns are neighbours in memory."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _strided(*tensors: Tensor) -> list[Any]:
    """Return each tensor and the elements from one sequence, head and step to the next."""
    return [argument for x in tensors for argument in (x, x.stride()[:3])]


def _factors(q: Tensor, ranks: Sequence[int], scales: Sequence[float]) -> Tensor:
    """Return the factor of each column of the queries, relative to the largest.

    Relative to it no factor is above 1, and half-precision queries cannot overflow.
    """
    largest = max(scales)
    columns = [
        scale / largest for scale, rank in zip(scales, ranks, strict=True) for _ in range(rank)
    ]
    return constant(columns, sum_dtype(q), q.device)


def _optional(q: Tensor, key_mask: Tensor | None, seed: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the mask and the seed; what there is none of, no kernel reads."""
    mask = q if key_mask is None else key_mask.contiguous().view(torch.uint8)
    return mask, q if seed is None else seed


def _describable(*tensors: Tensor) -> bool:
    """Whether the copy engine can load tiles: it wants addresses that 16 bytes divide."""
    if not _has_copy_engine(tensors[0].device):
        return False
    return all(
        x.data_ptr() % 16 == 0 and all(s > 0 and s * x.itemsize % 16 == 0 for s in x.stride()[:3])
        for x in tensors
    )


@lru_cache
def _has_copy_engine(device: torch.device) -> bool:
    """Whether a GPU loads tiles by itself."""
    return device.type == "cuda" and _abilities(device)[0] >= (9, 0)


def _descriptors(layout: Any, x: Tensor, values: Tensor) -> list[Any]:
    """Return the descriptors of the tiles of ``x``, by their width, and of ``values``."""
    if not layout.described:
        return [0] * (len(_WIDTHS) + 1)
    from triton.tools.tensor_descriptor import TensorDescriptor

    def describe(x: Tensor, width: int) -> Any:
        return TensorDescriptor(x, x.shape, x.stride(), [1, 1, layout.columns, width])

    by_width = [describe(x, width) if width in layout.padded else 0 for width in _WIDTHS]
    return [*by_width, describe(values, layout.value_width)]
