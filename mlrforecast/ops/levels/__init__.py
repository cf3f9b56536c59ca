"""Levels of a partition: how a sequence is cut into blocks, coarse to fine."""

from mlrforecast.ops.levels.calendar import calendar_block_ids
from mlrforecast.ops.levels.combine import nested_block_ids
from mlrforecast.ops.levels.documents import document_block_ids
from mlrforecast.ops.levels.grid import (
    block_ids,
    check_levels,
    halving_block_sizes,
    is_nested,
    level_flops,
    newest_whole_offset,
    shared_levels,
)
from mlrforecast.ops.levels.grid import check_offset as check_offset
from mlrforecast.ops.levels.grid import whole_where_covering as whole_where_covering
from mlrforecast.ops.levels.partition import Levels
from mlrforecast.ops.levels.proposal import propose_ranks

__all__ = [
    "Levels",
    "block_ids",
    "calendar_block_ids",
    "check_levels",
    "document_block_ids",
    "halving_block_sizes",
    "is_nested",
    "level_flops",
    "nested_block_ids",
    "newest_whole_offset",
    "propose_ranks",
    "shared_levels",
]
