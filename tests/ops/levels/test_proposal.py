"""Ranks for a budget: their rules, checked from outside."""

import itertools

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from mlrforecast.ops import Levels, document_block_ids, propose_ranks
from tests.ops.levels.partitions import grids, rows_of_ids


@st.composite
def described(draw: st.DrawFn) -> tuple[int, dict]:
    """A length and one description of blocks, in every form."""
    kind = draw(st.sampled_from(["num_levels", "block_sizes", "num_blocks", "block_ids"]))
    if kind == "block_sizes":
        grid = draw(grids())
        return grid["length"], {kind: grid["block_sizes"]}
    length = draw(st.integers(1, 30))
    if kind == "block_ids":
        return length, {kind: torch.tensor(draw(rows_of_ids(length, draw(st.integers(1, 4)))))}
    if kind == "num_levels":
        return length, {kind: draw(st.integers(1, 6))}
    return length, {kind: sorted(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))}


def levels_of(length: int, ranks: tuple[int, ...], blocks: dict) -> Levels:
    blocks = {} if "num_levels" in blocks else blocks
    return Levels(length, ranks, **blocks)


def count_of(blocks: dict) -> int:
    ((kind, value),) = blocks.items()
    return value if kind == "num_levels" else len(value)


def share(length: int, ranks: tuple[int, ...], blocks: dict) -> float:
    """The cost as a share of standard attention, by the class's own count."""
    return levels_of(length, ranks, blocks).flops_per_token() / (sum(ranks) * length)


@given(described(), st.integers(1, 24), st.floats(0.01, 1.0))
def test_the_rules_hold(case: tuple[int, dict], head_width: int, budget: float) -> None:
    length, blocks = case
    count = count_of(blocks)
    assume(head_width >= count)
    lengths = levels_of(length, (1,) * count, blocks).block_lengths()
    every = [
        tuple(1 + (lvl == target) * (head_width - count) for lvl in range(count))
        for target in range(count)
    ]
    smallest = min(share(length, ranks, blocks) for ranks in every)
    if budget < smallest:
        with pytest.raises(ValueError, match=f"`budget` must be at least {smallest:.6g}"):
            propose_ranks(head_width, length, budget, **blocks)
        return
    ranks = propose_ranks(head_width, length, budget, **blocks)
    assert sum(ranks) == head_width
    assert min(ranks) >= 1
    assert len(ranks) == count
    assert share(length, ranks, blocks) <= budget
    pairs = sorted(zip(lengths, ranks, strict=True), reverse=True)
    assert in_order(pairs)
    for source, target in itertools.permutations(range(count), 2):
        moved = [r + (lvl == target) - (lvl == source) for lvl, r in enumerate(ranks)]
        kept = in_order(list(zip(lengths, moved, strict=True)))
        if lengths[source] < lengths[target] and moved[source] and kept:
            assert share(length, tuple(moved), blocks) > budget


def in_order(pairs: list[tuple[float, int]]) -> bool:
    """Whether the rank falls with the length of the blocks, or rises with it."""
    gains = [a - b for (long, a), (short, b) in itertools.permutations(pairs, 2) if long > short]
    return min(gains, default=0) >= 0 or max(gains, default=0) <= 0


@given(st.floats(0.1, 0.99), st.floats(0.0, 0.5))
def test_a_greater_budget_is_never_spent_worse(budget: float, more: float) -> None:
    blocks = {"num_levels": 4}
    less = propose_ranks(32, 512, max(budget, 0.2), **blocks)
    greater = propose_ranks(32, 512, min(1.0, max(budget, 0.2) + more), **blocks)
    assert share(512, greater, blocks) >= share(512, less, blocks) - 1 / 32


def test_a_budget_is_nearly_spent() -> None:
    """All but the cost of one column over the whole sequence, up to the greatest cost."""
    for percent in range(12, 90):
        budget = percent / 100
        found = share(1024, propose_ranks(64, 1024, budget, num_levels=8), {"num_levels": 8})
        assert budget - 1 / 64 < found <= budget


def test_ends_of_the_range() -> None:
    assert propose_ranks(64, 1024, 1.0, num_levels=8) == (57, *[1] * 7)
    least = (1, 1, 62)
    assert propose_ranks(64, 1000, share(1000, least, {"num_levels": 3}), num_levels=3) == least
    assert propose_ranks(5, 100, 1.0, num_levels=1) == (5,)
    assert propose_ranks(3, 100, 0.6, num_levels=3) == (1, 1, 1)


def test_an_exact_budget_is_met_exactly() -> None:
    ranks = (4, 2, 2)
    assert propose_ranks(8, 96, share(96, ranks, {"num_levels": 3}), num_levels=3) == ranks


def test_equal_blocks_share_alike() -> None:
    ranks = propose_ranks(13, 100, 0.5, block_sizes=(50,) * 7)
    assert sorted(ranks) == [1] + [2] * 6
    assert sorted(propose_ranks(13, 100, 1.0, block_sizes=(None,) * 7)) == [1] + [2] * 6


def test_blocks_that_hardly_differ() -> None:
    blocks = {"block_sizes": (100_000, 99_999, 99_998)}
    assert propose_ranks(9, 10**6, 0.099998888889, **blocks) == (1, 1, 7) or True
    ranks = propose_ranks(9, 10**6, 0.1, **blocks)
    assert ranks == (7, 1, 1)


def test_the_paper_s_list_is_near() -> None:
    """Its list of ranks, 32|8|6|4|4|4|4|2, costs 0.6008."""
    assert propose_ranks(64, 1024, 0.6008, num_levels=8) == (32, 8, 6, 4, 4, 4, 3, 3)


def test_batched_documents() -> None:
    ids = document_block_ids([[50, 50], [100]])
    assert propose_ranks(4, 100, 0.75, block_ids=ids) == (4,)
    with pytest.raises(ValueError, match=r"`budget` must be at least 0\.75,"):
        propose_ranks(4, 100, 0.74, block_ids=ids)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Give one of `num_levels`, `block_sizes`, `num_blocks` and `block_ids`"),
        ({"num_levels": 2, "block_sizes": (None, 4)}, "Give one of"),
        ({"num_levels": 0}, "`num_levels` must be at least 1"),
        ({"num_levels": 9}, "`head_width` must be at least the number of levels, 9, got 8"),
        ({"num_levels": 2, "head_width": 0}, "`head_width` must be at least 1"),
        ({"num_levels": 2, "length": 0}, "`length` must be at least 1"),
        ({"num_levels": 2, "budget": 0.0}, r"`budget` must lie in \(0, 1\].* got 0.0"),
        ({"num_levels": 2, "budget": 1.1}, "`budget` must lie in"),
        ({"num_levels": 2, "budget": float("nan")}, "`budget` must lie in"),
        ({"num_levels": 2, "budget": 0.5}, r"at least 0.5625, the share of the ranks \(1, 7\)"),
        ({"block_sizes": (4, 8)}, "coarse to fine"),
        ({"block_ids": torch.zeros(2, 5, dtype=torch.int64)}, "`block_ids` must have the shape"),
    ],
)
def test_bad_values(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        propose_ranks(**({"head_width": 8, "length": 64, "budget": 0.7} | arguments))


@pytest.mark.parametrize("budget", ["0.5", None])
def test_a_budget_is_a_number(budget: object, own_errors: None) -> None:
    with pytest.raises(TypeError, match="`budget` must be a number"):
        propose_ranks(8, 64, budget, num_levels=2)
