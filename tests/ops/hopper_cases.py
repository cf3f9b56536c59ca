"""The kernels for a Hopper GPU, on the CPU and in float64, against the reference.

Stand-ins take the place of Gluon, so this runs in a process of its own. It writes the largest error
of each case, of the output and of the log-sum-exp.
"""

import json
import math
import sys
from typing import Any

import torch

from mlrforecast.ops import mlr_attention, mlr_scores
from mlrforecast.ops.attention import _hopper
from tests.ops.hopper_on_cpu import install

CASES: dict[str, dict[str, Any]] = {
    "two-levels": {"length": 384, "ranks": (8, 8), "sizes": (0, 128)},
    "one-level": {"length": 257, "ranks": (20,), "sizes": (0,)},
    "inside-a-tile": {"length": 512, "ranks": (8, 4, 4, 16), "sizes": (0, 256, 128, 32)},
    "odd-length": {"length": 333, "ranks": (3, 2, 9), "sizes": (256, 128, 64), "values": 7},
    "short": {"length": 63, "ranks": (8, 8), "sizes": (0, 16)},
    "all-options": {
        "length": 450,
        "ranks": (8, 6, 20),
        "sizes": (0, 256, 16),
        "level_scale": (0.3, 1.5, 0.7),
        "divide": True,
        "group": 2,
        "batch": 2,
    },
    "bidirectional": {
        "length": 768,
        "ranks": (2, 2, 8, 70),
        "sizes": (0, 256, 64, 32),
        "causal": False,
        "divide": True,
        "group": 2,
    },
    "offset": {"length": 300, "ranks": (16, 8), "sizes": (256, 128), "offset": 128},
    "strided": {"length": 256, "ranks": (8, 8), "sizes": (0, 128), "strided": True},
}


def errors(
    length: int,
    ranks: tuple[int, ...],
    sizes: tuple[int, ...],
    *,
    level_scale: tuple[float, ...] | None = None,
    divide: bool = False,
    causal: bool = True,
    offset: int = 0,
    values: int = 24,
    group: int = 1,
    batch: int = 1,
    strided: bool = False,
) -> list[float]:
    generator = torch.Generator().manual_seed(0)

    def draw(heads: int, columns: int) -> torch.Tensor:
        shape = (batch, length, heads, columns) if strided else (batch, heads, length, columns)
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        return x.transpose(1, 2) if strided else x

    q, k, v = draw(2 * group, sum(ranks)), draw(2, sum(ranks)), draw(2, values)
    scales = [scale / sum(ranks) ** 0.5 for scale in level_scale or (1.0,) * len(ranks)]
    options: dict[str, Any] = {
        "ranks": ranks,
        "block_sizes": [size or None for size in sizes],
        "offset": offset,
        "level_scale": scales,
        "divide_by_shared_levels": divide,
    }
    expected = mlr_attention(q, k, v, causal=causal, backend="reference", **options)
    steps = torch.arange(length) + offset
    block = steps // (sizes[0] or length + offset)
    hidden = block[:, None] != block
    if causal:
        hidden |= steps[:, None] < steps
    scores = mlr_scores(q, k, **options).masked_fill(hidden, -math.inf)
    levels = _hopper.Levels(ranks, tuple(scales), sizes, offset, causal, divide)
    out, lse = _hopper.attend(q, k, v, levels)
    pairs = (out, expected), (lse * math.log(2), scores.logsumexp(-1))
    return [float((x - y).abs().max() / y.abs().max()) for x, y in pairs]


if __name__ == "__main__":
    install(torch.float64)
    sys.stdout.write(json.dumps({name: errors(**case) for name, case in CASES.items()}))
