"""Multi-level attention as one ordinary attention call over a wider head.

Each level gets one slot of columns per block, and a position's slice stands in the slot of its
block, with zeros elsewhere. The dot product of two such rows is then the sum of the dot products
of the levels that both positions share.
"""

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast.ops._layout import constant
from mlrforecast.ops.attention._case import AttentionCase
from mlrforecast.ops.attention._fused import fused_attention

__all__ = ["MAX_WIDTH", "expanded_attention", "expanded_width", "refusal"]

MAX_WIDTH = 256
"""Widest head that the fused attention kernels of PyTorch serve."""


def refusal(case: AttentionCase) -> str | None:
    """Return why a case cannot be served, or None.

    Parameters
    ----------
    case : AttentionCase
        The checked call.

    Returns
    -------
    str or None
    """
    if case.link != "softmax":
        return "it computes softmax attention only, and `link` is 'identity'"
    if case.pairs.window is not None:
        return "it needs blocks on every level, and the coarsest has a window"
    if case.levels.block_sizes is None and torch.compiler.is_compiling():
        return "torch.compile cannot trace how many blocks `block_ids` make"
    if case.divide_by_shared_levels and not case.levels.nested:
        return (
            "division by the number of shared levels needs nested blocks, each inside one block of "
            f"the level above, got {case.levels}"
        )
    width = expanded_width(case)
    if width > MAX_WIDTH:
        return f"one slot per block makes {width} columns, more than {MAX_WIDTH}"
    return None


def expanded_width(case: AttentionCase) -> int:
    """Return the number of columns that the slots of all levels take.

    Parameters
    ----------
    case : AttentionCase
        The checked call.

    Returns
    -------
    int
    """
    ranks = case.levels.ranks
    columns = itertools.accumulate(ranks) if case.divide_by_shared_levels else ranks
    slots = (len(blocks) for blocks in _query_blocks(case))
    return sum(number * width for number, width in zip(slots, columns, strict=True))


def expanded_attention(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    v: Float[Tensor, "B G S V"],
    case: AttentionCase,
    key_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H T V"]:
    """Attend through one call of ``scaled_dot_product_attention``.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries.
    k : Tensor of shape (B, G, S, R)
        Keys.
    v : Tensor of shape (B, G, S, V)
        Values.
    case : AttentionCase
        The checked call.
    key_mask : bool Tensor of shape (B, S), optional
        True where a key may be attended.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``; 0 in rows that may attend no key.
    """
    q_wide, k_wide = _spread(q, k, case)
    same_length = case.pairs.num_queries == case.pairs.num_keys
    needs_mask = case.masked_keys or case.masks_unshared or (case.masks_future and not same_length)
    return fused_attention(
        q_wide,
        k_wide,
        v,
        case.visible(key_mask) if needs_mask else None,
        causal=case.masks_future,
        scale=max(case.scales),
        dropout_p=case.dropout_p,
    )


def _spread(q: Tensor, k: Tensor, case: AttentionCase) -> tuple[Tensor, Tensor]:
    """Put each level's columns into the slots of their blocks, with the factors on ``q``."""
    ranks = case.levels.ranks
    # For each column of a slot its level, its block, and the column that it copies.
    levels, slots, sources = [], [], []
    factors: list[float] = []
    ends = list(itertools.accumulate(ranks))
    for lvl, blocks in enumerate(_query_blocks(case)):
        begin = 0 if case.divide_by_shared_levels else ends[lvl] - ranks[lvl]
        copied = range(begin, ends[lvl])
        for block in blocks:
            levels += [lvl] * len(copied)
            slots += [block] * len(copied)
            sources += [len(factors) + place for place in range(len(copied))]
        factors += _factors(case, lvl)
    if case.divide_by_shared_levels:
        q, k = (torch.cat([x[..., :end] for end in ends], -1) for x in (q, k))
    # Ids are as many as there are calls, and nothing of them may be kept.
    keep = torch.tensor if case.levels.block_sizes is None else constant
    of_level, of_block, source = (
        keep(numbers, dtype=torch.int64, device=case.device) for numbers in (levels, slots, sources)
    )
    work = torch.promote_types(case.dtype, torch.float32)
    scaled = (q * constant(factors, work, case.device)).to(case.dtype)
    # One product copies all columns, where copies of few columns each are slow.
    places = torch.arange(len(factors), device=case.device)
    copies = (source == places[:, None]).to(case.dtype)
    wide = []
    for narrow, ids in zip((scaled, k), case.pairs.ids(case.device), strict=True):
        mine = (ids.index_select(-2, of_level) == of_block[:, None]).mT.to(case.dtype)
        wide.append((narrow @ copies) * (mine if mine.ndim == 2 else mine[:, None]))
    return wide[0], wide[1]


def _query_blocks(case: AttentionCase) -> list[Sequence[int]]:
    """Return the blocks of each level that hold a query: no other takes part in a score."""
    levels, num_queries = case.levels, case.pairs.num_queries
    if levels.block_sizes is None:
        queries, _ = case.pairs.ids(case.device)
        return [ids.unique().tolist() for ids in queries.unbind(-2)]
    last = levels.offset + levels.length - 1
    first = last - num_queries + 1
    return [
        range(1) if size is None else range(first // size, last // size + 1)
        for size in levels.block_sizes
    ]


def _factors(case: AttentionCase, lvl: int) -> list[float]:
    """Return the factor of each column in a level's slot, relative to the largest scale.

    Relative to it no factor is above 1, and half-precision queries cannot overflow.
    """
    relative = [scale / max(case.scales) for scale in case.scales]
    if not case.divide_by_shared_levels:
        return [relative[lvl]] * case.levels.ranks[lvl]
    # What level lvl adds when the mean over lvl levels becomes the mean over lvl + 1.
    earlier = 1 / (lvl + 1) - 1 / lvl if lvl else 0.0
    coefficients = [relative[j] * earlier for j in range(lvl)] + [relative[lvl] / (lvl + 1)]
    return [
        coefficient
        for coefficient, rank in zip(coefficients, case.levels.ranks[: lvl + 1], strict=True)
        for _ in range(rank)
    ]
