"""Modules with plain keyword arguments, shared by every model."""

from mlrforecast.nn.attention import StructuredAttention, attentions, default_ranks
from mlrforecast.nn.block import Encoder, EncoderBlock
from mlrforecast.nn.embedding import PatchEmbedding
from mlrforecast.nn.heads import PointHead, QuantileHead
from mlrforecast.nn.norm import Normalised, instance_normalise

__all__ = [
    "Encoder",
    "EncoderBlock",
    "Normalised",
    "PatchEmbedding",
    "PointHead",
    "QuantileHead",
    "StructuredAttention",
    "attentions",
    "default_ranks",
    "instance_normalise",
]
