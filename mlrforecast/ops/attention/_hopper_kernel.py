"""The kernel of multi-level attention for NVIDIA's Hopper, forward.

The warps of a program do different work: two groups of four attend from 64 of its 128 queries each;
one more loads tiles of keys and values for both. While one group takes powers of 2, the other
multiplies. A program begins with the tiles on the diagonal and goes outward, stage by stage: in the
stage of level ``m`` lie the tiles whose pairs share exactly the levels up to ``m``, contracted over
the first ``R_m`` columns of the head alone. A block begins and ends at multiples of 128 steps, or
inside a tile of the diagonal, where each level is contracted by itself and counts for the pairs
that share it.

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

__all__ = ["Layout", "forward", "shared_layout"]

STEPS = gl.constexpr(_hopper.TILE)
"""Queries of a program, and keys of a tile."""
ROWS = gl.constexpr(64)
"""Queries of a group of four warps."""

_REINTERPRET = gl.constexpr(hasattr(gl.shared_memory_descriptor, "reinterpret"))
_load_tile = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
_meet = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
"""Names of today, and of Triton 3.6."""


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
    depth: int
    """How many tiles of keys, and of values, are in flight."""
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


@gluon.constexpr_function
def shared_layout(width, rank=2):
    return gl.NVMMASharedLayout(
        swizzle_byte_width=min(2 * width, 128), element_bitwidth=16, rank=rank
    )


@gluon.constexpr_function
def _product_layout(width):
    return gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, width, 16]
    )


@gluon.constexpr_function
def _operand_layout(width):
    """Return how the left side of a product of so many columns lies in registers."""
    return gl.DotOperandLayout(0, _product_layout(width), 2)


@gluon.constexpr_function
def _load_layout(width):
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
def _make_ring(dtype: gl.constexpr, WIDTH: gl.constexpr, H: gl.constexpr):
    depth: gl.constexpr = H.depth
    shape: gl.constexpr = [depth, 1, 1, STEPS, WIDTH]
    tiles = gl.allocate_shared_memory(dtype, shape, shared_layout(WIDTH, 4))
    full = gl.allocate_shared_memory(gl.int64, [depth, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [depth, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(depth):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=2)
    return Ring(tiles, full, empty)


@gluon.jit
def _tile_of(ring, slot, WIDTH: gl.constexpr):
    return _seen_as(ring.tiles.index(slot), [STEPS, WIDTH], shared_layout(WIDTH))


@gluon.jit
def _slot_of(turn, H: gl.constexpr):
    """Return which slot a turn has, and the parity of its round."""
    return turn % H.depth, (turn // H.depth) & 1


@gluon.jit
def _make_order():
    """Return what two groups take turns by."""
    order = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for group in gl.static_range(2):
        mbarrier.init(order.index(group), count=1)
    return order


@gluon.jit
def _await_turn(order, count, GROUP: gl.constexpr):
    """Wait until the other group has had as many turns as this one, or one more than that."""
    mbarrier.wait(order.index(GROUP), (count + GROUP + 1) & 1)


@gluon.jit
def _end_turn(order, GROUP: gl.constexpr):
    # One thread tells it for all: those behind must not miss the turn that it waited for.
    _meet()
    mbarrier.arrive(order.index(1 - GROUP), count=1)


@gluon.jit
def _fill(ring, turn, tiles, batch, head, place, WIDTH: gl.constexpr, H: gl.constexpr):
    """Load a tile as soon as its slot is empty."""
    slot, phase = _slot_of(turn, H)
    full = ring.full.index(slot)
    mbarrier.wait(ring.empty.index(slot), phase ^ 1)
    mbarrier.expect(full, STEPS * WIDTH * 2)
    into = _seen_as(ring.tiles.index(slot), [1, 1, STEPS, WIDTH], shared_layout(WIDTH, 4))
    _load_tile(tiles, [batch, head, place * STEPS, 0], full, into)


@gluon.jit
def _fill_both(
    keys, values, turn, k_tiles, v_tile, batch, head, place, WIDTH: gl.constexpr, H: gl.constexpr
):
    """Load the first columns of a tile of keys, and its values."""
    if WIDTH == 16:
        _fill(keys, turn, k_tiles.of_16, batch, head, place, WIDTH, H)
    elif WIDTH == 32:
        _fill(keys, turn, k_tiles.of_32, batch, head, place, WIDTH, H)
    elif WIDTH == 64:
        _fill(keys, turn, k_tiles.of_64, batch, head, place, WIDTH, H)
    else:
        _fill(keys, turn, k_tiles.of_128, batch, head, place, WIDTH, H)
    _fill(values, turn, v_tile, batch, head, place, H.value_width, H)


@gluon.jit
def _borders(blocks, first, STAGE: gl.constexpr, H: gl.constexpr):
    """Return how many tiles of a stage are on the left, where they end, and those on the right.

    Between them lie the tiles of finer stages and of the diagonal.
    """
    inner_low = first
    inner_high = first + STEPS
    if H.coarse > STAGE + 1:
        inner = (STAGE + 1) * blocks.length + first
        inner_low = gl.load(blocks.starts + inner)
        inner_high = gl.load(blocks.ends + inner)
    outer = STAGE * blocks.length + first
    left = (inner_low - gl.load(blocks.starts + outer)) // STEPS
    right = 0
    if not H.causal:
        beyond = gl.load(blocks.ends + outer) - inner_high
        right = gl.maximum((beyond + STEPS - 1) // STEPS, 0)
    return left, inner_low // STEPS, right, inner_high // STEPS


@gluon.jit
def _load_stage(
    turn, keys, values, k_tiles, v_tile, blocks, first, batch, head,
    STAGE: gl.constexpr, H: gl.constexpr,
):  # fmt: skip
    left, low, right, high = _borders(blocks, first, STAGE, H)
    for index in range(left + right):
        # Outward on the left, then on the right.
        place = gl.where(index < left, low - 1 - index, high + index - left)
        _fill_both(keys, values, turn, k_tiles, v_tile, batch, head, place, H.padded[STAGE], H)
        turn += 1
    return turn


@gluon.jit
def _load_tiles(kept, H: gl.constexpr):
    """Load the tiles in the order in which they are taken in."""
    keys, values, k_tiles, v_tile, blocks, first, batch, head = kept
    coarse: gl.constexpr = H.coarse
    _fill_both(
        keys, values, 0, k_tiles, v_tile, batch, head, first // STEPS, H.padded[H.levels - 1], H
    )
    turn = 1
    for back in gl.static_range(coarse):
        turn = _load_stage(
            turn, keys, values, k_tiles, v_tile, blocks, first, batch, head, coarse - 1 - back, H
        )


@gluon.jit
def _load_rows(
    q, factors, first, num_rows, BEGIN: gl.constexpr, END: gl.constexpr, WIDTH: gl.constexpr,
    H: gl.constexpr,
):  # fmt: skip
    """Load the columns from BEGIN to END of 64 queries, times their factors; beside them zeros."""
    layout: gl.constexpr = _load_layout(WIDTH)
    rows = first + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, layout))
    wanted = (columns >= BEGIN) & (columns < END)
    inside = (rows < num_rows)[:, None] & wanted[None, :]
    at = q.pointer + rows[:, None].to(gl.int64) * q.step + columns[None, :]
    loaded = gl.load(at, mask=inside, other=0.0)
    if H.scaled:
        of_columns = gl.load(factors + columns, mask=wanted, other=0.0)
        loaded = (loaded * of_columns[None, :]).to(loaded.dtype)
    return loaded


@gluon.jit
def _put_rows(loaded, into, WIDTH: gl.constexpr):
    """Put rows into shared memory, for a product."""
    put = _seen_as(into, [ROWS, WIDTH], shared_layout(WIDTH))
    put.store(loaded)
    fence_async_shared()
    return put


@gluon.jit
def _store_rows(into, first, num_rows, acc, H: gl.constexpr):
    layout: gl.constexpr = _product_layout(H.value_width)
    rows = first + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, H.value_width, layout=gl.SliceLayout(0, layout))
    at = into.pointer + rows[:, None].to(gl.int64) * into.step + columns[None, :]
    inside = (rows < num_rows)[:, None] & (columns < H.value_columns)[None, :]
    gl.store(at, acc.to(into.pointer.dtype.element_ty), mask=inside)


@gluon.jit
def _multiply(x, y, acc, ADD: gl.constexpr):
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
def _shared_levels(blocks, rows, columns, H: gl.constexpr):
    """Return how many levels the pairs of a tile of the diagonal share."""
    coarse: gl.constexpr = H.coarse
    levels: gl.constexpr = H.levels
    shared = gl.full([ROWS, STEPS], coarse, gl.float32, _product_layout(STEPS))
    for level in gl.static_range(coarse, levels):
        shared += gl.where(_same_block(blocks, level, rows, columns), 1.0, 0.0)
    return shared


@gluon.jit
def _diagonal_scores(q, rows_of_q, factors, tile, blocks, first, row, rows, scale, H: gl.constexpr):
    """Return the scores of the tile of the diagonal, those of invisible pairs minus infinity."""
    coarse: gl.constexpr = H.coarse
    levels: gl.constexpr = H.levels
    width: gl.constexpr = H.padded[H.levels - 1]
    layout: gl.constexpr = _product_layout(STEPS)
    zero = gl.zeros([ROWS, STEPS], gl.float32, layout)
    columns = first + gl.arange(0, STEPS, layout=gl.SliceLayout(0, layout))
    loaded = _load_rows(q, factors, row, blocks.length, 0, H.upto[coarse], width, H)
    scores = _multiply(_put_rows(loaded, rows_of_q, width), tile, zero, False)
    for level in gl.static_range(coarse, levels):
        loaded = _load_rows(
            q, factors, row, blocks.length, H.upto[level], H.upto[level + 1], width, H
        )
        part = _multiply(_put_rows(loaded, rows_of_q, width), tile, zero, False)
        scores += gl.where(_same_block(blocks, level, rows, columns), part, 0.0)
    scores *= scale
    if H.divide:
        scores = scores / _shared_levels(blocks, rows, columns, H)
    visible = (columns < blocks.length)[None, :]
    if H.causal:
        visible = visible & (columns[None, :] <= rows[:, None])
    else:
        visible = visible & (rows >= 0)[:, None]
    return gl.where(visible, scores, float("-inf"))


@gluon.jit
def _matrix(pointer, strides, batch, head):
    """Return the rows of one head."""
    at = pointer + (batch.to(gl.int64) * strides[0] + head.to(gl.int64) * strides[1])
    return Matrix(at, strides[2])


@gluon.jit
def _stage(
    acc, total, top, weights, turn, q, factors, rows_of_q, keys, values, order, blocks, first, row,
    scale, GROUP: gl.constexpr, STAGE: gl.constexpr, H: gl.constexpr,
):  # fmt: skip
    """Take in the tiles whose pairs share exactly the levels up to one.

    The scores of a tile are made while the values of the one before are taken in.
    """
    width: gl.constexpr = H.padded[STAGE]
    value_width: gl.constexpr = H.value_width
    zero = gl.zeros([ROWS, STEPS], gl.float32, _product_layout(STEPS))
    # Before the borders are there: both are waited for at once.
    loaded = _load_rows(q, factors, row, blocks.length, 0, H.upto[STAGE + 1], width, H)
    left, _, right, _ = _borders(blocks, first, STAGE, H)
    if left + right > 0:
        x = _put_rows(loaded, rows_of_q, width)
        if H.divide:
            scale = scale / (STAGE + 1)
        for _ in range(left + right):
            slot, phase = _slot_of(turn, H)
            last, last_phase = _slot_of(turn - 1, H)
            mbarrier.wait(keys.full.index(slot), phase)
            y = _tile_of(keys, slot, width).permute((1, 0))
            scores = warpgroup_mma(x, y, zero, use_acc=False, is_async=True)
            mbarrier.wait(values.full.index(last), last_phase)
            y = _tile_of(values, last, value_width)
            flight = warpgroup_mma(weights, y, acc, is_async=True)
            scores = warpgroup_mma_wait(1, deps=(scores,))
            mbarrier.arrive(keys.empty.index(slot), count=1)
            # Those before the last were taken in before this tile. Told here, and not then, because
            # nothing may wait inside the softmax.
            before, _ = _slot_of(turn + 2 * H.depth - 2, H)
            mbarrier.arrive(values.empty.index(before), count=1, pred=turn > 1)
            _await_turn(order, turn - 1, GROUP)
            new = gl.maximum(top, gl.max(scores, 1) * scale)
            raised = gl.exp2(scores * scale - new[:, None])
            shrink = gl.exp2(top - new)
            total = total * shrink + gl.sum(raised, 1)
            top = new
            _end_turn(order, GROUP)
            # True since long. But the assembler moves the wait for a product no further up than
            # to a branch, and else would have it before the powers of 2.
            mbarrier.wait(values.full.index(last), last_phase)
            acc = warpgroup_mma_wait(0, deps=(flight,))
            weights = gl.convert_layout(raised.to(x.dtype), _operand_layout(value_width))
            of_rows: gl.constexpr = gl.SliceLayout(1, _product_layout(value_width))
            acc *= gl.convert_layout(shrink, of_rows)[:, None]
            turn += 1
    return acc, total, top, weights, turn


@gluon.jit
def _attend_rows(kept, GROUP: gl.constexpr, H: gl.constexpr):
    """Attend from 64 queries."""
    q, factors, out, lse, rows_of_q, keys, values, order, blocks, first, scale = kept
    coarse: gl.constexpr = H.coarse
    width: gl.constexpr = H.padded[H.levels - 1]
    value_width: gl.constexpr = H.value_width
    row = first + GROUP * ROWS
    rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, _product_layout(STEPS)))
    rows_of_q = rows_of_q.index(GROUP)
    mbarrier.wait(keys.full.index(0), 0)
    scores = _diagonal_scores(
        q, rows_of_q, factors, _tile_of(keys, 0, width).permute((1, 0)), blocks, first, row, rows,
        scale, H,
    )  # fmt: skip
    mbarrier.arrive(keys.empty.index(0), count=1)
    top = gl.max(scores, 1)
    # A row of which nothing is visible must not subtract minus infinity from itself.
    raised = gl.exp2(scores - gl.where(top == float("-inf"), 0.0, top)[:, None])
    total = gl.sum(raised, 1)
    weights = gl.convert_layout(raised.to(keys.tiles.dtype), _operand_layout(value_width))
    acc = gl.zeros([ROWS, value_width], gl.float32, _product_layout(value_width))
    turn = 1
    for back in gl.static_range(coarse):
        acc, total, top, weights, turn = _stage(
            acc, total, top, weights, turn, q, factors, rows_of_q, keys, values, order, blocks,
            first, row, scale, GROUP, coarse - 1 - back, H,
        )  # fmt: skip
    slot, phase = _slot_of(turn - 1, H)
    mbarrier.wait(values.full.index(slot), phase)
    acc = _multiply(weights, _tile_of(values, slot, value_width), acc, True)
    of_rows: gl.constexpr = gl.SliceLayout(1, _product_layout(value_width))
    acc = acc / gl.convert_layout(total, of_rows)[:, None]
    _store_rows(out, row, blocks.length, acc, H)
    gl.store(lse + rows, top + gl.log2(total), mask=rows < blocks.length)


@gluon.jit(do_not_specialize=("num_heads",))
def forward(
    q, q_strides, factors, k_16, k_32, k_64, k_128, v_tile, out, out_strides, lse, starts, ends,
    num_heads, length, scale, H: gl.constexpr,
):  # fmt: skip
    """Attend from a tile of queries; write the output and the log-sum-exp of each row."""
    tile = gl.program_id(0)
    if H.causal:
        # The longest ones first.
        tile = gl.num_programs(0) - 1 - tile
    pair = gl.program_id(1)
    batch, head = pair // num_heads, pair % num_heads
    first = tile * STEPS
    queries = _matrix(q, q_strides, batch, head)
    target = _matrix(out, out_strides, batch, head)
    lse += pair.to(gl.int64) * length
    blocks = Blocks(starts, ends, length)
    dtype: gl.constexpr = v_tile.dtype
    width: gl.constexpr = H.padded[H.levels - 1]
    keys = _make_ring(dtype, width, H)
    values = _make_ring(dtype, H.value_width, H)
    rows_of_q = gl.allocate_shared_memory(dtype, [2, ROWS, width], shared_layout(width))
    order = _make_order()
    fence_async_shared()
    tiles = Tiles(k_16, k_32, k_64, k_128)
    kept = (queries, factors, target, lse, rows_of_q, keys, values, order, blocks, first, scale)
    loads = (keys, values, tiles, v_tile, blocks, first, batch, head // H.group)
    gl.warp_specialize(
        [
            (_attend_rows, (kept, gl.constexpr(0), H)),
            (_attend_rows, (kept, gl.constexpr(1), H)),
            (_load_tiles, (loads, H)),
        ],
        [4, 1],
        [232, 40],
    )
