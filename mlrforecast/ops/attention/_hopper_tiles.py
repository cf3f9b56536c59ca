"""What the kernels of multi-level attention for NVIDIA's Hopper share.

The warps of a program do different work: two groups of four attend 64 of its 128 rows each, which
are queries, or keys in the backward pass by keys; one more loads tiles of columns for both. While
one group takes powers of 2, the other multiplies. A program begins with the tiles on the diagonal
and goes outward, stage by stage: in the stage of level ``m`` lie the tiles whose pairs share
exactly the levels up to ``m``, contracted over the first ``R_m`` columns of the head alone. A block
begins and ends at multiples of 128 steps, or inside a tile of the diagonal, where each level is
contracted by itself and counts for the pairs that share it.

A position ``i`` of level ``lvl`` lies in the block ``[starts[lvl, i], ends[lvl, i])``. There are as
many queries as keys. Scores are in units of log 2, and ``scale`` holds its factor.
"""

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from mlrforecast.ops.attention import _hopper

__all__ = [
    "PROGRAM_ROWS",
    "ROWS",
    "SIZES",
    "Blocks",
    "Layout",
    "Matrix",
    "Moments",
    "Ring",
    "Tiles",
    "borders",
    "diagonal_gradient",
    "diagonal_scores",
    "load_layout",
    "load_rows",
    "load_tiles",
    "make_ring",
    "make_rows",
    "matrix",
    "multiply",
    "narrowed",
    "operand_layout",
    "place_of",
    "product_layout",
    "put_rows",
    "shared_layout",
    "shared_levels",
    "slot_of",
    "store_columns",
    "tile_of",
]

PROGRAM_ROWS = gl.constexpr(_hopper.PROGRAM_ROWS)
ROWS = gl.constexpr(64)
"""Of a group of four warps."""

_REINTERPRET = gl.constexpr(hasattr(gl.shared_memory_descriptor, "reinterpret"))
_load_tile = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
"""Names of today, and of Triton 3.6."""

SIZES = ("num_heads", "num_groups")
"""Arguments whose values are no reason to compile anew."""


class Layout(NamedTuple):
    """What a kernel is specialised by."""

    upto: tuple[int, ...]
    """Columns of the head before each level, and all of them."""
    padded: tuple[int, ...]
    """Width of a product over the columns up to each level."""
    levels: int
    coarse: int
    """Levels that have no border inside a tile of the diagonal."""
    value_columns: int
    value_width: int
    group: int
    """Query heads of a key head."""
    columns: int
    """Steps of a tile that is loaded."""
    depth: int
    """How many tiles are in flight."""
    causal: bool
    scaled: bool
    """Whether the columns of the queries have factors."""
    divide: bool


class Matrix(NamedTuple):
    """Rows of one head in memory."""

    pointer: Any
    step: Any


class Blocks(NamedTuple):
    """Where the block of each position begins and ends, ``length`` positions a level."""

    starts: Any
    ends: Any
    length: Any


class Tiles(NamedTuple):
    """Descriptors of tiles in memory, by their width."""

    of_16: Any
    of_32: Any
    of_64: Any
    of_128: Any


class Ring(NamedTuple):
    """Tiles in shared memory that one warp fills in turn, and two groups empty."""

    tiles: Any
    full: Any
    empty: Any


class Moments(NamedTuple):
    """Of each query the log-sum-exp and the mean slope, ``length`` of them for each head."""

    lse: Any
    mean: Any
    length: Any


@gluon.constexpr_function
def shared_layout(width, rank=2):
    return gl.NVMMASharedLayout(
        swizzle_byte_width=min(2 * width, 128), element_bitwidth=16, rank=rank
    )


@gluon.constexpr_function
def product_layout(width):
    return gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, width, 16]
    )


@gluon.constexpr_function
def operand_layout(width):
    """Return how the left side of a product of so many columns lies in registers."""
    return gl.DotOperandLayout(0, product_layout(width), 2)


@gluon.constexpr_function
def load_layout(width):
    """Return how rows are loaded: 16 bytes a thread, rows one after the other."""
    return gl.BlockedLayout([1, 8], [256 // width, width // 8], [4, 1], [1, 0])


@gluon.jit
def _seen_as(buffer, shape: gl.constexpr, layout: gl.constexpr):
    """Return shared memory in another shape."""
    if _REINTERPRET:
        return buffer.reinterpret(buffer.dtype, shape, layout)
    else:  # noqa: RET505 - of these two one is compiled
        return buffer._reinterpret(buffer.dtype, shape, layout)


@gluon.jit
def make_ring(dtype: gl.constexpr, WIDTH: gl.constexpr, H: gl.constexpr):
    n: gl.constexpr = H.columns
    depth: gl.constexpr = H.depth
    shape: gl.constexpr = [depth, 1, 1, n, WIDTH]
    tiles = gl.allocate_shared_memory(dtype, shape, shared_layout(WIDTH, 4))
    full = gl.allocate_shared_memory(gl.int64, [depth, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [depth, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(depth):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=2)
    return Ring(tiles, full, empty)


@gluon.jit
def tile_of(ring, slot, WIDTH: gl.constexpr, H: gl.constexpr):
    n: gl.constexpr = H.columns
    return _seen_as(ring.tiles.index(slot), [n, WIDTH], shared_layout(WIDTH))


@gluon.jit
def slot_of(turn, H: gl.constexpr):
    """Return which slot a turn has, and the parity of its round."""
    return turn % H.depth, (turn // H.depth) & 1


@gluon.jit
def _fill(ring, turn, tiles, batch, head, place, WIDTH: gl.constexpr, H: gl.constexpr):
    """Load a tile as soon as its slot is empty."""
    n: gl.constexpr = H.columns
    slot, phase = slot_of(turn, H)
    full = ring.full.index(slot)
    mbarrier.wait(ring.empty.index(slot), phase ^ 1)
    mbarrier.expect(full, n * WIDTH * 2)
    into = _seen_as(ring.tiles.index(slot), [1, 1, n, WIDTH], shared_layout(WIDTH, 4))
    _load_tile(tiles, [batch, head, place * n, 0], full, into)


@gluon.jit
def _fill_both(
    narrow, wide, turn, narrow_tiles, wide_tiles, batch, head, place,
    WIDTH: gl.constexpr, H: gl.constexpr,
):  # fmt: skip
    """Load a tile of so many columns, and that of the values or their gradient."""
    if WIDTH == 16:
        _fill(narrow, turn, narrow_tiles.of_16, batch, head, place, WIDTH, H)
    elif WIDTH == 32:
        _fill(narrow, turn, narrow_tiles.of_32, batch, head, place, WIDTH, H)
    elif WIDTH == 64:
        _fill(narrow, turn, narrow_tiles.of_64, batch, head, place, WIDTH, H)
    else:
        _fill(narrow, turn, narrow_tiles.of_128, batch, head, place, WIDTH, H)
    _fill(wide, turn, wide_tiles, batch, head, place, H.value_width, H)


@gluon.jit
def borders(blocks, first, STAGE: gl.constexpr, BY_KEYS: gl.constexpr, H: gl.constexpr):
    """Return how many tiles of a stage are on the left, where they end, and those on the right.

    Between them lie the tiles of finer stages and of the diagonal.
    """
    inner_low = first
    inner_high = first + PROGRAM_ROWS
    if H.coarse > STAGE + 1:
        inner = (STAGE + 1) * blocks.length + first
        inner_low = gl.load(blocks.starts + inner)
        inner_high = gl.load(blocks.ends + inner)
    left = 0
    right = 0
    outer = STAGE * blocks.length + first
    if not (H.causal and BY_KEYS):
        left = (inner_low - gl.load(blocks.starts + outer)) // H.columns
    if BY_KEYS or not H.causal:
        beyond = gl.load(blocks.ends + outer) - inner_high
        right = gl.maximum((beyond + H.columns - 1) // H.columns, 0)
    return left, inner_low // H.columns, right, inner_high // H.columns


@gluon.jit
def place_of(index, left, low, high):
    """Return the tile that is so many after the first: outward on the left, then on the right."""
    return gl.where(index < left, low - 1 - index, high + index - left)


@gluon.jit
def _load_stage(
    turn, narrow, wide, narrow_tiles, wide_tiles, blocks, first, batch, head,
    STAGE: gl.constexpr, BY_KEYS: gl.constexpr, H: gl.constexpr,
):  # fmt: skip
    members: gl.constexpr = H.group if BY_KEYS else 1
    left, low, right, high = borders(blocks, first, STAGE, BY_KEYS, H)
    for member in range(members):
        for index in range(left + right):
            place = place_of(index, left, low, high)
            _fill_both(
                narrow, wide, turn, narrow_tiles, wide_tiles, batch, head + member, place,
                H.padded[STAGE], H,
            )  # fmt: skip
            turn += 1
    return turn


@gluon.jit
def load_tiles(kept, BY_KEYS: gl.constexpr, H: gl.constexpr):
    """Load the tiles in the order in which they are taken in."""
    (
        narrow, wide, narrow_tiles, wide_tiles, blocks, first, batch, head,
    ) = kept  # fmt: skip
    members: gl.constexpr = H.group if BY_KEYS else 1
    diagonal: gl.constexpr = PROGRAM_ROWS // H.columns
    coarse: gl.constexpr = H.coarse
    turn = 0
    for index in range(members * diagonal):
        member = index // diagonal
        place = first // H.columns + index % diagonal
        _fill_both(
            narrow, wide, turn, narrow_tiles, wide_tiles, batch, head + member, place,
            H.padded[H.levels - 1], H,
        )  # fmt: skip
        turn += 1
    for back in gl.static_range(coarse):
        turn = _load_stage(
            turn, narrow, wide, narrow_tiles, wide_tiles, blocks, first, batch, head,
            coarse - 1 - back, BY_KEYS, H,
        )  # fmt: skip


@gluon.jit
def load_rows(
    x, factors, first, num_rows, BEGIN: gl.constexpr, END: gl.constexpr, WIDTH: gl.constexpr,
    SCALED: gl.constexpr,
):  # fmt: skip
    """Load the columns from BEGIN to END of 64 rows, times their factors; beside them zeros."""
    layout: gl.constexpr = load_layout(WIDTH)
    rows = first + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, layout))
    wanted = (columns >= BEGIN) & (columns < END)
    inside = (rows < num_rows)[:, None] & wanted[None, :]
    at = x.pointer + rows[:, None].to(gl.int64) * x.step + columns[None, :]
    loaded = gl.load(at, mask=inside, other=0.0)
    if SCALED:
        of_columns = gl.load(factors + columns, mask=wanted, other=0.0)
        loaded = (loaded * of_columns[None, :]).to(loaded.dtype)
    return loaded


@gluon.jit
def put_rows(loaded, into, WIDTH: gl.constexpr):
    """Put rows into shared memory, for a product."""
    put = _seen_as(into, [ROWS, WIDTH], shared_layout(WIDTH))
    put.store(loaded)
    fence_async_shared()
    return put


@gluon.jit
def store_columns(
    into, first, num_rows, acc, factors, scale, BEGIN: gl.constexpr, END: gl.constexpr,
    WIDTH: gl.constexpr, SCALED: gl.constexpr,
):  # fmt: skip
    """Store the columns from BEGIN to END of 64 rows, times their factors."""
    layout: gl.constexpr = product_layout(WIDTH)
    rows = first + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, layout))
    wanted = (columns >= BEGIN) & (columns < END)
    acc = acc * scale
    if SCALED:
        acc = acc * gl.load(factors + columns, mask=wanted, other=0.0)[None, :]
    at = into.pointer + rows[:, None].to(gl.int64) * into.step + columns[None, :]
    inside = (rows < num_rows)[:, None] & wanted[None, :]
    gl.store(at, acc.to(into.pointer.dtype.element_ty), mask=inside)


@gluon.jit
def _half(x, WIDTH: gl.constexpr):
    """Return the first half of the columns."""
    halves = gl.permute(gl.reshape(x, [ROWS, 2, WIDTH // 2]), (0, 2, 1))
    low, _ = gl.split(halves)
    return gl.convert_layout(low, product_layout(WIDTH // 2))


@gluon.jit
def narrowed(x, WIDTH: gl.constexpr, TO: gl.constexpr):
    """Return the first columns, of 16 to 128."""
    if TO < WIDTH:
        x = _half(x, WIDTH)
    if TO < WIDTH // 2:
        x = _half(x, WIDTH // 2)
    if TO < WIDTH // 4:
        x = _half(x, WIDTH // 4)
    return x


@gluon.jit
def multiply(x, y, acc, ADD: gl.constexpr):
    """Multiply, and wait for the product."""
    token = warpgroup_mma(x, y, acc, use_acc=ADD, is_async=True)
    return warpgroup_mma_wait(0, deps=(token,))


@gluon.jit
def _same_block(blocks, level, rows, columns):
    """Tell which pairs lie in one block of a level."""
    at = level * blocks.length + gl.minimum(rows, blocks.length - 1)
    low = gl.load(blocks.starts + at)
    high = gl.load(blocks.ends + at)
    return (columns[None, :] >= low[:, None]) & (columns[None, :] < high[:, None])


@gluon.jit
def shared_levels(blocks, rows, columns, H: gl.constexpr):
    """Return how many levels the pairs of a tile of the diagonal share."""
    n: gl.constexpr = H.columns
    coarse: gl.constexpr = H.coarse
    levels: gl.constexpr = H.levels
    shared = gl.full([ROWS, n], coarse, gl.float32, product_layout(n))
    for level in gl.static_range(coarse, levels):
        shared += gl.where(_same_block(blocks, level, rows, columns), 1.0, 0.0)
    return shared


@gluon.jit
def diagonal_scores(
    whole, x, factors, tile, spare, blocks, first, rows, columns, scale,
    BY_KEYS: gl.constexpr, SCALED: gl.constexpr, H: gl.constexpr,
):  # fmt: skip
    """Return the scores of a tile of the diagonal, and which of them are visible.

    ``whole`` are the rows of ``x`` in shared memory, with the columns that all pairs share.
    """
    n: gl.constexpr = H.columns
    coarse: gl.constexpr = H.coarse
    levels: gl.constexpr = H.levels
    width: gl.constexpr = H.padded[H.levels - 1]
    zero = gl.zeros([ROWS, n], gl.float32, product_layout(n))
    scores = multiply(whole, tile, zero, False)
    for level in gl.static_range(coarse, levels):
        loaded = load_rows(
            x, factors, first, blocks.length, H.upto[level], H.upto[level + 1], width, SCALED
        )
        part = multiply(put_rows(loaded, spare, width), tile, zero, False)
        scores += gl.where(_same_block(blocks, level, rows, columns), part, 0.0)
    scores *= scale
    if H.divide:
        scores = scores / shared_levels(blocks, rows, columns, H)
    visible = (columns < blocks.length)[None, :]
    if H.causal and BY_KEYS:
        visible = visible & (columns[None, :] >= rows[:, None])
    elif H.causal:
        visible = visible & (columns[None, :] <= rows[:, None])
    else:
        visible = visible & (rows >= 0)[:, None]
    return scores, visible


@gluon.jit
def diagonal_gradient(
    acc, slopes, y, place, spare, blocks, rows, columns, H: gl.constexpr
):  # fmt: skip
    """Add what the slopes of a tile of the diagonal mean for its rows, level by level."""
    coarse: gl.constexpr = H.coarse
    levels: gl.constexpr = H.levels
    width: gl.constexpr = H.padded[H.levels - 1]
    dtype: gl.constexpr = spare.dtype
    first = place * ROWS
    loaded = load_rows(y, y.pointer, first, blocks.length, 0, H.upto[coarse], width, False)
    own = gl.convert_layout(slopes.to(dtype), operand_layout(width))
    acc = multiply(own, put_rows(loaded, spare, width), acc, True)
    for level in gl.static_range(coarse, levels):
        loaded = load_rows(
            y, y.pointer, first, blocks.length, H.upto[level], H.upto[level + 1], width, False
        )
        own = gl.where(_same_block(blocks, level, rows, columns), slopes, 0.0)
        own = gl.convert_layout(own.to(dtype), operand_layout(width))
        acc = multiply(own, put_rows(loaded, spare, width), acc, True)
    return acc


@gluon.jit
def matrix(pointer, strides, batch, head):
    """Return the rows of one head."""
    at = pointer + (batch.to(gl.int64) * strides[0] + head.to(gl.int64) * strides[1])
    return Matrix(at, strides[2])


@gluon.jit
def make_rows(dtype: gl.constexpr, WIDTH: gl.constexpr):
    """Return shared memory for the rows of both groups."""
    return gl.allocate_shared_memory(dtype, [2, ROWS, WIDTH], shared_layout(WIDTH))
