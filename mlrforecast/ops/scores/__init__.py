"""Scoring functions, one a file, dense and obvious."""

from mlrforecast.ops.scores.mlr import LevelScale, level_scales, mlr_scores

__all__ = ["LevelScale", "level_scales", "mlr_scores"]
