import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlrforecast.ops import (
    block_ids,
    check_levels,
    halving_block_sizes,
    is_nested,
    level_flops,
    level_scales,
    newest_whole_offset,
    shared_levels,
)


@given(st.integers(1, 5000), st.integers(1, 9))
def test_halving_blocks_nest_and_cover_any_length(length: int, num_levels: int) -> None:
    sizes = halving_block_sizes(length, num_levels)
    assert len(sizes) == num_levels
    assert sizes[0] is None
    assert is_nested(sizes)
    for lvl, size in enumerate(sizes[1:], start=1):
        assert size is not None
        assert size * 2**lvl >= length
    finest = sizes[-1]
    if finest is not None:
        assert finest * 2 ** (num_levels - 1) < length + 2 ** (num_levels - 1)


@given(st.integers(1, 300), st.integers(1, 20), st.lists(st.integers(1, 4), max_size=3))
def test_newest_block_is_whole_on_every_level(length: int, finest: int, ratios: list[int]) -> None:
    sizes = [finest]
    for ratio in ratios:
        sizes.insert(0, sizes[0] * ratio)
    offset = newest_whole_offset(length, (None, *sizes))
    assert 0 <= offset < max(sizes)
    assert all((length + offset) % size == 0 for size in sizes)


def test_newest_whole_offset_without_finite_blocks_is_zero() -> None:
    assert newest_whole_offset(17, (None, None)) == 0


def test_newest_whole_offset_of_blocks_that_do_not_nest() -> None:
    offset = newest_whole_offset(100, (None, 6, 4))
    assert (100 + offset) % 6 == (100 + offset) % 4 == 0


def test_block_ids_and_shared_levels_match_the_definition() -> None:
    sizes, offset, length = (None, 7, 3), 4, 25
    ids = block_ids(length, sizes, offset=offset)
    counts = shared_levels(length, sizes, offset=offset)
    for i in range(length):
        blocks = [0, (i + offset) // 7, (i + offset) // 3]
        assert ids[:, i].tolist() == blocks
        for j in range(length):
            others = [0, (j + offset) // 7, (j + offset) // 3]
            assert counts[i, j] == sum(a == b for a, b in zip(blocks, others, strict=True))


@pytest.mark.parametrize(
    ("length", "counts", "sizes"),
    [
        (96, (1, 2, 4), (None, 48, 24)),
        (97, (1, 2, 4), (None, 50, 25)),
        (10, (1, 3, 4), (None, 4, 3)),
        (10, (2, 2), (5, 5)),
        (1, (1, 8), (None, 1)),
    ],
)
def test_numbers_of_blocks(
    length: int, counts: tuple[int, ...], sizes: tuple[int | None, ...]
) -> None:
    _, found = check_levels(length, (1,) * len(counts), num_blocks=counts)
    assert found == sizes
    ids = block_ids(length, found)
    assert all(int(level.max()) + 1 <= n for level, n in zip(ids, counts, strict=True))


def test_counts_that_halve_are_the_default() -> None:
    for length in range(1, 200):
        assert check_levels(length, (1, 1, 1), num_blocks=(1, 2, 4)) == check_levels(
            length, (1, 1, 1)
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ranks": (4, 0)}, r"`ranks\[1\]` must be at least 1, got 0"),
        ({"ranks": ()}, "at least one level"),
        ({"ranks": (4, 2), "block_sizes": (None, 0)}, r"`block_sizes\[1\]` must be at least 1"),
        ({"ranks": (4, 2), "block_sizes": (None,)}, "one entry for each of the 2 ranks, got 1"),
        ({"ranks": (4, 2), "block_sizes": (8, 16)}, "coarse to fine and never grow, got"),
        ({"ranks": (4, 2), "block_sizes": (8, None)}, "coarse to fine and never grow, got"),
        ({"ranks": (4, 2), "num_blocks": (4, 2)}, "must not shrink"),
        ({"ranks": (4, 2), "num_blocks": (1, 2), "block_sizes": (None, 8)}, "not both"),
        ({"ranks": (4,), "length": 0}, "`length` must be at least 1"),
    ],
)
def test_bad_levels(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_levels(**({"length": 32} | arguments))


@pytest.mark.parametrize("ranks", [(4, 2.0), (True, 2), ("4", 2)])
def test_levels_are_integers(ranks: tuple[object, ...], own_errors: None) -> None:
    with pytest.raises(TypeError, match="must be an integer"):
        check_levels(32, ranks)


def test_negative_offset() -> None:
    with pytest.raises(ValueError, match="`offset` must be at least 0, got -1"):
        block_ids(8, (None, 4), offset=-1)


def test_flops_follow_the_published_count() -> None:
    """Per token, ``H * sum(r * b)``; the eight-level list costs 60 % of standard attention."""
    ranks = (32, 8, 6, 4, 4, 4, 4, 2)
    by_hand = 4 * sum(r * 1024 // 2**lvl for lvl, r in enumerate(ranks))
    assert level_flops(1024, ranks, num_heads=4) == by_hand
    assert level_flops(10, (3, 1), (40, 4)) == 3 * 10 + 1 * 4
    assert level_flops(512, (64,), num_heads=8) == 8 * 64 * 512


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("inverse_rank", (1 / 9, 1 / 7)),
        ("inverse_sqrt_rank", (1 / 3, 7**-0.5)),
        ("inverse_sqrt_width", (0.25, 0.25)),
        ((2.0, 0.5), (2.0, 0.5)),
    ],
)
@pytest.mark.parametrize("divide", [False, True])
def test_scales(scale: object, expected: tuple[float, ...], divide: bool) -> None:
    found = level_scales((9, 7), scale, divide_by_num_levels=divide)
    assert found == pytest.approx([x / 2 if divide else x for x in expected])


@pytest.mark.parametrize("scale", ["inverse", (1.0,), (1.0, 0.0), (1.0, float("nan")), (-1.0, 1.0)])
def test_bad_scales(scale: object, own_errors: None) -> None:
    with pytest.raises(ValueError, match="`level_scale` must"):
        level_scales((4, 2), scale)


def test_results_are_made_on_the_device_asked_for() -> None:
    assert block_ids(4, (None,), device="meta").device.type == "meta"
    assert shared_levels(4, (2,), device=torch.device("meta")).shape == (4, 4)
