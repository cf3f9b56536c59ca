"""Low rank: one thin product, as in standard attention."""

from jaxtyping import Float
from torch import Tensor

from mlrforecast.ops._checks import positive
from mlrforecast.ops.matrices._checks import common_batch
from mlrforecast.ops.matrices.base import ParameterSpec
from mlrforecast.ops.matrices.blocks import BlockLevel
from mlrforecast.ops.matrices.family import Family

__all__ = ["LowRank"]


class LowRank(Family):
    """The product ``left @ right.T`` of two thin matrices, a single block on each side.

    Parameters
    ----------
    left : Tensor of shape (..., d_out, rank)
        Columns that span what the matrix gives.
    right : Tensor of shape (..., d_in, rank)
        Columns that the input is compared with.

    Raises
    ------
    ValueError
        If the two do not fit each other.

    Examples
    --------
    >>> import torch
    >>> matrix = LowRank(left=torch.ones(4, 2), right=torch.ones(3, 2))
    >>> matrix.shape, matrix.rank(), matrix.num_parameters, matrix.flops()
    ((4, 3), 2, 14, 14)
    """

    def __init__(
        self,
        left: Float[Tensor, "*left_batch d_out rank"],
        right: Float[Tensor, "*right_batch d_in rank"],
    ) -> None:
        common_batch({"left": left, "right": right}, core=2)
        self.left, self.right = left, right
        super().__init__([BlockLevel(right.unsqueeze(-3), left.unsqueeze(-3))])

    def parameters(self) -> dict[str, Tensor]:
        """Return ``left`` and ``right``."""
        return {"left": self.left, "right": self.right}

    @classmethod
    def parameter_specs(cls, d_out: int, d_in: int, *, rank: int) -> dict[str, ParameterSpec]:
        """Describe ``left`` and ``right`` of a ``d_out`` x ``d_in`` matrix.

        Parameters
        ----------
        d_out, d_in : int
            Rows and columns.
        rank : int, at least 1
            Columns of the two.

        Raises
        ------
        ValueError
            If a number is less than 1.
        """
        d_out, d_in = positive(d_out, "d_out"), positive(d_in, "d_in")
        rank = positive(rank, "rank")
        return {
            "left": ParameterSpec((d_out, rank), rank, d_out, reads_input=False),
            "right": ParameterSpec((d_in, rank), d_in, rank, reads_input=True),
        }
