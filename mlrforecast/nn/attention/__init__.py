"""The attention module, its scores, and the cache of a generation."""

from mlrforecast.nn.attention.bilinear import BilinearBTTScore, BilinearMLRScore, BilinearScore
from mlrforecast.nn.attention.cache import LayerCache
from mlrforecast.nn.attention.dot import GlobalWindowScore, SlidingWindowScore, StandardScore
from mlrforecast.nn.attention.mlr import MLRScore, MLRWindowScore, default_ranks
from mlrforecast.nn.attention.module import StructuredAttention
from mlrforecast.nn.attention.score import Heads, Reach, Score, Step, attentions, option_names

__all__ = [
    "BilinearBTTScore",
    "BilinearMLRScore",
    "BilinearScore",
    "GlobalWindowScore",
    "Heads",
    "LayerCache",
    "MLRScore",
    "MLRWindowScore",
    "Reach",
    "Score",
    "SlidingWindowScore",
    "StandardScore",
    "Step",
    "StructuredAttention",
    "attentions",
    "default_ranks",
    "option_names",
]
