"""Monarch: a block tensor train of rank one."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from mlrforecast.ops.matrices._factors import factor_pair
from mlrforecast.ops.matrices._specs import left_spec, right_spec
from mlrforecast.ops.matrices.base import ParameterSpec
from mlrforecast.ops.matrices.btt import train_level
from mlrforecast.ops.matrices.family import Family

__all__ = ["Monarch"]


class Monarch(Family):
    """Two block-diagonal matrices with the transposition of a grid between and after them.

    Rows are numbered ``alpha * b + beta`` and columns ``gamma * d + delta``, and the entry there is
    ``left[beta, alpha, gamma] * right[gamma, delta, beta]``: a block tensor train with ``s = 1``,
    which by default splits a square evenly.

    Parameters
    ----------
    left : Tensor of shape (..., b, a, c)
        Blocks that write the ``a * b`` rows.
    right : Tensor of shape (..., c, d, b)
        Blocks that read the ``c * d`` columns.

    Raises
    ------
    ValueError
        If the two do not fit each other.

    References
    ----------
    "Monarch: Expressive Structured Matrices for Efficient and Accurate Training", ICML 2022,
    https://arxiv.org/abs/2204.00595

    Examples
    --------
    >>> import torch
    >>> matrix = Monarch(left=torch.ones(3, 3, 3), right=torch.ones(3, 3, 3))
    >>> matrix.shape, matrix.rank(), matrix.num_parameters, matrix.flops()
    ((9, 9), 9, 54, 54)
    """

    def __init__(
        self, left: Float[Tensor, "*left_batch b a c"], right: Float[Tensor, "*right_batch c d b"]
    ) -> None:
        level = train_level(left, right)
        if left.shape[-1] != right.shape[-3]:
            raise ValueError(
                "`left` and `right` must have the shapes (..., b, a, c) and (..., c, d, b), got "
                f"{tuple(left.shape)} and {tuple(right.shape)}. For more use a BlockTensorTrain."
            )
        self.left, self.right = left, right
        super().__init__([level])

    def parameters(self) -> dict[str, Tensor]:
        """Return ``left`` and ``right``."""
        return {"left": self.left, "right": self.right}

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
        return {"left": left_spec(a * b, b, c), "right": right_spec(c * d, c, b)}
