"""Modules with plain keyword arguments, shared by every model."""

from mlrforecast.nn.attention import (
    BilinearBTTScore,
    BilinearMLRScore,
    BilinearScore,
    GlobalWindowScore,
    Heads,
    LayerCache,
    MLRScore,
    MLRWindowScore,
    Reach,
    Score,
    SlidingWindowScore,
    StandardScore,
    Step,
    StructuredAttention,
    attentions,
    default_ranks,
    option_names,
)
from mlrforecast.nn.block import Encoder, EncoderBlock, attention_of_layers
from mlrforecast.nn.cost import Convention, Cost
from mlrforecast.nn.covariates import CalendarEffect, CovariateColumns, FutureEffect
from mlrforecast.nn.distributions import (
    DISTRIBUTIONS,
    NegativeBinomialOutput,
    NormalOutput,
    OutputDistribution,
    StudentTOutput,
)
from mlrforecast.nn.dropout import Dropout
from mlrforecast.nn.embedding import LearnedPositions, PatchEmbedding
from mlrforecast.nn.heads import DistributionHead, PointHead, QuantileHead
from mlrforecast.nn.linear import InputLinear, OutputLinear
from mlrforecast.nn.linear_member import LinearMember
from mlrforecast.nn.mup import MupRow, MupRule, initialise_mup, mup_table
from mlrforecast.nn.norm import Normalised, instance_normalise

__all__ = [
    "DISTRIBUTIONS",
    "BilinearBTTScore",
    "BilinearMLRScore",
    "BilinearScore",
    "CalendarEffect",
    "Convention",
    "Cost",
    "CovariateColumns",
    "DistributionHead",
    "Dropout",
    "Encoder",
    "EncoderBlock",
    "FutureEffect",
    "GlobalWindowScore",
    "Heads",
    "InputLinear",
    "LayerCache",
    "LearnedPositions",
    "LinearMember",
    "MLRScore",
    "MLRWindowScore",
    "MupRow",
    "MupRule",
    "NegativeBinomialOutput",
    "NormalOutput",
    "Normalised",
    "OutputDistribution",
    "OutputLinear",
    "PatchEmbedding",
    "PointHead",
    "QuantileHead",
    "Reach",
    "Score",
    "SlidingWindowScore",
    "StandardScore",
    "Step",
    "StructuredAttention",
    "StudentTOutput",
    "attention_of_layers",
    "attentions",
    "default_ranks",
    "initialise_mup",
    "instance_normalise",
    "mup_table",
    "option_names",
]
