"""What every structured matrix offers: products, a dense view, and its size, rank and cost."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from mlrforecast.ops._checks import check_tensor

__all__ = ["ParameterSpec", "StructuredMatrix", "check_rows"]


# Not typing.Self, which the run-time shape checker cannot read in a method.
_Built = TypeVar("_Built", bound="StructuredMatrix")


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """What a module has to know of one tensor of a structured matrix to create and train it.

    Attributes
    ----------
    shape : tuple of int
        Shape for one matrix, without batch axes.
    fan_in, fan_out : int
        Numbers that one entry of its product sums over, and entries that one input reaches.
    reads_input : bool
        Whether it multiplies the input itself, and not what another factor gives.
    """

    shape: tuple[int, ...]
    fan_in: int
    fan_out: int
    reads_input: bool


class StructuredMatrix(ABC):
    """A matrix, or a batch of them, that is held and multiplied in a compressed form.

    It holds tensors and is no module. All its tensors begin with the same number of batch axes,
    for attention one over heads; size 1 there is shared by the whole batch. A structure is a
    subclass with the methods that are abstract here, and :meth:`assemble` where its constructor
    does not take the tensors by name; it is proved by a test class on
    :class:`mlrforecast.testing.StructuredMatrixContract`.

    Parameters
    ----------
    shape : tuple of two int
        Rows and columns of one matrix, ``(d_out, d_in)``.
    batch_shape : tuple of int
        Batch axes of all tensors together.

    Examples
    --------
    >>> from mlrforecast.ops import LowRank
    >>> matrix = LowRank(left=torch.ones(4, 1), right=torch.ones(3, 1))
    >>> isinstance(matrix, StructuredMatrix), matrix.shape, matrix.rank()
    (True, (4, 3), 1)
    """

    def __init__(self, shape: tuple[int, int], batch_shape: tuple[int, ...]) -> None:
        self._shape = (int(shape[0]), int(shape[1]))
        self._batch_shape = tuple(batch_shape)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of one matrix, ``(d_out, d_in)``."""
        return self._shape

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Batch axes of the dense view, ``()`` for a single matrix."""
        return self._batch_shape

    @abstractmethod
    def parameters(self) -> dict[str, Tensor]:
        """Return the tensors that define the matrix, by the names of :meth:`parameter_specs`."""

    @abstractmethod
    def apply(self, x: Float[Tensor, "*x_batch T d_in"]) -> Float[Tensor, "*batch T d_out"]:
        """Multiply the matrix with each row of ``x``; batch axes broadcast."""

    @abstractmethod
    def apply_transposed(
        self, y: Float[Tensor, "*y_batch T d_out"]
    ) -> Float[Tensor, "*batch T d_in"]:
        """Multiply the transposed matrix with each row of ``y``; batch axes broadcast."""

    @abstractmethod
    def rank(self) -> int:
        """Return the rank that the matrix has for almost all values of its tensors."""

    @abstractmethod
    def flops(self) -> int:
        """Count the multiply-adds of one matrix with one vector."""

    @classmethod
    @abstractmethod
    def parameter_specs(
        cls, d_out: int, d_in: int, *args: Any, **options: Any
    ) -> dict[str, ParameterSpec]:
        """Describe the tensors of a ``d_out`` x ``d_in`` matrix.

        A structure names its ``options``, all keyword-only, in place of ``args`` and ``options``.

        Raises
        ------
        ValueError
            If the structure has no such matrix.
        """

    @classmethod
    def from_parameters(
        cls: type[_Built], parameters: Mapping[str, Tensor], **options: Any
    ) -> _Built:
        """Build the matrix of ``parameters``, named and shaped as in :meth:`parameter_specs`.

        Parameters
        ----------
        parameters : mapping of str to Tensor
            The tensors, each with the same number of batch axes in front.
        **options
            Those that :meth:`parameter_specs` was given.

        Raises
        ------
        ValueError
            If the tensors do not fit each other, or are not those that the options ask for.
        """
        matrix: _Built = cls.assemble(parameters, **options)
        axes = len(matrix.batch_shape)
        found = {name: tuple(x.shape[axes:]) for name, x in parameters.items()}
        specs = cls.parameter_specs(*matrix.shape, **options)
        asked = {name: spec.shape for name, spec in specs.items()}
        if found != asked:
            raise ValueError(
                f"`parameters` must have the shapes {asked} after the batch axes for the options "
                f"{options}, got {found}."
            )
        return matrix

    @classmethod
    def assemble(cls, parameters: Mapping[str, Tensor], *args: Any, **options: Any) -> Any:
        """Build the matrix for :meth:`from_parameters`, which checks the shapes afterwards.

        By default the constructor is called with the tensors by name, and with those ``options``
        that it has parameters for. Any other option can matter by the shapes of the tensors only,
        as a rank does. A structure that needs more, or another form of the tensors, overrides
        this method.

        Parameters
        ----------
        parameters : mapping of str to Tensor
            The tensors, by the names of :meth:`parameter_specs`.
        *args
            None; an override leaves it out or has it as it is here.
        **options
            Those that :meth:`parameter_specs` was given.

        Returns
        -------
        StructuredMatrix
        """
        return construct(cls, parameters, options)

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the tensors."""
        return next(iter(self.parameters().values())).dtype

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return next(iter(self.parameters().values())).device

    @property
    def num_parameters(self) -> int:
        """Number of free entries of one matrix of the batch."""
        axes = len(self.batch_shape)
        return sum(math.prod(x.shape[axes:]) for x in self.parameters().values())

    def dense(self) -> Float[Tensor, "*batch d_out d_in"]:
        """Return the matrix written out."""
        identity = torch.eye(self.shape[1], dtype=self.dtype, device=self.device)
        return self.apply(identity).transpose(-1, -2)


def construct(
    structure: Callable[..., Any], parameters: Mapping[str, Tensor], options: Mapping[str, Any]
) -> Any:
    """Call a constructor with the tensors and with the options that it has parameters for."""
    taken = inspect.signature(structure).parameters
    return structure(
        **parameters, **{name: value for name, value in options.items() if name in taken}
    )


def check_rows(x: Tensor, name: str, width: int, batch_shape: tuple[int, ...]) -> None:
    """Check that a product of a structured matrix is defined; call it first in ``apply``.

    Parameters
    ----------
    x : Tensor
        What is to be multiplied, of shape (..., T, width).
    name : str
        The argument's name, for the message.
    width : int
        Entries that each row must have.
    batch_shape : tuple of int
        Batch axes of the matrix, with which those of ``x`` must broadcast.

    Raises
    ------
    TypeError
        If ``x`` is not a tensor.
    ValueError
        If the width is another, there is no axis of rows, or the batch axes do not broadcast.

    Examples
    --------
    >>> check_rows(torch.ones(4, 3), "x", 2, ())
    Traceback (most recent call last):
    ...
    ValueError: `x` must have the shape (..., T, 2) for this matrix, got (4, 3).
    """
    check_tensor(x, name)
    if x.ndim < 2 or x.shape[-1] != width:
        raise ValueError(
            f"`{name}` must have the shape (..., T, {width}) for this matrix, got {tuple(x.shape)}."
        )
    try:
        torch.broadcast_shapes(x.shape[:-2], batch_shape)
    except RuntimeError:
        raise ValueError(
            f"The batch axes of `{name}` must broadcast with those of the matrix, {batch_shape}; "
            f"`{name}` has the shape {tuple(x.shape)}."
        ) from None
