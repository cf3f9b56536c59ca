"""Attention over few steps on a CPU: products of many small matrices, made a part at a time.

PyTorch's kernel takes the heads one by one, and most of its time goes into the calls for them.
Here a part of the batch is one batched product, as large as the cache holds; nothing of the size
of the scores is kept, and the backward pass makes them again.
"""

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

__all__ = ["is_short", "short_attention"]

MAX_STEPS = 128
"""Longest sequence that is short."""

MAX_WIDTH = 8
"""Widest values for which PyTorch's kernel is slower."""

MIN_SCORES = 2**16
"""Fewest scores for which the work outweighs the calls."""

PART = 2**18
"""Scores of a part, a mebibyte: they stay in the cache from one product to the next."""

_DTYPES = (torch.float32, torch.float64)

Gradients: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None, None, None]


def is_short(
    heads: int,
    num_queries: int,
    num_keys: int,
    value_width: int,
    dtype: torch.dtype,
    device: torch.device,
) -> bool:
    """Return whether :func:`short_attention` is what computes a call fastest.

    ``heads`` counts those of the whole batch.
    """
    if torch.compiler.is_compiling() or device.type != "cpu" or dtype not in _DTYPES:
        return False
    return (
        max(num_queries, num_keys) <= MAX_STEPS
        and value_width <= MAX_WIDTH
        and heads * num_queries * num_keys >= MIN_SCORES
        and num_keys > 1
    )


def short_attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, *, scale: float
) -> Tensor:
    """Attend where ``visible``, (B or 1, H or 1, T or 1, S), allows: a key at least in each row.

    There are at least two keys, and ``q``, ``k`` and ``v`` have the same heads.
    """
    out: Tensor = _ShortAttention.apply(q, k, v, visible, scale)[0]  # type: ignore[no-untyped-call]
    return out


class _ShortAttention(torch.autograd.Function):
    """Softmax attention (B, H, T, R) -> (B, H, T, V) whose weights are not kept.

    Scores are laid out with the keys first, (B * H, S, T), and count powers of 2: reductions over
    keys and ``exp2`` are several times faster than those over the last axis and ``exp``.
    """

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, scale: float
    ) -> tuple[Tensor, Tensor]:
        out = _steps_outside(v, q.shape[2])
        log_sums = q.new_empty(*q.shape[:2], 1, q.shape[2])
        for part in _parts(q, k):
            q_part, k_part, v_part = (x[part].flatten(0, 1) for x in (q, k, v))
            scores = _products(k_part, q_part.mT, scale / math.log(2))
            _hide(scores, visible, part, q)
            largest = _largest(scores)
            sizes = scores.sub_(largest).exp2_()
            total = sizes.sum(1, keepdim=True)
            mixed = torch.bmm(v_part.mT, sizes).div_(total)
            out[part].copy_(mixed.mT.view(out[part].shape))
            log_sums[part].copy_(total.log2_().add_(largest).view(log_sums[part].shape))
        return out, log_sums

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        q, k, v, visible, scale = inputs
        ctx.save_for_backward(q, k, v, visible, *output)
        ctx.mark_non_differentiable(output[1])
        ctx.scale = scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Gradients:
        q, k, v, visible, out, log_sums = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable_gradients(ctx, grad, q, k, v, visible)
        # The gradient of a softmax is taken from this mean over the weights of a query.
        mean = (grad * out).sum(-1).unsqueeze(2)
        grads = [_steps_outside(x, x.shape[2]) for x in (q, k, v)]
        for part in _parts(q, k):
            q_part, k_part, v_part, grad_part = (x[part].flatten(0, 1) for x in (q, k, v, grad))
            scores = _products(k_part, q_part.mT, ctx.scale / math.log(2))
            _hide(scores, visible, part, q)
            weights = scores.sub_(log_sums[part].flatten(0, 1)).exp2_()
            slopes = torch.bmm(v_part, grad_part.mT).sub_(mean[part].flatten(0, 1)).mul_(weights)
            grad_q = _products(k_part.mT, slopes, ctx.scale)
            grad_k = _products(q_part.mT, slopes.mT, ctx.scale)
            grad_v = torch.bmm(grad_part.mT, weights.mT)
            for kept, found in zip(grads, (grad_q, grad_k, grad_v), strict=True):
                kept[part].copy_(found.mT.view(kept[part].shape))
        return grads[0], grads[1], grads[2], None, None


def _differentiable_gradients(
    ctx: Any, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None
) -> Gradients:
    """Return gradients that have gradients themselves, made the plain way."""
    scores = ctx.scale * q @ k.mT
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    out = scores.softmax(-1) @ v
    asked = [x for x, needed in zip((q, k, v), ctx.needs_input_grad, strict=False) if needed]
    found = iter(torch.autograd.grad(out, asked, grad, create_graph=True))
    grads = [next(found) if needed else None for needed in ctx.needs_input_grad[:3]]
    return grads[0], grads[1], grads[2], None, None


def _products(x: Tensor, y: Tensor, factor: float) -> Tensor:
    """Multiply pairs of matrices with each other and with a factor."""
    return torch.baddbmm(x.new_empty(1, 1, 1), x, y, beta=0, alpha=factor)


def _hide(scores: Tensor, visible: Tensor | None, part: slice, q: Tensor) -> None:
    """Set the scores of a part, (B * H, S, T), to minus infinity where nothing is to be seen."""
    if visible is not None:
        seen = visible if len(visible) == 1 else visible[part]
        by_head = scores.view(-1, q.shape[1], *scores.shape[1:])
        by_head.masked_fill_(~seen.mT, float("-inf"))


def _largest(scores: Tensor) -> Tensor:
    """Return the largest score of each query, (B * H, 1, T): ``amax`` is many times slower."""
    while (count := scores.shape[1]) > 1:
        half = (count + 1) // 2
        scores = torch.maximum(scores[:, :half], scores[:, count - half :])
    return scores


def _parts(q: Tensor, k: Tensor) -> Iterator[slice]:
    """Cut the batch into parts."""
    batch, num_heads, num_queries, _ = q.shape
    size = max(1, PART // (num_heads * num_queries * k.shape[2]))
    return (slice(first, first + size) for first in range(0, batch, size))


def _steps_outside(x: Tensor, steps: int) -> Tensor:
    """Return a new tensor like ``x`` of so many steps, laid out as (B, T, H, R)."""
    batch, num_heads, _, width = x.shape
    return x.new_empty(batch, steps, num_heads, width).transpose(1, 2)
