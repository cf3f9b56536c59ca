"""The calls of multi-level attention that every backend serves exactly or refuses."""

from typing import Any

import torch
from torch import Tensor

Case = dict[str, Any]

RANKS = (4, 2, 2)
BATCH = 3
WHOLE = None


def ragged_ids(length: int, kind: str = "nested", seed: int = 0) -> Tensor:
    """Return the block of each position on three levels, under labels without any order.

    ``nested``: blocks of any length inside those of the level above; ``parted``: the same, and
    the coarsest level is no single block; ``crossing``: the finer ones cut across the coarser;
    ``gaps``: nested, but a block's positions are no neighbours; ``batch``: ``parted``, another
    one for each sequence.
    """
    if kind == "batch":
        return torch.stack([ragged_ids(length, "parted", seed + 1 + item) for item in range(BATCH)])
    generator = torch.Generator().manual_seed(seed)
    cuts = torch.rand(2, length, generator=generator) < torch.tensor([[0.08], [0.3]])
    coarse, fine = cuts[0].cumsum(0), cuts[1].cumsum(0)
    steps = torch.arange(length)
    rows = {
        "nested": [0 * steps, coarse, (cuts[0] | cuts[1]).cumsum(0)],
        "parted": [coarse // 2, coarse, (cuts[0] | cuts[1]).cumsum(0)],
        "crossing": [0 * steps, coarse, fine],
        "gaps": [0 * steps, steps % 2, steps % 6],
    }[kind]
    # An odd factor modulo a power of two keeps different labels different.
    return torch.stack(
        [(row * 1103515245 + 12345 + lvl) % 2**31 - 2**30 for lvl, row in enumerate(rows)]
    )


CASES: dict[str, Case] = {
    "T1": {"length": 1, "block_sizes": (WHOLE, 2, 1)},
    "T1-masked": {"length": 1, "block_sizes": (WHOLE, 2, 1), "masked": True, "causal": True},
    "T2-causal": {"length": 2, "block_sizes": (WHOLE, 2, 1), "causal": True},
    "T7-offset": {"length": 7, "block_sizes": (WHOLE, 6, 2), "offset": 5, "masked": True},
    "T63-shared": {
        "length": 63,
        "block_sizes": (WHOLE, 20, 5),
        "offset": 7,
        "causal": True,
        "masked": True,
        "divide_by_shared_levels": True,
    },
    "T64-no-whole-level": {
        "length": 64,
        "block_sizes": (32, 16, 8),
        "causal": True,
        "masked": True,
    },
    "T64-unshared-zero": {"length": 64, "block_sizes": (32, 16, 8), "unshared": "zero"},
    "T64-wide-values": {"length": 64, "block_sizes": (64, 32, 16), "value_width": 13},
    "T65-all-divisions": {
        "length": 65,
        "block_sizes": (WHOLE, 34, 17),
        "masked": True,
        "divide_by_shared_levels": True,
        "divide_by_num_levels": True,
    },
    "T65-identity": {
        "length": 65,
        "block_sizes": (50, 25, 5),
        "causal": True,
        "masked": True,
        "link": "identity",
    },
    "T127-repeated-level": {
        "length": 127,
        "block_sizes": (WHOLE, WHOLE, 9),
        "level_scale": "inverse_sqrt_rank",
    },
    "T127-equal-blocks": {
        "length": 127,
        "block_sizes": (WHOLE, 16, 16),
        "offset": 1,
        "causal": True,
        "level_scale": (0.5, 0.125, 2.0),
        "divide_by_shared_levels": True,
    },
    "T127-not-nested": {
        "length": 127,
        "block_sizes": (WHOLE, 50, 12),
        "offset": 3,
        "causal": True,
    },
    "T127-not-nested-shared": {
        "length": 127,
        "block_sizes": (100, 50, 12),
        "divide_by_shared_levels": True,
    },
    "T257-odd-blocks": {
        "length": 257,
        "block_sizes": (WHOLE, 77, 11),
        "offset": 19,
        "causal": True,
        "masked": True,
        "level_scale": "inverse_sqrt_width",
    },
    "T257-many-blocks": {"length": 257, "block_sizes": (WHOLE, 6, 2), "masked": True},
    # Grouped-query heads: 4 heads of queries read 1 or 2 of keys and values.
    "T33-one-key-head": {
        "length": 33,
        "block_sizes": (WHOLE, 16, 8),
        "num_heads": 4,
        "num_kv_heads": 1,
        "causal": True,
    },
    "T33-two-key-heads": {
        "length": 33,
        "block_sizes": (WHOLE, 16, 8),
        "offset": 3,
        "num_heads": 4,
        "num_kv_heads": 2,
        "masked": True,
        "divide_by_shared_levels": True,
    },
    # Ragged blocks: an id for each position.
    "T1-ids": {"length": 1, "block_ids": "nested", "causal": True},
    "T37-ids": {"length": 37, "block_ids": "nested"},
    "T37-ids-causal-shared": {
        "length": 37,
        "block_ids": "nested",
        "causal": True,
        "masked": True,
        "divide_by_shared_levels": True,
        "num_heads": 4,
        "num_kv_heads": 2,
    },
    "T65-ids-parted": {"length": 65, "block_ids": "parted", "causal": True, "masked": True},
    "T31-ids-parted-zero": {"length": 31, "block_ids": "parted", "unshared": "zero"},
    "T37-ids-crossing": {"length": 37, "block_ids": "crossing", "causal": True},
    "T37-ids-crossing-shared": {
        "length": 37,
        "block_ids": "crossing",
        "divide_by_shared_levels": True,
    },
    "T37-ids-gaps": {"length": 37, "block_ids": "gaps", "masked": True},
    "T37-ids-gaps-shared": {
        "length": 37,
        "block_ids": "gaps",
        "causal": True,
        "divide_by_shared_levels": True,
    },
    "T23-ids-batch": {"length": 23, "block_ids": "batch", "causal": True},
    "T23-ids-batch-shared": {
        "length": 23,
        "block_ids": "batch",
        "masked": True,
        "divide_by_shared_levels": True,
        "num_heads": 4,
        "num_kv_heads": 1,
    },
    "T23-ids-batch-zero": {
        "length": 23,
        "block_ids": "batch",
        "unshared": "zero",
        "link": "identity",
    },
    # Fewer queries than keys: the last steps.
    "T1-of-37": {"length": 37, "num_queries": 1, "block_sizes": (WHOLE, 8, 4), "causal": True},
    "T1-of-37-masked-shared": {
        "length": 37,
        "num_queries": 1,
        "block_sizes": (16, 8, 4),
        "causal": True,
        "masked": True,
        "divide_by_shared_levels": True,
        "num_heads": 4,
        "num_kv_heads": 2,
    },
    "T5-of-37": {
        "length": 37,
        "num_queries": 5,
        "block_sizes": (WHOLE, 8, 4),
        "offset": 6,
        "causal": True,
    },
    "T5-of-37-bidirectional": {
        "length": 37,
        "num_queries": 5,
        "block_sizes": (16, 8, 4),
        "masked": True,
        "num_heads": 4,
        "num_kv_heads": 1,
    },
    "T36-of-37-identity": {
        "length": 37,
        "num_queries": 36,
        "block_sizes": (WHOLE, 8, 4),
        "causal": True,
        "link": "identity",
    },
    "T5-of-37-ids": {
        "length": 37,
        "num_queries": 5,
        "block_ids": "parted",
        "causal": True,
        "divide_by_shared_levels": True,
    },
    "T7-of-23-ids-batch": {
        "length": 23,
        "num_queries": 7,
        "block_ids": "batch",
        "causal": True,
        "masked": True,
    },
    "T5-of-37-unshared-zero": {
        "length": 37,
        "num_queries": 5,
        "block_sizes": (9, 6, 2),
        "causal": True,
        "unshared": "zero",
    },
    # A window on the coarsest level.
    "T31-window-0": {"length": 31, "block_sizes": (WHOLE, 8, 4), "window": 0, "causal": True},
    "T31-window": {
        "length": 31,
        "block_sizes": (2, 2, 1),
        "offset": 1,
        "window": 5,
        "masked": True,
    },
    "T31-window-zero": {
        "length": 31,
        "block_sizes": (WHOLE, 8, 4),
        "window": 5,
        "causal": True,
        "unshared": "zero",
        "divide_by_shared_levels": True,
    },
    "T31-window-beyond": {"length": 31, "block_sizes": (8, 8, 4), "window": 100, "causal": True},
    "T5-of-31-window": {
        "length": 31,
        "num_queries": 5,
        "block_sizes": (WHOLE, 8, 4),
        "window": 9,
        "causal": True,
        "num_heads": 4,
        "num_kv_heads": 2,
    },
    "T23-ids-batch-window": {
        "length": 23,
        "block_ids": "batch",
        "window": 3,
        "divide_by_shared_levels": True,
    },
    "T1-of-23-window": {
        "length": 23,
        "num_queries": 1,
        "block_ids": "nested",
        "window": 6,
        "causal": True,
        "masked": True,
    },
    # Queries of another sequence, placed in the blocks of the keys.
    "T9-to-23": {"length": 23, "num_queries": 9, "block_ids": "parted", "query_ids": "parted"},
    "T23-to-23-shared": {
        "length": 23,
        "num_queries": 23,
        "block_ids": "nested",
        "query_ids": "nested",
        "masked": True,
        "divide_by_shared_levels": True,
    },
    "T23-to-9-batch": {
        "length": 9,
        "num_queries": 23,
        "block_ids": "batch",
        "query_ids": "batch",
        "masked": True,
        "num_heads": 4,
        "num_kv_heads": 2,
    },
    "T23-to-9-mixed": {
        "length": 9,
        "num_queries": 23,
        "block_ids": "gaps",
        "query_ids": "batch",
        "unshared": "zero",
    },
    "T1-to-9-crossing-shared": {
        "length": 9,
        "num_queries": 1,
        "block_ids": "crossing",
        "query_ids": "parted",
        "divide_by_shared_levels": True,
        "link": "identity",
    },
}

OPTIONS = {
    "block_sizes",
    "offset",
    "causal",
    "window",
    "level_scale",
    "divide_by_shared_levels",
    "divide_by_num_levels",
    "unshared",
    "link",
}


def make_inputs(
    length: int,
    *,
    num_queries: int | None = None,
    num_heads: int = 2,
    num_kv_heads: int | None = None,
    value_width: int = 5,
    masked: bool = False,
    dtype: torch.dtype = torch.float64,
    width: int = sum(RANKS),
    device: str = "cpu",
) -> tuple[list[Tensor], Tensor | None]:
    """Draw q, k, v of three sequences: left-padded, with holes, and without any real key."""
    generator = torch.Generator().manual_seed(length)
    shapes = [
        (BATCH, num_heads, num_queries or length, width),
        (BATCH, num_kv_heads or num_heads, length, width),
        (BATCH, num_kv_heads or num_heads, length, value_width),
    ]
    draws = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    tensors = [x.to(device, dtype).requires_grad_() for x in draws]
    if not masked:
        return tensors, None
    key_mask = torch.rand(BATCH, length, generator=generator) > 0.4
    key_mask[0] = torch.arange(length) >= length // 3
    key_mask[2] = False
    return tensors, key_mask.to(device)


def unpack(case: Case) -> tuple[list[Tensor], dict[str, Any]]:
    """Split a case into its tensors and the options of the call."""
    options = {key: value for key, value in case.items() if key in OPTIONS}
    sizes = ("num_queries", "num_heads", "num_kv_heads", "value_width", "masked")
    drawn = {key: case[key] for key in sizes if key in case}
    inputs, key_mask = make_inputs(case["length"], **drawn)
    if "block_ids" in case:
        options["block_ids"] = ragged_ids(case["length"], case["block_ids"])
    if "query_ids" in case:
        options["query_block_ids"] = ragged_ids(case["num_queries"], case["query_ids"])
    return inputs, {"ranks": RANKS, "key_mask": key_mask} | options
