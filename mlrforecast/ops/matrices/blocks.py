"""Parts of an MLBTC: permutations, levels of two block-diagonal factors, and their sizes."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mlrforecast.ops._checks import entries, positives

__all__ = ["BlockLayout", "BlockLevel", "Shuffle"]


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A permutation that reads the entries of a vector as a grid and reorders its axes.

    Parameters
    ----------
    shape : tuple of int
        Sides of the grid; the last axis runs fastest.
    order : tuple of int
        Axes of the grid, as in ``torch.permute``.

    Raises
    ------
    ValueError
        If ``order`` does not name each axis once, or a side is less than 1.

    Examples
    --------
    >>> swap = Shuffle((2, 3), (1, 0))
    >>> swap(torch.arange(6))
    tensor([0, 3, 1, 4, 2, 5])
    >>> swap.inverse()(swap(torch.arange(6)))
    tensor([0, 1, 2, 3, 4, 5])
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", positives(self.shape, "shape"))
        object.__setattr__(self, "order", entries(self.order, "order"))
        if sorted(self.order) != list(range(len(self.shape))):
            raise ValueError(
                f"`order` must name each of the {len(self.shape)} axes of `shape` once, "
                f"got {self.order}."
            )

    @property
    def length(self) -> int:
        """Number of entries that are permuted."""
        return math.prod(self.shape)

    def inverse(self) -> "Shuffle":
        """Return the permutation that undoes this one."""
        shape = tuple(self.shape[axis] for axis in self.order)
        order = tuple(self.order.index(axis) for axis in range(len(self.order)))
        return Shuffle(shape, order)

    def __call__(self, x: Tensor) -> Tensor:
        """Permute the last axis of ``x``."""
        first = x.ndim - 1
        axes = [*range(first), *(first + axis for axis in self.order)]
        grid: Tensor = x.unflatten(-1, self.shape)
        return grid.permute(axes).flatten(first)


@dataclass(frozen=True, slots=True, eq=False)
class BlockLevel:
    """One summand of an MLBTC: two block-diagonal factors, with permutations after each.

    Attributes
    ----------
    right : Tensor of shape (..., p, d_in / p, w)
        Blocks that read the input: block ``k`` turns its ``d_in / p`` entries into ``w``.
    left : Tensor of shape (..., p', d_out / p', w') or None
        Blocks that write the output, each from ``w' = p w / p'`` entries. ``None`` is the identity.
    middle, output : Shuffle or None, default None
        Permutations of what the right and the left blocks give. ``None`` leaves the order.
    """

    right: Tensor
    left: Tensor | None = None
    middle: Shuffle | None = None
    output: Shuffle | None = None

    @property
    def width(self) -> int:
        """Entries between the two factors: no larger rank goes through."""
        return int(self.right.shape[-3] * self.right.shape[-1])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, ``(d_out, d_in)``."""
        d_in = int(self.right.shape[-3] * self.right.shape[-2])
        if self.left is None:
            return self.width, d_in
        return int(self.left.shape[-3] * self.left.shape[-2]), d_in

    @property
    def flops(self) -> int:
        """Multiply-adds for one vector: each entry of each block is used once."""
        factors = (self.right,) if self.left is None else (self.right, self.left)
        return sum(math.prod(x.shape[-3:]) for x in factors)

    def apply(self, x: Tensor, scale: float) -> Tensor:
        """Multiply each row of ``x``, and by ``scale``."""
        z = _scaled(_shuffled(_into_blocks(x, self.right), self.middle), scale)
        if self.left is not None:
            z = _out_of_blocks(z, self.left)
        return _shuffled(z, self.output)

    def apply_transposed(self, y: Tensor, scale: float) -> Tensor:
        """Multiply each row of ``y`` with the transposed summand, and by ``scale``."""
        z = _shuffled(y, self.output and self.output.inverse())
        if self.left is not None:
            z = _into_blocks(z, self.left)
        z = _shuffled(_scaled(z, scale), self.middle and self.middle.inverse())
        return _out_of_blocks(z, self.right)


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """Sizes of a :class:`BlockLevel`, from which its tensors are made.

    Attributes
    ----------
    right_blocks, right_width : int
        Blocks that read the input, and what each of them gives.
    left_blocks : int or None
        Blocks that write the output; they share the middle evenly. ``None`` for no left factor.
    middle, output : Shuffle or None, default None
        As in :class:`BlockLevel`.
    """

    right_blocks: int
    right_width: int
    left_blocks: int | None
    middle: Shuffle | None = None
    output: Shuffle | None = None


# einsum and not matmul: it folds the axes that only one side has into one product, where matmul
# would copy the blocks for every sequence of the batch, and the input for every head.
def _into_blocks(x: Tensor, blocks: Tensor) -> Tensor:
    """Multiply each part of the last axis with its block ``(size, width)``."""
    parts = x.unflatten(-1, blocks.shape[-3:-1])
    return torch.einsum("...tpm,...pmw->...tpw", parts, blocks).flatten(-2)


def _out_of_blocks(z: Tensor, blocks: Tensor) -> Tensor:
    """Multiply each part of the last axis with its transposed block ``(size, width)``."""
    parts = z.unflatten(-1, (blocks.shape[-3], blocks.shape[-1]))
    return torch.einsum("...tpw,...pmw->...tpm", parts, blocks).flatten(-2)


def _shuffled(x: Tensor, shuffle: Shuffle | None) -> Tensor:
    """Permute the last axis, if there is a permutation."""
    return x if shuffle is None else shuffle(x)


def _scaled(x: Tensor, scale: float) -> Tensor:
    """Multiply by ``scale``, unless it is 1."""
    return x if scale == 1 else x * scale
