"""Sizes of a grid of blocks: by default, from counts, counted back from the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlrforecast.ops import Levels, check_levels, halving_block_sizes, newest_whole_offset


@given(st.integers(1, 5000), st.integers(1, 9))
def test_halving_blocks_nest_and_cover_any_length(length: int, num_levels: int) -> None:
    sizes = halving_block_sizes(length, num_levels)
    assert len(sizes) == num_levels
    assert sizes[0] is None
    assert Levels(length, (1,) * num_levels, sizes).nested
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
    ids = Levels(length, (1,) * len(counts), num_blocks=counts).ids()
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
