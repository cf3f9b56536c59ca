"""A named family of MLBTC members."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from mlrforecast.ops.matrices.base import ParameterSpec, construct
from mlrforecast.ops.matrices.mlbtc import MLBTC

__all__ = ["Family"]


class Family(MLBTC):
    """An MLBTC whose constructor takes tensors by name and makes the levels of them.

    A family calls ``super().__init__(levels)``, and adds ``parameters`` and ``parameter_specs``.

    Examples
    --------
    >>> import torch
    >>> from mlrforecast.ops import BlockLevel
    >>> class Diagonal(Family):
    ...     def __init__(self, entries):
    ...         self.entries = entries
    ...         super().__init__([BlockLevel(entries[..., None, None])])
    ...
    ...     def parameters(self):
    ...         return {"entries": self.entries}
    ...
    ...     @classmethod
    ...     def parameter_specs(cls, d_out, d_in):
    ...         return {"entries": ParameterSpec((d_in,), 1, 1, reads_input=True)}
    >>> matrix = Diagonal(torch.tensor([1.0, 2.0, 3.0]))
    >>> matrix.apply(torch.ones(1, 3))
    tensor([[1., 2., 3.]])
    >>> matrix.shape, matrix.rank(), matrix.flops()
    ((3, 3), 3, 3)
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
    def assemble(cls, parameters: Mapping[str, Tensor], *args: Any, **options: Any) -> Any:
        """Call the constructor of the family, see :meth:`StructuredMatrix.assemble`.

        Parameters
        ----------
        parameters : mapping of str to Tensor
            The tensors, by the names of the constructor.
        *args, **options
            As in the base.

        Returns
        -------
        Family
        """
        return construct(cls, parameters, options)
