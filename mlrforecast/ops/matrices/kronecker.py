"""Kronecker: one small matrix, repeated with the entries of another as factors."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from mlrforecast.ops.matrices._checks import common_batch
from mlrforecast.ops.matrices._factors import factor_pair
from mlrforecast.ops.matrices.base import ParameterSpec
from mlrforecast.ops.matrices.btt import train_level
from mlrforecast.ops.matrices.family import Family

__all__ = ["Kronecker"]


class Kronecker(Family):
    """The Kronecker product of two matrices, as ``torch.kron(left, right)``.

    It is the block tensor train with ``s = 1`` whose blocks are all alike on each side. The rank is
    the product of the two ranks, which for uneven factors can be far from full.

    Parameters
    ----------
    left : Tensor of shape (..., a, c)
        The coarse pattern.
    right : Tensor of shape (..., b, d)
        The block that it repeats.

    Raises
    ------
    ValueError
        If the batch axes do not fit each other.

    Examples
    --------
    >>> import torch
    >>> matrix = Kronecker(left=torch.eye(2), right=torch.ones(1, 3))
    >>> matrix.dense()
    tensor([[1., 1., 1., 0., 0., 0.],
            [0., 0., 0., 1., 1., 1.]])
    >>> matrix.rank(), matrix.num_parameters, matrix.flops()
    (2, 7, 10)
    """

    def __init__(
        self, left: Float[Tensor, "*left_batch a c"], right: Float[Tensor, "*right_batch b d"]
    ) -> None:
        common_batch({"left": left, "right": right}, core=2)
        self.left, self.right = left, right
        left_blocks = _repeated(left, right.shape[-2])
        right_blocks = _repeated(right.transpose(-1, -2), left.shape[-1])
        super().__init__([train_level(left_blocks, right_blocks)])

    def parameters(self) -> dict[str, Tensor]:
        """Return ``left`` and ``right``."""
        return {"left": self.left, "right": self.right}

    def rank(self) -> int:
        """Return ``min(a, c) * min(b, d)``; equal blocks are not independent ones."""
        return min(self.left.shape[-2:]) * min(self.right.shape[-2:])

    @classmethod
    def parameter_specs(
        cls,
        d_out: int,
        d_in: int,
        *,
        out_factors: Sequence[int] | None = None,
        in_factors: Sequence[int] | None = None,
    ) -> dict[str, ParameterSpec]:
        """Describe ``left`` and ``right`` of a ``d_out`` x ``d_in`` matrix.

        Parameters
        ----------
        d_out, d_in : int
            Rows and columns.
        out_factors, in_factors : pair of int, optional
            ``(a, b)`` with ``a * b = d_out``, and ``(c, d)`` with ``c * d = d_in``. By default the
            second is the smallest divisor from the square root on.

        Raises
        ------
        ValueError
            If a pair does not have that product.
        """
        a, b = factor_pair(d_out, out_factors, "out", even=True)
        c, d = factor_pair(d_in, in_factors, "in", even=True)
        return {
            "left": ParameterSpec((a, c), c, a, reads_input=False),
            "right": ParameterSpec((b, d), d, b, reads_input=True),
        }


def _repeated(x: Tensor, times: int) -> Tensor:
    """Show ``x`` as that many equal blocks, without copies."""
    return x.unsqueeze(-3).expand(*x.shape[:-2], times, *x.shape[-2:])
