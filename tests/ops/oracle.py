"""Multi-level attention written from the formula, one row and one level at a time.

It shares no code with the library, so that an error in a helper cannot hide in both.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Rows = list[list[float]]
"""The block of each step on each level."""


def loop_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    block_sizes: Sequence[int | None] | None = None,
    block_ids: Tensor | None = None,
    query_block_ids: Tensor | None = None,
    offset: int = 0,
    causal: bool = False,
    key_mask: Tensor | None = None,
    window: int | None = None,
    level_scale: str | Sequence[float] = "inverse_rank",
    divide_by_shared_levels: bool = False,
    divide_by_num_levels: bool = False,
    unshared: str = "mask",
    link: str = "softmax",
) -> Tensor:
    """Return the output, (B, H, T, V); the queries are the last T of the S steps."""
    batch, heads, num_queries, width = q.shape
    groups, num_keys = k.shape[1:3]
    rules = {
        "inverse_rank": [1 / r for r in ranks],
        "inverse_sqrt_rank": [r**-0.5 for r in ranks],
        "inverse_sqrt_width": [width**-0.5 for _ in ranks],
    }
    scales = rules[level_scale] if isinstance(level_scale, str) else level_scale
    if divide_by_num_levels:
        scales = [scale / len(ranks) for scale in scales]
    reads = [head * groups // heads for head in range(heads)]
    items = []
    for item in range(batch):
        keys = blocks(block_sizes, block_ids, num_keys, offset, item)
        if query_block_ids is None:
            queries = [row[num_keys - num_queries :] for row in keys]
        else:
            queries = blocks(None, query_block_ids, num_queries, 0, item)
        rows = []
        for t in range(num_queries):
            position = num_keys - num_queries + t
            met = []
            for lvl in range(len(ranks)):
                if lvl == 0 and window is not None:
                    met.append([j for j in range(num_keys) if abs(position - j) <= window])
                else:
                    met.append([j for j in range(num_keys) if keys[lvl][j] == queries[lvl][t]])
            count = [sum(j in members for members in met) for j in range(num_keys)]
            score = row_scores(q[item, :, t], k[item, reads], ranks, scales, met)
            if divide_by_shared_levels:
                score = score / torch.tensor([max(c, 1) for c in count])
            allowed = [
                j
                for j in range(num_keys)
                if (key_mask is None or bool(key_mask[item, j]))
                and (not causal or j <= position)
                and (unshared == "zero" or count[j] > 0)
            ]
            chosen = score[:, allowed]
            weights = chosen.softmax(-1) if link == "softmax" and allowed else chosen
            rows.append((weights[:, None] @ v[item, reads][:, allowed])[:, 0])
        items.append(torch.stack(rows, 1))
    return torch.stack(items)


def row_scores(
    q: Tensor,
    k: Tensor,
    ranks: Sequence[int],
    scales: Sequence[float],
    met: Sequence[Sequence[int]],
) -> Tensor:
    """Score one query, (H, R), against the keys that it meets on each level of (H, S, R)."""
    score = q.new_zeros(k.shape[:2])
    start = 0
    for rank, scale, members in zip(ranks, scales, met, strict=True):
        columns = slice(start, start + rank)
        products = (k[:, members, columns] @ q[:, columns, None])[..., 0]
        score = score.index_add(1, torch.tensor(members, dtype=torch.int64), products * scale)
        start += rank
    return score


def blocks(
    block_sizes: Sequence[int | None] | None,
    block_ids: Tensor | None,
    length: int,
    offset: int,
    item: int,
) -> Rows:
    """Return the block of each step on each level, for one sequence of the batch."""
    if block_ids is not None:
        return (block_ids[item] if block_ids.ndim == 3 else block_ids).tolist()
    sizes = [math.inf if size is None else size for size in block_sizes]
    return [[(i + offset) // size for i in range(length)] for size in sizes]
