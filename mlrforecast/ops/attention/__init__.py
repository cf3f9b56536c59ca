"""Attention: one op for each score, and several ways to compute that of multi-level scores."""

from collections.abc import Callable

from torch import Tensor

from mlrforecast._core.registry import Registry
from mlrforecast.ops.attention.biased import biased_mlr_attention
from mlrforecast.ops.attention.bilinear import (
    bilinear_attention,
    bilinear_btt_attention,
    bilinear_mlr_attention,
)
from mlrforecast.ops.attention.dispatch import (
    BackendChoice,
    explain_backend,
    mlr_attention,
    mlr_window_attention,
)
from mlrforecast.ops.attention.standard import standard_attention
from mlrforecast.ops.attention.windows import global_window_attention, sliding_window_attention

__all__ = [
    "BackendChoice",
    "attention_ops",
    "biased_mlr_attention",
    "bilinear_attention",
    "bilinear_btt_attention",
    "bilinear_mlr_attention",
    "explain_backend",
    "global_window_attention",
    "mlr_attention",
    "mlr_window_attention",
    "sliding_window_attention",
    "standard_attention",
]

attention_ops: Registry[Callable[..., Tensor]] = Registry("attention op")
"""Name of a score -> the op that attends by it; layers, models and estimators use these names."""

attention_ops.register("bilinear", bilinear_attention)
attention_ops.register("bilinear_btt", bilinear_btt_attention)
attention_ops.register("bilinear_mlr", bilinear_mlr_attention)
attention_ops.register("global_window", global_window_attention)
attention_ops.register("mlr", mlr_attention)
attention_ops.register("mlr_window", mlr_window_attention)
attention_ops.register("sliding_window", sliding_window_attention)
attention_ops.register("standard", standard_attention)
