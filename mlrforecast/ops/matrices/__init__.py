"""Structured matrices: each family a thin class built as a member of MLBTC."""

from mlrforecast._core.registry import Registry
from mlrforecast.ops.matrices.base import ParameterSpec, StructuredMatrix
from mlrforecast.ops.matrices.blocks import BlockLayout, BlockLevel, Shuffle
from mlrforecast.ops.matrices.btt import BlockTensorTrain
from mlrforecast.ops.matrices.mlbtc import MLBTC

__all__ = [
    "MLBTC",
    "BlockLayout",
    "BlockLevel",
    "BlockTensorTrain",
    "ParameterSpec",
    "Shuffle",
    "StructuredMatrix",
    "matrices",
]

matrices: Registry[type[StructuredMatrix]] = Registry("structured matrix")
"""The families by name; a structure of your own is registered in the same way."""

matrices.register("btt", BlockTensorTrain)
