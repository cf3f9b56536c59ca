"""Multi-level attention written from the formula, one row and one level at a time.

It shares no code with the library, so that an error in a helper cannot hide in both.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def loop_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    block_sizes: Sequence[int | None],
    offset: int = 0,
    causal: bool = False,
    key_mask: Tensor | None = None,
    level_scale: str | Sequence[float] = "inverse_rank",
    divide_by_shared_levels: bool = False,
    divide_by_num_levels: bool = False,
    unshared: str = "mask",
    link: str = "softmax",
) -> Tensor:
    """Return the output, (B, H, T, V)."""
    batch, heads, length, width = q.shape
    rules = {
        "inverse_rank": [1 / r for r in ranks],
        "inverse_sqrt_rank": [r**-0.5 for r in ranks],
        "inverse_sqrt_width": [width**-0.5 for _ in ranks],
    }
    scales = rules[level_scale] if isinstance(level_scale, str) else level_scale
    rows = []
    for i in range(length):
        score = q.new_zeros(batch, heads, length)
        shared = torch.zeros(length)
        start = 0
        for rank, size, scale in zip(ranks, block_sizes, scales, strict=True):
            size = math.inf if size is None else size
            members = [j for j in range(length) if (i + offset) // size == (j + offset) // size]
            here = q[:, :, i, start : start + rank, None]
            there = k[:, :, members, start : start + rank]
            score = score.index_add(2, torch.tensor(members), (there @ here)[..., 0] * scale)
            shared[members] += 1
            start += rank
        if divide_by_num_levels:
            score = score / len(ranks)
        if divide_by_shared_levels:
            score = score / torch.where(shared > 0, shared, 1).to(score.dtype)
        allowed = torch.ones(batch, length, dtype=torch.bool)
        if key_mask is not None:
            allowed &= key_mask
        if causal:
            allowed[:, i + 1 :] = False
        if unshared == "mask":
            allowed &= shared > 0
        rows.append(_row(score, v, allowed, link))
    return torch.stack(rows, 2)


def _row(score: Tensor, v: Tensor, allowed: Tensor, link: str) -> Tensor:
    """Weigh the values of one query, item by item of the batch."""
    outputs = []
    for item in range(score.shape[0]):
        keys = allowed[item].nonzero()[:, 0]
        chosen = score[item][:, keys]
        weights = chosen.softmax(-1) if link == "softmax" and len(keys) else chosen
        outputs.append((weights[:, None] @ v[item][:, keys])[:, 0])
    return torch.stack(outputs)
