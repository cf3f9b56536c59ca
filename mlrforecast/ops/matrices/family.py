"""A named family of MLBTC members."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self

from torch import Tensor

from mlrforecast.ops.matrices.base import ParameterSpec
from mlrforecast.ops.matrices.mlbtc import MLBTC

__all__ = ["Family"]


class Family(MLBTC):
    """An MLBTC whose constructor takes tensors by name and makes the levels of them.

    A family calls ``super().__init__(levels)``, and adds ``parameters`` and ``parameter_specs``.
    """

    @abstractmethod
    def parameters(self) -> dict[str, Tensor]:
        """Return the tensors that define the matrix, by the names of the constructor."""

    @classmethod
    @abstractmethod
    def parameter_specs(
        cls, d_out: int, d_in: int, *args: Any, **options: Any
    ) -> dict[str, ParameterSpec]:
        """Describe the tensors of a ``d_out`` x ``d_in`` matrix under the family's ``options``.

        As in the base, ``args`` stands for none.
        """

    @classmethod
    def _assemble(cls, parameters: Mapping[str, Tensor], *args: Any, **options: Any) -> Self:
        """Call the constructor of the family."""
        make: Callable[..., Self] = cls
        return make(**parameters)
