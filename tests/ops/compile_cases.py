"""Compile the kernels for a GPU that is not there, down to its assembler.

Triton's interpreter runs what its compiler refuses: names that mean something in a release, types
that change in a loop. This runs in a process of its own, and writes what each case compiled.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

from mlrforecast.ops.attention import _hopper
from mlrforecast.ops.attention import triton as operators

CASES: dict[str, dict[str, Any]] = {
    "by-the-copy-engine": {"ranks": (16, 16), "sizes": (0, 64), "described": True},
    "flat": {"ranks": (16, 16), "sizes": (0, 128), "causal": False},
    "all-options": {
        "ranks": (5, 4),
        "sizes": (0, 100),
        "masked": True,
        "dropout_p": 0.1,
        "divide": True,
        "scales": (0.1, 0.2),
    },
}


class NoDriver:
    """The driver of an H100, as far as a compiler asks for it."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


def attend(
    ranks: tuple[int, ...],
    sizes: tuple[int, ...],
    *,
    causal: bool = True,
    described: bool = False,
    masked: bool = False,
    divide: bool = False,
    dropout_p: float = 0.0,
    scales: tuple[float, ...] | None = None,
) -> None:
    q, k, v = (torch.randn(1, 2, 256, sum(ranks), dtype=torch.bfloat16) for _ in range(3))
    mask = torch.ones(1, 256, dtype=torch.bool) if masked else None
    seed = torch.zeros(1, dtype=torch.int64) if dropout_p else None
    each = list(scales or (0.1,) * len(ranks))
    options = (list(ranks), each, list(sizes), 0, [], causal, divide, dropout_p)
    with mock.patch.object(operators, "describable", return_value=described):
        out, lse = torch.ops.mlrforecast.mlr_attention(q, k, v, None, mask, seed, *options)
        torch.ops.mlrforecast.mlr_attention_backward(
            torch.zeros_like(out), q, k, v, out, lse, None, mask, seed, *options
        )


def attend_on_hopper() -> None:
    q, k, v = (torch.randn(1, 2, 256, 16, dtype=torch.bfloat16) for _ in range(3))
    levels = _hopper.Levels((8, 8), (0.1, 0.2), (0, 64), 0, True, True)
    _hopper.attend(q, k, v, levels)


def decode(splits: int) -> None:
    q, v = torch.randn(1, 4, 1, 8).bfloat16(), torch.randn(1, 2, 256, 8).bfloat16()
    keys = [torch.randn(1, 2, steps, 4).bfloat16() for steps in (256, 64)]
    torch.ops.mlrforecast.mlr_decode(
        q, keys, v, None, 256, [0, 64], None, [0.1, 0.2], True, False, splits
    )


def main() -> None:
    compiled: list[str] = []
    run = JITFunction.run

    def warm_up(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        assert ".target sm_90a" in kernel.asm["ptx"]
        compiled.append(self.fn.__name__)

    driver.set_active(NoDriver())
    calls: dict[str, Callable[[], None]] = {
        **{name: partial(attend, **case) for name, case in CASES.items()},
        "hopper": attend_on_hopper,
        **{f"decode-{splits}": partial(decode, splits) for splits in (1, 4)},
    }
    found: dict[str, list[str]] = {}
    with mock.patch.object(JITFunction, "run", warm_up):
        for name, call in calls.items():
            call()
            found[name] = compiled[:]
            compiled.clear()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
