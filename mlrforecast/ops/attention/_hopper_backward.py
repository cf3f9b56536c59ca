"""Multi-level attention on NVIDIA's Hopper, backward; see ``_hopper_tiles``."""

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
    Matrix,
    Moments,
    Tiles,
    borders,
    diagonal_gradient,
    diagonal_scores,
    load_layout,
    load_rows,
    load_tiles,
    make_ring,
    make_rows,
    matrix,
    multiply,
    narrowed,
    operand_layout,
    place_of,
    product_layout,
    put_rows,
    shared_levels,
    slot_of,
    store_columns,
    tile_of,
)

__all__ = ["backward_keys", "backward_queries"]


@gluon.jit
def _queries_stage(
    acc, turn, q, factors, target, rows_of_q, rows_of_grad, keys, values, blocks, first, row,
    row_lse, row_mean, scale, slope_scale, STAGE: gl.constexpr, H: gl.constexpr,
):  # fmt: skip
    """Take in the tiles of one stage, each one's slopes while the scores of the next are made.

    What the columns of its level got until here is stored: no tile farther away shares them, and
    from here on they gather what means nothing.
    """
    n: gl.constexpr = H.columns
    width: gl.constexpr = H.padded[STAGE]
    zero = gl.zeros([ROWS, n], gl.float32, product_layout(n))
    left, _, right, _ = borders(blocks, first, STAGE, False, H)
    if left + right > 0:
        loaded = load_rows(q, factors, row, blocks.length, 0, H.upto[STAGE + 1], width, H.scaled)
        x = put_rows(loaded, rows_of_q, width)
        share = 1.0
        if H.divide:
            share = 1.0 / (STAGE + 1)
        begun = turn
        slopes = gl.zeros([ROWS, n], x.dtype, operand_layout(width))
        for _ in range(left + right):
            slot, phase = slot_of(turn, H)
            # The first has none before it: its own tile, times zeros.
            last, _ = slot_of(gl.where(turn > begun, turn - 1, turn), H)
            mbarrier.wait(keys.full.index(slot), phase)
            y = tile_of(keys, slot, width, H).permute((1, 0))
            scores = warpgroup_mma(x, y, zero, use_acc=False, is_async=True)
            mbarrier.wait(values.full.index(slot), phase)
            y = tile_of(values, slot, H.value_width, H).permute((1, 0))
            rise = warpgroup_mma(rows_of_grad, y, zero, use_acc=False, is_async=True)
            flight = warpgroup_mma(slopes, tile_of(keys, last, width, H), acc, is_async=True)
            scores = warpgroup_mma_wait(2, deps=(scores,))
            weights = gl.exp2(scores * (scale * share) - row_lse[:, None])
            # True since long; see the forward pass.
            mbarrier.wait(values.full.index(slot), phase)
            rise = warpgroup_mma_wait(1, deps=(rise,))
            mbarrier.arrive(values.empty.index(slot), count=1)
            steep = weights * (rise - row_mean[:, None])
            if H.divide:
                steep = steep * share
            acc = warpgroup_mma_wait(0, deps=(flight,))
            mbarrier.arrive(keys.empty.index(last), count=1, pred=turn > begun)
            slopes = gl.convert_layout(steep.to(x.dtype), operand_layout(width))
            turn += 1
        last, _ = slot_of(turn - 1, H)
        acc = multiply(slopes, tile_of(keys, last, width, H), acc, True)
        mbarrier.arrive(keys.empty.index(last), count=1)
    store_columns(
        target, row, blocks.length, acc, factors, slope_scale, H.upto[STAGE], H.upto[STAGE + 1],
        width, H.scaled,
    )  # fmt: skip
    if STAGE > 0:
        acc = narrowed(acc, width, H.padded[STAGE - 1])
    return acc, turn


@gluon.jit
def _queries_rows(kept, GROUP: gl.constexpr, H: gl.constexpr):
    """Write the gradient of 64 queries, their moments, and what scaled queries there are."""
    (
        q, factors, k, out, grad, lse, moments, target, scaled_q, rows_of_q, spare, rows_of_grad,
        keys, values, blocks, first, scale, slope_scale,
    ) = kept  # fmt: skip
    n: gl.constexpr = H.columns
    coarse: gl.constexpr = H.coarse
    levels: gl.constexpr = H.levels
    width: gl.constexpr = H.padded[H.levels - 1]
    value_width: gl.constexpr = H.value_width
    layout: gl.constexpr = product_layout(n)
    diagonal: gl.constexpr = PROGRAM_ROWS // n
    zero = gl.zeros([ROWS, n], gl.float32, layout)
    row = first + GROUP * ROWS
    rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    rows_of_q = rows_of_q.index(GROUP)
    spare = spare.index(GROUP)
    slope = load_rows(grad, factors, row, blocks.length, 0, H.value_columns, value_width, False)
    result = load_rows(out, factors, row, blocks.length, 0, H.value_columns, value_width, False)
    mean = gl.sum(slope.to(gl.float32) * result.to(gl.float32), 1)
    row_mean = gl.convert_layout(mean, gl.SliceLayout(1, layout))
    rows_of_grad = put_rows(slope, rows_of_grad.index(GROUP), value_width)
    row_lse = gl.load(lse + rows, mask=rows < blocks.length, other=float("inf"))
    gl.store(moments.lse + rows, row_lse)
    gl.store(moments.mean + rows, row_mean)
    if H.scaled:
        loaded = load_rows(q, factors, row, blocks.length, 0, H.upto[levels], width, True)
        _store_rows(scaled_q, row, blocks.length, loaded, H.upto[levels], width)
    loaded = load_rows(q, factors, row, blocks.length, 0, H.upto[coarse], width, H.scaled)
    x = put_rows(loaded, rows_of_q, width)
    acc = gl.zeros([ROWS, width], gl.float32, product_layout(width))
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
        mbarrier.wait(values.full.index(slot), phase)
        y = tile_of(values, slot, value_width, H).permute((1, 0))
        rise = multiply(rows_of_grad, y, zero, False)
        mbarrier.arrive(values.empty.index(slot), count=1)
        weights = gl.where(visible, gl.exp2(scores - row_lse[:, None]), 0.0)
        steep = weights * (rise - row_mean[:, None])
        if H.divide:
            steep = steep / shared_levels(blocks, rows, columns, H)
        acc = diagonal_gradient(acc, steep, k, place, spare, blocks, rows, columns, H)
        turn += 1
    if coarse < levels:
        store_columns(
            target, row, blocks.length, acc, factors, slope_scale, H.upto[coarse],
            H.upto[levels], width, H.scaled,
        )  # fmt: skip
    acc = narrowed(acc, width, H.padded[coarse - 1])
    for back in gl.static_range(coarse):
        acc, turn = _queries_stage(
            acc, turn, q, factors, target, rows_of_q, rows_of_grad, keys, values, blocks, first,
            row, row_lse, row_mean, scale, slope_scale, coarse - 1 - back, H,
        )  # fmt: skip


@gluon.jit
def _store_rows(into, first, num_rows, loaded, COUNT: gl.constexpr, WIDTH: gl.constexpr):
    """Store rows as they were loaded."""
    layout: gl.constexpr = load_layout(WIDTH)
    rows = first + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, layout))
    at = into.pointer + rows[:, None].to(gl.int64) * into.step + columns[None, :]
    gl.store(at, loaded, mask=(rows < num_rows)[:, None] & (columns < COUNT)[None, :])


@gluon.jit(do_not_specialize=SIZES)
def backward_queries(
    q, q_strides, factors, k, k_strides, k_16, k_32, k_64, k_128, v_tile, out, out_strides,
    grad, grad_strides, lse, moments, grad_q, grad_q_strides, scaled_q, scaled_q_strides,
    starts, ends, num_heads, length, scale, slope_scale, H: gl.constexpr,
):  # fmt: skip
    """Write the gradient of a tile of queries, and what :func:`backward_keys` reads of them.

    ``moments`` are twice as many as there are rows of all programs: first the log-sum-exp.
    """
    tile = gl.program_id(0)
    if H.causal:
        tile = gl.num_programs(0) - 1 - tile
    pair = gl.program_id(1)
    batch, head = pair // num_heads, pair % num_heads
    first = tile * PROGRAM_ROWS
    queries = matrix(q, q_strides, batch, head)
    others = matrix(k, k_strides, batch, head // H.group)
    result = matrix(out, out_strides, batch, head)
    slope = matrix(grad, grad_strides, batch, head)
    target = matrix(grad_q, grad_q_strides, batch, head)
    copy = matrix(scaled_q, scaled_q_strides, batch, head)
    lse += pair.to(gl.int64) * length
    own = _moments(moments, pair, gl.num_programs(1))
    blocks = Blocks(starts, ends, length)
    dtype: gl.constexpr = v_tile.dtype
    width: gl.constexpr = H.padded[H.levels - 1]
    keys = make_ring(dtype, width, H)
    values = make_ring(dtype, H.value_width, H)
    rows_of_q = make_rows(dtype, width)
    spare = make_rows(dtype, width)
    rows_of_grad = make_rows(dtype, H.value_width)
    fence_async_shared()
    tiles = Tiles(k_16, k_32, k_64, k_128)
    kept = (
        queries, factors, others, result, slope, lse, own, target, copy, rows_of_q, spare,
        rows_of_grad, keys, values, blocks, first, scale, slope_scale,
    )  # fmt: skip
    loads = (keys, values, tiles, v_tile, blocks, first, batch, head // H.group)
    gl.warp_specialize(
        [
            (_queries_rows, (kept, gl.constexpr(0), H)),
            (_queries_rows, (kept, gl.constexpr(1), H)),
            (load_tiles, (loads, gl.constexpr(False), H)),
        ],
        [4, 1],
        [232, 40],
    )


@gluon.jit
def _moments(pointer, head, num_heads):
    """Return the moments of the queries of one head."""
    length = gl.num_programs(0) * PROGRAM_ROWS
    lse = pointer + head.to(gl.int64) * length
    return Moments(lse, lse + num_heads.to(gl.int64) * length, length)


@gluon.jit
def _of_queries(moments, member, place, H: gl.constexpr):
    """Return where the moments of a tile lie, after the first of its head."""
    columns = gl.arange(0, H.columns, layout=gl.SliceLayout(0, product_layout(H.columns)))
    return (member * moments.length + place * H.columns) + columns


@gluon.jit
def _keys_stage(
    acc_k, acc_v, turn, k, target, rows_of_k, rows_of_v, queries, grads, moments, blocks, first,
    row, scale, slope_scale, STAGE: gl.constexpr, H: gl.constexpr,
):  # fmt: skip
    """Take in the tiles of one stage; store the columns of its level, which are complete then."""
    n: gl.constexpr = H.columns
    width: gl.constexpr = H.padded[STAGE]
    value_width: gl.constexpr = H.value_width
    dtype: gl.constexpr = queries.tiles.dtype
    zero = gl.zeros([ROWS, n], gl.float32, product_layout(n))
    left, low, right, high = borders(blocks, first, STAGE, True, H)
    count = left + right
    if count > 0:
        loaded = load_rows(k, k.pointer, row, blocks.length, 0, H.upto[STAGE + 1], width, False)
        x = put_rows(loaded, rows_of_k, width)
        share = 1.0
        if H.divide:
            share = 1.0 / (STAGE + 1)
        for step in range(count * H.group):
            member = 0
            index = step
            if H.group > 1:
                member = step // count
                index = step % count
            at = _of_queries(moments, member, place_of(index, left, low, high), H)
            slot, phase = slot_of(turn, H)
            mbarrier.wait(queries.full.index(slot), phase)
            y = tile_of(queries, slot, width, H)
            scores = warpgroup_mma(x, y.permute((1, 0)), zero, use_acc=False, is_async=True)
            mean = gl.load(moments.mean + at)
            mbarrier.wait(grads.full.index(slot), phase)
            g = tile_of(grads, slot, value_width, H)
            # From the mean on, which so need not be kept.
            rise = warpgroup_mma(rows_of_v, g.permute((1, 0)), zero - mean[None, :], is_async=True)
            lse = gl.load(moments.lse + at)
            scores = warpgroup_mma_wait(1, deps=(scores,))
            weights = gl.exp2(scores * (scale * share) - lse[None, :])
            lowered = gl.convert_layout(weights.to(dtype), operand_layout(value_width))
            flight = warpgroup_mma(lowered, g, acc_v, is_async=True)
            rise = warpgroup_mma_wait(1, deps=(rise,))
            slopes = weights * rise
            if H.divide:
                slopes = slopes * share
            # True since long; see the forward pass.
            mbarrier.wait(grads.full.index(slot), phase)
            slopes = gl.convert_layout(slopes.to(dtype), operand_layout(width))
            flight_k = warpgroup_mma(slopes, y, acc_k, is_async=True)
            acc_v = warpgroup_mma_wait(1, deps=(flight,))
            mbarrier.arrive(grads.empty.index(slot), count=1)
            acc_k = warpgroup_mma_wait(0, deps=(flight_k,))
            mbarrier.arrive(queries.empty.index(slot), count=1)
            turn += 1
    store_columns(
        target, row, blocks.length, acc_k, k.pointer, slope_scale, H.upto[STAGE],
        H.upto[STAGE + 1], width, False,
    )  # fmt: skip
    if STAGE > 0:
        acc_k = narrowed(acc_k, width, H.padded[STAGE - 1])
    return acc_k, acc_v, turn


@gluon.jit
def _keys_rows(kept, GROUP: gl.constexpr, H: gl.constexpr):
    """Write the gradients of 64 keys and their values."""
    (
        q, head_step, k, v, moments, target_k, target_v, rows_of_k, spare, rows_of_v, queries,
        grads, blocks, first, scale, slope_scale,
    ) = kept  # fmt: skip
    n: gl.constexpr = H.columns
    coarse: gl.constexpr = H.coarse
    levels: gl.constexpr = H.levels
    width: gl.constexpr = H.padded[H.levels - 1]
    value_width: gl.constexpr = H.value_width
    dtype: gl.constexpr = queries.tiles.dtype
    layout: gl.constexpr = product_layout(n)
    diagonal: gl.constexpr = PROGRAM_ROWS // n
    zero = gl.zeros([ROWS, n], gl.float32, layout)
    row = first + GROUP * ROWS
    rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    rows_of_k = rows_of_k.index(GROUP)
    spare = spare.index(GROUP)
    loaded = load_rows(v, v.pointer, row, blocks.length, 0, H.value_columns, value_width, False)
    rows_of_v = put_rows(loaded, rows_of_v.index(GROUP), value_width)
    loaded = load_rows(k, k.pointer, row, blocks.length, 0, H.upto[coarse], width, False)
    x = put_rows(loaded, rows_of_k, width)
    acc_k = gl.zeros([ROWS, width], gl.float32, product_layout(width))
    acc_v = gl.zeros([ROWS, value_width], gl.float32, product_layout(value_width))
    turn = 0
    for index in range(H.group * diagonal):
        slot, phase = slot_of(turn, H)
        member = index // diagonal
        place = first // n + index % diagonal
        at = _of_queries(moments, member, place, H)
        columns = place * n + gl.arange(0, n, layout=gl.SliceLayout(0, layout))
        mbarrier.wait(queries.full.index(slot), phase)
        scores, visible = diagonal_scores(
            x, k, k.pointer, tile_of(queries, slot, width, H).permute((1, 0)), spare, blocks, row,
            rows, columns, scale, True, False, H,
        )  # fmt: skip
        mbarrier.arrive(queries.empty.index(slot), count=1)
        lse = gl.load(moments.lse + at)
        weights = gl.where(visible, gl.exp2(scores - lse[None, :]), 0.0)
        mbarrier.wait(grads.full.index(slot), phase)
        g = tile_of(grads, slot, value_width, H)
        lowered = gl.convert_layout(weights.to(dtype), operand_layout(value_width))
        acc_v = multiply(lowered, g, acc_v, True)
        rise = multiply(rows_of_v, g.permute((1, 0)), zero, False)
        mbarrier.arrive(grads.empty.index(slot), count=1)
        mean = gl.load(moments.mean + at)
        slopes = weights * (rise - mean[None, :])
        if H.divide:
            slopes = slopes / shared_levels(blocks, rows, columns, H)
        of_member = Matrix(q.pointer + member * head_step, q.step)
        acc_k = diagonal_gradient(acc_k, slopes, of_member, place, spare, blocks, rows, columns, H)
        turn += 1
    if coarse < levels:
        store_columns(
            target_k, row, blocks.length, acc_k, k.pointer, slope_scale, H.upto[coarse],
            H.upto[levels], width, False,
        )  # fmt: skip
    acc_k = narrowed(acc_k, width, H.padded[coarse - 1])
    for back in gl.static_range(coarse):
        acc_k, acc_v, turn = _keys_stage(
            acc_k, acc_v, turn, k, target_k, rows_of_k, rows_of_v, queries, grads, moments, blocks,
            first, row, scale, slope_scale, coarse - 1 - back, H,
        )  # fmt: skip
    store_columns(
        target_v, row, blocks.length, acc_v, v.pointer, 1.0, 0, H.value_columns, value_width, False
    )


@gluon.jit(do_not_specialize=SIZES)
def backward_keys(
    q, q_strides, k, k_strides, v, v_strides, q_16, q_32, q_64, q_128, grad_tile, moments,
    grad_k, grad_k_strides, grad_v, grad_v_strides, starts, ends, num_groups, length,
    scale, slope_scale, H: gl.constexpr,
):  # fmt: skip
    """Write the gradients of a tile of keys and their values, from all queries of their group."""
    pair = gl.program_id(1)
    batch, head = pair // num_groups, pair % num_groups
    first = gl.program_id(0) * PROGRAM_ROWS
    others = matrix(q, q_strides, batch, head * H.group)
    own = matrix(k, k_strides, batch, head)
    own_values = matrix(v, v_strides, batch, head)
    target_k = matrix(grad_k, grad_k_strides, batch, head)
    target_v = matrix(grad_v, grad_v_strides, batch, head)
    of_group = _moments(moments, pair * H.group, gl.num_programs(1) * H.group)
    blocks = Blocks(starts, ends, length)
    dtype: gl.constexpr = grad_tile.dtype
    width: gl.constexpr = H.padded[H.levels - 1]
    queries = make_ring(dtype, width, H)
    grads = make_ring(dtype, H.value_width, H)
    rows_of_k = make_rows(dtype, width)
    spare = make_rows(dtype, width)
    rows_of_v = make_rows(dtype, H.value_width)
    fence_async_shared()
    tiles = Tiles(q_16, q_32, q_64, q_128)
    kept = (
        others, q_strides[1], own, own_values, of_group, target_k, target_v, rows_of_k, spare,
        rows_of_v, queries, grads, blocks, first, scale, slope_scale,
    )  # fmt: skip
    loads = (queries, grads, tiles, grad_tile, blocks, first, batch, head * H.group)
    gl.warp_specialize(
        [
            (_keys_rows, (kept, gl.constexpr(0), H)),
            (_keys_rows, (kept, gl.constexpr(1), H)),
            (load_tiles, (loads, gl.constexpr(True), H)),
        ],
        [4, 1],
        [232, 40],
    )
