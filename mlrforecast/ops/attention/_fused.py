"""PyTorch's fused attention, made the same on every device at its edges."""

from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

__all__ = ["fused_attention"]


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
    """Attend where ``visible`` (or, without it, causality) allows; a row that sees nothing is 0."""
    value_width = v.shape[-1]
    # The CPU kernel wants one width for all three; without it PyTorch builds the T x T matrix.
    if q.device.type == "cpu" and q.shape[-1] != value_width:
        width = max(q.shape[-1], value_width)
        q, k, v = (pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    if visible is None:
        out = scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale, dropout_p=dropout_p
        )
        return out[..., :value_width]
    # Kernels differ in what they do with a row that has no key: let it see all, then zero it.
    non_empty = visible.any(-1, keepdim=True)
    out = scaled_dot_product_attention(
        q, k, v, attn_mask=visible | ~non_empty, scale=scale, dropout_p=dropout_p
    )
    return out[..., :value_width].masked_fill(~non_empty, 0.0)
