"""Ranks for a budget of multiply-adds."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Integer
from torch import Tensor

from mlrforecast.ops._checks import check_tensor, entries, number, positive
from mlrforecast.ops.levels.partition import Levels

__all__ = ["propose_ranks"]

_STEEPEST = 1e3
"""Slope, per smallest gap between spans, at which all free columns are on the longest blocks."""
_HALVINGS = 100


def propose_ranks(
    head_width: int,
    length: int,
    budget: float,
    *,
    num_levels: int | None = None,
    block_sizes: Sequence[int | None] | None = None,
    num_blocks: Sequence[int] | None = None,
    block_ids: Integer[Tensor, "*batch num_levels S"] | None = None,
) -> tuple[int, ...]:
    """Share the columns of a head out among levels so that the scores keep to a budget.

    Every level gets one column. The others are spread as evenly as the budget allows: in
    proportion to ``exp(slope * block length)``, which has the greatest entropy at its cost, with
    the greatest slope that keeps to the budget in whole columns. What then is left of the budget
    is spent on moves of single columns to longer blocks, the move that adds most first, that leave
    the ranks in order: they fall with the length of the blocks or rise with it, never both.

    Parameters
    ----------
    head_width : int, at least the number of levels
        Columns of a head, the sum of the ranks.
    length : int, at least 1
        Time steps of the sequence, ``S``.
    budget : float in (0, 1]
        Multiply-adds of the scores as a share of those of standard attention, ``head_width *
        length`` per token and head, in the ``paper`` convention.
    num_levels : int, optional
        Number of levels, each of which halves the blocks of the one before.
    block_sizes, num_blocks, block_ids
        Instead of ``num_levels``, the blocks of each level, coarse to fine, as in
        :class:`mlrforecast.ops.Levels`.

    Returns
    -------
    tuple of int
        Ranks, coarse to fine, each at least 1; they sum to ``head_width``.

    Raises
    ------
    ValueError
        If the budget is below the smallest possible share, which the message names, there are
        more levels than columns, or not exactly one description of the blocks is given.
    TypeError
        If an argument is not a number.

    Examples
    --------
    >>> propose_ranks(64, 1024, 0.6, num_levels=8)
    (32, 8, 5, 5, 5, 5, 3, 1)
    >>> propose_ranks(16, 1000, 0.3, block_sizes=(None, 168, 24))
    (3, 6, 7)
    """
    head_width = positive(head_width, "head_width")
    spans = _spans(length, num_levels, block_sizes, num_blocks, block_ids)
    if head_width < len(spans):
        raise ValueError(
            f"`head_width` must be at least the number of levels, {len(spans)}, got {head_width}."
        )
    budget = number(budget, "budget")
    if not 0 < budget <= 1:
        raise ValueError(
            f"`budget` must lie in (0, 1], a share of standard attention, got {budget}."
        )
    shares = _Shares(spans, head_width * length)
    least = _rounded(spans, head_width, -_STEEPEST)
    if shares(least) > budget:
        raise ValueError(
            f"`budget` must be at least {shares(least):.6g}, the share of the ranks "
            f"{tuple(least)}, got {budget}. Take fewer levels of long blocks, or shorter blocks."
        )
    low, high = -_STEEPEST, _STEEPEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fits = shares(_rounded(spans, head_width, middle)) <= budget
        low, high = (middle, high) if fits else (low, middle)
    return tuple(_spend(_rounded(spans, head_width, low), shares, budget))


@dataclass(frozen=True, slots=True)
class _Shares:
    """The cost of ranks as a share of standard attention."""

    spans: tuple[int | float, ...]
    unit: int

    def __call__(self, ranks: Sequence[int]) -> float:
        # One division, as it is done for `Levels.flops_per_token`: equal to the last digit.
        return sum(rank * span for rank, span in zip(ranks, self.spans, strict=True)) / self.unit


def _spans(
    length: int,
    num_levels: int | None,
    block_sizes: Sequence[int | None] | None,
    num_blocks: Sequence[int] | None,
    block_ids: Tensor | None,
) -> tuple[int | float, ...]:
    """Return the length of the blocks of each level."""
    if sum(given is not None for given in (num_levels, block_sizes, num_blocks, block_ids)) != 1:
        raise ValueError("Give one of `num_levels`, `block_sizes`, `num_blocks` and `block_ids`.")
    if block_ids is not None:
        check_tensor(block_ids, "block_ids")
        count = block_ids.shape[-2] if block_ids.ndim > 1 else 1
    elif block_sizes is not None:
        count = len(entries(block_sizes, "block_sizes"))
    elif num_blocks is not None:
        count = len(entries(num_blocks, "num_blocks"))
    else:
        assert num_levels is not None
        count = positive(num_levels, "num_levels")
    ranks = (1,) * count
    levels = Levels(length, ranks, block_sizes, num_blocks=num_blocks, block_ids=block_ids)
    return levels.block_lengths()


def _rounded(spans: Sequence[int | float], head_width: int, slope: float) -> list[int]:
    """Return 1 each and the rest in proportion to exp(slope * span), by largest remainders."""
    different = sorted(set(spans))
    gap = min((b - a for a, b in itertools.pairwise(different)), default=1)
    steepness = [slope * span / gap for span in spans]
    weights = [math.exp(value - max(steepness)) for value in steepness]
    free = head_width - len(spans)
    parts = [free * weight / sum(weights) for weight in weights]
    ranks = [1 + int(part) for part in parts]
    by_remainder = sorted(range(len(spans)), key=lambda lvl: int(parts[lvl]) - parts[lvl])
    for lvl in by_remainder[: head_width - sum(ranks)]:
        ranks[lvl] += 1
    return ranks


def _spend(ranks: list[int], shares: _Shares, budget: float) -> list[int]:
    """Move columns to longer blocks, the longest move first, within the budget and in order."""
    spans, levels = shares.spans, range(len(ranks))
    longer = [(a, b) for a in levels for b in levels if spans[a] < spans[b]]
    longer.sort(key=lambda pair: spans[pair[0]] - spans[pair[1]])

    def fits(moved: list[int]) -> bool:
        gains = [moved[b] - moved[a] for a, b in longer]
        in_order = min(gains) >= 0 or max(gains) <= 0
        return in_order and min(moved) > 0 and shares(moved) <= budget

    while found := next((m for pair in longer if fits(m := _move(ranks, *pair))), None):
        ranks = found
    return ranks


def _move(ranks: list[int], source: int, target: int) -> list[int]:
    """Move one column from a level to another."""
    return [rank + (lvl == target) - (lvl == source) for lvl, rank in enumerate(ranks)]
