"""Every score written from its formula with plain loops, in float64.

It shares no code with the library, so that an error in a helper cannot hide in both.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

RowScores = Callable[[int, int], Tensor]
"""``score(head, query)`` gives the scores against all keys, (B, S)."""
Allowed = Callable[[int, int], bool]
"""``allowed(i, j)`` says whether the query at position ``i`` may see the key at ``j``."""


def attend(
    score: RowScores,
    v: Tensor,
    sizes: tuple[int, int],
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    allowed: Allowed = lambda i, j: True,
) -> Tensor:
    """Return (B, H, T, V) for ``sizes`` = (H, T): softmax over the allowed keys, row by row."""
    num_heads, num_queries = sizes
    batch, num_values, num_keys, width = v.shape
    rows = []
    for head in range(num_heads):
        for t in range(num_queries):
            i = num_keys - num_queries + t
            exponents = score(head, t).exp()
            for item in range(batch):
                keys = [
                    j
                    for j in range(num_keys)
                    if (not causal or j <= i)
                    and allowed(i, j)
                    and (key_mask is None or bool(key_mask[item, j]))
                ]
                row = v.new_zeros(width)
                if keys:
                    weights = exponents[item, keys] / exponents[item, keys].sum()
                    row = weights @ v[item, head * num_values // num_heads, keys]
                rows.append(row)
    return torch.stack(rows).reshape(num_heads, num_queries, batch, width).permute(2, 0, 1, 3)


def dot_rows(q: Tensor, k: Tensor, scale: float) -> RowScores:
    """Score by dot products; query head h reads key head h // (H / G)."""
    per_group = q.shape[1] // k.shape[1]
    return lambda head, t: (k[:, head // per_group] * q[:, head, t, None]).sum(-1) * scale


def mlr_rows(
    q: Tensor, k: Tensor, ranks: Sequence[int], sizes: Sequence[int], near: Allowed
) -> RowScores:
    """Score by 1 / rank times the dot product of each level whose block the pair shares.

    ``near`` says which pairs the coarsest level counts for.
    """
    per_group, shift = q.shape[1] // k.shape[1], k.shape[2] - q.shape[2]

    def score(head: int, t: int) -> Tensor:
        entries = []
        for j in range(k.shape[2]):
            total, start = q.new_zeros(q.shape[0]), 0
            for lvl, (rank, size) in enumerate(zip(ranks, sizes, strict=True)):
                columns = slice(start, start + rank)
                same = (t + shift) // size == j // size and (lvl > 0 or near(t + shift, j))
                if same:
                    pair = q[:, head, t, columns] * k[:, head // per_group, j, columns]
                    total = total + pair.sum(-1) / rank
                start += rank
            entries.append(total)
        return torch.stack(entries, -1)

    return score


def layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Normalise the last axis by its biased variance."""
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred**2).sum(-1, keepdim=True) / x.shape[-1]
    return centred / (variance + 1e-5).sqrt() * weight


def bilinear_rows(
    x: Tensor, context: Tensor, heads: Sequence[Tensor], norm: Tensor | None, scale: float
) -> RowScores:
    """Score by x_i . norm(M_h context_j) with the dense matrix of each head."""
    keys = []
    for matrix in heads:
        rows = []
        for j in range(context.shape[1]):
            z = torch.stack([(matrix[row] * context[:, j]).sum(-1) for row in range(len(matrix))])
            rows.append(z.T if norm is None else layer_norm(z.T, norm))
        keys.append(torch.stack(rows, 1))
    return lambda head, t: (keys[head] * x[:, t, None]).sum(-1) * scale


def btt_matrices(q_weight: Tensor, k_weight: Tensor, num_heads: int) -> list[Tensor]:
    """Write out the matrix of each head, entry by entry."""
    b, a, c = q_weight.shape[0] // num_heads, q_weight.shape[1], k_weight.shape[0]
    d, rank = k_weight.shape[1], q_weight.shape[2] // c
    per_group = num_heads * b * rank // k_weight.shape[2]
    heads = []
    for head in range(num_heads):
        entries = [
            sum(
                q_weight[head * b + beta, alpha, gamma * rank + sigma]
                * k_weight[gamma, delta, (head // per_group * b + beta) * rank + sigma]
                for sigma in range(rank)
            )
            for alpha in range(a)
            for beta in range(b)
            for gamma in range(c)
            for delta in range(d)
        ]
        heads.append(torch.stack(entries).reshape(a * b, c * d))
    return heads


def mlr_features(x: Tensor, weight: Tensor, num_heads: int, norm: Tensor | None) -> list[Tensor]:
    """Project each block of columns: one (B, T, r p) a head, column rank * p + block."""
    blocks, columns = weight.shape[:2]
    rank = weight.shape[2] // num_heads
    heads = []
    for head in range(num_heads):
        features = []
        for r in range(rank):
            for block in range(blocks):
                part = x[..., block * columns : (block + 1) * columns]
                features.append((part * weight[block, :, head * rank + r]).sum(-1))
        stacked = torch.stack(features, -1)
        heads.append(stacked if norm is None else layer_norm(stacked, norm))
    return heads


def bilinear_mlr_rows(
    x: Tensor,
    context: Tensor,
    weights: tuple[Sequence[Tensor], Sequence[Tensor]],
    norms: tuple[Sequence[Tensor], Sequence[Tensor]] | None,
    num_heads: int,
    *,
    mup: bool = False,
    divide: bool = False,
) -> RowScores:
    """Add up the levels' dot products, each divided by the root of its columns (or 8 / columns)."""
    levels = []
    for lvl, (wq, wk) in enumerate(zip(*weights, strict=True)):
        num_kv_heads = num_heads * wk.shape[2] // wq.shape[2]
        q = mlr_features(x, wq, num_heads, norms and norms[0][lvl])
        k = mlr_features(context, wk, num_kv_heads, norms and norms[1][lvl])
        columns = q[0].shape[-1]
        factor = 8 / columns if mup else 1 / math.sqrt(columns)
        levels.append((q, k, factor / (len(weights[0]) if divide else 1)))

    def score(head: int, t: int) -> Tensor:
        return sum(
            (k[head * len(k) // num_heads] * q[head][:, t, None]).sum(-1) * factor
            for q, k, factor in levels
        )

    return score
