"""Pure tensor functions: levels of a partition, scores, and attention.

The definition, its options and its costs are in the ``README.md`` beside this file.
"""

from mlrforecast.ops.attention import (
    BackendChoice,
    attention_ops,
    bilinear_attention,
    bilinear_btt_attention,
    bilinear_mlr_attention,
    explain_backend,
    global_window_attention,
    mlr_attention,
    sliding_window_attention,
    standard_attention,
)
from mlrforecast.ops.attention.stepping import mlr_step_attention
from mlrforecast.ops.clamp import rms_clamp
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
from mlrforecast.ops.scores import (
    LogitScale,
    bilinear_btt_scores,
    bilinear_keys,
    bilinear_mlr_features,
    bilinear_mlr_scores,
    bilinear_scores,
    btt_matrix,
    dot_scores,
    global_window_scores,
    level_scales,
    logit_factor,
    mlr_scores,
    window_mask,
)

__all__ = [
    "MLBTC",
    "BackendChoice",
    "BlockLayout",
    "BlockLevel",
    "BlockTensorTrain",
    "Levels",
    "LogitScale",
    "ParameterSpec",
    "Shuffle",
    "StructuredMatrix",
    "attention_ops",
    "bilinear_attention",
    "bilinear_btt_attention",
    "bilinear_btt_scores",
    "bilinear_keys",
    "bilinear_mlr_attention",
    "bilinear_mlr_features",
    "bilinear_mlr_scores",
    "bilinear_scores",
    "block_ids",
    "btt_matrix",
    "check_levels",
    "dot_scores",
    "explain_backend",
    "global_window_attention",
    "global_window_scores",
    "halving_block_sizes",
    "is_nested",
    "level_flops",
    "level_scales",
    "logit_factor",
    "mlr_attention",
    "mlr_scores",
    "mlr_step_attention",
    "newest_whole_offset",
    "rms_clamp",
    "rotate",
    "shared_levels",
    "sliding_window_attention",
    "standard_attention",
    "window_mask",
]
