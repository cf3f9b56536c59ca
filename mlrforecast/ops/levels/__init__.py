"""Levels of a partition: how a sequence is cut into blocks, coarse to fine."""

from mlrforecast.ops.levels.calendar import calendar_block_ids
from mlrforecast.ops.levels.combine import nested_block_ids
from mlrforecast.ops.levels.documents import document_block_ids
from mlrforecast.ops.levels.grid import (
    check_levels,
    halving_block_sizes,
    newest_whole_offset,
)
from mlrforecast.ops.levels.partition import Levels
from mlrforecast.ops.levels.proposal import propose_ranks

__all__ = [
    "Levels",
    "calendar_block_ids",
    "check_levels",
    "document_block_ids",
    "halving_block_sizes",
    "nested_block_ids",
    "newest_whole_offset",
    "propose_ranks",
]
