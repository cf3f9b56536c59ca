"""Butterfly: the sparse factors of a fast Fourier transform, with free entries."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mlrforecast.ops._checks import entries, positive, positives
from mlrforecast.ops.matrices._checks import common_batch, take
from mlrforecast.ops.matrices._factors import prime_factors
from mlrforecast.ops.matrices.base import ParameterSpec
from mlrforecast.ops.matrices.blocks import BlockLevel
from mlrforecast.ops.matrices.btt import train_level
from mlrforecast.ops.matrices.family import Family

__all__ = ["Butterfly"]


class Butterfly(Family):
    """A product of sparse square factors, each of which mixes one digit of the index.

    An index has mixed-radix digits, coarse to fine: ``D`` is the product of the radices. Factor
    ``i`` mixes digit ``i`` with a small matrix of its own for each value of the other digits, and
    the finest digit is mixed first. With radices 2, 2, ... these are the steps of a fast Fourier
    transform; there are ``D * sum(radices)`` entries, and the rank is full.

    It is multiplied as a Monarch matrix: the coarse digits together, and the fine ones together.
    Two dense products are faster on real hardware than many thin ones, though they count more
    multiply-adds; ``flops`` counts what is done, without the joining of the factors, which happens
    once and not for each vector.

    Parameters
    ----------
    factors : sequence of Tensor of shape (..., before, after, radix, radix), one per digit
        ``before`` and ``after`` are the products of the coarser and of the finer radices.

    Raises
    ------
    ValueError
        If the factors do not fit each other.

    References
    ----------
    "Learning Fast Algorithms for Linear Transforms Using Butterfly Factorizations", ICML 2019,
    https://arxiv.org/abs/1903.05895

    Examples
    --------
    >>> import torch
    >>> hadamard = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    >>> matrix = Butterfly([hadamard.expand(1, 2, 2, 2), hadamard.expand(2, 1, 2, 2)])
    >>> matrix.dense()
    tensor([[ 1.,  1.,  1.,  1.],
            [ 1., -1.,  1., -1.],
            [ 1.,  1., -1., -1.],
            [ 1., -1., -1.,  1.]])
    >>> matrix.rank(), matrix.num_parameters, matrix.flops()
    (4, 16, 16)
    """

    def __init__(self, factors: Sequence[Tensor]) -> None:
        self.factors = entries(factors, "factors")
        _check_factors(self.parameters())
        super().__init__([_two_factors(self.factors)])

    def parameters(self) -> dict[str, Tensor]:
        """Return ``factor_0``, ``factor_1`` ..., coarse to fine."""
        return {f"factor_{digit}": factor for digit, factor in enumerate(self.factors)}

    @classmethod
    def parameter_specs(
        cls, d_out: int, d_in: int, *, radices: Sequence[int] | None = None
    ) -> dict[str, ParameterSpec]:
        """Describe ``factor_0``, ``factor_1`` ... of a square matrix.

        Parameters
        ----------
        d_out, d_in : int
            Rows and columns, which must be equal.
        radices : sequence of int, optional
            Sizes of the digits, coarse to fine; their product is ``d_in``. The prime factors, from
            the smallest on, by default.

        Raises
        ------
        ValueError
            If the matrix is not square or the product of ``radices`` differs.
        """
        size = positive(d_in, "d_in")
        if positive(d_out, "d_out") != size:
            raise ValueError(
                f"`d_out` and `d_in` must be equal for a butterfly, got {d_out} and {d_in}."
            )
        sizes = prime_factors(size) if radices is None else positives(radices, "radices")
        if not sizes or math.prod(sizes) != size:
            raise ValueError(f"`radices` must have the product {size}, got {sizes}.")
        return {
            f"factor_{digit}": ParameterSpec(
                (math.prod(sizes[:digit]), math.prod(sizes[digit + 1 :]), radix, radix),
                radix,
                radix,
                reads_input=digit == len(sizes) - 1,
            )
            for digit, radix in enumerate(sizes)
        }

    @classmethod
    def assemble(cls, parameters: Mapping[str, Tensor], *args: Any, **options: Any) -> Any:
        """Order the factors from coarse to fine.

        Parameters
        ----------
        parameters : mapping of str to Tensor
            The tensors, by the names of :meth:`parameter_specs`.
        *args, **options
            As in the base; the shapes say it all.

        Returns
        -------
        Butterfly
        """
        return cls([take(parameters, f"factor_{digit}") for digit in range(len(parameters))])


def _check_factors(factors: Mapping[str, Tensor]) -> None:
    """Check that each factor mixes the digit that its place asks for."""
    if not factors:
        raise ValueError("`factors` must hold at least one factor, got an empty sequence.")
    common_batch(factors, core=4)
    radices = [int(factor.shape[-1]) for factor in factors.values()]
    for digit, (name, factor) in enumerate(factors.items()):
        before, after = math.prod(radices[:digit]), math.prod(radices[digit + 1 :])
        asked = (before, after, radices[digit], radices[digit])
        if tuple(factor.shape[-4:]) != asked:
            raise ValueError(
                f"`{name}` must have the shape (..., {', '.join(map(str, asked))}) among factors "
                f"of the radices {radices}, got {tuple(factor.shape)}."
            )


def _two_factors(factors: tuple[Tensor, ...]) -> BlockLevel:
    """Join the coarse and the fine factors, so that the two products are about equally large."""
    radices = [factor.shape[-1] for factor in factors]
    if len(radices) == 1:
        return BlockLevel(factors[0].squeeze(-3).transpose(-1, -2))

    def size(split: int) -> int:
        return math.prod(radices[:split]) + math.prod(radices[split:])

    split = min(range(1, len(radices)), key=size)
    left = _joined_coarse(factors[:split])
    right = _joined_fine(factors[split:]).transpose(-1, -2)
    return train_level(left, right)


def _joined_fine(factors: tuple[Tensor, ...]) -> Tensor:
    """Multiply the finest factors: (*batch, before, D / before, D / before), output first."""
    joined = factors[-1].squeeze(-3)
    for factor in reversed(factors[:-1]):
        finer = joined.unflatten(-3, (-1, factor.shape[-1]))
        joined = torch.einsum("...piag,...pgij->...paigj", factor, finer)
        joined = joined.flatten(-2).flatten(-3, -2)
    return joined


def _joined_coarse(factors: tuple[Tensor, ...]) -> Tensor:
    """Multiply the coarsest factors: (*batch, after, D / after, D / after), output first."""
    joined = factors[0].squeeze(-4)
    for factor in factors[1:]:
        coarser = joined.unflatten(-3, (factor.shape[-1], -1))
        joined = torch.einsum("...asij,...jsag->...siajg", coarser, factor)
        joined = joined.flatten(-2).flatten(-3, -2)
    return joined
