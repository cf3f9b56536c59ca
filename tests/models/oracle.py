"""Whole models written from the formulas, one head, row and pair at a time.

They share no code with the library, so that an error in a helper cannot hide in both. Weights come
under the names of the library's state dicts.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Weights = dict[str, Tensor]
Attend = Callable[[Tensor, Weights], Tensor]
"""What mixes the normalised tokens (T, D) of one sequence, before the output map, by weights."""


def normalised(x: Tensor, weights: Weights, name: str) -> Tensor:
    """LayerNorm over the last axis."""
    centred = x - x.mean(-1, keepdim=True)
    spread = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    out = centred / spread * weights[f"{name}.weight"]
    return out + weights.get(f"{name}.bias", 0)


def mapped(x: Tensor, weights: Weights, name: str) -> Tensor:
    return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0)


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def softmax_rows(score: Callable[[int, int], Tensor], v: Tensor) -> Tensor:
    """Attend causally with the score of each pair."""
    rows = []
    for i in range(len(v)):
        e = torch.stack([score(i, j) for j in range(i + 1)]).exp()
        rows.append((e[:, None] * v[: i + 1]).sum(0) / e.sum())
    return torch.stack(rows)


def mlr_attend(num_heads: int, ranks: Sequence[int], block_sizes: Sequence[int]) -> Attend:
    """MLR attention as published: 1 / r_l, and division by the number of shared levels."""

    def attend(x: Tensor, w: Weights) -> Tensor:
        width = x.shape[1] // num_heads
        heads = []
        for h in range(num_heads):
            own = slice(h * width, (h + 1) * width)
            q = mapped(x, w, "score.query")[:, own]
            k = mapped(x, w, "score.key")[:, own]
            if "score.query_norm.weight" in w:
                q = normalised(q, w, "score.query_norm")
                k = normalised(k, w, "score.key_norm")
            v = mapped(x, w, "value")[:, own]

            def score(i: int, j: int, q: Tensor = q, k: Tensor = k) -> Tensor:
                total, count, start = q.new_zeros(()), 0, 0
                for rank, size in zip(ranks, block_sizes, strict=True):
                    if i // size == j // size:
                        columns = slice(start, start + rank)
                        total = total + (q[i, columns] * k[j, columns]).sum() / rank
                        count += 1
                    start += rank
                return total / count

            heads.append(softmax_rows(score, v))
        return torch.cat(heads, 1)

    return attend


def clamped(weight: Tensor, d_in: int, d_out: int) -> Tensor:
    rms = (weight.square().mean() + 1e-8).sqrt()
    limit = math.sqrt(min(d_in, d_out)) / d_in
    return weight / max(rms / limit, torch.ones_like(rms))


def btt_attend(num_heads: int, rank: int) -> Attend:
    """Bilinear block tensor train: each head's matrix is written out entry by entry."""

    def attend(x: Tensor, w: Weights) -> Tensor:
        width = x.shape[1]
        right, left = w["score.weights.right"], w["score.weights.left"]
        _, c, d, columns = right.shape
        a, b = left.shape[2], left.shape[1]
        right = clamped(right, d, num_heads * columns)
        left = clamped(left, c * rank, a)
        heads = []
        for h in range(num_heads):
            matrix = [[x.new_zeros(()) for _ in range(width)] for _ in range(width)]
            for alpha in range(a):
                for beta in range(b):
                    for gamma in range(c):
                        for delta in range(d):
                            matrix[alpha * b + beta][gamma * d + delta] = sum(
                                left[h, beta, alpha, gamma * rank + s]
                                * right[h, gamma, delta, beta * rank + s]
                                for s in range(rank)
                            )
            dense = torch.stack([torch.stack(row) for row in matrix])
            z = normalised(x @ dense.T, w, "score.key_norm")
            own = slice(h * width // num_heads, (h + 1) * width // num_heads)

            def score(i: int, j: int, z: Tensor = z) -> Tensor:
                return (x[i] * z[j]).sum() / math.sqrt(width)

            heads.append(softmax_rows(score, mapped(x, w, "value")[:, own]))
        return torch.cat(heads, 1)

    return attend


def encoded(x: Tensor, weights: Weights, attend: Attend) -> Tensor:
    """Run the pre-norm blocks and the final norm over one sequence, (T, D)."""
    block = 0
    while f"encoder.blocks.{block}.attention_norm.weight" in weights:
        prefix = f"encoder.blocks.{block}."
        own = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
        inner = {
            k.removeprefix("attention."): v for k, v in own.items() if k.startswith("attention.")
        }
        x = x + mapped(attend(normalised(x, own, "attention_norm"), inner), inner, "output")
        hidden = gelu(mapped(normalised(x, own, "network_norm"), own, "network.0"))
        x = x + mapped(hidden, own, "network.3")
        block += 1
    return normalised(x, weights, "encoder.norm")


def language_model(tokens: Tensor, weights: Weights, attend: Attend) -> Tensor:
    """Return the logits, (B, T, vocabulary)."""
    rows = []
    for sequence in tokens:
        x = weights["embedding.weight"][sequence]
        if "positions.weight" in weights:
            x = x + weights["positions.weight"][: len(sequence)]
        rows.append(mapped(encoded(x, weights, attend), weights, "head"))
    return torch.stack(rows)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of minus the log-probability of each target."""
    total = logits.new_zeros(())
    for row, target in zip(logits.flatten(0, 1), targets.flatten(), strict=True):
        total = total - row[target] + row.exp().sum().log()
    return total / targets.numel()


def regression(xs: Tensor, ys: Tensor, weights: Weights, attend: Attend) -> Tensor:
    """Return the prediction of every value, (B, N)."""
    rows = []
    for points, values in zip(xs, ys, strict=True):
        tokens = []
        for point, value in zip(points, values, strict=True):
            tokens.append(point)
            tokens.append(torch.cat([value[None], point.new_zeros(len(point) - 1)]))
        x = mapped(torch.stack(tokens), weights, "read_in")
        if "positions.weight" in weights:
            x = x + weights["positions.weight"][: len(x)]
        out = encoded(x, weights, attend)
        rows.append(torch.cat([mapped(out[2 * k], weights, "read_out") for k in range(len(ys[0]))]))
    return torch.stack(rows)
