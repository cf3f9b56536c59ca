"""Pure tensor functions: levels of a partition, scores, and attention.

The definition, its options and its costs are in the ``README.md`` beside this file.
"""

from mlrforecast.ops.attention import (
    BackendChoice,
    explain_backend,
    mlr_attention,
    standard_attention,
)
from mlrforecast.ops.attention.stepping import mlr_step_attention
from mlrforecast.ops.levels import (
    Levels,
    block_ids,
    check_levels,
    halving_block_sizes,
    is_nested,
    level_flops,
    newest_whole_offset,
    shared_levels,
)
from mlrforecast.ops.matrices import (
    MLBTC,
    BlockLayout,
    BlockLevel,
    BlockTensorTrain,
    ParameterSpec,
    Shuffle,
    StructuredMatrix,
)
from mlrforecast.ops.rotary import rotate
from mlrforecast.ops.scores import level_scales, mlr_scores

__all__ = [
    "MLBTC",
    "BackendChoice",
    "BlockLayout",
    "BlockLevel",
    "BlockTensorTrain",
    "Levels",
    "ParameterSpec",
    "Shuffle",
    "StructuredMatrix",
    "block_ids",
    "check_levels",
    "explain_backend",
    "halving_block_sizes",
    "is_nested",
    "level_flops",
    "level_scales",
    "mlr_attention",
    "mlr_scores",
    "mlr_step_attention",
    "newest_whole_offset",
    "rotate",
    "shared_levels",
    "standard_attention",
]
