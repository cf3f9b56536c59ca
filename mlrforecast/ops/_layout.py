"""Which head reads which, and which step is how far from which."""

import torch
from torch import Tensor

__all__ = ["expand_heads", "step_distances"]


def expand_heads(x: Tensor, num_heads: int) -> Tensor:
    """Repeat each of the G heads of ``x``, (B, G, S, R), for the query heads that read it."""
    return x if x.shape[1] == num_heads else x.repeat_interleave(num_heads // x.shape[1], 1)


def step_distances(
    num_queries: int, num_keys: int, device: torch.device | str | None = None
) -> Tensor:
    """Return how many steps each key lies before each query, (T, S): queries are the last T."""
    steps = torch.arange(num_keys, device=device)
    return steps[num_keys - num_queries :, None] - steps
