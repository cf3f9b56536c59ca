"""Scores of multi-level low-rank attention, as a dense matrix."""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from mlrforecast.ops._checks import check_tensor, entries, number, positives
from mlrforecast.ops.levels import block_ids, check_levels

__all__ = ["LevelScale", "level_scales", "mlr_scores"]

LevelScale: TypeAlias = Literal["inverse_rank", "inverse_sqrt_rank", "inverse_sqrt_width"]
"""Named rules for the factor of a level: ``1 / r``, ``1 / sqrt(r)`` or ``1 / sqrt(R)``."""


def level_scales(
    ranks: Sequence[int],
    level_scale: LevelScale | Sequence[float] = "inverse_rank",
    *,
    divide_by_num_levels: bool = False,
) -> tuple[float, ...]:
    """Return the factor of each level's dot product.

    Parameters
    ----------
    ranks : sequence of int
        Columns of each level, coarse to fine.
    level_scale : str or sequence of float, default "inverse_rank"
        ``"inverse_rank"`` is ``1 / ranks[lvl]`` as in the published code, ``"inverse_sqrt_rank"``
        is ``1 / sqrt(ranks[lvl])``, ``"inverse_sqrt_width"`` is ``1 / sqrt(sum(ranks))``, the
        factor of standard attention; or one positive number per level.
    divide_by_num_levels : bool, default False
        Whether each factor is divided by the number of levels.

    Returns
    -------
    tuple of float

    Raises
    ------
    ValueError
        If the name is unknown, numbers are not positive and finite, one per level, or a rank is
        less than 1.
    TypeError
        If an argument is not a sequence of numbers.

    Examples
    --------
    >>> level_scales((4, 2, 2))
    (0.25, 0.5, 0.5)
    >>> level_scales((4, 12), "inverse_sqrt_width", divide_by_num_levels=True)
    (0.125, 0.125)
    """
    ranks = positives(ranks, "ranks")
    divisor = len(ranks) if divide_by_num_levels else 1
    if isinstance(level_scale, str):
        rules = {
            "inverse_rank": [1 / rank for rank in ranks],
            "inverse_sqrt_rank": [1 / math.sqrt(rank) for rank in ranks],
            "inverse_sqrt_width": [1 / math.sqrt(sum(ranks))] * len(ranks),
        }
        if level_scale not in rules:
            raise ValueError(
                f"`level_scale` must be one number per level or one of {', '.join(rules)}; "
                f"got {level_scale!r}."
            )
        return tuple(scale / divisor for scale in rules[level_scale])
    scales = tuple(
        number(scale, f"level_scale[{lvl}]")
        for lvl, scale in enumerate(entries(level_scale, "level_scale"))
    )
    if len(scales) != len(ranks) or not all(0 < scale < math.inf for scale in scales):
        raise ValueError(
            f"`level_scale` must hold one positive finite number for each of the {len(ranks)} "
            f"levels, got {scales}."
        )
    return tuple(scale / divisor for scale in scales)


def mlr_scores(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B H T R"],
    *,
    ranks: Sequence[int],
    block_sizes: Sequence[int | None] | None = None,
    num_blocks: Sequence[int] | None = None,
    offset: int = 0,
    level_scale: LevelScale | Sequence[float] = "inverse_rank",
    divide_by_shared_levels: bool = False,
    divide_by_num_levels: bool = False,
) -> Float[Tensor, "B H T T"]:
    """Score every query against every key with a multi-level low-rank form.

    Level ``lvl`` reads its own ``ranks[lvl]`` columns of ``q`` and ``k`` and adds their scaled dot
    product only where both positions fall into the same block of that level. Pairs that share no
    block score 0.

    Parameters
    ----------
    q, k : Tensor of shape (B, H, T, R)
        Queries and keys, not scaled. ``R`` must equal ``sum(ranks)``.
    ranks, block_sizes, num_blocks
        The levels, coarse to fine, as in :func:`mlrforecast.ops.check_levels`.
    offset : int, at least 0, default 0
        Steps by which the first position lies inside the block grid.
    level_scale : str or sequence of float, default "inverse_rank"
        Factor of each level, as in :func:`level_scales`.
    divide_by_shared_levels : bool, default False
        Whether a score is divided by the number of levels that the pair shares.
    divide_by_num_levels : bool, default False
        Whether all scores are divided by the number of levels.

    Returns
    -------
    Tensor of shape (B, H, T, T)
        Scores before mask and softmax, in the dtype of ``q``.

    Raises
    ------
    ValueError
        If the levels are not valid or ``sum(ranks) != R``.
    TypeError
        If ``q`` or ``k`` is not a tensor, or an entry of an option is not a number.

    References
    ----------
    "Customizing the Inductive Biases of Softmax Attention using Structured Matrices", ICML 2025,
    https://arxiv.org/abs/2509.07963

    Examples
    --------
    >>> q = k = torch.ones(1, 1, 4, 3)
    >>> mlr_scores(q, k, ranks=(2, 1), block_sizes=(4, 2), level_scale=(1.0, 1.0))[0, 0, 0]
    tensor([3., 3., 2., 2.])
    >>> mlr_scores(q, k, ranks=(2, 1))[0, 0, 0]
    tensor([2., 2., 1., 1.])
    """
    for name, x in (("q", q), ("k", k)):
        check_tensor(x, name)
    length, width = q.shape[-2:]
    ranks, sizes = check_levels(length, ranks, block_sizes, num_blocks=num_blocks)
    if sum(ranks) != width:
        raise ValueError(
            f"`ranks` must sum to the head width R={width}, got {ranks} (sum {sum(ranks)})."
        )
    scales = level_scales(ranks, level_scale, divide_by_num_levels=divide_by_num_levels)
    ids = block_ids(length, sizes, offset=offset, device=q.device)
    scores = q.new_zeros(*q.shape[:-1], length)
    shared = torch.zeros(length, length, dtype=torch.int64, device=q.device)
    q_levels, k_levels = (torch.split(x, list(ranks), dim=-1) for x in (q, k))
    levels = zip(q_levels, k_levels, scales, ids, strict=True)
    for q_level, k_level, scale, block in levels:
        same = block[:, None] == block[None, :]
        scores = scores + scale * (q_level @ k_level.transpose(-1, -2)) * same
        shared += same
    if divide_by_shared_levels:
        scores = scores / shared.clamp(min=1).to(q.dtype)
    return scores
