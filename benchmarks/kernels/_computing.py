"""What computes a case, and the attention of PyTorch that it is measured against."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.kernels._cases import Case, sizes_of
from mlrforecast.ops import mlr_attention, mlr_step_attention

__all__ = ["attention", "baselines", "inputs", "published_attention"]

Attend = Callable[..., Tensor]


def inputs(case: Case, batch: int | None = None, heads: int | None = None) -> list[Tensor]:
    """Draw queries, keys and values; for decoding the keys of each level are a list."""
    batch, heads = batch or case.batch, heads or case.heads
    options = {"device": case.device, "dtype": getattr(torch, case.dtype)}
    shape = (batch, heads, case.length, case.head_dim)
    if case.passes == ("decode",):
        return [
            torch.randn(batch, heads, 1, case.head_dim, **options),
            *_caches(case, batch, heads),
        ]
    return [torch.randn(shape, **options).requires_grad_() for _ in range(3)]


def _caches(case: Case, batch: int, heads: int) -> list[Tensor]:
    """Draw the values, and the keys that each level still needs at the last step of a block."""
    options = {"device": case.device, "dtype": getattr(torch, case.dtype)}
    steps = [size or case.length for size in sizes_of(case.length, len(case.ranks))]
    keys = [
        torch.randn(batch, heads, count, rank, **options)
        for count, rank in zip(steps, case.ranks, strict=True)
    ]
    return [torch.randn(batch, heads, case.length, case.head_dim, **options), *keys]


def attention(case: Case, backend: str) -> Attend:
    """Return what computes a case, of queries, keys and values."""
    if backend == "published":
        return lambda q, k, v: published_attention(q, k, v, case.ranks, case.causal)
    if case.passes == ("decode",):

        def step(q: Tensor, v: Tensor, *keys: Tensor) -> Tensor:
            return mlr_step_attention(
                q,
                keys,
                v,
                length=case.length,
                block_sizes=sizes_of(case.length, len(case.ranks)),
                level_scale="inverse_sqrt_width",
                backend=backend,
            )

        return step
    options: dict[str, Any] = {
        "ranks": case.ranks,
        "causal": case.causal,
        "level_scale": "inverse_sqrt_width",
        "backend": backend,
    }
    return lambda q, k, v: mlr_attention(q, k, v, **options)


def baselines(case: Case) -> dict[str, Attend]:
    """Return PyTorch's own kernels of standard attention; a step meets keys of all columns."""
    kernels = {"flash": SDPBackend.FLASH_ATTENTION}
    if case.device == "cuda":
        kernels["cudnn"] = SDPBackend.CUDNN_ATTENTION
    if case.dtype == "float32" and case.device == "cuda":
        kernels = {"efficient": SDPBackend.EFFICIENT_ATTENTION}
    causal = case.causal and case.passes != ("decode",)

    def through(kernel: SDPBackend) -> Attend:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with sdpa_kernel(kernel):
                return scaled_dot_product_attention(q, k, v, is_causal=causal)

        return attend

    return {name: through(kernel) for name, kernel in kernels.items()}


def published_attention(
    q: Tensor, k: Tensor, v: Tensor, ranks: tuple[int, ...], causal: bool
) -> Tensor:
    """Attend in the way of the published code: a buffer of T x T scores for each level."""
    length = q.shape[2]
    total = q.new_zeros(*q.shape[:2], length, length)
    begin = 0
    for size, rank in zip(sizes_of(length, len(ranks)), ranks, strict=True):
        scores = q.new_zeros(total.shape)
        q_level, k_level = (x[..., begin : begin + rank] for x in (q, k))
        for first in range(0, length, size or length):
            block = slice(first, first + (size or length))
            scores[:, :, block, block] = q_level[:, :, block] @ k_level[:, :, block].mT
        total = total + scores / math.sqrt(q.shape[-1])
        begin += rank
    if causal:
        future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        total = total.masked_fill(future, -math.inf)
    return total.softmax(-1) @ v
