"""Blocks of packed sequences: several documents, one after the other."""

import itertools
from collections.abc import Sequence
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from mlrforecast.ops._checks import integer, positive, positives

__all__ = ["document_block_ids"]

_Steps: TypeAlias = Sequence[SupportsIndex] | Tensor | NDArray[np.integer[Any]]


def document_block_ids(
    lengths: _Steps | Sequence[_Steps] | None = None,
    *,
    boundaries: _Steps | Sequence[_Steps] | None = None,
    length: int | None = None,
    device: torch.device | str | None = None,
) -> Int[Tensor, "*batch 1 S"]:
    """Return the document of each position of packed sequences, as the ids of one level.

    As the coarsest level it keeps documents apart: pairs of two documents share no block, and
    ``unshared="mask"`` lets none attend to another.

    Parameters
    ----------
    lengths : sequence of int, or one such sequence for each of B sequences
        Steps of each document, in order, each at least 1.
    boundaries : sequence of int, or one such sequence for each of B sequences
        Instead of ``lengths``, where documents begin and where the last one ends, from 0 on:
        ``[0, 5, 8]`` is the same as lengths 5 and 3.
    length : int, optional
        Steps of the sequence, if more than those of the documents. What follows the last document
        is padding, a block of its own; mask its keys too. Needed where sequences of a batch
        differ in their steps.
    device : torch.device or str, optional
        Where the result is made.

    Returns
    -------
    Tensor of shape (1, S) or (B, 1, S), int64
        Documents are counted from 0 in each sequence.

    Raises
    ------
    ValueError
        If both or neither of ``lengths`` and ``boundaries`` are given, a document is empty,
        ``length`` is too short, or the sequences differ in their steps.
    TypeError
        If an entry is not an integer.

    Examples
    --------
    >>> document_block_ids([3, 1, 2])
    tensor([[0, 0, 0, 1, 2, 2]])
    >>> document_block_ids([[4], [1, 2]], length=4)
    tensor([[[0, 0, 0, 0]],
    <BLANKLINE>
            [[0, 1, 1, 2]]])
    """
    if (lengths is None) == (boundaries is None):
        raise ValueError("Give `lengths` or `boundaries`, one of the two.")
    name, given = ("boundaries", boundaries) if lengths is None else ("lengths", lengths)
    given = _plain(given)
    packs = [_plain(pack) for pack in given] if isinstance(given, list) else given
    batched = isinstance(packs, list) and any(isinstance(pack, list) for pack in packs)
    rows = {f"{name}[{n}]": pack for n, pack in enumerate(packs)} if batched else {name: packs}
    ids = [_ids_of(pack, row, length, by_boundaries=lengths is None) for row, pack in rows.items()]
    steps = [len(row) for row in ids]
    if len(set(steps)) > 1:
        raise ValueError(
            f"`{name}` must give every sequence the same steps, got {steps}. "
            "Give `length` to pad the shorter ones."
        )
    together = torch.stack(ids).unsqueeze(1).to(device)
    return together if batched else together[0]


def _plain(values: Any) -> Any:
    """Turn arrays, tensors and other sequences into lists; leave the rest as it is."""
    values = values.tolist() if hasattr(values, "tolist") else values
    return list(values) if isinstance(values, Sequence) and not isinstance(values, str) else values


def _ids_of(pack: Any, row: str, length: int | None, *, by_boundaries: bool) -> Tensor:
    """Count the documents of one sequence."""
    if not isinstance(pack, list):
        raise TypeError(f"`{row}` must be a sequence of integers, got {pack!r}.")
    if not pack or (by_boundaries and len(pack) < 2):
        raise ValueError(f"`{row}` must hold at least one document, got {pack}.")
    if by_boundaries:
        edges = [integer(edge, f"{row}[{n}]") for n, edge in enumerate(pack)]
        if edges[0] != 0 or any(a >= b for a, b in itertools.pairwise(edges)):
            raise ValueError(f"`{row}` must begin with 0 and grow, got {edges}.")
        pack = [b - a for a, b in itertools.pairwise(edges)]
    sizes = list(positives(pack, row))
    padding = 0 if length is None else positive(length, "length") - sum(sizes)
    if padding < 0:
        raise ValueError(
            f"`length` must be at least the {sum(sizes)} steps of the documents in `{row}`, "
            f"got {length}."
        )
    sizes += [padding] if padding else []
    return torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
