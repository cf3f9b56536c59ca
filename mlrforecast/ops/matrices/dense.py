"""Dense: every entry free."""

from jaxtyping import Float
from torch import Tensor

from mlrforecast.ops._checks import positive
from mlrforecast.ops.matrices._checks import common_batch
from mlrforecast.ops.matrices.base import ParameterSpec
from mlrforecast.ops.matrices.blocks import BlockLevel
from mlrforecast.ops.matrices.family import Family

__all__ = ["Dense"]


class Dense(Family):
    """A matrix without structure: one block that reads everything, and no left factor.

    Parameters
    ----------
    weight : Tensor of shape (..., d_out, d_in)
        The matrix itself.

    Examples
    --------
    >>> import torch
    >>> matrix = Dense(torch.ones(4, 3))
    >>> matrix.shape, matrix.rank(), matrix.num_parameters, matrix.flops()
    ((4, 3), 3, 12, 12)
    """

    def __init__(self, weight: Float[Tensor, "*batch d_out d_in"]) -> None:
        common_batch({"weight": weight}, core=2)
        self.weight = weight
        super().__init__([BlockLevel(weight.transpose(-1, -2).unsqueeze(-3))])

    def parameters(self) -> dict[str, Tensor]:
        """Return ``weight``."""
        return {"weight": self.weight}

    def dense(self) -> Float[Tensor, "*batch d_out d_in"]:
        """Return ``weight``."""
        return self.weight

    @classmethod
    def parameter_specs(cls, d_out: int, d_in: int) -> dict[str, ParameterSpec]:
        """Describe ``weight`` of a ``d_out`` x ``d_in`` matrix."""
        d_out, d_in = positive(d_out, "d_out"), positive(d_in, "d_in")
        return {"weight": ParameterSpec((d_out, d_in), d_in, d_out, reads_input=True)}
