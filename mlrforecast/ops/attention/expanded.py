"""Multi-level attention as one ordinary attention call over a wider head.

Each level gets one slot of columns per block, and a position's slice stands in the slot of its
block, with zeros elsewhere. The dot product of two such rows is then the sum of the dot products
of the levels that both positions share.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast.ops.attention._case import AttentionCase
from mlrforecast.ops.attention._fused import fused_attention
from mlrforecast.ops.levels import block_ids

__all__ = ["MAX_WIDTH", "expanded_attention", "expanded_width", "refusal"]

MAX_WIDTH = 256
"""Widest head that the fused attention kernels of PyTorch serve."""


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
    if case.divide_by_shared_levels and not case.nested:
        return (
            "division by the number of shared levels needs nested blocks (each size a divisor of "
            f"the one before), got block_sizes={case.block_sizes}"
        )
    width = expanded_width(case)
    if width > MAX_WIDTH:
        return f"one slot per block makes {width} columns, more than {MAX_WIDTH}"
    return None


def expanded_width(case: AttentionCase) -> int:
    """Return the number of columns that the slots of all levels take.

    Parameters
    ----------
    case : AttentionCase
        The checked call.

    Returns
    -------
    int
    """
    total = 0
    for lvl, size in enumerate(case.block_sizes):
        first, last = (0, 0) if size is None else _block_range(case, size)
        columns = sum(case.ranks[: lvl + 1]) if case.divide_by_shared_levels else case.ranks[lvl]
        total += (last - first + 1) * columns
    return total


def expanded_attention(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B H T R"],
    v: Float[Tensor, "B H T V"],
    case: AttentionCase,
    key_mask: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B H T V"]:
    """Attend through one call of ``scaled_dot_product_attention``.

    Parameters
    ----------
    q, k : Tensor of shape (B, H, T, R)
        Queries and keys.
    v : Tensor of shape (B, H, T, V)
        Values.
    case : AttentionCase
        The checked call.
    key_mask : bool Tensor of shape (B, T), optional
        True where a key may be attended.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``; 0 in rows that may attend no key.
    """
    q_wide, k_wide = _spread(q, k, case)
    needs_mask = case.masked_keys or case.masks_unshared
    return fused_attention(
        q_wide,
        k_wide,
        v,
        case.visible(key_mask) if needs_mask else None,
        causal=case.causal,
        scale=max(case.scales),
        dropout_p=case.dropout_p,
    )


def _spread(q: Tensor, k: Tensor, case: AttentionCase) -> tuple[Tensor, Tensor]:
    """Put each level's columns into the slots of their blocks, with the factors on ``q``."""
    ids = block_ids(case.length, case.block_sizes, offset=case.offset, device=case.device)
    ends = [sum(case.ranks[: lvl + 1]) for lvl in range(len(case.ranks))]
    q_slots, k_slots = [], []
    for lvl, (end, block) in enumerate(zip(ends, ids, strict=True)):
        begin = 0 if case.divide_by_shared_levels else end - case.ranks[lvl]
        factors = torch.tensor(
            _factors(case, lvl),
            device=case.device,
            dtype=torch.promote_types(case.dtype, torch.float32),
        )
        size = case.block_sizes[lvl]
        first, last = (0, 0) if size is None else _block_range(case, size)
        slots = torch.arange(first, last + 1, device=case.device)
        mine = (block[:, None] == slots).to(case.dtype)[:, :, None]
        scaled = (q[..., begin:end] * factors).to(case.dtype)
        q_slots.append((scaled[..., None, :] * mine).flatten(-2))
        k_slots.append((k[..., begin:end][..., None, :] * mine).flatten(-2))
    return torch.cat(q_slots, -1), torch.cat(k_slots, -1)


def _block_range(case: AttentionCase, size: int) -> tuple[int, int]:
    """Return the numbers of the first and the last block that hold a position."""
    return case.offset // size, (case.offset + case.length - 1) // size


def _factors(case: AttentionCase, lvl: int) -> list[float]:
    """Return the factor of each column in a level's slot, relative to the largest scale.

    Relative to it no factor is above 1, and half-precision queries cannot overflow.
    """
    relative = [scale / max(case.scales) for scale in case.scales]
    if not case.divide_by_shared_levels:
        return [relative[lvl]] * case.ranks[lvl]
    # What level lvl adds when the mean over lvl levels becomes the mean over lvl + 1.
    earlier = 1 / (lvl + 1) - 1 / lvl if lvl else 0.0
    coefficients = [relative[j] * earlier for j in range(lvl)] + [relative[lvl] / (lvl + 1)]
    return [
        coefficient
        for coefficient, rank in zip(coefficients, case.ranks[: lvl + 1], strict=True)
        for _ in range(rank)
    ]
