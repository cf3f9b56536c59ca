"""PyTorch's fused attention, made the same on every device at its edges."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.backends.cuda import flash_sdp_enabled
from torch.nn.functional import pad, scaled_dot_product_attention

from mlrforecast.ops._layout import expand_heads, step_distances
from mlrforecast.ops.attention import _short

__all__ = ["fused_attention"]

_TABLE_STEPS = 256
"""Longest sequence whose scores are kept on a GPU, in single precision and compiled."""

_TABLE_SCORES = 2**26
"""Most scores that are kept, a quarter of a gibibyte."""


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Tensor | None,
    *,
    causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """Attend where ``visible`` (or, without it, causality) allows; a row that sees nothing is 0.

    ``causal`` without ``visible`` is for as many queries as keys.
    """
    num_heads, num_queries = q.shape[1:3]
    if k.shape[1] != num_heads:
        if not causal and (visible is None or visible.shape[-2] == 1):
            # All queries see the same keys, so those of a group stand in one row, and no key is
            # copied: what a decoding step wants.
            q = q.reshape(q.shape[0], k.shape[1], -1, q.shape[-1])
        else:
            k, v = expand_heads(k, num_heads), expand_heads(v, num_heads)
    fused = torch.compiler.is_compiling() or flash_sdp_enabled()
    sizes = q.shape[0] * num_heads, num_queries, k.shape[2], v.shape[-1]
    same_heads = q.shape[1] == k.shape[1] == num_heads
    attend = None
    if dropout_p == 0 and same_heads:
        if fused and _short.is_short(*sizes, v.dtype, v.device):
            attend = _short.short_attention
        elif _is_table_fast(sizes, v):
            attend = _table_attention
    if attend is not None:
        out = _attend_with(attend, q, k, v, visible, causal=causal, scale=scale)
        return out.reshape(out.shape[0], num_heads, num_queries, -1)
    value_width = v.shape[-1]
    # A caller who has switched the kernel off, as one who counts FLOPs has, gets no idle columns.
    if fused:
        q, k, v = _padded(q, k, v)
    if visible is None:
        out = scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale, dropout_p=dropout_p
        )
    else:
        # Kernels differ in what they do with a row that has no key: let it see all, then zero it.
        non_empty = visible.any(-1, keepdim=True)
        out = scaled_dot_product_attention(
            q, k, v, attn_mask=visible | ~non_empty, scale=scale, dropout_p=dropout_p
        ).masked_fill(~non_empty, 0.0)
    return out[..., :value_width].reshape(out.shape[0], num_heads, num_queries, value_width)


def _is_table_fast(sizes: tuple[int, int, int, int], v: Tensor) -> bool:
    """Tell whether a compiled table of scores takes less time than PyTorch's kernels.

    For single precision a GPU has one kernel, of an earlier generation, which took longer in the
    steps of regressors. ``sizes`` are heads of the batch, queries, keys and columns.
    """
    heads, num_queries, num_keys, _ = sizes
    return (
        torch.compiler.is_compiling()
        and v.device.type == "cuda"
        and v.dtype == torch.float32
        and max(num_queries, num_keys) <= _TABLE_STEPS
        and heads * num_queries * num_keys <= _TABLE_SCORES
    )


def _table_attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, *, scale: float
) -> Tensor:
    """Attend with all scores in memory, where ``visible`` allows: a key at least in each row."""
    scores = (q @ k.mT) * scale
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    return scores.softmax(-1) @ v


def _padded(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Add idle columns where PyTorch would build the T x T matrix without them.

    Its CPU kernel wants one width for all three. That for GPUs which takes any float wants rows
    that end on 16 bytes.
    """
    widths = [q.shape[-1], k.shape[-1], v.shape[-1]]
    if q.device.type == "cuda" and q.element_size() <= 4:
        step = 16 // q.element_size()
        widths = [-(-width // step) * step for width in widths]
    elif q.device.type == "cpu":
        widths = [max(widths)] * 3
    q, k, v = (
        x if width == x.shape[-1] else pad(x, (0, width - x.shape[-1]))
        for x, width in zip((q, k, v), widths, strict=True)
    )
    return q, k, v


def _attend_with(
    attend: Callable[..., Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Tensor | None,
    *,
    causal: bool,
    scale: float,
) -> Tensor:
    """Attend by a function that wants a key in each row, with the same meaning."""
    if visible is None:
        past = step_distances(q.shape[2], k.shape[2], q.device)[None, None] >= 0
        return attend(q, k, v, past if causal else None, scale=scale)
    non_empty = visible.any(-1, keepdim=True)
    out = attend(q, k, v, visible | ~non_empty, scale=scale)
    return out.masked_fill(~non_empty, 0.0)
