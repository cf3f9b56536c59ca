"""Block tensor train: two block-diagonal factors with a transposed grid between them."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from mlrforecast.ops._checks import positive
from mlrforecast.ops.matrices._checks import common_batch
from mlrforecast.ops.matrices._factors import factor_pair
from mlrforecast.ops.matrices._specs import left_spec, right_spec
from mlrforecast.ops.matrices.base import ParameterSpec
from mlrforecast.ops.matrices.blocks import BlockLevel, Shuffle
from mlrforecast.ops.matrices.family import Family

__all__ = ["BlockTensorTrain", "train_level"]


class BlockTensorTrain(Family):
    """A block tensor train: high rank from few entries.

    Rows are numbered ``alpha * b + beta`` and columns ``gamma * d + delta``, and the entry there is
    the sum over ``sigma`` of ``left[beta, alpha, gamma * s + sigma] * right[gamma, delta,
    beta * s + sigma]``. For ``D = a * b`` rows and columns it has ``D * s * (a + b)`` entries, and
    full rank already with ``s = 1`` if both sides split alike.

    Parameters
    ----------
    left : Tensor of shape (..., b, a, c * s)
        Blocks that write the ``a * b`` rows.
    right : Tensor of shape (..., c, d, b * s)
        Blocks that read the ``c * d`` columns.

    Raises
    ------
    ValueError
        If the two do not fit each other.

    References
    ----------
    "Compute Better Spent: Replacing Dense Layers with Structured Matrices", ICML 2024,
    https://arxiv.org/abs/2406.06248

    Examples
    --------
    >>> import torch
    >>> matrix = BlockTensorTrain(left=torch.ones(3, 2, 2), right=torch.ones(2, 3, 3))
    >>> matrix.shape, matrix.rank(), matrix.num_parameters, matrix.flops()
    ((6, 6), 6, 30, 30)
    >>> list(BlockTensorTrain.parameter_specs(64, 64, rank=2))
    ['left', 'right']
    """

    def __init__(
        self,
        left: Float[Tensor, "*left_batch b a cs"],
        right: Float[Tensor, "*right_batch c d bs"],
    ) -> None:
        level = train_level(left, right)
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
        rank: int = 1,
        out_factors: Sequence[int] | None = None,
        in_factors: Sequence[int] | None = None,
    ) -> dict[str, ParameterSpec]:
        """Describe ``left`` and ``right`` of a ``d_out`` x ``d_in`` matrix.

        Parameters
        ----------
        d_out, d_in : int
            Rows and columns.
        rank : int, default 1
            The ``s`` of the train, not the rank of the matrix.
        out_factors, in_factors : pair of int, optional
            ``(a, b)`` with ``a * b = d_out``, and ``(c, d)`` with ``c * d = d_in``. By default the
            second is the smallest divisor above the square root, as published.

        Raises
        ------
        ValueError
            If a pair does not have that product or ``rank`` is less than 1.
        """
        a, b = factor_pair(d_out, out_factors, "out", even=False)
        c, d = factor_pair(d_in, in_factors, "in", even=False)
        rank = positive(rank, "rank")
        return {
            "left": left_spec(a * b, b, c * rank),
            "right": right_spec(c * d, c, b * rank),
        }


def train_level(
    left: Float[Tensor, "*left_batch b a cs"], right: Float[Tensor, "*right_batch c d bs"]
) -> BlockLevel:
    """Join the factors ``left`` and ``right`` of a block tensor train.

    Raises
    ------
    ValueError
        If the two do not fit each other.
    """
    common_batch({"left": left, "right": right}, core=3)
    b, a, left_width = left.shape[-3:]
    c, _, right_width = right.shape[-3:]
    rank = right_width // max(b, 1)
    if not rank or right_width != b * rank or left_width != c * rank:
        raise ValueError(
            "`left` and `right` must have the shapes (..., b, a, c * s) and (..., c, d, b * s), "
            f"got {tuple(left.shape)} and {tuple(right.shape)}."
        )
    return BlockLevel(right, left, Shuffle((c, b, rank), (1, 0, 2)), Shuffle((b, a), (1, 0)))
