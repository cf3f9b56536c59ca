"""Standard attention: every pair is scored by one dot product."""

from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast.ops._layout import step_distances
from mlrforecast.ops.attention._fused import fused_attention
from mlrforecast.ops.attention._inputs import (
    check_dropout,
    check_key_mask,
    check_qkv,
    follow_autocast,
)
from mlrforecast.ops.scores.dot import softmax_scale

__all__ = ["standard_attention"]


def standard_attention(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    v: Float[Tensor, "B G S V"],
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H T V"]:
    """Attend as usual: softmax of scaled dot products over all keys.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries.
    k : Tensor of shape (B, G, S, R)
        Keys. ``G`` divides ``H``; query head ``h`` reads key head ``h // (H // G)``.
    v : Tensor of shape (B, G, S, V)
        Values.
    causal : bool, default False
        Whether a query attends only to its own and earlier steps. The queries are the last ``T``
        of the ``S`` steps, so ``T`` must not exceed ``S``; without it the keys may be those of
        another sequence of any length.
    key_mask : bool Tensor of shape (B, S), optional
        True where a key may be attended, False at padding.
    scale : float, optional
        Factor of the dot products, ``1 / sqrt(R)`` by default.
    dropout_p : float in [0, 1), default 0
        Share of the weights that is dropped.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``. Rows that may attend no key are 0, with gradient 0.

    Raises
    ------
    ValueError
        If the shapes do not fit or an option is out of range.
    TypeError
        If an argument is of the wrong type, or the dtypes differ or are not floating-point.

    Examples
    --------
    >>> import torch
    >>> q = k = torch.zeros(1, 1, 2, 4)
    >>> v = torch.tensor([[[[0.0], [2.0]]]])
    >>> standard_attention(q, k, v, causal=True).flatten()
    tensor([0., 1.])
    >>> standard_attention(q[:, :, 1:], k, v, causal=True).flatten()
    tensor([1.])
    """
    q, k, v = follow_autocast(q, k, v)
    check_qkv(q, k, v, causal=causal)
    check_key_mask(key_mask, k)
    num_queries, num_keys = q.shape[2], k.shape[2]
    if num_queries == 1:
        # The newest step sees every key.
        causal = False
    visible = None if key_mask is None else key_mask[:, None, None, :]
    if causal and (visible is not None or num_queries != num_keys):
        past = step_distances(num_queries, num_keys, q.device) >= 0
        visible = past[None, None] if visible is None else visible & past
    return fused_attention(
        q,
        k,
        v,
        visible,
        causal=causal,
        scale=softmax_scale(scale, q.shape[-1]),
        dropout_p=check_dropout(dropout_p),
    )
