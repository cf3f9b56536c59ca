"""Levels against plain loops over positions."""

import copy
import dataclasses
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlrforecast.ops import Levels
from tests.ops.levels.partitions import (
    blocks,
    grids,
    is_contiguous,
    is_nested,
    is_whole,
    rows_of_grid,
    rows_of_ids,
    summed,
    tables,
)

IDS = torch.tensor([[0, 0, 0, 0, 0, 0], [4, 4, 4, 1, 1, 1]])


@given(grids())
def test_a_grid_is_what_its_definition_says(arguments: dict) -> None:
    levels = Levels(**arguments)
    rows = rows_of_grid(arguments["length"], arguments["block_sizes"], arguments["offset"])
    for found, expected in zip(levels.ids().tolist(), rows, strict=True):
        assert found == expected or len(set(found)) == len(set(expected)) == 1
    assert levels.shared().tolist() == summed(rows, [1] * len(rows))
    assert levels.effective_rank().tolist() == summed(rows, arguments["ranks"])
    assert levels.nested == is_nested(rows)
    assert levels.whole == is_whole(rows)
    assert levels.contiguous
    assert not levels.batched
    assert levels.starts() == tuple(tuple(b[0] for b in blocks(row)) for row in rows)


@given(tables(), st.sampled_from([torch.int64, torch.int32, torch.uint8]))
def test_ids_are_what_their_definition_says(rows: list[list[int]], dtype: torch.dtype) -> None:
    given_ids = torch.tensor(rows)
    if dtype != torch.int64:
        given_ids = (given_ids % 251).to(dtype)
        rows = given_ids.tolist()
    ranks = list(range(1, len(rows) + 1))
    levels = Levels(len(rows[0]), ranks, block_ids=given_ids)
    assert levels.ids().tolist() == rows
    assert levels.ids().dtype == torch.int64
    assert levels.block_sizes is None
    assert levels.shared().tolist() == summed(rows, [1] * len(rows))
    assert levels.effective_rank().tolist() == summed(rows, ranks)
    assert levels.nested == is_nested(rows)
    assert levels.whole == is_whole(rows)
    assert levels.contiguous == is_contiguous(rows)
    if levels.contiguous:
        assert levels.starts() == tuple(tuple(b[0] for b in blocks(row)) for row in rows)
    met = [sum(len(b) ** 2 for b in blocks(row)) / len(row) for row in rows]
    assert levels.block_lengths() == pytest.approx(met)
    expected = 3 * sum(rank * length for rank, length in zip(ranks, met, strict=True))
    assert levels.flops_per_token(num_heads=3) == pytest.approx(expected)


@given(st.data(), st.integers(1, 3), st.integers(1, 8), st.integers(1, 3))
def test_a_batch_is_its_sequences(data: st.DataObject, batch: int, length: int, count: int) -> None:
    tables = [data.draw(rows_of_ids(length, count)) for _ in range(batch)]
    ranks = (2,) * count
    together = Levels(length, ranks, block_ids=torch.tensor(tables))
    single = [Levels(length, ranks, block_ids=torch.tensor(rows)) for rows in tables]
    assert together.batched
    assert together.shared().tolist() == [one.shared().tolist() for one in single]
    assert together.effective_rank().tolist() == [one.effective_rank().tolist() for one in single]
    for name in ("nested", "contiguous", "whole"):
        assert getattr(together, name) == all(getattr(one, name) for one in single)
    mean = sum(one.flops_per_token() for one in single) / batch
    assert together.flops_per_token() == pytest.approx(mean)
    with pytest.raises(ValueError, match="one partition for each sequence"):
        together.starts()


@given(grids())
def test_a_grid_and_its_ids_are_one_partition(arguments: dict) -> None:
    grid = Levels(**arguments)
    table = Levels(grid.length, grid.ranks, block_ids=grid.ids())
    for name in ("nested", "whole", "contiguous"):
        assert getattr(grid, name) == getattr(table, name)
    assert grid.starts() == table.starts()
    assert torch.equal(grid.shared(), table.shared())


@given(grids(), st.integers(1, 40))
def test_queries_are_the_newest_positions(arguments: dict, num_queries: int) -> None:
    levels = Levels(**arguments)
    num_queries = min(num_queries, levels.length)
    shared = levels.shared(num_queries=num_queries)
    assert torch.equal(shared, levels.shared()[levels.length - num_queries :])


def test_the_newest_rows_of_a_batch() -> None:
    levels = Levels(6, (2, 1), block_ids=torch.stack([IDS, IDS.flip(0)]))
    assert torch.equal(levels.shared(num_queries=2), levels.shared()[:, 4:])


def test_levels_halve_by_default() -> None:
    assert Levels(96, (4, 2, 2)).block_sizes == (None, 48, 24)
    assert Levels(96, (4, 2), num_blocks=(2, 4)).block_sizes == (48, 24)


def test_sizes_that_cover_every_position_are_whole() -> None:
    assert Levels(10, (1, 1, 1), (20, 10, 5)).block_sizes == (None, None, 5)
    assert Levels(10, (1, 1, 1), (20, 10, 5), offset=1).block_sizes == (None, 10, 5)
    # A finer level may cover all where a coarser one does not; the sizes stay in order.
    levels = Levels(3, (1, 1), (4, 3), offset=3)
    assert levels.block_sizes == (4, 3)
    assert levels.whole
    assert not levels.nested


def test_blocks_may_nest_without_dividing_each_other() -> None:
    levels = Levels(8, (1, 1), (6, 4), offset=8)
    assert levels.starts() == ((0, 4), (0, 4))
    assert levels.nested
    assert not Levels(8, (1, 1), (6, 4), offset=3).nested
    assert not Levels(18, (1, 1), (6, 4), offset=8).nested


def test_sizes_and_ids_beyond_int64_and_int32() -> None:
    levels = Levels(3, (1, 1), (2**63, 2), offset=1)
    assert levels.ids().tolist() == [[0, 0, 0], [0, 1, 1]]
    far = Levels(5, (1,), (4,), offset=2**62).ids()
    assert far.tolist() == [[2**60] * 4 + [2**60 + 1]]


def test_the_cost_follows_the_published_count() -> None:
    """Per token, ``H * sum(r * b)``; the eight-level list costs 60 % of standard attention."""
    ranks = (32, 8, 6, 4, 4, 4, 4, 2)
    by_hand = 4 * sum(r * 1024 // 2**lvl for lvl, r in enumerate(ranks))
    found = Levels(1024, ranks).flops_per_token(num_heads=4)
    assert found == by_hand
    assert isinstance(found, int)
    assert Levels(1024, ranks).flops_per_token() / (64 * 1024) == 0.600830078125
    assert Levels(10, (3, 1), (40, 4)).flops_per_token() == 3 * 10 + 1 * 4
    assert Levels(512, (64,)).flops_per_token(num_heads=8) == 8 * 64 * 512
    # No block is longer than the sequence, even where two of them hold it.
    assert Levels(10, (3,), (12,), offset=5).flops_per_token() == 3 * 10


def test_it_is_frozen_and_keeps_its_own_ids() -> None:
    ids = IDS.clone()
    levels = Levels(6, (2, 1), block_ids=ids)
    ids.zero_()
    levels.ids().zero_()
    levels.ids("cpu").zero_()
    assert torch.equal(levels.ids(), IDS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        levels.length = 7
    for other in (copy.deepcopy(levels), pickle.loads(pickle.dumps(levels))):
        assert torch.equal(other.ids(), IDS)
        assert other.ranks == (2, 1)


def test_it_says_what_it_is() -> None:
    assert repr(Levels(8, (2, 1))) == "Levels(8, (2, 1), block_sizes=(None, 4))"
    assert repr(Levels(8, (1,), (4,), offset=1)) == "Levels(8, (1,), block_sizes=(4,), offset=1)"
    assert repr(Levels(6, (2, 1), block_ids=IDS)) == "Levels(6, (2, 1), block_ids=<2 x 6>)"
    assert (Levels(8, (4, 2, 1)).num_levels, Levels(8, (4, 2, 1)).width) == (3, 7)


def test_results_are_made_on_the_device_asked_for() -> None:
    levels = Levels(6, (2, 1), block_ids=IDS)
    for made in (
        levels.ids("meta"),
        levels.shared(torch.device("meta")),
        Levels(6, (1,)).ids("meta"),
    ):
        assert made.device.type == "meta"
    assert levels.effective_rank("meta").shape == (6, 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"block_sizes": (8, 4), "block_ids": IDS}, "only one"),
        ({"num_blocks": (1, 2), "block_ids": IDS}, "only one"),
        ({"num_blocks": (1, 2), "block_sizes": (8, 4)}, "not both"),
        ({"block_ids": IDS, "offset": 1}, "`offset` has no meaning with `block_ids`, got 1"),
        ({"offset": -1}, "`offset` must be at least 0, got -1"),
        ({"offset": 2**62 + 1}, r"`offset` must be at most 2\*\*62"),
        ({"length": 0}, "`length` must be at least 1, got 0"),
        ({"length": 0, "block_ids": IDS}, "`length` must be at least 1, got 0"),
        ({"ranks": (2, 0), "block_ids": IDS}, r"`ranks\[1\]` must be at least 1, got 0"),
        ({"ranks": ()}, "at least one level"),
        ({"ranks": (), "block_ids": IDS[:0]}, "at least one level"),
        ({"ranks": (2,), "block_ids": IDS}, r"= \(1, 6\) or .*; got \(2, 6\)"),
        ({"length": 5, "block_ids": IDS}, r"= \(2, 5\) or .*; got \(2, 6\)"),
        ({"block_ids": IDS[None, None]}, r"got \(1, 1, 2, 6\)"),
        ({"block_ids": IDS[None][:0]}, r"got \(0, 2, 6\)"),
    ],
)
def test_bad_descriptions(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Levels(**({"length": 6, "ranks": (2, 1)} | arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"block_ids": IDS.float()}, "`block_ids` must be a tensor of integers, got torch.float32"),
        ({"block_ids": IDS > 0}, "`block_ids` must be a tensor of integers, got torch.bool"),
        ({"block_ids": IDS.tolist()}, "`block_ids` must be a torch.Tensor, got a list"),
        ({"ranks": (2, 1.0)}, r"`ranks\[1\]` must be an integer"),
        ({"offset": 0.5}, "`offset` must be an integer"),
    ],
)
def test_wrong_types(arguments: dict, message: str, own_errors: None) -> None:
    with pytest.raises(TypeError, match=message):
        Levels(**({"length": 6, "ranks": (2, 1)} | arguments))


@pytest.mark.parametrize("num_queries", [0, 7])
def test_too_many_or_no_queries(num_queries: int) -> None:
    with pytest.raises(ValueError, match="`num_queries` must be at"):
        Levels(6, (2, 1)).shared(num_queries=num_queries)


def test_blocks_with_gaps_have_no_starts() -> None:
    levels = Levels(3, (1,), block_ids=torch.tensor([[0, 1, 0]]))
    with pytest.raises(ValueError, match="one start for each block, got blocks with gaps"):
        levels.starts()


@pytest.mark.compile
def test_it_is_made_inside_a_compiled_graph() -> None:
    def pairs(x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        grid = Levels(x.shape[0], (4, 2), (16, 8))
        table = Levels(x.shape[0], (4, 2), block_ids=ids)
        return grid.shared() + 10 * table.shared() + (100 if grid.nested else 0)

    compiled = torch.compile(pairs, fullgraph=True, backend="eager", dynamic=True)
    for length in (20, 33, 41):
        ids = torch.arange(2 * length).view(2, length) // 3
        x = torch.zeros(length)
        assert torch.equal(compiled(x, ids), pairs(x, ids))
