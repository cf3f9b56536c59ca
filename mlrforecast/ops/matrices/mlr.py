"""Multi-level low rank: low-rank blocks on the diagonal, on several scales at once."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from mlrforecast.ops._checks import entries, positives
from mlrforecast.ops.matrices._checks import check_scales, take
from mlrforecast.ops.matrices._specs import left_spec, right_spec
from mlrforecast.ops.matrices.base import ParameterSpec
from mlrforecast.ops.matrices.blocks import BlockLevel
from mlrforecast.ops.matrices.family import Family

__all__ = ["MultiLevelLowRank"]


class MultiLevelLowRank(Family):
    """A sum of block-diagonal matrices, each with low-rank blocks on the diagonal.

    Level ``lvl`` cuts rows and columns into ``p`` equal parts and adds ``scale * left[k] @
    right[k].T`` to the ``k``-th block of the diagonal. For a square of side ``D`` it has
    ``2 D * sum(ranks)`` entries and the rank ``min(D, sum(rank * p))``.

    Parameters
    ----------
    left : sequence of Tensor of shape (..., p, d_out / p, rank), one per level
        Blocks that write the output; ``p`` and ``rank`` are each level's own.
    right : sequence of Tensor of shape (..., p, d_in / p, rank), one per level
        Blocks that read the input.
    scales : sequence of float, optional
        Factor of each level, finite and not 0; 1 by default.

    Raises
    ------
    ValueError
        If the tensors of a level do not fit each other, or the levels differ in shape.

    References
    ----------
    "Factor Fitting, Rank Allocation, and Partitioning in Multilevel Low Rank Matrices",
    https://arxiv.org/abs/2310.19214

    Examples
    --------
    >>> import torch
    >>> sides = [torch.ones(1, 4, 1), torch.ones(2, 2, 1)]
    >>> matrix = MultiLevelLowRank(left=sides, right=sides)
    >>> matrix.dense()
    tensor([[2., 2., 1., 1.],
            [2., 2., 1., 1.],
            [1., 1., 2., 2.],
            [1., 1., 2., 2.]])
    >>> matrix.rank(), matrix.num_parameters, matrix.flops()
    (3, 16, 16)
    """

    def __init__(
        self,
        left: Sequence[Tensor],
        right: Sequence[Tensor],
        scales: Sequence[float] | None = None,
    ) -> None:
        self.left, self.right = entries(left, "left"), entries(right, "right")
        if len(self.left) != len(self.right):
            raise ValueError(
                "`left` and `right` must hold one tensor for each level, "
                f"got {len(self.left)} and {len(self.right)}."
            )
        pairs = list(zip(self.right, self.left, strict=True))
        super().__init__([BlockLevel(*pair) for pair in pairs], scales)
        counts = [(x.shape[-3], y.shape[-3]) for x, y in pairs]
        if any(x != y for x, y in counts):
            raise ValueError(
                "`right` and `left` must have equally many blocks on each level, got the numbers "
                f"{counts}."
            )

    def parameters(self) -> dict[str, Tensor]:
        """Return ``left_0``, ``right_0``, ``left_1`` ..."""
        named: dict[str, Tensor] = {}
        for lvl, (left, right) in enumerate(zip(self.left, self.right, strict=True)):
            named |= {f"left_{lvl}": left, f"right_{lvl}": right}
        return named

    @classmethod
    def parameter_specs(
        cls,
        d_out: int,
        d_in: int,
        *,
        ranks: Sequence[int],
        num_blocks: Sequence[int] | None = None,
        scales: Sequence[float] | None = None,
    ) -> dict[str, ParameterSpec]:
        """Describe ``left_0``, ``right_0``, ``left_1`` ... of a ``d_out`` x ``d_in`` matrix.

        Parameters
        ----------
        d_out, d_in : int
            Rows and columns.
        ranks : sequence of int, one per level
            Rank of each block of the level.
        num_blocks : sequence of int, one per level, optional
            Blocks of the level, divisors of ``d_out`` and ``d_in``; 1, 2, 4 ... by default.
        scales : sequence of float, optional
            Factor of each level; without effect on the tensors.

        Raises
        ------
        ValueError
            If a number of blocks does not divide a side, or the lists differ in length.
        """
        ranks = positives(ranks, "ranks")
        counts = (
            tuple(2**lvl for lvl in range(len(ranks)))
            if num_blocks is None
            else positives(num_blocks, "num_blocks")
        )
        if not ranks or len(counts) != len(ranks):
            raise ValueError(
                "`ranks` and `num_blocks` must have one entry for each level, "
                f"got {ranks} and {counts}."
            )
        check_scales(scales, len(ranks))
        specs = {}
        for lvl, (rank, count) in enumerate(zip(ranks, counts, strict=True)):
            specs[f"left_{lvl}"] = left_spec(d_out, count, rank)
            specs[f"right_{lvl}"] = right_spec(d_in, count, rank)
        return specs

    @classmethod
    def assemble(cls, parameters: Mapping[str, Tensor], *args: Any, **options: Any) -> Any:
        """Collect the levels.

        Parameters
        ----------
        parameters : mapping of str to Tensor
            The tensors, by the names of :meth:`parameter_specs`.
        *args, **options
            As in the base; ``scales`` is read.

        Returns
        -------
        MultiLevelLowRank
        """
        levels = range(len(parameters) // 2)
        left = [take(parameters, f"left_{lvl}") for lvl in levels]
        right = [take(parameters, f"right_{lvl}") for lvl in levels]
        return cls(left, right, options.get("scales"))
