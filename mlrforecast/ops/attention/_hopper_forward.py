"""Multi-level attention on NVIDIA's Hopper, forward; see ``_hopper_tiles``."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from mlrforecast.ops.attention._hopper_tiles import (
    PROGRAM_ROWS,
    ROWS,
    SIZES,
    Blocks,
    Tiles,
    borders,
    diagonal_scores,
    load_rows,
    load_tiles,
    make_ring,
    make_rows,
    matrix,
    multiply,
    operand_layout,
    product_layout,
    put_rows,
    slot_of,
    store_columns,
    tile_of,
)

__all__ = ["forward"]


@gluon.jit
def _forward_stage(
    acc, total, top, weights, turn, q, factors, rows_of_q, keys, values, blocks, first, row, scale,
    STAGE: gl.constexpr, H: gl.constexpr,
):  # fmt: skip
    """Take in the tiles whose pairs share exactly the levels up to one.

    The scores of a tile are made while the values of the one before are taken in.
    """
    n: gl.constexpr = H.columns
    width: gl.constexpr = H.padded[STAGE]
    value_width: gl.constexpr = H.value_width
    diagonal: gl.constexpr = PROGRAM_ROWS // n
    zero = gl.zeros([ROWS, n], gl.float32, product_layout(n))
    left, _, right, _ = borders(blocks, first, STAGE, False, H)
    if left + right > 0:
        loaded = load_rows(q, factors, row, blocks.length, 0, H.upto[STAGE + 1], width, H.scaled)
        x = put_rows(loaded, rows_of_q, width)
        if H.divide:
            scale = scale / (STAGE + 1)
        for _ in range(left + right):
            slot, phase = slot_of(turn, H)
            last, last_phase = slot_of(turn - 1, H)
            mbarrier.wait(keys.full.index(slot), phase)
            y = tile_of(keys, slot, width, H).permute((1, 0))
            scores = warpgroup_mma(x, y, zero, use_acc=False, is_async=True)
            mbarrier.wait(values.full.index(last), last_phase)
            flight = warpgroup_mma(
                weights, tile_of(values, last, value_width, H), acc, is_async=True
            )
            scores = warpgroup_mma_wait(1, deps=(scores,))
            mbarrier.arrive(keys.empty.index(slot), count=1)
            # Those before the last were taken in before this tile. Told here, and not then, because
            # nothing may wait inside the softmax.
            before, _ = slot_of(turn + 2 * H.depth - 2, H)
            mbarrier.arrive(values.empty.index(before), count=1, pred=turn > diagonal)
            new = gl.maximum(top, gl.max(scores, 1) * scale)
            raised = gl.exp2(scores * scale - new[:, None])
            shrink = gl.exp2(top - new)
            total = total * shrink + gl.sum(raised, 1)
            top = new
            # True since long. But the assembler moves the wait for a product no further up than
            # to a branch, and else would have it before the powers of 2.
            mbarrier.wait(values.full.index(last), last_phase)
            acc = warpgroup_mma_wait(0, deps=(flight,))
            weights = gl.convert_layout(raised.to(x.dtype), operand_layout(value_width))
            acc *= gl.convert_layout(shrink, gl.SliceLayout(1, product_layout(value_width)))[
                :, None
            ]
            turn += 1
    return acc, total, top, weights, turn


@gluon.jit
def _forward_rows(kept, GROUP: gl.constexpr, H: gl.constexpr):
    """Attend from 64 queries."""
    (
        q, factors, out, lse, rows_of_q, spare, keys, values, blocks, first, scale,
    ) = kept  # fmt: skip
    n: gl.constexpr = H.columns
    coarse: gl.constexpr = H.coarse
    width: gl.constexpr = H.padded[H.levels - 1]
    value_width: gl.constexpr = H.value_width
    dtype: gl.constexpr = keys.tiles.dtype
    layout: gl.constexpr = product_layout(n)
    of_rows: gl.constexpr = gl.SliceLayout(1, product_layout(value_width))
    diagonal: gl.constexpr = PROGRAM_ROWS // n
    row = first + GROUP * ROWS
    rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    rows_of_q = rows_of_q.index(GROUP)
    spare = spare.index(GROUP)
    acc = gl.zeros([ROWS, value_width], gl.float32, product_layout(value_width))
    top = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, layout))
    total = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, layout))
    weights = gl.zeros([ROWS, n], dtype, operand_layout(value_width))
    loaded = load_rows(q, factors, row, blocks.length, 0, H.upto[coarse], width, H.scaled)
    x = put_rows(loaded, rows_of_q, width)
    turn = 0
    for index in range(diagonal):
        slot, phase = slot_of(turn, H)
        place = first // n + index
        columns = place * n + gl.arange(0, n, layout=gl.SliceLayout(0, layout))
        mbarrier.wait(keys.full.index(slot), phase)
        scores, visible = diagonal_scores(
            x, q, factors, tile_of(keys, slot, width, H).permute((1, 0)), spare, blocks, row, rows,
            columns, scale, False, H.scaled, H,
        )  # fmt: skip
        mbarrier.arrive(keys.empty.index(slot), count=1)
        scores = gl.where(visible, scores, float("-inf"))
        new = gl.maximum(top, gl.max(scores, 1))
        # A row that has seen nothing so far must not subtract minus infinity from itself.
        base = gl.where(new == float("-inf"), 0.0, new)
        raised = gl.exp2(scores - base[:, None])
        shrink = gl.exp2(top - base)
        total = total * shrink + gl.sum(raised, 1)
        top = new
        weights = gl.convert_layout(raised.to(dtype), operand_layout(value_width))
        acc *= gl.convert_layout(shrink, of_rows)[:, None]
        if index + 1 < diagonal:
            mbarrier.wait(values.full.index(slot), phase)
            acc = multiply(weights, tile_of(values, slot, value_width, H), acc, True)
            mbarrier.arrive(values.empty.index(slot), count=1)
        turn += 1
    for back in gl.static_range(coarse):
        acc, total, top, weights, turn = _forward_stage(
            acc, total, top, weights, turn, q, factors, rows_of_q, keys, values, blocks, first,
            row, scale, coarse - 1 - back, H,
        )  # fmt: skip
    slot, phase = slot_of(turn - 1, H)
    mbarrier.wait(values.full.index(slot), phase)
    acc = multiply(weights, tile_of(values, slot, value_width, H), acc, True)
    acc = acc / gl.convert_layout(total, of_rows)[:, None]
    store_columns(
        out, row, blocks.length, acc, factors, 1.0, 0, H.value_columns, value_width, False
    )
    gl.store(lse + rows, top + gl.log2(total), mask=rows < blocks.length)


@gluon.jit(do_not_specialize=SIZES)
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
    first = tile * PROGRAM_ROWS
    queries = matrix(q, q_strides, batch, head)
    target = matrix(out, out_strides, batch, head)
    lse += pair.to(gl.int64) * length
    blocks = Blocks(starts, ends, length)
    dtype: gl.constexpr = v_tile.dtype
    width: gl.constexpr = H.padded[H.levels - 1]
    keys = make_ring(dtype, width, H)
    values = make_ring(dtype, H.value_width, H)
    rows_of_q = make_rows(dtype, width)
    spare = rows_of_q
    if H.coarse < H.levels:
        spare = make_rows(dtype, width)
    fence_async_shared()
    tiles = Tiles(k_16, k_32, k_64, k_128)
    kept = (queries, factors, target, lse, rows_of_q, spare, keys, values, blocks, first, scale)
    loads = (keys, values, tiles, v_tile, blocks, first, batch, head // H.group)
    gl.warp_specialize(
        [
            (_forward_rows, (kept, gl.constexpr(0), H)),
            (_forward_rows, (kept, gl.constexpr(1), H)),
            (load_tiles, (loads, gl.constexpr(False), H)),
        ],
        [4, 1],
        [232, 40],
    )
