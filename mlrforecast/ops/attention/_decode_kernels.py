"""Triton kernels of one step of a generation: attend from the newest step, and merge the parts.

A program of :func:`attend` owns the query heads that share a key head, and walks over its share of
the tiles of steps with a running softmax. Level ``lvl`` counts from step ``begins[lvl]`` on. Steps
are counted from the oldest kept value; a level that keeps fewer of them brings its keys shifted.
The loads of a level are masked by its own steps, so that no other key is fetched, and tiles before
the first step of the levels from ``COUNTS[stage]`` on do not ask for them at all.

Numbers that change from step to step must not be compiled in. Triton would do so for those in a
tuple that are 1 or a multiple of 16, so ``n`` is passed as ``2 n + 3`` there. Strides between heads
come in units of ``UNITS`` elements, which says how wide a load may be; those between steps are
fixed.

Scores are in units of log 2, and ``scale`` holds its factor.
"""

import triton
import triton.language as tl

__all__ = ["attend", "merge"]


@triton.jit
def _plain(number):
    """Return the number that was passed as an odd one, in 64 bits."""
    return (number.to(tl.int64) - 3) >> 1


@triton.jit
def _tile(
    pointer, begin, tile, low, high, STEP: tl.constexpr, COLUMNS: tl.constexpr,
    RANK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Load the steps of a tile that lie in ``[low, high)``, padded with zeros to ``WIDTH``."""
    rows, columns = tl.arange(0, COLUMNS), tl.arange(0, WIDTH)
    first = tile * COLUMNS
    at = pointer + (first.to(tl.int64) - begin) * STEP + (rows[:, None] * STEP + columns[None, :])
    inside = ((rows >= low - first) & (rows < high - first))[:, None]
    if WIDTH != RANK:
        inside = inside & (columns[None, :] < RANK)
    return tl.load(at, mask=inside, other=0.0)


@triton.jit
def _with_level(
    scores, query, key, begin, shift, tile, num_steps, STEP: tl.constexpr, RANK: tl.constexpr,
    WIDTH: tl.constexpr, RELATIVE: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
    SUM: tl.constexpr,
):  # fmt: skip
    """Add the products of one level; outside its steps its keys are read as zeros."""
    columns = _tile(key, shift, tile, begin, num_steps, STEP, COLUMNS, RANK, WIDTH)
    if RELATIVE == 1.0:
        return tl.dot(query, tl.trans(columns), scores, input_precision=PRECISION, out_dtype=SUM)
    part = tl.dot(query, tl.trans(columns), input_precision=PRECISION, out_dtype=SUM)
    return scores + part * RELATIVE


@triton.jit
def _stage(
    acc, weight_sums, largest, queries, keys, begins, shifts, v, key_mask, first, stride, low, high,
    first_step, num_steps, scale, COUNT: tl.constexpr, RANKS: tl.constexpr, WIDTHS: tl.constexpr,
    STEPS: tl.constexpr, RELATIVE: tl.constexpr, VALUES: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    VALUE_STEP: tl.constexpr, MASKED: tl.constexpr, DIVIDE: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Take in the tiles that no level but the first ``COUNT`` counts for."""
    for turn in tl.range(low, high, num_stages=STAGES):
        tile = first + turn * stride
        scores = tl.zeros([ROWS, COLUMNS], SUM)
        for level in tl.static_range(COUNT):
            scores = _with_level(
                scores, queries[level], keys[level], begins[level], shifts[level], tile, num_steps,
                STEPS[level], RANKS[level], WIDTHS[level], RELATIVE[level], COLUMNS, PRECISION, SUM,
            )  # fmt: skip
        scores *= scale
        steps = tile * COLUMNS + tl.arange(0, COLUMNS)
        if DIVIDE:
            shared = tl.zeros([COLUMNS], tl.int32)
            for level in tl.static_range(COUNT):
                shared += (steps >= begins[level]).to(tl.int32)
            scores = scores / tl.maximum(shared, 1)[None, :]
        visible = (steps >= first_step) & (steps < num_steps)
        if MASKED:
            visible = visible & (tl.load(key_mask + steps, mask=visible, other=0) != 0)
        scores = tl.where(visible[None, :], scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        # A row that has seen nothing so far must not subtract minus infinity from itself.
        base = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(largest - base)
        # Summed over the columns at the end: fewer steps in which the warps wait for each other.
        weight_sums = weight_sums * shrink[:, None] + weights
        values = _tile(v, 0, tile, first_step, num_steps, VALUE_STEP, COLUMNS, VALUES, VALUE_WIDTH)
        acc = acc * shrink[:, None]
        weights = weights.to(values.dtype)
        acc = tl.dot(weights, values, acc, input_precision=PRECISION, out_dtype=SUM)
        largest = new
    return acc, weight_sums, largest


@triton.jit
def _first_of(begins, FROM: tl.constexpr, LEVELS: tl.constexpr):
    """Return the first step that some level from one on counts for."""
    first = begins[FROM]
    for level in tl.static_range(FROM + 1, LEVELS):
        first = tl.minimum(first, begins[level])
    return first


@triton.jit(
    do_not_specialize=(
        "q_batch", "q_head", "v_batch", "v_head", "mask_batch", "num_groups", "num_steps",
        "first_step", "splits",
    )
)  # fmt: skip
def attend(
    q, keys, v, key_mask, out, q_batch, q_head, key_batches, key_heads, begins, shifts,
    v_batch, v_head, mask_batch, num_groups, num_steps, first_step, splits, scale,
    GROUP: tl.constexpr, RANKS: tl.constexpr, UPTO: tl.constexpr, WIDTHS: tl.constexpr,
    STEPS: tl.constexpr, UNITS: tl.constexpr, RELATIVE: tl.constexpr, COUNTS: tl.constexpr,
    LEVELS: tl.constexpr, VALUES: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    VALUE_STEP: tl.constexpr, VALUE_UNIT: tl.constexpr, MASKED: tl.constexpr,
    DIVIDE: tl.constexpr, SPLIT: tl.constexpr, STRIDED: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Attend from the query heads of one key head to a share of the steps.

    Without ``SPLIT`` there is one share, and ``out`` takes the output. With it, ``out`` takes for
    each head and share the sum of the values, and behind all of them each largest score and each
    sum of weights.
    """
    pair = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    batch, head = pair // num_groups, pair % num_groups
    members = tl.arange(0, ROWS)
    q += batch * q_batch + head * GROUP * q_head
    v += (batch * v_batch + head * v_head) * VALUE_UNIT
    key_mask += batch * mask_batch
    queries, places, starts, moved = (), (), (), ()
    for level in tl.static_range(LEVELS):
        columns = tl.arange(0, WIDTHS[level])
        at = q + members[:, None] * q_head + UPTO[level] + columns[None, :]
        there = (members[:, None] < GROUP) & (columns[None, :] < RANKS[level])
        queries += (tl.load(at, mask=there, other=0.0),)
        offset = batch * _plain(key_batches[level]) + head * _plain(key_heads[level])
        places += (keys[level] + offset * UNITS[level],)
        starts += (_plain(begins[level]).to(tl.int32),)
        moved += (_plain(shifts[level]),)

    first = first_step // COLUMNS
    stop = tl.cdiv(num_steps, COLUMNS)
    stride = 1
    if SPLIT:
        if STRIDED:
            first += split
            stride = splits
        else:
            share = tl.cdiv(stop - first, splits)
            first += split * share
            stop = tl.minimum(stop, first + share)
    acc = tl.zeros([ROWS, VALUE_WIDTH], SUM)
    weight_sums = tl.zeros([ROWS, COLUMNS], SUM)
    largest = tl.full([ROWS], float("-inf"), SUM)
    turns = tl.maximum(tl.cdiv(stop - first, stride), 0)
    done = 0
    for stage in tl.static_range(len(COUNTS)):
        border = turns
        if COUNTS[stage] < LEVELS:
            finer = _first_of(starts, COUNTS[stage], LEVELS) // COLUMNS
            border = tl.maximum(tl.minimum(tl.cdiv(finer - first, stride), turns), done)
        acc, weight_sums, largest = _stage(
            acc, weight_sums, largest, queries, places, starts, moved, v, key_mask, first, stride,
            done, border, first_step, num_steps, scale, COUNTS[stage], RANKS, WIDTHS, STEPS,
            RELATIVE, VALUES, VALUE_WIDTH, VALUE_STEP, MASKED, DIVIDE, ROWS, COLUMNS, STAGES,
            PRECISION, SUM,
        )  # fmt: skip
        done = border

    weight_sum = tl.sum(weight_sums, 1)
    columns = tl.arange(0, VALUE_WIDTH)
    inside = (members[:, None] < GROUP) & (columns[None, :] < VALUES)
    rows = pair * GROUP + members
    if SPLIT:
        rows = rows * splits + split
        numbers = out + tl.num_programs(0).to(tl.int64) * GROUP * splits * VALUES
        tl.store(numbers + rows * 2, largest, mask=members < GROUP)
        tl.store(numbers + rows * 2 + 1, weight_sum, mask=members < GROUP)
    else:
        # A row without any key is 0, and not 0 / 0.
        acc = acc / tl.where(weight_sum > 0, weight_sum, 1.0)[:, None]
    at = out + rows[:, None] * VALUES + columns[None, :]
    tl.store(at, acc.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=("splits",))
def merge(
    parts, out, splits, MOST: tl.constexpr, CHUNK: tl.constexpr, VALUES: tl.constexpr,
    VALUE_WIDTH: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Merge what the shares of one head have found; there are at most ``MOST`` of them."""
    row = tl.program_id(0).to(tl.int64)
    numbers = parts + tl.num_programs(0).to(tl.int64) * splits * VALUES + row * splits * 2
    parts += row * splits * VALUES
    all_splits = tl.arange(0, MOST)
    there = all_splits < splits
    largest = tl.load(numbers + all_splits * 2, mask=there, other=float("-inf"))
    weight_sums = tl.load(numbers + all_splits * 2 + 1, mask=there, other=0.0)
    total = tl.max(largest, 0)
    base = tl.where(total == float("-inf"), 0.0, total)
    weight_sum = tl.sum(weight_sums * tl.exp2(largest - base), 0)
    columns = tl.arange(0, VALUE_WIDTH)
    acc = tl.zeros([VALUE_WIDTH], SUM)
    for start in tl.static_range(0, MOST, CHUNK):
        some = start + tl.arange(0, CHUNK)
        factor = tl.load(numbers + some * 2, mask=some < splits, other=float("-inf"))
        inside = (some < splits)[:, None] & (columns < VALUES)[None, :]
        part = tl.load(parts + some[:, None] * VALUES + columns[None, :], mask=inside, other=0.0)
        acc += tl.sum(part * tl.exp2(factor - base)[:, None], 0)
    acc = acc / tl.where(weight_sum > 0, weight_sum, 1.0)
    tl.store(out + row * VALUES + columns, acc.to(out.dtype.element_ty), mask=columns < VALUES)
