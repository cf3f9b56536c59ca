"""Which head reads which, which step is how far from which, and in which block."""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

__all__ = ["blocks_of", "constant", "expand_heads", "step_distances"]


def constant(values: Sequence[float | int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers as a tensor that is made once: no CUDA graph may copy them to a GPU."""
    if torch.compiler.is_compiling():
        return torch.tensor(list(values), dtype=dtype, device=device)
    return _kept(tuple(values), dtype, device)


# Few numbers each, and a CUDA graph may read them for as long as it lives.
@cache
def _kept(values: tuple[float | int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers as a tensor; nobody writes to it."""
    # One that is born in inference mode could never be part of a training step.
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device)


def expand_heads(x: Tensor, num_heads: int) -> Tensor:
    """Repeat each of the G heads of ``x``, (B, G, S, R), for the query heads that read it."""
    return x if x.shape[1] == num_heads else x.repeat_interleave(num_heads // x.shape[1], 1)


def blocks_of(steps: Tensor, size: int) -> Tensor:
    """Return the block of ``size`` steps in which each step is."""
    # The same as `steps // size`, of which torch.compile loses the end on a CPU (PyTorch 2.13) if
    # the steps are a range that a size of more than 8 does not divide. It sees no range here.
    return (steps ^ 0) // size


def step_distances(
    num_queries: int, num_keys: int, device: torch.device | str | None = None
) -> Tensor:
    """Return how many steps each key lies before each query, (T, S): queries are the last T."""
    steps = torch.arange(num_keys, device=device)
    return steps[num_keys - num_queries :, None] - steps
