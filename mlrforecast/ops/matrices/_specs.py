"""Descriptions of the blocks of a level."""

from mlrforecast.ops._checks import positive
from mlrforecast.ops.matrices._checks import divide
from mlrforecast.ops.matrices.base import ParameterSpec

__all__ = ["left_spec", "right_spec"]


def right_spec(d_in: int, num_blocks: int, width: int) -> ParameterSpec:
    """Describe blocks that share the ``d_in`` entries of the input and give ``width`` each."""
    size = divide(d_in, num_blocks, "d_in")
    width = positive(width, "width")
    return ParameterSpec((num_blocks, size, width), size, width, reads_input=True)


def left_spec(d_out: int, num_blocks: int, width: int) -> ParameterSpec:
    """Describe blocks that share the ``d_out`` entries of the output, from ``width`` each."""
    size = divide(d_out, num_blocks, "d_out")
    return ParameterSpec((num_blocks, size, width), width, size, reads_input=False)
