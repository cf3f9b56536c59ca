"""Attention over multi-level low-rank scores: one definition, several ways to compute it."""

from mlrforecast.ops.attention.dispatch import (
    BackendChoice,
    explain_backend,
    mlr_attention,
)
from mlrforecast.ops.attention.standard import standard_attention

__all__ = ["BackendChoice", "explain_backend", "mlr_attention", "standard_attention"]
