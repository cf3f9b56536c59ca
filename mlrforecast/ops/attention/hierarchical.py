"""Multi-level attention as ordinary attention over dense rectangles of the scores.

Two positions that share exactly ``m`` levels meet in the first ``R_m`` columns only. So siblings
attend to each other in those columns, and the finest blocks to themselves in all of them: on a CPU
tile by tile, on a GPU by PyTorch's kernels. No T x T matrix is built. Either way is one operator of
PyTorch, with fake tensors and gradients of its own, so that compilers, graphs and checkpointing see
nothing of what is inside.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast.ops._layout import expand_heads
from mlrforecast.ops.attention._case import AttentionCase, nesting_refusal
from mlrforecast.ops.attention._inputs import refuse_tangents
from mlrforecast.ops.attention._merged import attend_merged, attend_merged_backward
from mlrforecast.ops.attention._tiles import Problem, attend_tiles, attend_tiles_backward
from mlrforecast.ops.levels import Levels

__all__ = ["hierarchical_attention", "refusal"]


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
    if case.link != "softmax":
        return "it computes softmax attention only, and `link` is 'identity'"
    if case.dropout_p > 0:
        return f"it has no dropout, and `dropout_p` is {case.dropout_p}"
    reason = _partition_refusal(case)
    if reason is not None:
        return reason
    if case.device.type not in ("cpu", "cuda"):
        return f"it runs on cpu and cuda, and the tensors are on {case.device.type}"
    return _precision_refusal(case)


def _partition_refusal(case: AttentionCase) -> str | None:
    """Return why the pairs cannot be covered by rectangles, or None."""
    pairs, levels = case.pairs, case.levels
    if pairs.of_two_sequences:
        return "it attends within one sequence, and `query_block_ids` are those of another"
    if pairs.num_queries != pairs.num_keys:
        return f"it needs as many queries as keys, got T={pairs.num_queries} and S={pairs.num_keys}"
    if pairs.window is not None:
        return "it needs blocks on every level, and the coarsest has a window"
    if levels.block_sizes is None and torch.compiler.is_compiling():
        return "torch.compile cannot trace whether `block_ids` nest without gaps"
    if levels.batched:
        return "it needs one partition for all sequences, and `block_ids` give each its own"
    return nesting_refusal(case)


def _precision_refusal(case: AttentionCase) -> str | None:
    """Return why the kernels of the device cannot serve the dtype and width, or None."""
    if case.device.type != "cuda":
        return None
    if case.dtype == torch.float64:
        return "the kernels of the GPU have no float64"
    if case.dtype == torch.float16 and case.masked_keys:
        return "in float16 a masked key could outweigh very low scores; bfloat16 has the range"
    width = max(case.levels.width, case.value_width)
    if width > 256:
        return f"the kernels of the GPU serve heads of at most 256 columns, got {width}"
    return None


def hierarchical_attention(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    v: Float[Tensor, "B G S V"],
    case: AttentionCase,
    key_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H T V"]:
    """Attend rectangle by rectangle of the scores.

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
    refuse_tangents("hierarchical", q, k, v)
    levels = case.levels
    out: Tensor
    out, _ = torch.ops.mlrforecast.hierarchical_attention(
        _scaled(q, case),
        expand_heads(k, q.shape[1]),
        expand_heads(v, q.shape[1]),
        key_mask,
        levels.ids(case.device) if levels.block_sizes is None else None,
        list(levels.ranks),
        [size or 0 for size in levels.block_sizes or ()],
        levels.offset,
        max(case.scales),
        case.causal,
        case.divide_by_shared_levels,
    )
    return out


def _scaled(q: Tensor, case: AttentionCase) -> Tensor:
    """Put the factor of each level on its columns, relative to the largest.

    No such factor is above 1, and half precision cannot overflow.
    """
    largest = max(case.scales)
    if min(case.scales) == largest:
        return q
    dtype = torch.promote_types(q.dtype, torch.float32)
    # Filled where they are used: a copy to the device could not be part of a graph of its work.
    factors = [
        torch.full((rank,), scale / largest, dtype=dtype, device=q.device)
        for rank, scale in zip(case.levels.ranks, case.scales, strict=True)
    ]
    return (q * torch.cat(factors)).to(q.dtype)


@torch.library.custom_op("mlrforecast::hierarchical_attention", mutates_args=())
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    block_ids: Tensor | None,
    ranks: Sequence[int],
    block_sizes: Sequence[int],
    offset: int,
    scale: float,
    causal: bool,
    divide: bool,
) -> tuple[Tensor, Tensor]:
    """Return the output, and of each row the log-sum-exp that the backward pass reads."""
    problem = _problem(q, block_ids, ranks, block_sizes, offset, scale, causal, divide)
    attend = attend_tiles if q.device.type == "cpu" else attend_merged
    return attend(q, k, v, key_mask, problem)


@_attention.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    block_ids: Tensor | None,
    ranks: Sequence[int],
    block_sizes: Sequence[int],
    offset: int,
    scale: float,
    causal: bool,
    divide: bool,
) -> tuple[Tensor, Tensor]:
    precise = torch.promote_types(q.dtype, torch.float32)
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=precise)


@torch.library.custom_op("mlrforecast::hierarchical_attention_backward", mutates_args=())
def _attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    key_mask: Tensor | None,
    block_ids: Tensor | None,
    ranks: Sequence[int],
    block_sizes: Sequence[int],
    offset: int,
    scale: float,
    causal: bool,
    divide: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values."""
    problem = _problem(q, block_ids, ranks, block_sizes, offset, scale, causal, divide)
    attend = attend_tiles_backward if q.device.type == "cpu" else attend_merged_backward
    return attend(grad, q, k, v, out, lse, key_mask, problem)


@_attention_backward.register_fake
def _(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    key_mask: Tensor | None,
    block_ids: Tensor | None,
    ranks: Sequence[int],
    block_sizes: Sequence[int],
    offset: int,
    scale: float,
    causal: bool,
    divide: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_q, grad_k, grad_v = (x.new_empty(x.shape) for x in (q, k, v))
    return grad_q, grad_k, grad_v


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, key_mask, block_ids, *options = inputs
    ctx.save_for_backward(q, k, v, *output, key_mask, block_ids)
    ctx.mark_non_differentiable(output[1])
    ctx.options = options


def _differentiate(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    gradients = torch.ops.mlrforecast.hierarchical_attention_backward(
        grad, *ctx.saved_tensors, *ctx.options
    )
    return (*gradients, *[None] * 8)


_attention.register_autograd(_differentiate, setup_context=_keep_for_backward)


def _problem(
    q: Tensor,
    block_ids: Tensor | None,
    ranks: Sequence[int],
    block_sizes: Sequence[int],
    offset: int,
    scale: float,
    causal: bool,
    divide: bool,
) -> Problem:
    """Collect the arguments of an operator."""
    length = q.shape[2]
    if block_ids is None:
        starts = _starts_in_grid(length, tuple(ranks), tuple(block_sizes), offset)
    else:
        starts = Levels(length, ranks, block_ids=block_ids).starts()
    return Problem(starts, tuple(ranks), scale, causal, divide)


@lru_cache(maxsize=64)
def _starts_in_grid(
    length: int, ranks: tuple[int, ...], sizes: tuple[int, ...], offset: int
) -> tuple[tuple[int, ...], ...]:
    """Return where blocks begin; they are asked for in every layer and step."""
    return Levels(length, ranks, [size or None for size in sizes], offset=offset).starts()
