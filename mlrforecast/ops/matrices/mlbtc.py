"""Multi-level block tensor contraction: the general member of all families of this package."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mlrforecast.ops._checks import check_tensor, entries
from mlrforecast.ops.matrices._checks import check_scales, common_batch, divide, take
from mlrforecast.ops.matrices._specs import left_spec, right_spec
from mlrforecast.ops.matrices.base import ParameterSpec, StructuredMatrix, check_rows
from mlrforecast.ops.matrices.blocks import BlockLayout, BlockLevel

__all__ = ["MLBTC"]


class MLBTC(StructuredMatrix):
    """A sum of products of two block-diagonal factors: multi-level block tensor contraction.

    ``M = sum over levels of scale * P_out (blocks of left) P_mid (blocks of right)^T``. Every
    family of this package is an instance, which its ``levels`` show.

    Parameters
    ----------
    levels : sequence of BlockLevel
        The summands, all of one shape.
    scales : sequence of float, optional
        Factor of each level, finite and not 0; 1 by default.

    Raises
    ------
    ValueError
        If the parts of a level, or the levels, do not fit each other, or a scale is 0.

    References
    ----------
    "Customizing the Inductive Biases of Softmax Attention using Structured Matrices", ICML 2025,
    https://arxiv.org/abs/2509.07963

    Examples
    --------
    A rank-one matrix plus a diagonal:

    >>> ones = torch.ones(1, 3, 1)
    >>> diagonal = torch.tensor([1.0, 2.0, 3.0]).reshape(3, 1, 1)
    >>> matrix = MLBTC([BlockLevel(ones, ones), BlockLevel(diagonal)], scales=(0.5, 1.0))
    >>> matrix.dense()
    tensor([[1.5000, 0.5000, 0.5000],
            [0.5000, 2.5000, 0.5000],
            [0.5000, 0.5000, 3.5000]])
    >>> matrix.rank(), matrix.num_parameters, matrix.flops()
    (3, 9, 9)
    """

    def __init__(self, levels: Sequence[BlockLevel], scales: Sequence[float] | None = None) -> None:
        self.levels = entries(levels, "levels")
        if not self.levels:
            raise ValueError("`levels` must hold at least one level, got an empty sequence.")
        for lvl, level in enumerate(self.levels):
            _check_level(level, f"levels[{lvl}]")
        shape = self.levels[0].shape
        if any(level.shape != shape for level in self.levels):
            shapes = [level.shape for level in self.levels]
            raise ValueError(f"`levels` must all have one shape (d_out, d_in), got {shapes}.")
        super().__init__(shape, common_batch(_factors(self.levels), core=3))
        self.scales = check_scales(scales, len(self.levels))

    def parameters(self) -> dict[str, Tensor]:
        """Return the factors of each level, ``right_0``, ``left_0``, ``right_1`` ..."""
        return _factors(self.levels)

    def apply(self, x: Float[Tensor, "*x_batch T d_in"]) -> Float[Tensor, "*batch T d_out"]:
        """Multiply the matrix with each row of ``x``; batch axes broadcast."""
        check_rows(x, "x", self.shape[1], self.batch_shape)
        terms = zip(self.levels, self.scales, strict=True)
        return _sum(level.apply(x, scale) for level, scale in terms)

    def apply_transposed(
        self, y: Float[Tensor, "*y_batch T d_out"]
    ) -> Float[Tensor, "*batch T d_in"]:
        """Multiply the transposed matrix with each row of ``y``; batch axes broadcast."""
        check_rows(y, "y", self.shape[0], self.batch_shape)
        terms = zip(self.levels, self.scales, strict=True)
        return _sum(level.apply_transposed(y, scale) for level, scale in terms)

    def rank(self) -> int:
        """Return ``min(d_out, d_in, width of the middle)``, summed over levels.

        This is the rank of almost all independent entries, whatever the permutations, because the
        blocks of a level are of one size.
        """
        return min(*self.shape, sum(level.width for level in self.levels))

    def flops(self) -> int:
        """Count the multiply-adds of one matrix with one vector, those by scales left out."""
        return sum(level.flops for level in self.levels)

    @classmethod
    def parameter_specs(
        cls, d_out: int, d_in: int, *args: Any, **options: Any
    ) -> dict[str, ParameterSpec]:
        """Describe the factors of a ``d_out`` x ``d_in`` matrix, ``right_0``, ``left_0`` ...

        The ``options`` are ``levels``, a sequence of :class:`BlockLayout`, and ``scales``, which
        change no shape; ``args`` stands for none.

        Raises
        ------
        ValueError
            If a number of blocks does not divide what it has to.
        """
        return _layout_specs(d_out, d_in, *args, **options)

    @classmethod
    def assemble(cls, parameters: Mapping[str, Tensor], *args: Any, **options: Any) -> Any:
        """Give each layout its factors.

        Parameters
        ----------
        parameters : mapping of str to Tensor
            The tensors, by the names of :meth:`parameter_specs`.
        *args, **options
            As in the base; ``levels`` and ``scales`` are read.

        Returns
        -------
        MLBTC
        """
        levels = [
            BlockLevel(
                take(parameters, f"right_{lvl}"),
                parameters.get(f"left_{lvl}"),
                layout.middle,
                layout.output,
            )
            for lvl, layout in enumerate(options.get("levels", ()))
        ]
        return cls(levels, options.get("scales"))


def _layout_specs(
    d_out: int,
    d_in: int,
    *,
    levels: Sequence[BlockLayout],
    scales: Sequence[float] | None = None,
) -> dict[str, ParameterSpec]:
    """Describe the factors that each layout asks for."""
    check_scales(scales, len(levels))
    specs: dict[str, ParameterSpec] = {}
    for lvl, layout in enumerate(levels):
        right = right_spec(d_in, layout.right_blocks, layout.right_width)
        specs[f"right_{lvl}"] = right
        if layout.left_blocks is not None:
            width = right.shape[0] * right.shape[2]
            left_width = divide(width, layout.left_blocks, "the middle")
            specs[f"left_{lvl}"] = left_spec(d_out, layout.left_blocks, left_width)
    return specs


def _factors(levels: Sequence[BlockLevel]) -> dict[str, Tensor]:
    """Name the factors of the levels."""
    named = {f"right_{lvl}": level.right for lvl, level in enumerate(levels)}
    lefts = {f"left_{lvl}": level.left for lvl, level in enumerate(levels)}
    return named | {name: left for name, left in lefts.items() if left is not None}


def _check_level(level: BlockLevel, name: str) -> None:
    """Check that the factors and permutations of one level fit each other."""
    for part, x in (("right", level.right), ("left", level.left)):
        if x is not None:
            check_tensor(x, f"{name}.{part}")
            if x.ndim < 3 or 0 in x.shape:
                raise ValueError(
                    f"`{name}.{part}` must have the shape (..., blocks, size, width), none of them "
                    f"0, got {tuple(x.shape)}."
                )
    left_width = level.width if level.left is None else level.left.shape[-3] * level.left.shape[-1]
    if left_width != level.width:
        raise ValueError(
            f"`{name}`: the left blocks must read the {level.width} entries that the right blocks "
            f"give, got {left_width}."
        )
    for part, shuffle, length in (
        ("middle", level.middle, level.width),
        ("output", level.output, level.shape[0]),
    ):
        if shuffle is not None and shuffle.length != length:
            raise ValueError(
                f"`{name}.{part}` must permute {length} entries, got {shuffle.length}: "
                f"{shuffle.shape}."
            )


def _sum(terms: Iterable[Tensor]) -> Tensor:
    """Add tensors."""
    return functools.reduce(torch.add, terms)
