"""Structured matrices: each family a thin class built as a member of MLBTC."""

from mlrforecast._core.registry import Registry
from mlrforecast.ops.matrices.base import ParameterSpec, StructuredMatrix, check_rows
from mlrforecast.ops.matrices.blocks import BlockLayout, BlockLevel, Shuffle
from mlrforecast.ops.matrices.btt import BlockTensorTrain
from mlrforecast.ops.matrices.butterfly import Butterfly
from mlrforecast.ops.matrices.dense import Dense
from mlrforecast.ops.matrices.family import Family
from mlrforecast.ops.matrices.kronecker import Kronecker
from mlrforecast.ops.matrices.low_rank import LowRank
from mlrforecast.ops.matrices.mlbtc import MLBTC
from mlrforecast.ops.matrices.mlr import MultiLevelLowRank
from mlrforecast.ops.matrices.monarch import Monarch

__all__ = [
    "MLBTC",
    "BlockLayout",
    "BlockLevel",
    "BlockTensorTrain",
    "Butterfly",
    "Dense",
    "Family",
    "Kronecker",
    "LowRank",
    "Monarch",
    "MultiLevelLowRank",
    "ParameterSpec",
    "Shuffle",
    "StructuredMatrix",
    "check_rows",
    "matrices",
]

matrices: Registry[type[StructuredMatrix]] = Registry(
    "structured matrix",
    base=StructuredMatrix,
    hint="Register your own before a model of it is built or loaded: matrices.register.",
)
"""The families by name; a structure of your own is registered in the same way."""

matrices.register("btt", BlockTensorTrain)
matrices.register("butterfly", Butterfly)
matrices.register("dense", Dense)
matrices.register("kronecker", Kronecker)
matrices.register("low_rank", LowRank)
matrices.register("mlr", MultiLevelLowRank)
matrices.register("monarch", Monarch)
