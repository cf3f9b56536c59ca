"""Scoring functions, one a file, dense and obvious."""

from mlrforecast.ops.scores.bilinear import bilinear_keys, bilinear_scores
from mlrforecast.ops.scores.bilinear_btt import bilinear_btt_scores, btt_matrix
from mlrforecast.ops.scores.bilinear_mlr import (
    bilinear_mlr_features,
    bilinear_mlr_scores,
)
from mlrforecast.ops.scores.dot import LogitScale, dot_scores, logit_factor
from mlrforecast.ops.scores.mlr import LevelScale, level_scales, mlr_scores
from mlrforecast.ops.scores.window import global_window_scores, window_mask

__all__ = [
    "LevelScale",
    "LogitScale",
    "bilinear_btt_scores",
    "bilinear_keys",
    "bilinear_mlr_features",
    "bilinear_mlr_scores",
    "bilinear_scores",
    "btt_matrix",
    "dot_scores",
    "global_window_scores",
    "level_scales",
    "logit_factor",
    "mlr_scores",
    "window_mask",
]
