"""The sizes of a grid of blocks, coarse to fine."""

import itertools
import math
from collections.abc import Sequence

from mlrforecast.ops._checks import LARGEST, entries, integer, positive, positives

__all__ = [
    "check_levels",
    "check_offset",
    "check_sizes",
    "halving_block_sizes",
    "newest_whole_offset",
    "whole_where_covering",
]


def check_levels(
    length: int,
    ranks: Sequence[int],
    block_sizes: Sequence[int | None] | None = None,
    *,
    num_blocks: Sequence[int] | None = None,
) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Check a description of levels and return it in its canonical form.

    Levels run coarse to fine. With neither ``block_sizes`` nor ``num_blocks`` every level halves
    the blocks of the one before, see :func:`halving_block_sizes`.

    Parameters
    ----------
    length : int, at least 1
        Time steps of the sequence.
    ranks : sequence of int, one per level, each at least 1
        Columns of the head width that each level owns.
    block_sizes : sequence of int or None, one per level, optional
        Time steps of a block, never growing from one level to the next. ``None`` is one block
        over the whole sequence, however long.
    num_blocks : sequence of int, one per level, optional
        The same as counts, never shrinking: a level gets the shortest blocks that need at most
        that many, a multiple of the next level's where the counts divide. 1 means ``None``.

    Returns
    -------
    ranks : tuple of int
    block_sizes : tuple of int or None

    Raises
    ------
    ValueError
        If a rank, size or count is out of range, their order is not coarse to fine, their
        numbers differ, or both ``block_sizes`` and ``num_blocks`` are given.
    TypeError
        If an entry is not an integer.

    Examples
    --------
    >>> check_levels(96, [4, 2, 2])
    ((4, 2, 2), (None, 48, 24))
    >>> check_levels(96, (6, 2), num_blocks=(1, 8))
    ((6, 2), (None, 12))
    """
    length = positive(length, "length")
    checked = positives(ranks, "ranks")
    if not checked:
        raise ValueError("`ranks` must name at least one level, got an empty sequence.")
    if block_sizes is not None and num_blocks is not None:
        raise ValueError("Give `block_sizes` or `num_blocks`, not both.")
    if num_blocks is not None:
        counts = positives(num_blocks, "num_blocks")
        _check_count(counts, "num_blocks", len(checked))
        return checked, _sizes_of_counts(length, counts)
    if block_sizes is None:
        return checked, halving_block_sizes(length, len(checked))
    sizes = check_sizes(block_sizes)
    _check_count(sizes, "block_sizes", len(checked))
    return checked, sizes


def halving_block_sizes(length: int, num_levels: int) -> tuple[int | None, ...]:
    """Cut a sequence into 1, 2, 4, ... blocks, nested whatever its length.

    The finest block has ``b = ceil(length / 2**(num_levels - 1))`` steps and each coarser level
    twice as many; the coarsest is the whole sequence.

    Parameters
    ----------
    length : int, at least 1
        Time steps of the sequence.
    num_levels : int, at least 1
        Number of levels.

    Returns
    -------
    tuple of int or None
        Block sizes, coarse to fine, the first ``None``.

    Raises
    ------
    ValueError
        If an argument is less than 1.

    Examples
    --------
    >>> halving_block_sizes(96, 4)
    (None, 48, 24, 12)
    >>> halving_block_sizes(100, 4)
    (None, 52, 26, 13)
    """
    length, num_levels = positive(length, "length"), positive(num_levels, "num_levels")
    finest = -(-length // 2 ** (num_levels - 1))
    return (None, *(finest * 2**lvl for lvl in range(num_levels - 2, -1, -1)))


def newest_whole_offset(length: int, block_sizes: Sequence[int | None]) -> int:
    """Return the offset that makes the newest block whole on every level.

    Blocks are then counted back from the end of the sequence; the oldest block of a level may be
    short instead.

    Parameters
    ----------
    length : int, at least 1
        Time steps of the sequence.
    block_sizes : sequence of int or None
        Block sizes, coarse to fine.

    Returns
    -------
    int
        ``-length`` modulo the largest finite block (for sizes that are not nested, modulo their
        least common multiple).

    Raises
    ------
    ValueError
        If ``length`` or a block size is less than 1, or the sizes grow.

    Examples
    --------
    >>> newest_whole_offset(100, (None, 64, 32))
    28
    >>> newest_whole_offset(10, (4,))  # blocks of 2, 4 and 4 steps
    2
    """
    finite = [size for size in check_sizes(block_sizes) if size is not None]
    return -positive(length, "length") % math.lcm(*finite)


def check_offset(offset: int) -> int:
    """Return ``offset`` if it is an integer of at least 0 that can be counted on."""
    value = integer(offset, "offset")
    if value < 0:
        raise ValueError(f"`offset` must be at least 0, got {value}.")
    if value > LARGEST:
        raise ValueError(
            f"`offset` must be at most 2**62, got {value}. "
            "Take it modulo the least common multiple of the block sizes."
        )
    return value


def whole_where_covering(
    length: int, block_sizes: Sequence[int | None], offset: int
) -> tuple[int | None, ...]:
    """Replace by ``None`` the coarsest ``block_sizes`` that put all positions into one block.

    There are ``length`` of them, the first ``offset`` steps inside the grid. A finer level may do
    so under a coarser one that does not, if their blocks do not nest; it keeps its size, so that
    the sizes still run coarse to fine.
    """
    covering = itertools.takewhile(
        lambda size: size is None or offset % size + length <= size, block_sizes
    )
    count = sum(1 for _ in covering)
    return (*[None] * count, *block_sizes[count:])


def _sizes_of_counts(length: int, counts: tuple[int, ...]) -> tuple[int | None, ...]:
    """Turn numbers of blocks into sizes, built up from the finest so that they nest if they can."""
    if any(a > b for a, b in itertools.pairwise(counts)):
        raise ValueError(f"`num_blocks` must not shrink from coarse to fine, got {counts}.")
    sizes: list[int] = []
    finer = counts[-1]
    for count in reversed(counts):
        divides = sizes and finer % count == 0
        sizes.insert(0, sizes[0] * (finer // count) if divides else -(-length // count))
        finer = count
    return tuple(None if n == 1 else size for n, size in zip(counts, sizes, strict=True))


def check_sizes(block_sizes: Sequence[int | None]) -> tuple[int | None, ...]:
    """Return ``block_sizes`` if they are whole numbers of steps, or None, and never grow."""
    sizes = tuple(
        None if size is None else positive(size, f"block_sizes[{lvl}]")
        for lvl, size in enumerate(entries(block_sizes, "block_sizes"))
    )
    limits = [math.inf if size is None else size for size in sizes]
    if any(a < b for a, b in itertools.pairwise(limits)):
        raise ValueError(
            f"`block_sizes` must run coarse to fine and never grow, got {sizes}. "
            "Reorder the levels together with their ranks and columns."
        )
    return sizes


def _check_count(entries: Sequence[object], name: str, num_levels: int) -> None:
    """Check that there is one entry a level."""
    if len(entries) != num_levels:
        raise ValueError(
            f"`{name}` must have one entry for each of the {num_levels} ranks, "
            f"got {len(entries)}: {tuple(entries)}."
        )
