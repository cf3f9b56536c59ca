"""What a partition means, in plain loops, and partitions to try it on."""

from hypothesis import strategies as st

Rows = list[list[int]]


@st.composite
def grids(draw: st.DrawFn) -> dict:
    """Arguments of a grid of blocks, nested or not, its sizes also beyond the length."""
    length = draw(st.integers(1, 40))
    sizes = sorted(draw(st.lists(st.integers(1, 50), min_size=1, max_size=4)), reverse=True)
    if draw(st.booleans()):
        sizes[0] = None
    ranks = draw(st.lists(st.integers(1, 5), min_size=len(sizes), max_size=len(sizes)))
    offset = draw(st.integers(0, 60))
    return {"length": length, "ranks": ranks, "block_sizes": sizes, "offset": offset}


@st.composite
def rows_of_ids(draw: st.DrawFn, length: int, num_levels: int) -> Rows:
    """Block ids of each level: any integers, in runs or scattered, sometimes nested by chance."""
    rows = []
    for _ in range(num_levels):
        ids = st.integers(-3, 3) if draw(st.booleans()) else st.sampled_from([-(2**40), 5, 2**40])
        row = draw(st.lists(ids, min_size=length, max_size=length))
        rows.append(sorted(row) if draw(st.booleans()) else row)
    return rows


@st.composite
def tables(draw: st.DrawFn) -> Rows:
    """Block ids of one to three levels."""
    return draw(rows_of_ids(draw(st.integers(1, 12)), draw(st.integers(1, 3))))


def rows_of_grid(length: int, block_sizes: list[int | None], offset: int = 0) -> Rows:
    return [
        [0 if size is None else (i + offset) // size for i in range(length)] for size in block_sizes
    ]


def blocks(row: list[int]) -> list[list[int]]:
    """The positions of each block, in the order of their first ones."""
    found: dict[int, list[int]] = {}
    for i, block in enumerate(row):
        found.setdefault(block, []).append(i)
    return list(found.values())


def is_nested(rows: Rows) -> bool:
    return all(
        len({coarse[i] for i in block}) == 1
        for lvl, fine in enumerate(rows)
        for block in blocks(fine)
        for coarse in rows[:lvl]
    )


def is_contiguous(rows: Rows) -> bool:
    return all(b[-1] - b[0] + 1 == len(b) for row in rows for b in blocks(row))


def is_whole(rows: Rows) -> bool:
    return any(len(set(row)) == 1 for row in rows)


def summed(rows: Rows, weights: list[int]) -> Rows:
    """For each pair, the weights of the levels on which it shares a block."""
    length = len(rows[0])
    return [
        [
            sum(weight for weight, row in zip(weights, rows, strict=True) if row[i] == row[j])
            for j in range(length)
        ]
        for i in range(length)
    ]


def same_partition(found: list[int], expected: list) -> bool:
    """Whether two rows of ids put the same positions together, whatever the ids."""
    return blocks(found) == blocks(expected)
