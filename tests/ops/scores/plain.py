"""Attention written out with plain PyTorch: what the errors of the ops are measured by."""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention


def softmax_of(scores: Tensor, v: Tensor, visible: Tensor | None = None) -> Tensor:
    """Attend causally with plain operations."""
    v = v.repeat_interleave(scores.shape[1] // v.shape[1], 1)
    causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    hidden = ~(causal if visible is None else causal & visible)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float, visible: Tensor | None = None) -> Tensor:
    """Attend causally with PyTorch's own attention: its fused kernels want one width for all."""
    value_width, width = v.shape[-1], max(q.shape[-1], v.shape[-1])
    q, k, v = (pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    causal = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    mask = causal if visible is None else causal & visible
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return out[..., :value_width]
