"""One step of a generation with MLR scores, from the keys that each level still needs."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast._core.arguments import check_switch
from mlrforecast._core.errors import BackendError
from mlrforecast.ops._checks import check_choice, check_tensor, entries, positive
from mlrforecast.ops._layout import blocks_of
from mlrforecast.ops.attention._case import Unshared
from mlrforecast.ops.attention._inputs import check_key_mask
from mlrforecast.ops.attention.decode import decode_attention, decode_refusal
from mlrforecast.ops.levels import check_levels
from mlrforecast.ops.scores.mlr import LevelScale, level_scales
from mlrforecast.ops.scores.window import check_window

__all__ = ["StepBackend", "mlr_step_attention"]

StepBackend: TypeAlias = Literal["auto", "reference", "triton"]


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
    unshared: Unshared = "mask",
    backend: StepBackend = "auto",
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
    backend : {"auto", "reference", "triton"}, default "auto"
        What computes it; all compute the same function. ``"reference"`` is plain PyTorch and has
        gradients. ``"triton"`` is a fused kernel that reads what it needs once: on a GPU, for one
        newest step and without gradients. ``"auto"`` takes it where it can serve.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``. Rows that may attend no key are 0.

    Raises
    ------
    ValueError
        If the shapes or levels do not fit.
    TypeError
        If an argument is of the wrong type.
    BackendError
        If ``backend`` names one that cannot serve the call; the message says why.

    Examples
    --------
    >>> q = torch.ones(1, 1, 1, 3)
    >>> keys = [torch.ones(1, 1, 6, 2), torch.ones(1, 1, 2, 1)]
    >>> v = torch.arange(6.0).view(1, 1, 6, 1)
    >>> mlr_step_attention(q, keys, v, length=6, block_sizes=(None, 4), unshared="mask").shape
    torch.Size([1, 1, 1, 1])
    """
    ranks = _check_step(q, keys, v, length)
    check_key_mask(key_mask, v)
    check_choice(unshared, "unshared", ("mask", "zero"))
    check_switch("divide_by_shared_levels", divide_by_shared_levels)
    check_switch("divide_by_num_levels", divide_by_num_levels)
    scale = level_scale if isinstance(level_scale, str) else entries(level_scale, "level_scale")
    describe = _levels if torch.compiler.is_compiling() else _known_levels
    sizes = entries(block_sizes, "block_sizes")
    sizes, scales = describe(ranks, sizes, scale, divide_by_num_levels)
    if window is not None:
        window = check_window(window, q.shape[2], v.shape[2])
    if not torch.compiler.is_compiling():
        _check_kept(keys, sizes, window, length, q.shape[2], v.shape[2])
    attend = decode_attention if _is_fused(backend, q, keys, v) else _plain_attention
    return attend(
        q,
        keys,
        v,
        length=length,
        block_sizes=sizes,
        window=window,
        key_mask=key_mask,
        scales=scales,
        divide_by_shared_levels=divide_by_shared_levels,
        attend_unshared=unshared == "zero",
    )


def _levels(
    ranks: tuple[int, ...],
    block_sizes: tuple[int | None, ...],
    level_scale: LevelScale | tuple[float, ...],
    divide_by_num_levels: bool,
) -> tuple[tuple[int | None, ...], tuple[float, ...]]:
    """Return the checked block size of each level, and its factor."""
    _, sizes = check_levels(1, ranks, block_sizes)
    return sizes, level_scales(ranks, level_scale, divide_by_num_levels=divide_by_num_levels)


# A generation asks for the same levels in every layer and step.
_known_levels = lru_cache(maxsize=64)(_levels)


def _is_fused(backend: str, q: Tensor, keys: Sequence[Tensor], v: Tensor) -> bool:
    """Whether the fused kernel serves the call, which may ask for a backend by name."""
    if backend == "auto":
        return q.device.type == "cuda" and decode_refusal(q, keys, v) is None
    check_choice(backend, "backend", ("auto", "reference", "triton"))
    if backend == "reference":
        return False
    reason = decode_refusal(q, keys, v)
    if reason is not None:
        raise BackendError(
            f"The backend {backend!r} cannot serve this call: {reason}. "
            "Use backend='auto' to take one that can."
        )
    return True


def _plain_attention(
    q: Tensor,
    keys: Sequence[Tensor],
    v: Tensor,
    *,
    length: int,
    block_sizes: Sequence[int | None],
    window: int | None,
    key_mask: Tensor | None,
    scales: Sequence[float],
    divide_by_shared_levels: bool,
    attend_unshared: bool,
) -> Tensor:
    """Attend in plain PyTorch, by the scores of all pairs."""
    num_queries, num_kept = q.shape[2], v.shape[2]
    work = torch.promote_types(q.dtype, torch.float32)
    steps = torch.arange(length - num_kept, length, device=q.device)
    scores = torch.zeros(*q.shape[:3], num_kept, dtype=work, device=q.device)
    shared = torch.zeros(num_queries, num_kept, dtype=torch.int64, device=q.device)
    q_levels = q.to(work).split([k.shape[-1] for k in keys], -1)
    for lvl, (q_level, k_level, scale) in enumerate(zip(q_levels, keys, scales, strict=True)):
        kept = k_level.shape[2]
        same = _same_block(
            steps[num_kept - num_queries :],
            steps[num_kept - kept :],
            block_sizes[lvl],
            window if lvl == 0 else None,
        )
        part = scale * _grouped(q_level, k_level.to(work).transpose(-1, -2))
        scores[..., num_kept - kept :] += part * same
        shared[:, num_kept - kept :] += same
    if divide_by_shared_levels:
        scores = scores / shared.clamp(min=1)
    visible = (steps[None, :] <= steps[num_kept - num_queries :, None])[None, None]
    if not attend_unshared:
        visible = visible & (shared > 0)
    if key_mask is not None:
        visible = visible & key_mask[:, None, None, :]
    # A row without any visible key would be 0/0, so it is normalised over all keys first.
    normalised_over = visible | ~visible.any(-1, keepdim=True)
    weights = scores.masked_fill(~normalised_over, float("-inf")).softmax(-1)
    return _grouped(weights.masked_fill(~visible, 0.0), v.to(work)).to(v.dtype)


def _check_step(q: Tensor, keys: Sequence[Tensor], v: Tensor, length: int) -> tuple[int, ...]:
    """Check the shapes of one step, and return the ranks of its levels."""
    check_tensor(q, "q")
    check_tensor(v, "v")
    if not q.ndim == v.ndim == 4 or q.shape[2] < 1:
        raise ValueError(
            "`q` must have the shape (B, H, T, R) with a step at least, and `v` (B, G, S, V); got "
            f"{tuple(q.shape)} and {tuple(v.shape)}."
        )
    num_queries, num_kept = q.shape[2], v.shape[2]
    # In a graph it is a symbol, which a check of its type would bind to one number.
    if not torch.compiler.is_compiling():
        length = positive(length, "length")
    if length < num_kept:
        raise ValueError(f"`length` must be at least the {num_kept} steps of `v`, got {length}.")
    outer = v.shape[:2]
    for lvl, k in enumerate(entries(keys, "keys")):
        if not isinstance(k, Tensor) or k.is_meta:
            check_tensor(k, f"keys[{lvl}]")
        shape = k.shape
        if shape[:2] != outer or not num_queries <= shape[2] <= num_kept:
            raise ValueError(
                f"`keys[{lvl}]` must have the heads of `v` and from {num_queries} to {num_kept} "
                f"steps, got the shape {tuple(shape)} beside {tuple(v.shape)}."
            )
    ranks = tuple([k.shape[-1] for k in keys])
    if q.shape[0] != v.shape[0]:
        raise ValueError(f"`q` and `v` must be of one batch, got {q.shape[0]} and {v.shape[0]}.")
    if sum(ranks) != q.shape[-1] or q.shape[1] % v.shape[1]:
        raise ValueError(
            f"`keys` must sum to the {q.shape[-1]} columns of `q` and have a divisor of its "
            f"{q.shape[1]} heads, got columns {ranks} and {v.shape[1]} heads."
        )
    return ranks


def _check_kept(
    keys: Sequence[Tensor],
    sizes: Sequence[int | None],
    window: int | None,
    length: int,
    num_queries: int,
    num_kept: int,
) -> None:
    """Check that each level has the keys that the oldest of the new steps needs."""
    oldest = length - num_queries
    for lvl, (k, size) in enumerate(zip(keys, sizes, strict=True)):
        if lvl == 0 and window is not None:
            begin = oldest - window
        else:
            begin = oldest // size * size if size else 0
        needed = min(length - begin, num_kept)
        if k.shape[2] < needed:
            raise ValueError(
                f"`keys[{lvl}]` must have the newest {needed} steps, as many as its oldest query "
                f"may attend, got {k.shape[2]}."
            )


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
    return blocks_of(query_steps, size)[:, None] == blocks_of(key_steps, size)


def _grouped(x: Tensor, shared: Tensor) -> Tensor:
    """Multiply the rows of each query head by the matrix of its group."""
    groups = shared.shape[1]
    rows = x.unflatten(1, (groups, -1)).flatten(2, 3)
    product: Tensor = (rows @ shared).unflatten(2, (-1, x.shape[2])).flatten(1, 2)
    return product
