"""One step of a generation with MLR scores, from the keys that each level still needs."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast.ops._checks import check_tensor, positive
from mlrforecast.ops.levels import check_levels
from mlrforecast.ops.scores.mlr import LevelScale, level_scales

__all__ = ["mlr_step_attention"]


def mlr_step_attention(
    q: Float[Tensor, "B H T R"],
    keys: Sequence[Tensor],
    v: Float[Tensor, "B G S V"],
    *,
    length: int,
    block_sizes: Sequence[int | None],
    window: int | None = None,
    key_mask: Bool[Tensor, "B S"] | None = None,
    level_scale: LevelScale | Sequence[float] = "inverse_rank",
    divide_by_shared_levels: bool = False,
    divide_by_num_levels: bool = False,
    unshared: Literal["mask", "zero"] = "mask",
) -> Float[Tensor, "B H T V"]:
    """Attend causally from the newest steps with the keys that each level still needs.

    The same function as :func:`mlrforecast.ops.mlr_attention` with ``causal=True`` and the queries
    last, but level ``lvl`` brings its own columns of the newest ``S_lvl`` steps only: of a level of
    blocks, those of the oldest new step's block are enough.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries of the newest ``T`` steps, not scaled; columns coarse to fine.
    keys : sequence of Tensor of shape (B, G, S_lvl, ranks[lvl]), one per level
        Keys of the newest ``S_lvl`` steps, at least ``T`` and at most ``S``.
    v : Tensor of shape (B, G, S, V)
        Values of the newest ``S`` steps.
    length : int, at least S
        Steps of the sequence so far, which fixes where the blocks lie.
    block_sizes : sequence of int or None, one per level
        Steps of a block, coarse to fine; None for the whole sequence.
    window : int, optional
        The coarsest level counts for pairs at most so far apart, whatever their blocks.
    key_mask : bool Tensor of shape (B, S), optional
        True where a key may be attended.
    level_scale, divide_by_shared_levels, divide_by_num_levels, unshared
        As in :func:`mlrforecast.ops.mlr_attention`.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``. Rows that may attend no key are 0.

    Raises
    ------
    ValueError
        If the shapes or levels do not fit.

    Examples
    --------
    >>> q = torch.ones(1, 1, 1, 3)
    >>> keys = [torch.ones(1, 1, 6, 2), torch.ones(1, 1, 2, 1)]
    >>> v = torch.arange(6.0).view(1, 1, 6, 1)
    >>> mlr_step_attention(q, keys, v, length=6, block_sizes=(None, 4), unshared="mask").shape
    torch.Size([1, 1, 1, 1])
    """
    ranks = _check_step(q, keys, v, length)
    ranks, sizes = check_levels(length, ranks, block_sizes)
    scales = level_scales(ranks, level_scale, divide_by_num_levels=divide_by_num_levels)
    num_queries, num_kept = q.shape[2], v.shape[2]
    work = torch.promote_types(q.dtype, torch.float32)
    steps = torch.arange(length - num_kept, length, device=q.device)
    scores = torch.zeros(*q.shape[:3], num_kept, dtype=work, device=q.device)
    shared = torch.zeros(num_queries, num_kept, dtype=torch.int64, device=q.device)
    q_levels = q.to(work).split(list(ranks), -1)
    for lvl, (q_level, k_level, scale) in enumerate(zip(q_levels, keys, scales, strict=True)):
        kept = k_level.shape[2]
        same = _same_block(
            steps[num_kept - num_queries :],
            steps[num_kept - kept :],
            sizes[lvl],
            window if lvl == 0 else None,
        )
        part = scale * _grouped(q_level, k_level.to(work).transpose(-1, -2))
        scores[..., num_kept - kept :] += part * same
        shared[:, num_kept - kept :] += same
    if divide_by_shared_levels:
        scores = scores / shared.clamp(min=1)
    visible = (steps[None, :] <= steps[num_kept - num_queries :, None])[None, None]
    if unshared == "mask":
        visible = visible & (shared > 0)
    if key_mask is not None:
        visible = visible & key_mask[:, None, None, :]
    # A row without any visible key would be 0/0, so it is normalised over all keys first.
    normalised_over = visible | ~visible.any(-1, keepdim=True)
    weights = scores.masked_fill(~normalised_over, float("-inf")).softmax(-1)
    return _grouped(weights.masked_fill(~visible, 0.0), v.to(work)).to(v.dtype)


def _check_step(q: Tensor, keys: Sequence[Tensor], v: Tensor, length: int) -> tuple[int, ...]:
    """Check the shapes of one step, and return the ranks of its levels."""
    for name, x in (("q", q), ("v", v), *((f"keys[{lvl}]", k) for lvl, k in enumerate(keys))):
        check_tensor(x, name)
    num_queries, num_kept = q.shape[2], v.shape[2]
    if positive(length, "length") < num_kept:
        raise ValueError(f"`length` must be at least the {num_kept} steps of `v`, got {length}.")
    for lvl, k in enumerate(keys):
        if k.shape[:2] != v.shape[:2] or not num_queries <= k.shape[2] <= num_kept:
            raise ValueError(
                f"`keys[{lvl}]` must have the heads of `v` and from {num_queries} to {num_kept} "
                f"steps, got the shape {tuple(k.shape)} beside {tuple(v.shape)}."
            )
    ranks = tuple(k.shape[-1] for k in keys)
    if sum(ranks) != q.shape[-1] or q.shape[1] % v.shape[1]:
        raise ValueError(
            f"`keys` must sum to the {q.shape[-1]} columns of `q` and have a divisor of its "
            f"{q.shape[1]} heads, got columns {ranks} and {v.shape[1]} heads."
        )
    return ranks


def _same_block(
    query_steps: Tensor, key_steps: Tensor, size: int | None, window: int | None
) -> Tensor:
    """Say which pairs a level counts for: those of one block, or those within a window."""
    if window is not None:
        return query_steps[:, None] - key_steps <= window
    if size is None:
        return torch.ones(
            len(query_steps), len(key_steps), dtype=torch.bool, device=key_steps.device
        )
    return query_steps[:, None] // size == key_steps // size


def _grouped(x: Tensor, shared: Tensor) -> Tensor:
    """Multiply the rows of each query head by the matrix of its group."""
    groups = shared.shape[1]
    rows = x.unflatten(1, (groups, -1)).flatten(2, 3)
    product: Tensor = (rows @ shared).unflatten(2, (-1, x.shape[2])).flatten(1, 2)
    return product
