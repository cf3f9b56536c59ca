"""Compute the small golden vectors beside this file by the dense scores, in float64.

They pin the functions down where the vectors of the published code are not at hand. Run it from the
root of the repository, and only when a definition itself changes::

    python -m tests.ops.scores.golden.make
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlrforecast.ops import (
    bilinear_attention,
    bilinear_btt_attention,
    bilinear_btt_scores,
    bilinear_mlr_attention,
    bilinear_mlr_scores,
    bilinear_scores,
    dot_scores,
    global_window_attention,
    global_window_scores,
    mlr_scores,
    mlr_window_attention,
    rms_clamp,
    sliding_window_attention,
    standard_attention,
    window_mask,
)
from mlrforecast.ops.matrices import LowRank

FILE = Path(__file__).with_name("scores_small.json")
LENGTH, QUERIES, WIDTH, HEADS, GROUPS = 7, 5, 6, 2, 1
SHAPES = {
    "q": (1, HEADS, QUERIES, 4),
    "k": (1, GROUPS, LENGTH, 4),
    "v": (1, GROUPS, LENGTH, 2),
    "x": (1, QUERIES, WIDTH),
    "context": (1, LENGTH, WIDTH),
    "left": (HEADS, WIDTH, 1),
    "right": (HEADS, WIDTH, 1),
    "btt_q": (HEADS * 3, 2, 2),
    "btt_k": (2, 3, GROUPS * 3),
    "norm": (WIDTH,),
    "wq0": (1, 6, HEADS * 2),
    "wk0": (1, 6, GROUPS * 2),
    "wq1": (3, 2, HEADS),
    "wk1": (3, 2, GROUPS),
    "norm0": (2,),
    "norm1": (3,),
}
KEY_MASK = torch.tensor([[False, True, False, True, True, True, True]])

Inputs = dict[str, Tensor]


def inputs() -> Inputs:
    """Return every tensor as multiples of 1/8, exact in every precision."""
    generator = torch.Generator().manual_seed(2509)
    draws = {
        name: torch.randint(-12, 13, shape, generator=generator) for name, shape in SHAPES.items()
    }
    return {name: (x / 8).double() for name, x in draws.items()}


def soften(scores: Tensor, v: Tensor, visible: Tensor | None = None) -> Tensor:
    """Attend causally to the unmasked keys, written out."""
    hidden = ~window_mask(QUERIES, LENGTH, window=LENGTH, causal=True)
    hidden = hidden | ~KEY_MASK[:, None, None, :]
    if visible is not None:
        hidden = hidden | ~visible
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return weights @ v.repeat_interleave(scores.shape[1] // v.shape[1], 1)


def clamped(tensors: Inputs) -> tuple[list[Tensor], list[Tensor]]:
    """Return the clamped weights of both levels, of queries and of keys."""
    weights = ([tensors[f"w{side}{lvl}"] for lvl in (0, 1)] for side in "qk")
    queries, keys = (
        [rms_clamp(w, fan_in=w.shape[1], fan_out=w.shape[2]) for w in side] for side in weights
    )
    return queries, keys


OPTIONS: dict[str, Any] = {"causal": True, "key_mask": KEY_MASK}
NEAR = window_mask(QUERIES, LENGTH, window=2, causal=True)
LEVELS: dict[str, Any] = {"ranks": (2, 1, 1), "block_sizes": (None, 4, 2)}
STEPS = torch.arange(LENGTH)
MEET = STEPS[-QUERIES:, None] // 4 == STEPS // 4
PARTS: dict[str, Any] = {"ranks": (3, 1), "scales": (0.5, 2.0)}
MUP: dict[str, Any] = {"num_heads": HEADS, "logit_scale": "mup"}


def low_rank(t: Inputs) -> tuple[Any, ...]:
    return t["x"], t["context"], LowRank(left=t["left"], right=t["right"])


def norms(t: Inputs) -> dict[str, Any]:
    both = [t["norm0"], t["norm1"]]
    return {"q_norms": both, "k_norms": both, "divide_by_num_levels": True}


def dense_global(t: Inputs) -> Tensor:
    everywhere, near = global_window_scores(t["q"], t["k"], **PARTS)
    return soften(everywhere, t["v"]) + soften(near, t["v"], NEAR)


# Name -> (the dense definition, the op).
CASES: dict[str, tuple[Callable[[Inputs], Tensor], Callable[[Inputs], Tensor]]] = {
    "standard": (
        lambda t: soften(dot_scores(t["q"], t["k"]), t["v"]),
        lambda t: standard_attention(t["q"], t["k"], t["v"], **OPTIONS),
    ),
    "sliding_window": (
        lambda t: soften(dot_scores(t["q"], t["k"]), t["v"], NEAR),
        lambda t: sliding_window_attention(t["q"], t["k"], t["v"], window=2, **OPTIONS),
    ),
    "global_window": (
        dense_global,
        lambda t: global_window_attention(
            t["q"], t["k"], t["v"], window=2, combine="sum", **PARTS, **OPTIONS
        ),
    ),
    "mlr_window": (
        lambda t: soften(mlr_scores(t["q"], t["k"], window=2, **LEVELS), t["v"], NEAR | MEET),
        lambda t: mlr_window_attention(t["q"], t["k"], t["v"], window=2, **LEVELS, **OPTIONS),
    ),
    "bilinear": (
        lambda t: soften(bilinear_scores(*low_rank(t), norm_weight=t["norm"]), t["v"]),
        lambda t: bilinear_attention(
            *low_rank(t)[:2], t["v"], low_rank(t)[2], norm_weight=t["norm"], **OPTIONS
        ),
    ),
    "bilinear_btt": (
        lambda t: soften(
            bilinear_btt_scores(
                t["x"], t["context"], t["btt_q"], t["btt_k"], norm_weight=t["norm"], **MUP
            ),
            t["v"],
        ),
        lambda t: bilinear_btt_attention(
            t["x"],
            t["context"],
            t["v"],
            t["btt_q"],
            t["btt_k"],
            norm_weight=t["norm"],
            **MUP,
            **OPTIONS,
        ),
    ),
    "bilinear_mlr": (
        lambda t: soften(
            bilinear_mlr_scores(t["x"], t["context"], *clamped(t), num_heads=HEADS, **norms(t)),
            t["v"],
        ),
        lambda t: bilinear_mlr_attention(
            t["x"], t["context"], t["v"], *clamped(t), num_heads=HEADS, **norms(t), **OPTIONS
        ),
    ),
}


def with_gradients(attend: Callable[[Inputs], Tensor], tensors: Inputs) -> Inputs:
    """Return the output and the gradient of its sum of squares by each tensor that it reads."""
    leaves = {name: x.clone().requires_grad_() for name, x in tensors.items()}
    out = attend(leaves)
    grads = torch.autograd.grad(out.square().sum(), list(leaves.values()), allow_unused=True)
    named = {f"d{name}": g for name, g in zip(leaves, grads, strict=True) if g is not None}
    return {"out": out.detach()} | named


def main() -> None:
    """Write the file."""
    tensors = inputs()
    outputs = {
        name: {key: x.tolist() for key, x in with_gradients(dense, tensors).items()}
        for name, (dense, _) in CASES.items()
    }
    stored = {"inputs": {name: x.tolist() for name, x in tensors.items()}, "outputs": outputs}
    FILE.write_text(json.dumps(stored, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
