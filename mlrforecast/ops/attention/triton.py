"""Multi-level attention by fused kernels, which contract far pairs over few columns.

The kernels themselves are in ``_triton_kernels``; here they are operators of PyTorch, with fake
tensors and gradients of their own, so that compilers, graphs and checkpointing see one operator.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast.ops.attention import _hopper
from mlrforecast.ops.attention._case import AttentionCase, nesting_refusal
from mlrforecast.ops.attention._inputs import refuse_tangents
from mlrforecast.ops.attention._launches import (
    ABSENT,
    AVAILABLE,
    INTERPRETED,
    abilities,
    column_factors,
    describable,
    descriptors,
    launch_of,
    make_layout,
    strided,
    sum_dtype,
)
from mlrforecast.ops.attention._walks import Span, make_walk, spacing_of_ids

__all__ = ["refusal", "triton_attention"]

_WIDEST = 256
_WIDE_TILE_BYTES = 160 * 1024
"""What the tiles of heads of more than 128 columns take."""


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
    capability, shared_bytes = abilities(case.device)
    if capability < (8, 0):
        return f"it needs a GPU of compute capability 8.0, and this one has {capability}"
    width = max(case.levels.width, case.value_width)
    if width > 128 and shared_bytes < _WIDE_TILE_BYTES:
        return f"heads of {width} columns want more shared memory than this GPU has"
    return None


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
    refuse_tangents("triton", q, k, v)
    levels = case.levels
    seed = ids = None
    if case.dropout_p > 0:
        seed = torch.randint(2**31 - 1, (1,), device=q.device)
    sizes, spacing = [size or 0 for size in levels.block_sizes or ()], []
    if levels.block_sizes is None:
        ids, spacing = levels.ids(case.device), spacing_of_ids(case)
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
    levels = _hopper.Levels(tuple(ranks), tuple(scales), tuple(sizes), offset, causal, divide)
    plain = ids is None and key_mask is None and dropout_p == 0
    if plain and _hopper.serves(q, k, v, levels):
        return _hopper.attend(q, k, v, levels)
    batch, num_heads, num_queries, width = q.shape
    num_keys, value_width = v.shape[2:]
    out = q.new_empty(batch, num_heads, num_queries, value_width)
    lse = q.new_empty(batch, num_heads, num_queries, dtype=sum_dtype(q))
    switches = causal, key_mask is not None, min(scales) < max(scales), divide, dropout_p > 0
    launch = launch_of("forward", q.dtype, max(width, value_width))
    span = Span(num_queries, num_keys, causal, False, launch.rows, launch.columns)
    walk, evenness = make_walk(ids, sizes, offset, spacing, span, q.device)
    layout = make_layout(
        launch, tuple(ranks), evenness, value_width, num_heads // k.shape[1], q.dtype, *switches,
        span.cut, describable(k, v),
    )  # fmt: skip
    # Triton launches on the current device, which need not be that of the tensors.
    with torch.cuda.device_of(q):
        kernels.forward[(-(-num_queries // launch.rows), batch * num_heads)](
            *strided(q), column_factors(q, ranks, scales), *strided(k, v),
            *descriptors(layout, k, v), *strided(out), lse,
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
        launch = launch_of("backward_queries", q.dtype, max(width, value_width))
        span = Span(num_queries, num_keys, causal, False, launch.rows, launch.columns)
        walk, evenness = make_walk(ids, sizes, offset, spacing, span, q.device)
        layout = make_layout(launch, tuple(ranks), evenness, *what, span.cut, describable(k, v))
        kernels.backward_queries[(-(-num_queries // launch.rows), batch * num_heads)](
            *strided(q), column_factors(q, ranks, scales), *strided(k, v),
            *descriptors(layout, k, v), *strided(out, grad), lse, means,
            *strided(grad_q, scaled_q), *walk.arguments, *rest, num_heads, *numbers,
            layout, **launch.options,
        )  # fmt: skip
        # Now that the means of the slopes and the scaled queries are there.
        launch = launch_of("backward_keys", q.dtype, max(width, value_width))
        span = Span(num_queries, num_keys, causal, True, launch.rows, launch.columns)
        walk, evenness = make_walk(ids, sizes, offset, spacing, span, q.device)
        layout = make_layout(
            launch, tuple(ranks), evenness, *what, span.cut, describable(scaled_q, grad)
        )
        kernels.backward_keys[(-(-num_keys // launch.rows), batch * num_groups)](
            *strided(scaled_q, k, v), *descriptors(layout, scaled_q, grad), *strided(grad),
            lse, means, *strided(grad_k, grad_v), *walk.arguments, *rest, num_groups, *numbers,
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


def _columns_together(x: Tensor) -> Tensor:
    """Return a tensor whose columns are neighbours in memory."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _optional(q: Tensor, key_mask: Tensor | None, seed: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the mask and the seed; what there is none of, no kernel reads."""
    mask = q if key_mask is None else key_mask.contiguous().view(torch.uint8)
    return mask, q if seed is None else seed
