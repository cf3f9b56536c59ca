"""Documents, and levels put inside other levels, against plain loops."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlrforecast.ops import Levels, document_block_ids, nested_block_ids
from tests.ops.levels.partitions import is_nested, rows_of_ids, same_partition

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def counted_inside(row: list, size: int) -> list:
    """Positions of each block counted from its first one, in blocks of a size."""
    seen: dict = {}
    names = []
    for block in row:
        names.append((block, seen.get(block, 0) // size))
        seen[block] = seen.get(block, 0) + 1
    return names


@given(LENGTHS, st.integers(0, 4))
def test_documents_one_after_the_other(lengths: list[int], padding: int) -> None:
    expected = [d for d, n in enumerate([*lengths, padding]) for _ in range(n)]
    total = sum(lengths) + padding
    assert document_block_ids(lengths, length=total).tolist() == [expected]
    edges = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    assert document_block_ids(boundaries=edges, length=total).tolist() == [expected]
    if not padding:
        assert document_block_ids(lengths).tolist() == [expected]


@given(st.lists(LENGTHS, min_size=1, max_size=3))
def test_documents_of_a_batch(packs: list[list[int]]) -> None:
    longest = max(map(sum, packs))
    found = document_block_ids(packs, length=longest)
    assert found.shape == (len(packs), 1, longest)
    for ids, lengths in zip(found, packs, strict=True):
        assert torch.equal(ids, document_block_ids(lengths, length=longest))
    assert Levels(longest, (1,), block_ids=found).contiguous


def test_whatever_holds_the_lengths() -> None:
    expected = document_block_ids([2, 3])
    for lengths in ((2, 3), np.array([2, 3]), torch.tensor([2, 3]), [np.int64(2), 3]):
        assert torch.equal(document_block_ids(lengths), expected)
    batch = document_block_ids([[2, 3], [5]])
    for packs in ([np.array([2, 3]), (5,)], [torch.tensor([2, 3]), [5]]):
        assert torch.equal(document_block_ids(packs), batch)
    rectangular = torch.tensor([[2, 3], [1, 4]])
    assert torch.equal(document_block_ids(rectangular), document_block_ids([[2, 3], [1, 4]]))
    assert document_block_ids([2], device="meta").device.type == "meta"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Give `lengths` or `boundaries`, one of the two"),
        ({"lengths": [1], "boundaries": [0, 1]}, "one of the two"),
        ({"lengths": []}, "`lengths` must hold at least one document"),
        ({"lengths": [[1], []]}, r"`lengths\[1\]` must hold at least one document"),
        ({"lengths": [2, 0]}, r"`lengths\[1\]` must be at least 1, got 0"),
        ({"lengths": [[2], [1, -1]]}, r"`lengths\[1\]\[1\]` must be at least 1, got -1"),
        ({"lengths": [[2], [3]]}, r"the same steps, got \[2, 3\]. Give `length`"),
        ({"lengths": [3, 4], "length": 6}, "`length` must be at least the 7 steps .* got 6"),
        ({"lengths": [3], "length": 0}, "`length` must be at least 1"),
        ({"boundaries": [0]}, "`boundaries` must hold at least one document"),
        ({"boundaries": [1, 4]}, r"`boundaries` must begin with 0 and grow, got \[1, 4\]"),
        ({"boundaries": [0, 4, 4]}, "must begin with 0 and grow"),
    ],
)
def test_bad_documents(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        document_block_ids(**arguments)


@pytest.mark.parametrize("lengths", [3, [1.5], [[1], 2], "12", [True]])
def test_lengths_are_integers(lengths: object, own_errors: None) -> None:
    with pytest.raises(TypeError, match=r"`lengths.* must be"):
        document_block_ids(lengths)


@given(st.data(), st.integers(1, 12), st.integers(1, 3), LENGTHS)
def test_levels_are_cut_where_coarser_ones_end(
    data: st.DataObject, length: int, count: int, sizes: list[int]
) -> None:
    rows = data.draw(rows_of_ids(length, count))
    sizes = sorted(sizes[:3], reverse=True)
    ids = nested_block_ids(torch.tensor(rows), block_sizes=sizes)
    expected = [list(zip(*rows[: lvl + 1], strict=True)) for lvl in range(count)]
    parent = expected[-1]
    for size in sizes:
        inside = counted_inside(parent, size)
        expected.append(list(zip(expected[-1], inside, strict=True)))
    for found, row in zip(ids.tolist(), expected, strict=True):
        assert same_partition(found, row)
        assert set(found) == set(range(len(set(row))))
    assert is_nested(ids.tolist())
    assert Levels(length, (1,) * len(ids), block_ids=ids).nested


@given(st.data(), st.integers(1, 8))
def test_what_nests_stays_as_it_is(data: st.DataObject, length: int) -> None:
    ids = nested_block_ids(torch.tensor(data.draw(rows_of_ids(length, 3))))
    assert torch.equal(nested_block_ids(ids), ids)
    assert torch.equal(nested_block_ids(ids[:1], ids[1:]), ids)


@given(st.data(), st.integers(1, 3), st.integers(1, 8))
def test_a_batch_is_its_sequences(data: st.DataObject, batch: int, length: int) -> None:
    packs = torch.tensor([data.draw(rows_of_ids(length, 1)) for _ in range(batch)])
    common = torch.tensor(data.draw(rows_of_ids(length, 2)), dtype=torch.int64)
    found = nested_block_ids(common.to(torch.int16), packs, block_sizes=(2,))
    assert found.shape == (batch, 4, length)
    for ids, pack in zip(found, packs, strict=True):
        assert torch.equal(ids, nested_block_ids(common.to(torch.int16), pack, block_sizes=(2,)))


def test_blocks_are_counted_inside_documents() -> None:
    ids = nested_block_ids(document_block_ids([5, 3]), block_sizes=(4, 2))
    assert ids.tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 1],
        [0, 0, 0, 0, 1, 2, 2, 2],
        [0, 0, 1, 1, 2, 3, 3, 4],
    ]


@pytest.mark.parametrize(
    ("block_ids", "sizes", "message"),
    [
        ((), (), "`block_ids` must be at least one tensor"),
        ((torch.zeros(1, 4, dtype=torch.int64), torch.zeros(1, 5, dtype=torch.int64)), (), "one S"),
        ((torch.zeros(0, 4, dtype=torch.int64),), (), r"must have shapes .* got \(0, 4\)"),
        ((torch.zeros(2, 1, 4, dtype=torch.int64), torch.zeros(3, 1, 4).long()), (), "one B"),
        ((torch.zeros(1, 4, dtype=torch.int64),), (0,), r"`block_sizes\[0\]` must be at least 1"),
        ((torch.zeros(1, 4, dtype=torch.int64),), (2, 4), "never grow"),
    ],
)
def test_bad_combinations(block_ids: tuple, sizes: tuple, message: str, own_errors: None) -> None:
    with pytest.raises(ValueError, match=message):
        nested_block_ids(*block_ids, block_sizes=sizes)


@pytest.mark.parametrize(
    ("block_ids", "sizes", "message"),
    [
        (torch.zeros(1, 4), (), r"`block_ids\[0\]` must hold integers, got torch.float32"),
        ([[0, 0]], (), r"`block_ids\[0\]` must be a torch.Tensor"),
        (torch.zeros(1, 4, dtype=torch.int64), (None,), r"`block_sizes\[0\]` must be an integer"),
    ],
)
def test_wrong_types(block_ids: object, sizes: tuple, message: str, own_errors: None) -> None:
    with pytest.raises(TypeError, match=message):
        nested_block_ids(block_ids, block_sizes=sizes)
