"""Triton kernels of multi-level attention: forward, and backward by queries and by keys.

A program owns a tile of rows (queries, or keys in :func:`backward_keys`) and walks over tiles of
columns. Blocks are nested, so the tiles that share exactly ``m`` levels with all of its rows form a
range on either side, the stage of level ``m``, and are contracted over the first ``R_m`` columns of
the head alone. Tiles that a border of a block, the diagonal or the end of the sequence runs through
are mixed: there each level is contracted by itself, and counts for the pairs that share it.

A position ``i`` of level ``lvl`` lies in the block ``[starts[lvl, i], ends[lvl, i])``. Queries are
the last of the positions. Scores are in units of log 2, and ``scale`` holds its factor.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

__all__ = ["Layout", "backward_keys", "backward_queries", "forward"]

BEFORE = tl.constexpr(1)
"""Columns are attended up to the row: rows are queries."""
AFTER = tl.constexpr(2)
"""Columns attend to the row from there on: rows are keys."""


PLACES = tl.constexpr(8)
"""Numbers from the borders of one stage to those of the next."""

_SIZES = ("edge_batch", "place_batch", "num_heads", "num_groups", "num_queries", "num_keys")
"""Arguments whose values are no reason to compile anew."""


class Layout(NamedTuple):
    """What a kernel is specialised by."""

    upto: tuple[int, ...]
    """Columns of the head before each level, and all of them."""
    padded: tuple[int, ...]
    """Width of a product over the columns up to each level."""
    widths: tuple[int, ...]
    """Width of a product over the columns of each level."""
    halvings: tuple[int, ...]
    """How often the width halves from each level to the one before."""
    kinds: tuple[int, ...]
    """Which of the descriptors loads so many columns."""
    depths: tuple[int, ...]
    """How many tiles of each stage are in flight."""
    levels: int
    coarse: int
    """Levels that have no border inside a tile."""
    first_mixed: int
    """First stage that may have mixed tiles."""
    value_columns: int
    value_width: int
    group: int
    """Query heads of a key head."""
    causal: bool
    masked: bool
    scaled: bool
    """Whether the columns of the queries have factors."""
    divide: bool
    dropout: bool
    rank_step: int
    """What divides all numbers of columns up to a level."""
    flat: bool
    """Whether all whole tiles are one stage, each with the levels that it shares."""
    described: bool
    """Whether whole tiles are loaded through descriptors, by the copy engine."""
    described_from: int
    """The fewest columns of such a tile."""
    rows: int
    columns: int
    precision: str
    sum: Any
    """Type of sums."""


class Matrix(NamedTuple):
    """Rows of one head in memory: pointer and steps, or descriptors of its tiles."""

    pointer: Any
    head_step: Any
    step: Any
    tiles: Any
    batch: Any
    head: Any
    factors: Any
    """Of its columns."""


class Blocks(NamedTuple):
    """Where the block of each position begins and ends, ``length`` positions a level."""

    starts: Any
    ends: Any
    length: Any


class Dropout(NamedTuple):
    """A random weight is dropped by its place: a pair of positions of a head of a sequence."""

    seed: Any
    probability: Any
    num_keys: Any


@triton.jit
def _load(
    x, rows, num_rows, begin, COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
    SCALED: tl.constexpr = False,
):  # fmt: skip
    """Load ``COLUMNS`` columns from ``begin`` on, times their factors, padded to ``WIDTH``."""
    columns = tl.arange(0, WIDTH)
    at = x.pointer + rows[:, None].to(tl.int64) * x.step + (begin + columns[None, :])
    inside = rows[:, None] < num_rows
    if WIDTH != COLUMNS:
        inside = inside & (columns[None, :] < COLUMNS)
    loaded = tl.load(at, mask=inside, other=0.0)
    if SCALED:
        factors = tl.load(x.factors + begin + columns, mask=columns < COLUMNS, other=0.0)
        loaded = (loaded * factors[None, :]).to(loaded.dtype)
    return loaded


@triton.jit
def _load_tile(
    x, member, place, kind: tl.constexpr, COUNT: tl.constexpr, COLUMNS,
    WIDTH: tl.constexpr, ALL: tl.constexpr, DESCRIBED: tl.constexpr,
):  # fmt: skip
    """Load the first ``WIDTH`` columns of a tile whose rows all exist; past ``COLUMNS`` zeros."""
    if DESCRIBED:
        tile = x.tiles[kind].load([x.batch, x.head + member, place * COUNT, 0])
        return tl.reshape(tile, [COUNT, WIDTH])
    columns = tl.arange(0, WIDTH)
    # One wide number a tile: the offsets inside it are narrow, and the same for all tiles.
    begin = x.pointer + (member * x.head_step + place.to(tl.int64) * (COUNT * x.step))
    at = begin + (tl.arange(0, COUNT)[:, None] * x.step + columns[None, :])
    if ALL:
        return tl.load(at)
    return tl.load(at, mask=columns[None, :] < COLUMNS, other=0.0)


@triton.jit
def _store(x, rows, num_rows, values, BEGIN: tl.constexpr, END: tl.constexpr, WIDTH: tl.constexpr):
    """Store the columns from ``BEGIN`` to ``END``."""
    columns = tl.arange(0, WIDTH)
    at = x.pointer + rows[:, None].to(tl.int64) * x.step + columns[None, :]
    inside = rows[:, None] < num_rows
    if BEGIN > 0:
        inside = inside & (columns[None, :] >= BEGIN)
    if WIDTH != END:
        inside = inside & (columns[None, :] < END)
    tl.store(at, values.to(x.pointer.dtype.element_ty), mask=inside)


@triton.jit
def _whole_borders(places, stage):
    """Return where the whole tiles of a stage begin and end on the left, and on the right.

    The stage of a level has the tiles of that level that no finer one has: from left to right
    mixed ones, whole ones, those of finer levels, whole ones and mixed ones.
    """
    at = places + stage * PLACES
    return tl.load(at + 1), tl.load(at + 2), tl.load(at + 3), tl.load(at + 4)


@triton.jit
def _flat_borders(places, BY_KEYS: tl.constexpr, H: tl.constexpr):
    """Return where the whole tiles of all stages together begin and end, and those of each level.

    There are no mixed ones among them: only the diagonal has such, at one end of them.
    """
    first: tl.constexpr = H.levels - 1 if H.causal and BY_KEYS else 0
    last: tl.constexpr = H.levels - 1 if H.causal and not BY_KEYS else 0
    lows = ()
    highs = ()
    levels: tl.constexpr = H.levels
    for level in tl.static_range(levels):
        lows += (tl.load(places + level * PLACES + 1),)
        highs += (tl.load(places + level * PLACES + 4),)
    return lows[first], highs[last], lows, highs


@triton.jit
def _first_borders(places, BY_KEYS: tl.constexpr, H: tl.constexpr):
    """Return the borders of the one stage there is, or of the nearest one."""
    return _flat_borders(places, BY_KEYS, H) if H.flat else _whole_borders(places, H.levels - 1)


@triton.jit
def _shared_levels(place, lows, highs, H: tl.constexpr):
    """Return how many levels the pairs of a whole tile share, and the columns up to there."""
    shared = 0
    rank = 0
    levels: tl.constexpr = H.levels
    for level in tl.static_range(levels):
        inside = ((place >= lows[level]) & (place < highs[level])).to(tl.int32)
        shared += inside
        rank += inside * ((H.upto[level + 1] - H.upto[level]) // H.rank_step)
    # So the compiler knows what divides it, and loads that many columns at once.
    return shared, rank * H.rank_step


@triton.jit
def _mixed_borders(places, stage):
    """Return where the mixed tiles of a stage begin and end on the left, and on the right."""
    at = places + stage * PLACES
    return tl.load(at), tl.load(at + 1), tl.load(at + 4), tl.load(at + 5)


@triton.jit
def _keep(dropout, query, key):
    """Return what dropout makes of each weight, 0 or 1 / (1 - p); only its place decides."""
    place = query.to(tl.int64) * dropout.num_keys + key
    stays = tl.rand(dropout.seed, place) >= dropout.probability
    return tl.where(stays, 1.0 / (1.0 - dropout.probability), 0.0)


@triton.jit
def _same_block(blocks, level, row_at, column_at):
    """Tell which pairs lie in one block of a level."""
    low = tl.load(blocks.starts + level * blocks.length + row_at)[:, None]
    high = tl.load(blocks.ends + level * blocks.length + row_at)[:, None]
    return (column_at[None, :] >= low) & (column_at[None, :] < high)


@triton.jit
def _mixed_scores(
    x, y, blocks, rows, columns, num_rows, num_columns, row_shift, column_shift,
    SCALED: tl.constexpr, ORDER: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Return the products of a mixed tile, the levels each pair shares, and what is visible."""
    coarse: tl.constexpr = H.coarse
    levels: tl.constexpr = H.levels
    height: tl.constexpr = H.rows
    breadth: tl.constexpr = H.columns
    scores = tl.zeros([height, breadth], H.sum)
    shared = tl.zeros([height, breadth], tl.int32)
    row_at = tl.minimum(rows, num_rows - 1) + row_shift
    column_at = columns + column_shift
    if coarse > 0:
        width: tl.constexpr = H.padded[coarse - 1]
        x_part = _load(x, rows, num_rows, 0, H.upto[coarse], width, SCALED)
        y_part = _load(y, columns, num_columns, 0, H.upto[coarse], width)
        scores = tl.dot(x_part, tl.trans(y_part), scores, input_precision=H.precision)
        shared += coarse
    for level in tl.static_range(coarse, levels):
        x_part = _load(
            x, rows, num_rows, H.upto[level], H.upto[level + 1] - H.upto[level], H.widths[level],
            SCALED,
        )  # fmt: skip
        y_part = _load(
            y, columns, num_columns, H.upto[level], H.upto[level + 1] - H.upto[level],
            H.widths[level],
        )  # fmt: skip
        part = tl.dot(x_part, tl.trans(y_part), input_precision=H.precision, out_dtype=H.sum)
        same = _same_block(blocks, level, row_at, column_at)
        scores += tl.where(same, part, 0.0)
        shared += same.to(tl.int32)
    visible = (shared > 0) & (columns[None, :] < num_columns)
    if ORDER == BEFORE:
        visible = visible & (column_at[None, :] <= row_at[:, None])
    if ORDER == AFTER:
        visible = visible & (column_at[None, :] >= row_at[:, None])
    return scores, shared, visible


@triton.jit
def _mixed_gradient(
    slopes, acc, y, blocks, rows, columns, num_rows, num_columns, row_shift, column_shift,
    H: tl.constexpr,
):  # fmt: skip
    """Add what the slopes of a mixed tile mean for its rows, level by level."""
    coarse: tl.constexpr = H.coarse
    levels: tl.constexpr = H.levels
    width: tl.constexpr = H.padded[levels - 1]
    row_at = tl.minimum(rows, num_rows - 1) + row_shift
    column_at = columns + column_shift
    if coarse > 0:
        part = _load(y, columns, num_columns, 0, H.upto[coarse], width)
        acc = tl.dot(slopes.to(part.dtype), part, acc, input_precision=H.precision)
    for level in tl.static_range(coarse, levels):
        part = _load(y, columns, num_columns, 0, H.upto[level + 1], width)
        part = tl.where(tl.arange(0, width)[None, :] >= H.upto[level], part, 0.0).to(part.dtype)
        same = _same_block(blocks, level, row_at, column_at)
        own = tl.where(same, slopes, 0.0).to(part.dtype)
        acc = tl.dot(own, part, acc, input_precision=H.precision)
    return acc


@triton.jit
def _soften(scores, scale, acc, weight_sum, largest, values, keep, H: tl.constexpr):
    """Take the scores of one tile, in units of 1 / scale, into a running softmax."""
    new = tl.maximum(largest, tl.max(scores, 1) * scale)
    # A row that has seen nothing so far must not subtract minus infinity from itself.
    base = tl.where(new == float("-inf"), 0.0, new)
    weights = tl.exp2(scores * scale - base[:, None])
    shrink = tl.exp2(largest - base)
    weight_sum = weight_sum * shrink + tl.sum(weights, 1)
    if H.dropout:
        weights = weights * keep
    acc = acc * shrink[:, None]
    acc = tl.dot(weights.to(values.dtype), values, acc, input_precision=H.precision)
    return acc, weight_sum, new


@triton.jit
def _forward_mixed(
    acc, weight_sum, largest, q, k, v, blocks, places, key_mask, dropout, rows,
    num_queries, num_keys, scale, H: tl.constexpr,
):  # fmt: skip
    """Take in the mixed tiles of all stages."""
    order: tl.constexpr = BEFORE if H.causal else 0
    for stage in range(H.first_mixed, H.levels):
        some_low, low, high, some_high = _mixed_borders(places, stage)
        on_left = low - some_low
        for index in tl.range(0, on_left + some_high - high, num_stages=1):
            place = tl.where(index < on_left, some_low + index, high + index - on_left)
            columns = place * H.columns + tl.arange(0, H.columns)
            scores, shared, visible = _mixed_scores(
                q, k, blocks, rows, columns, num_queries, num_keys, num_keys - num_queries, 0,
                H.scaled, order, H,
            )  # fmt: skip
            scores *= scale
            if H.divide:
                scores = scores / tl.maximum(shared, 1)
            if H.masked:
                seen = tl.load(key_mask + columns, mask=columns < num_keys, other=0)
                visible = visible & (seen[None, :] != 0)
            scores = tl.where(visible, scores, float("-inf"))
            keep = 1.0
            if H.dropout:
                keep = _keep(dropout, rows[:, None], columns[None, :])
            values = _load(v, columns, num_keys, 0, H.value_columns, H.value_width)
            acc, weight_sum, largest = _soften(
                scores, 1.0, acc, weight_sum, largest, values, keep, H
            )
    return acc, weight_sum, largest


@triton.jit
def _forward_stage(
    acc, weight_sum, largest, q, k, v, borders, key_mask, dropout, rows,
    num_queries, num_keys, scale, STAGE: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Take in the tiles whose pairs all share the levels up to one, and no finer one."""
    one_sided: tl.constexpr = H.flat or (H.causal and H.levels - 1 > STAGE)
    depth: tl.constexpr = H.depths[STAGE]
    if H.flat:
        low, inner_low, lows, highs = borders
        inner_high, high = inner_low, inner_low
    else:
        low, inner_low, inner_high, high = borders
    # Columns of finer levels meet zeros here, and need not be hidden in every tile of keys.
    x = _load(q, rows, num_queries, 0, H.upto[STAGE + 1], H.padded[STAGE], H.scaled)
    shared = STAGE + 1
    rank = H.upto[H.levels]
    on_left = inner_low - low
    for index in tl.range(0, on_left + high - inner_high, num_stages=depth):
        place = low + index
        if not one_sided:
            place = tl.where(index < on_left, place, inner_high + index - on_left)
        if H.flat:
            shared, rank = _shared_levels(place, lows, highs, H)
        y = _load_tile(
            k, 0, place, H.kinds[STAGE], H.columns, rank, H.padded[STAGE],
            not H.flat and H.upto[H.levels] >= H.padded[STAGE],
            not H.flat and H.described and H.padded[STAGE] >= H.described_from,
        )  # fmt: skip
        level_scale = scale
        if H.divide:
            level_scale = scale / shared
        scores = tl.dot(x, tl.trans(y), input_precision=H.precision, out_dtype=H.sum)
        columns = place * H.columns + tl.arange(0, H.columns)
        if H.masked:
            seen = tl.load(key_mask + columns)
            scores = tl.where(seen[None, :] != 0, scores, float("-inf"))
        keep = 1.0
        if H.dropout:
            keep = _keep(dropout, rows[:, None], columns[None, :])
        values = _load_tile(
            v,
            0,
            place,
            0,
            H.columns,
            H.value_columns,
            H.value_width,
            H.value_columns == H.value_width,
            H.described,
        )
        acc, weight_sum, largest = _soften(
            scores, level_scale, acc, weight_sum, largest, values, keep, H
        )
    return acc, weight_sum, largest


@triton.jit(do_not_specialize=_SIZES)
def forward(
    q, q_strides, factors, k, k_strides, v, v_strides,
    k_16, k_32, k_64, k_128, k_256, v_tile, out, out_strides, lse,
    starts, ends, edge_batch, places, place_batch, key_mask, seeds, dropout_p,
    num_heads, num_queries, num_keys, scale, H: tl.constexpr,
):  # fmt: skip
    """Attend from a tile of queries; write the output and the log-sum-exp of each row."""
    tile = tl.program_id(0)
    if H.causal:
        # The longest ones first.
        tile = tl.num_programs(0) - 1 - tile
    pair = tl.program_id(1)
    batch, head = pair // num_heads, pair % num_heads
    queries = _matrix(q, q_strides, batch, head, 0, factors)
    keys = _matrix(k, k_strides, batch, head // H.group, (k_16, k_32, k_64, k_128, k_256))
    values = _matrix(v, v_strides, batch, head // H.group, (v_tile,))
    blocks = Blocks(starts + batch * edge_batch, ends + batch * edge_batch, num_keys)
    key_mask += batch.to(tl.int64) * num_keys
    dropout = _dropout(seeds, pair, dropout_p, num_keys, H)
    rows = tile * H.rows + tl.arange(0, H.rows)
    places += batch * place_batch + tile * (H.levels * PLACES)
    height: tl.constexpr = H.rows
    value_width: tl.constexpr = H.value_width
    acc = tl.zeros([height, value_width], H.sum)
    weight_sum = tl.zeros([height], H.sum)
    largest = tl.full([height], float("-inf"), H.sum)
    if H.first_mixed < H.levels:
        acc, weight_sum, largest = _forward_mixed(
            acc, weight_sum, largest, queries, keys, values, blocks, places, key_mask, dropout,
            rows, num_queries, num_keys, scale, H,
        )  # fmt: skip
    levels: tl.constexpr = H.levels
    stages: tl.constexpr = 1 if H.flat else levels
    borders = _first_borders(places, False, H)
    for number in tl.static_range(stages):
        # Those of the next stage are on their way while this one computes.
        following = borders
        if number < stages - 1:
            following = _whole_borders(places, levels - 2 - number)
        acc, weight_sum, largest = _forward_stage(
            acc, weight_sum, largest, queries, keys, values, borders, key_mask, dropout, rows,
            num_queries, num_keys, scale, levels - 1 - number, H,
        )  # fmt: skip
        borders = following
    # A row that may attend no key is 0, and by a log-sum-exp of infinity passes no gradient.
    some = weight_sum > 0
    weight_sum = tl.where(some, weight_sum, 1.0)
    target = _matrix(out, out_strides, batch, head, 0)
    _store(target, rows, num_queries, acc / weight_sum[:, None], 0, H.value_columns, H.value_width)
    total = tl.where(some, largest + tl.log2(weight_sum), float("inf"))
    tl.store(lse + pair.to(tl.int64) * num_queries + rows, total, mask=rows < num_queries)


@triton.jit
def _matrix(pointer, strides, batch, head, tiles, factors=0):
    """Return the rows of one head of one sequence."""
    offset = batch.to(tl.int64) * strides[0] + head.to(tl.int64) * strides[1]
    return Matrix(pointer + offset, strides[1], strides[2], tiles, batch, head, factors)


@triton.jit
def _dropout(seeds, pair, probability, num_keys, H: tl.constexpr):
    """Return the dropout of one head of one sequence."""
    seed = 0
    if H.dropout:
        seed = tl.load(seeds) + pair
    return Dropout(seed, probability, num_keys)


@triton.jit
def _slopes(scores, scale, total, out_slopes, keep, mean, H: tl.constexpr):
    """Return the weights of a tile, as they met the values, and the slopes of its scores."""
    weights = tl.exp2(scores * scale - total)
    if H.dropout:
        out_slopes = out_slopes * keep
    slopes = weights * (out_slopes - mean)
    if H.dropout:
        weights = weights * keep
    return weights, slopes


@triton.jit
def _settle(
    acc, target, rows, num_rows, scale,
    STAGE: tl.constexpr, SCALED: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Store the columns that farther tiles do not share, and narrow the sum to the others.

    What farther tiles add to stored columns that are still in the sum is never read: to clear them
    would cost a copy of the sum in every tile.
    """
    width: tl.constexpr = H.padded[STAGE]
    if SCALED:
        columns = tl.arange(0, width)
        factors = tl.load(target.factors + columns, mask=columns < H.upto[H.levels], other=0.0)
        scale = scale * factors[None, :]
    begin: tl.constexpr = 0 if H.flat else H.upto[STAGE]
    _store(target, rows, num_rows, acc * scale, begin, H.upto[STAGE + 1], width)
    return _first_columns(acc, H.halvings[STAGE])


@triton.jit
def _first_columns(acc, HALVINGS: tl.constexpr):
    """Return the first half of the columns, so many times over."""
    for _turn in tl.static_range(HALVINGS):
        halves = tl.reshape(acc, [acc.shape[0], 2, acc.shape[1] // 2])
        acc, _rest = tl.split(tl.permute(halves, [0, 2, 1]))
    return acc


@triton.jit
def _queries_mixed(
    acc, q, k, v, blocks, places, key_mask, dropout, rows, grad, total, mean,
    num_queries, num_keys, scale, H: tl.constexpr,
):  # fmt: skip
    """Add to the gradient of the queries what the mixed tiles of keys give."""
    order: tl.constexpr = BEFORE if H.causal else 0
    shift = num_keys - num_queries
    for stage in range(H.first_mixed, H.levels):
        some_low, low, high, some_high = _mixed_borders(places, stage)
        on_left = low - some_low
        for index in tl.range(0, on_left + some_high - high, num_stages=1):
            place = tl.where(index < on_left, some_low + index, high + index - on_left)
            columns = place * H.columns + tl.arange(0, H.columns)
            scores, shared, visible = _mixed_scores(
                q, k, blocks, rows, columns, num_queries, num_keys, shift, 0, H.scaled, order, H
            )
            scores *= scale
            if H.divide:
                scores = scores / tl.maximum(shared, 1)
            if H.masked:
                seen = tl.load(key_mask + columns, mask=columns < num_keys, other=0)
                visible = visible & (seen[None, :] != 0)
            scores = tl.where(visible, scores, float("-inf"))
            keep = 1.0
            if H.dropout:
                keep = _keep(dropout, rows[:, None], columns[None, :])
            values = _load(v, columns, num_keys, 0, H.value_columns, H.value_width)
            back = tl.dot(grad, tl.trans(values), input_precision=H.precision, out_dtype=H.sum)
            slopes = _slopes(scores, 1.0, total, back, keep, mean, H)[1]
            if H.divide:
                slopes = slopes / tl.maximum(shared, 1)
            acc = _mixed_gradient(
                slopes, acc, k, blocks, rows, columns, num_queries, num_keys, shift, 0, H
            )
    return acc


@triton.jit
def _queries_stage(
    acc, q, k, v, borders, key_mask, dropout, rows, grad, total, mean,
    num_queries, num_keys, scale, STAGE: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Add to the gradient of the queries what the tiles of keys of one stage give."""
    one_sided: tl.constexpr = H.flat or (H.causal and H.levels - 1 > STAGE)
    depth: tl.constexpr = H.depths[STAGE]
    if H.flat:
        low, inner_low, lows, highs = borders
        inner_high, high = inner_low, inner_low
    else:
        low, inner_low, inner_high, high = borders
    x = _load(q, rows, num_queries, 0, H.upto[STAGE + 1], H.padded[STAGE], H.scaled)
    shared = STAGE + 1
    rank = H.upto[H.levels]
    on_left = inner_low - low
    for index in tl.range(0, on_left + high - inner_high, num_stages=depth):
        place = low + index
        if not one_sided:
            place = tl.where(index < on_left, place, inner_high + index - on_left)
        if H.flat:
            shared, rank = _shared_levels(place, lows, highs, H)
        y = _load_tile(
            k, 0, place, H.kinds[STAGE], H.columns, rank, H.padded[STAGE],
            not H.flat and H.upto[H.levels] >= H.padded[STAGE],
            not H.flat and H.described and H.padded[STAGE] >= H.described_from,
        )  # fmt: skip
        level_scale = scale
        if H.divide:
            level_scale = scale / shared
        scores = tl.dot(x, tl.trans(y), input_precision=H.precision, out_dtype=H.sum)
        columns = place * H.columns + tl.arange(0, H.columns)
        if H.masked:
            seen = tl.load(key_mask + columns)
            scores = tl.where(seen[None, :] != 0, scores, float("-inf"))
        keep = 1.0
        if H.dropout:
            keep = _keep(dropout, rows[:, None], columns[None, :])
        values = _load_tile(
            v,
            0,
            place,
            0,
            H.columns,
            H.value_columns,
            H.value_width,
            H.value_columns == H.value_width,
            H.described,
        )
        back = tl.dot(grad, tl.trans(values), input_precision=H.precision, out_dtype=H.sum)
        slopes = _slopes(scores, level_scale, total, back, keep, mean, H)[1]
        if H.divide:
            slopes = slopes / shared
        acc = tl.dot(slopes.to(y.dtype), y, acc, input_precision=H.precision)
    return acc


@triton.jit(do_not_specialize=_SIZES)
def backward_queries(
    q, q_strides, factors, k, k_strides, v, v_strides,
    k_16, k_32, k_64, k_128, k_256, v_tile, out, out_strides,
    grad_out, grad_strides, lse, means, grad_q, grad_q_strides, scaled_q, scaled_q_strides,
    starts, ends, edge_batch, places, place_batch, key_mask, seeds, dropout_p,
    num_heads, num_queries, num_keys, scale, slope_scale, H: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a tile of queries, the mean slope of each row, and scaled queries."""
    tile = tl.program_id(0)
    if H.causal:
        tile = tl.num_programs(0) - 1 - tile
    pair = tl.program_id(1)
    batch, head = pair // num_heads, pair % num_heads
    queries = _matrix(q, q_strides, batch, head, 0, factors)
    keys = _matrix(k, k_strides, batch, head // H.group, (k_16, k_32, k_64, k_128, k_256))
    values = _matrix(v, v_strides, batch, head // H.group, (v_tile,))
    blocks = Blocks(starts + batch * edge_batch, ends + batch * edge_batch, num_keys)
    key_mask += batch.to(tl.int64) * num_keys
    dropout = _dropout(seeds, pair, dropout_p, num_keys, H)
    rows = tile * H.rows + tl.arange(0, H.rows)
    places += batch * place_batch + tile * (H.levels * PLACES)
    at = pair.to(tl.int64) * num_queries + rows
    total = tl.load(lse + at, mask=rows < num_queries, other=float("inf"))[:, None]
    source = _matrix(grad_out, grad_strides, batch, head, 0)
    grad = _load(source, rows, num_queries, 0, H.value_columns, H.value_width)
    result = _matrix(out, out_strides, batch, head, 0)
    result = _load(result, rows, num_queries, 0, H.value_columns, H.value_width)
    mean = tl.sum(grad.to(H.sum) * result.to(H.sum), 1)
    tl.store(means + at, mean, mask=rows < num_queries)
    mean = mean[:, None]
    levels: tl.constexpr = H.levels
    widest: tl.constexpr = H.padded[levels - 1]
    if H.scaled:
        scaled = _load(queries, rows, num_queries, 0, H.upto[levels], widest, True)
        target = _matrix(scaled_q, scaled_q_strides, batch, head, 0)
        _store(target, rows, num_queries, scaled, 0, H.upto[levels], widest)
    height: tl.constexpr = H.rows
    acc = tl.zeros([height, widest], H.sum)
    if H.first_mixed < H.levels:
        acc = _queries_mixed(
            acc, queries, keys, values, blocks, places, key_mask, dropout,
            rows, grad, total, mean, num_queries, num_keys, scale, H,
        )  # fmt: skip
    target = _matrix(grad_q, grad_q_strides, batch, head, 0, factors)
    stages: tl.constexpr = 1 if H.flat else levels
    borders = _first_borders(places, False, H)
    for number in tl.static_range(stages):
        # Those of the next stage are on their way while this one computes.
        following = borders
        if number < stages - 1:
            following = _whole_borders(places, levels - 2 - number)
        acc = _queries_stage(
            acc, queries, keys, values, borders, key_mask, dropout,
            rows, grad, total, mean, num_queries, num_keys, scale,
            levels - 1 - number, H,
        )  # fmt: skip
        borders = following
        acc = _settle(acc, target, rows, num_queries, slope_scale, levels - 1 - number, H.scaled, H)


@triton.jit
def _keys_mixed(
    grad_k, grad_v, q, k, grad_out, lse, means, blocks, places, seeds, dropout_p, pair, rows,
    row_seen, values, num_queries, num_keys, scale, H: tl.constexpr,
):  # fmt: skip
    """Add to the gradients of keys and values what the mixed tiles of queries give."""
    order: tl.constexpr = AFTER if H.causal else 0
    shift = num_keys - num_queries
    for stage in range(H.first_mixed, H.levels):
        some_low, low, high, some_high = _mixed_borders(places, stage)
        on_left = low - some_low
        count = on_left + some_high - high
        for turn in tl.range(0, count * H.group, num_stages=1):
            index, member = turn % count, turn // count
            place = tl.where(index < on_left, some_low + index, high + index - on_left)
            columns = place * H.columns + tl.arange(0, H.columns)
            x = _member(q, member)
            scores, shared, visible = _mixed_scores(
                k, x, blocks, rows, columns, num_keys, num_queries, 0, shift, False, order, H
            )
            scores *= scale
            if H.divide:
                scores = scores / tl.maximum(shared, 1)
            if H.masked:
                visible = visible & row_seen[:, None]
            scores = tl.where(visible, scores, float("-inf"))
            there = columns < num_queries
            at = member * num_queries + columns
            total = tl.load(lse + at, mask=there, other=float("inf"))[None, :]
            mean = tl.load(means + at, mask=there, other=0.0)[None, :]
            keep = 1.0
            if H.dropout:
                dropout = _dropout(seeds, pair * H.group + member, dropout_p, num_keys, H)
                keep = _keep(dropout, columns[None, :], rows[:, None])
            grad = _load(
                _member(grad_out, member), columns, num_queries, 0, H.value_columns, H.value_width
            )
            back = tl.dot(values, tl.trans(grad), input_precision=H.precision, out_dtype=H.sum)
            weights, slopes = _slopes(scores, 1.0, total, back, keep, mean, H)
            grad_v = tl.dot(weights.to(grad.dtype), grad, grad_v, input_precision=H.precision)
            if H.divide:
                slopes = slopes / tl.maximum(shared, 1)
            grad_k = _mixed_gradient(
                slopes, grad_k, x, blocks, rows, columns, num_keys, num_queries, 0, shift, H
            )
    return grad_k, grad_v


@triton.jit
def _member(x, member):
    """Return the head that comes so many after one."""
    return Matrix(
        x.pointer + member * x.head_step, x.head_step, x.step, x.tiles, x.batch, x.head + member,
        x.factors,
    )  # fmt: skip


@triton.jit
def _keys_stage(
    grad_k, grad_v, q, k, grad_out, lse, means, borders, seeds, dropout_p, pair, rows,
    row_seen, values, num_queries, num_keys, scale, STAGE: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Add to the gradients of keys and values what the tiles of queries of one stage give."""
    one_sided: tl.constexpr = not H.flat and H.causal and H.levels - 1 > STAGE
    depth: tl.constexpr = H.depths[STAGE]
    if H.flat:
        low, inner_low, lows, highs = borders
        inner_high, high = inner_low, inner_low
    else:
        low, inner_low, inner_high, high = borders
    own = _load(k, rows, num_keys, 0, H.upto[STAGE + 1], H.padded[STAGE])
    shared = STAGE + 1
    rank = H.upto[H.levels]
    on_left = inner_low - low
    count = on_left + high - inner_high
    for turn in tl.range(0, count * H.group, num_stages=depth):
        index, member = turn, 0
        if H.group > 1:
            index, member = turn % count, turn // count
        place = inner_high + index
        if not one_sided:
            place = tl.where(index < on_left, low + index, inner_high + index - on_left)
        if H.flat:
            shared, rank = _shared_levels(place, lows, highs, H)
        y = _load_tile(
            q, member, place, H.kinds[STAGE], H.columns, rank, H.padded[STAGE],
            not H.flat and H.upto[H.levels] >= H.padded[STAGE],
            not H.flat and H.described and H.padded[STAGE] >= H.described_from,
        )  # fmt: skip
        level_scale = scale
        if H.divide:
            level_scale = scale / shared
        scores = tl.dot(own, tl.trans(y), input_precision=H.precision, out_dtype=H.sum)
        if H.masked:
            scores = tl.where(row_seen[:, None], scores, float("-inf"))
        columns = place * H.columns + tl.arange(0, H.columns)
        at = member * num_queries + columns
        total = tl.load(lse + at)[None, :]
        mean = tl.load(means + at)[None, :]
        keep = 1.0
        if H.dropout:
            dropout = _dropout(seeds, pair * H.group + member, dropout_p, num_keys, H)
            keep = _keep(dropout, columns[None, :], rows[:, None])
        grad = _load_tile(
            grad_out, member, place, 0, H.columns, H.value_columns, H.value_width,
            H.value_columns == H.value_width, H.described,
        )  # fmt: skip
        back = tl.dot(values, tl.trans(grad), input_precision=H.precision, out_dtype=H.sum)
        weights, slopes = _slopes(scores, level_scale, total, back, keep, mean, H)
        grad_v = tl.dot(weights.to(grad.dtype), grad, grad_v, input_precision=H.precision)
        if H.divide:
            slopes = slopes / shared
        grad_k = tl.dot(slopes.to(y.dtype), y, grad_k, input_precision=H.precision)
    return grad_k, grad_v


@triton.jit(do_not_specialize=_SIZES)
def backward_keys(
    q, q_strides, k, k_strides, v, v_strides, q_16, q_32, q_64, q_128, q_256, grad_tile,
    grad_out, grad_strides, lse, means, grad_k, grad_k_strides, grad_v, grad_v_strides,
    starts, ends, edge_batch, places, place_batch, key_mask, seeds, dropout_p,
    num_groups, num_queries, num_keys, scale, slope_scale, H: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a tile of keys and of their values."""
    tile = tl.program_id(0)
    pair = tl.program_id(1)
    batch, head = pair // num_groups, pair % num_groups
    queries = _matrix(q, q_strides, batch, head * H.group, (q_16, q_32, q_64, q_128, q_256))
    keys = _matrix(k, k_strides, batch, head, 0)
    source = _matrix(grad_out, grad_strides, batch, head * H.group, (grad_tile,))
    lse += pair.to(tl.int64) * H.group * num_queries
    means += pair.to(tl.int64) * H.group * num_queries
    blocks = Blocks(starts + batch * edge_batch, ends + batch * edge_batch, num_keys)
    rows = tile * H.rows + tl.arange(0, H.rows)
    places += batch * place_batch + tile * (H.levels * PLACES)
    row_seen = rows < num_keys
    if H.masked:
        at = batch.to(tl.int64) * num_keys + rows
        row_seen = tl.load(key_mask + at, mask=row_seen, other=0) != 0
    values = _load(
        _matrix(v, v_strides, batch, head, 0), rows, num_keys, 0, H.value_columns, H.value_width
    )
    levels: tl.constexpr = H.levels
    widest: tl.constexpr = H.padded[levels - 1]
    height: tl.constexpr = H.rows
    value_width: tl.constexpr = H.value_width
    acc_k = tl.zeros([height, widest], H.sum)
    acc_v = tl.zeros([height, value_width], H.sum)
    if H.first_mixed < H.levels:
        acc_k, acc_v = _keys_mixed(
            acc_k, acc_v, queries, keys, source, lse, means, blocks, places, seeds, dropout_p, pair,
            rows, row_seen, values, num_queries, num_keys, scale, H,
        )  # fmt: skip
    target = _matrix(grad_k, grad_k_strides, batch, head, 0)
    stages: tl.constexpr = 1 if H.flat else levels
    borders = _first_borders(places, True, H)
    for number in tl.static_range(stages):
        # Those of the next stage are on their way while this one computes.
        following = borders
        if number < stages - 1:
            following = _whole_borders(places, levels - 2 - number)
        acc_k, acc_v = _keys_stage(
            acc_k, acc_v, queries, keys, source, lse, means, borders,
            seeds, dropout_p, pair, rows, row_seen, values, num_queries, num_keys,
            scale, levels - 1 - number, H,
        )  # fmt: skip
        borders = following
        acc_k = _settle(acc_k, target, rows, num_keys, slope_scale, levels - 1 - number, False, H)
    target = _matrix(grad_v, grad_v_strides, batch, head, 0)
    _store(target, rows, num_keys, acc_v, 0, H.value_columns, H.value_width)
