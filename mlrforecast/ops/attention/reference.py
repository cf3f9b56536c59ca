"""Attention written out with the full score matrix: slow, general, and the oracle of the rest."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast.ops._layout import expand_heads
from mlrforecast.ops.attention._case import AttentionCase
from mlrforecast.ops.scores.mlr import scores_of_pairs

__all__ = ["reference_attention", "refusal"]


def refusal(case: AttentionCase) -> str | None:
    """Return why a case cannot be served: never, the reference serves every case.

    Parameters
    ----------
    case : AttentionCase
        The checked call.

    Returns
    -------
    None
    """
    del case
    return None


def reference_attention(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    v: Float[Tensor, "B G S V"],
    case: AttentionCase,
    key_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H T V"]:
    """Attend through the dense score matrix, in float32 at least.

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
    work = torch.promote_types(q.dtype, torch.float32)
    scores = scores_of_pairs(
        q.to(work),
        k.to(work),
        case.pairs,
        case.scales,
        divide_by_shared_levels=case.divide_by_shared_levels,
    )
    visible = case.visible(key_mask)
    if case.link == "softmax":
        if visible is not None:
            # A row without any visible key would be 0/0, so it is normalised over all keys first.
            normalised_over = visible | ~visible.any(-1, keepdim=True)
            scores = scores.masked_fill(~normalised_over, float("-inf"))
        scores = scores.softmax(-1)
    weights = scores if visible is None else scores.masked_fill(~visible, 0.0)
    if case.dropout_p > 0:
        weights = torch.nn.functional.dropout(weights, case.dropout_p)
    return (weights @ expand_heads(v.to(work), case.num_heads)).to(v.dtype)
