"""Compute the small golden vectors beside this file with the float64 reference.

They pin the function down where the vectors of the published code are not at hand. Run it from the
root of the repository, and only when the definition itself changes::

    python tests/ops/golden/make.py
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlrforecast.ops import mlr_attention

FILE = Path(__file__).with_name("mlr_small.json")
CASES: dict[str, dict[str, Any]] = {
    "default": {"ranks": (2, 1, 1)},
    "causal-offset": {"ranks": (2, 1, 1), "block_sizes": (None, 6, 3), "offset": 4, "causal": True},
    "shared-masked": {
        "ranks": (2, 1, 1),
        "block_sizes": (None, 6, 2),
        "causal": True,
        "divide_by_shared_levels": True,
        "divide_by_num_levels": True,
        "masked": True,
    },
    "ragged": {
        "ranks": (2, 1, 1),
        "block_ids": torch.tensor(
            [
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                [5, 5, 5, 5, 2, 2, 2, 2, 2, 2, 2],
                [0, 9, 9, 9, 1, 1, 4, 4, 4, 4, 3],
            ]
        ),
        "causal": True,
        "divide_by_shared_levels": True,
    },
    "no-whole-level": {"ranks": (3, 1), "block_sizes": (6, 3), "level_scale": "inverse_sqrt_width"},
}
LENGTH, WIDTH, VALUE_WIDTH = 11, 4, 2


def inputs() -> list[Tensor]:
    """Return q, k, v of one sequence as multiples of 1/8, exact in every precision."""
    generator = torch.Generator().manual_seed(2509)
    shapes = [(1, 1, LENGTH, width) for width in (WIDTH, WIDTH, VALUE_WIDTH)]
    draws = [torch.randint(-16, 17, shape, generator=generator) for shape in shapes]
    return [(x / 8).double() for x in draws]


def call(tensors: list[Tensor], case: dict[str, Any], backend: str) -> list[Tensor]:
    """Return the output of a case and the gradients of its sum of squares."""
    options = dict(case)
    if options.pop("masked", False):
        options["key_mask"] = torch.arange(LENGTH)[None] >= 4
    leaves = [x.clone().requires_grad_() for x in tensors]
    out = mlr_attention(*leaves, backend=backend, **options)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]


def main() -> None:
    """Write the file."""
    tensors = inputs()
    outputs = {
        name: {
            key: value.tolist()
            for key, value in zip(
                ("out", "dq", "dk", "dv"), call(tensors, case, "reference"), strict=True
            )
        }
        for name, case in CASES.items()
    }
    stored = {"inputs": [x.tolist() for x in tensors], "outputs": outputs}
    FILE.write_text(json.dumps(stored, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
