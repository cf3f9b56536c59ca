"""A run of the newest steps that grows without being copied at each step."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Run"]

_SPARE = 64


class _Room:
    """Memory of steps, and up to where it has been written."""

    def __init__(self, tensor: Tensor, filled: int) -> None:
        self.tensor = tensor
        self.filled = filled


@dataclass(frozen=True, slots=True)
class Run:
    """The steps ``[first, stop)`` of a tensor, with room for coming ones behind them.

    It never changes: a longer run is another one that shares its memory. Of two runs that continue
    the same one, only the first can write behind it; the other moves to memory of its own. Where
    gradients are recorded, or a graph is compiled, nothing is written in place.
    """

    _room: _Room
    dim: int
    first: int
    stop: int

    @classmethod
    def of(cls, x: Tensor, dim: int) -> "Run":
        """Start with the steps of ``x`` along ``dim``, as a copy that holds on to nothing else."""
        if _in_place(x):
            return cls(_Room(_roomy(x, x.shape[dim], dim), 0), dim, 0, 0)._written(x)
        return cls(_Room(x.contiguous(), x.shape[dim]), dim, 0, x.shape[dim])

    @property
    def steps(self) -> Tensor:
        """The steps, a view."""
        return self._room.tensor.narrow(self.dim, self.first, len(self))

    def __len__(self) -> int:
        return self.stop - self.first

    def extended(self, new: Tensor) -> "Run":
        """Return the run that continues with new steps."""
        if not _in_place(new):
            return Run.of(torch.cat([self.steps, new], self.dim), self.dim)
        if self._takes(new):
            return self._written(new)
        roomy = _roomy(new, len(self) + new.shape[self.dim], self.dim)
        return Run(_Room(roomy, 0), self.dim, 0, 0)._written(self.steps)._written(new)

    def newest(self, count: int) -> "Run":
        """Return the run of the newest steps, which gives back the memory of many others."""
        if len(self) <= count:
            return self
        kept = self._room.tensor.narrow(self.dim, self.stop - count, count)
        if not _in_place(kept):
            return Run.of(kept.clone(), self.dim)
        if self._room.tensor.shape[self.dim] > 2 * (count + _SPARE):
            return Run.of(kept, self.dim)
        return Run(self._room, self.dim, self.stop - count, self.stop)

    def _takes(self, new: Tensor) -> bool:
        """Whether new steps may be written behind this run."""
        room = self._room
        written_elsewhere = room.tensor.is_inference() and not torch.is_inference_mode_enabled()
        return (
            room.filled == self.stop
            and self.stop + new.shape[self.dim] <= room.tensor.shape[self.dim]
            and room.tensor.dtype == new.dtype
            and not written_elsewhere
        )

    def _written(self, new: Tensor) -> "Run":
        """Write new steps behind this run."""
        count = new.shape[self.dim]
        self._room.tensor.narrow(self.dim, self.stop, count).copy_(new)
        self._room.filled = self.stop + count
        return Run(self._room, self.dim, self.first, self.stop + count)


def _in_place(x: Tensor) -> bool:
    """Whether steps may be written in place."""
    return not (torch.is_grad_enabled() or x.requires_grad or torch.compiler.is_compiling())


def _roomy(like: Tensor, count: int, dim: int) -> Tensor:
    """Return memory for so many steps and a quarter more."""
    shape = list(like.shape)
    shape[dim] = count + max(_SPARE, count // 4)
    return like.new_empty(shape)
