"""Block ids put together: levels that nest, and blocks counted inside other blocks."""

from collections.abc import Sequence

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from mlrforecast.ops._checks import check_tensor, positives
from mlrforecast.ops.levels.grid import check_sizes

__all__ = ["INTEGERS", "nested_block_ids"]

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Types of block ids."""


def nested_block_ids(
    *block_ids: Integer[Tensor, "... _ S"], block_sizes: Sequence[int] = ()
) -> Int[Tensor, "*batch num_levels S"]:
    """Stack levels coarse to fine and cut every block where a coarser one ends.

    Two positions lie in one block of a level of the result if they do so on that level and on
    each level before it, so the levels nest whatever went in.

    Parameters
    ----------
    *block_ids : Tensor of int of shape (levels, S) or (B, levels, S)
        Levels to be stacked in this order. If one has a batch, so has the result; those without
        one serve all its sequences.
    block_sizes : sequence of int, never growing, optional
        Finer levels below them: inside each block of the last level, its positions are counted
        from its first one on into blocks of this many.

    Returns
    -------
    Tensor of shape (num_levels, S) or (B, num_levels, S), int64
        Ids from 0 on each level, for ``block_ids=``.

    Raises
    ------
    ValueError
        If there is no tensor, the shapes or devices do not fit together, or the sizes are less
        than 1 or grow.
    TypeError
        If an argument is not a tensor of integers, or a size not an integer.

    Examples
    --------
    >>> from mlrforecast.ops import document_block_ids
    >>> documents = document_block_ids([5, 3])
    >>> nested_block_ids(documents, block_sizes=[2])
    tensor([[0, 0, 0, 0, 0, 1, 1, 1],
            [0, 0, 1, 1, 2, 3, 3, 4]])
    >>> halves = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    >>> nested_block_ids(documents, halves)
    tensor([[0, 0, 0, 0, 0, 1, 1, 1],
            [0, 0, 0, 0, 1, 2, 2, 2]])
    """
    sizes = positives(block_sizes, "block_sizes")
    check_sizes(sizes)
    rows = _rows(block_ids)
    levels = [_renumber(rows[0])]
    for row in rows[1:]:
        levels.append(_refine(levels[-1], _renumber(row)))
    place = _places(levels[-1])
    for size in sizes:
        levels.append(_refine(levels[-1], place // size))
    return torch.stack(levels, dim=-2)


def _rows(block_ids: tuple[Tensor, ...]) -> list[Tensor]:
    """Check tensors of ids against each other, and return their levels, of one shape."""
    if not block_ids:
        raise ValueError("`block_ids` must be at least one tensor, got none.")
    for number, ids in enumerate(block_ids):
        check_tensor(ids, f"block_ids[{number}]")
        if ids.dtype not in INTEGERS:
            raise TypeError(f"`block_ids[{number}]` must hold integers, got {ids.dtype}.")
    shapes = [tuple(ids.shape) for ids in block_ids]
    batches = {shape[0] for shape in shapes if len(shape) == 3}
    if (
        any(len(shape) not in (2, 3) or 0 in shape for shape in shapes)
        or len(batches) > 1
        or len({shape[-1] for shape in shapes}) > 1
        or len({ids.device for ids in block_ids}) > 1
    ):
        raise ValueError(
            "`block_ids` must have shapes (levels, S) or (B, levels, S) with one S and one B, on "
            f"one device; got {', '.join(map(str, shapes))}."
        )
    return [row.to(torch.int64).expand(*batches, -1) for ids in block_ids for row in ids.unbind(-2)]


def _renumber(ids: Tensor) -> Tensor:
    """Count the blocks of a level from 0 in the order of their ids."""
    order = ids.argsort(-1)
    new = torch.zeros_like(ids)
    new[..., 1:] = (ids.gather(-1, order).diff(dim=-1) != 0).cumsum(-1)
    return torch.empty_like(ids).scatter_(-1, order, new)


def _refine(coarse: Tensor, fine: Tensor) -> Tensor:
    """Cut the blocks of the finer level at those of the coarser; both are numbered from 0."""
    return _renumber(coarse * fine.shape[-1] + fine)


def _places(ids: Tensor) -> Tensor:
    """Count the positions of each block from 0; the blocks are numbered from 0."""
    order = ids.argsort(stable=True, dim=-1)
    steps = torch.arange(ids.shape[-1], device=ids.device).expand_as(ids)
    sizes = torch.zeros_like(ids).scatter_add_(-1, ids, torch.ones_like(ids))
    first = sizes.cumsum(-1) - sizes
    # Sorted by blocks, a position lies so many places behind the first one of its block.
    place = steps - first.gather(-1, ids.gather(-1, order))
    return torch.empty_like(ids).scatter_(-1, order, place)
