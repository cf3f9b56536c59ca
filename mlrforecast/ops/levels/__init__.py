"""Levels of a partition: how a sequence is cut into blocks, coarse to fine."""

from mlrforecast.ops.levels.grid import (
    block_ids,
    check_levels,
    halving_block_sizes,
    is_nested,
    level_flops,
    newest_whole_offset,
    shared_levels,
)
from mlrforecast.ops.levels.grid import (
    check_offset as check_offset,
)
from mlrforecast.ops.levels.grid import (
    whole_where_covering as whole_where_covering,
)
from mlrforecast.ops.levels.partition import Levels

__all__ = [
    "Levels",
    "block_ids",
    "check_levels",
    "halving_block_sizes",
    "is_nested",
    "level_flops",
    "newest_whole_offset",
    "shared_levels",
]
