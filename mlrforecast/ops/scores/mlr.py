"""Scores of multi-level low-rank attention, as a dense matrix."""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from mlrforecast._core.arguments import check_switch
from mlrforecast.ops._checks import entries, number, positives
from mlrforecast.ops._layout import expand_heads
from mlrforecast.ops.scores._pairs import LevelPairs, build_pairs

__all__ = ["LevelScale", "level_scales", "mlr_scores", "scores_of_pairs"]

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
        If an argument is not a sequence of numbers, or a switch neither True nor False.

    Examples
    --------
    >>> level_scales((4, 2, 2))
    (0.25, 0.5, 0.5)
    >>> level_scales((4, 12), "inverse_sqrt_width", divide_by_num_levels=True)
    (0.125, 0.125)
    """
    ranks = positives(ranks, "ranks")
    check_switch("divide_by_num_levels", divide_by_num_levels)
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
    k: Float[Tensor, "B G S R"],
    *,
    ranks: Sequence[int],
    block_sizes: Sequence[int | None] | None = None,
    num_blocks: Sequence[int] | None = None,
    block_ids: Integer[Tensor, "... num_levels S"] | None = None,
    query_block_ids: Integer[Tensor, "... num_levels T"] | None = None,
    offset: int = 0,
    window: int | None = None,
    level_scale: LevelScale | Sequence[float] = "inverse_rank",
    divide_by_shared_levels: bool = False,
    divide_by_num_levels: bool = False,
) -> Float[Tensor, "B H T S"]:
    """Score every query against every key with a multi-level low-rank form.

    Level ``lvl`` reads its own ``ranks[lvl]`` columns of ``q`` and ``k`` and adds their scaled dot
    product only where both positions fall into the same block of that level. Pairs that share no
    block score 0.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries, not scaled: the last ``T`` of the ``S`` steps. ``R`` must equal ``sum(ranks)``.
    k : Tensor of shape (B, G, S, R)
        Keys. ``G`` divides ``H``; query head ``h`` reads key head ``h // (H // G)``.
    ranks, block_sizes, num_blocks, block_ids, query_block_ids, offset, window
        The levels, coarse to fine, as in :func:`mlrforecast.ops.mlr_attention`.
    level_scale : str or sequence of float, default "inverse_rank"
        Factor of each level, as in :func:`level_scales`.
    divide_by_shared_levels : bool, default False
        Whether a score is divided by the number of levels that count for the pair.
    divide_by_num_levels : bool, default False
        Whether all scores are divided by the number of levels.

    Returns
    -------
    Tensor of shape (B, H, T, S)
        Scores before mask and softmax, in the dtype of ``q``.

    Raises
    ------
    ValueError
        If the shapes do not fit, the levels are not valid or ``sum(ranks) != R``.
    TypeError
        If an argument is not a tensor where it must be, or an entry of an option is not a number.

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

    A block of one step and a block of three, and the newest query alone:

    >>> ids = torch.tensor([[0, 0, 0, 0], [0, 1, 1, 1]])
    >>> mlr_scores(q[:, :, -1:], k, ranks=(2, 1), block_ids=ids)[0, 0]
    tensor([[1., 2., 2., 2.]])
    """
    pairs = build_pairs(
        q,
        k,
        ranks=ranks,
        block_sizes=block_sizes,
        num_blocks=num_blocks,
        block_ids=block_ids,
        query_block_ids=query_block_ids,
        offset=offset,
        window=window,
    )
    check_switch("divide_by_shared_levels", divide_by_shared_levels)
    scales = level_scales(
        pairs.levels.ranks, level_scale, divide_by_num_levels=divide_by_num_levels
    )
    return scores_of_pairs(q, k, pairs, scales, divide_by_shared_levels=divide_by_shared_levels)


def scores_of_pairs(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    pairs: LevelPairs,
    scales: Sequence[float],
    *,
    divide_by_shared_levels: bool,
) -> Float[Tensor, "B H T S"]:
    """Score queries and keys whose levels have been checked.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries.
    k : Tensor of shape (B, G, S, R)
        Keys.
    pairs : LevelPairs
        The pairs that each level counts for.
    scales : sequence of float, one per level
        Factor of each level.
    divide_by_shared_levels : bool
        Whether a score is divided by the number of levels that count for the pair.

    Returns
    -------
    Tensor of shape (B, H, T, S)
        Scores before mask and softmax, in the dtype of ``q``.
    """
    k = expand_heads(k, q.shape[1])
    scores = q.new_zeros(*q.shape[:-1], k.shape[2])
    count = torch.zeros((), dtype=torch.int64, device=q.device)
    q_levels, k_levels = (torch.split(x, list(pairs.levels.ranks), dim=-1) for x in (q, k))
    levels = zip(q_levels, k_levels, scales, pairs.by_level(q.device), strict=True)
    for q_level, k_level, scale, counted in levels:
        scores = scores + scale * (q_level @ k_level.transpose(-1, -2)) * counted
        count = count + counted
    if divide_by_shared_levels:
        scores = scores / count.clamp(min=1).to(q.dtype)
    return scores
