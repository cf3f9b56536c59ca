"""A sequence cut into blocks on several levels, each with its columns of the head width."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int, Integer
from numpy.typing import NDArray
from torch import Tensor

from mlrforecast.ops._checks import check_tensor, positive
from mlrforecast.ops._layout import blocks_of
from mlrforecast.ops.levels._picture import check_row, check_scores, draw_levels
from mlrforecast.ops.levels.combine import INTEGERS
from mlrforecast.ops.levels.grid import check_levels, check_offset, whole_where_covering

__all__ = ["Levels"]


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Levels:
    """How a sequence is cut into blocks on each level, and the columns that each level owns.

    Levels run coarse to fine. A partition is given by the sizes of its blocks, by their numbers,
    or by the block of each position; with none of the three every level halves the blocks of the
    one before.

    Parameters
    ----------
    length : int, at least 1
        Time steps of the sequence, ``S``.
    ranks : sequence of int, one per level, each at least 1
        Columns of the head width that each level owns.
    block_sizes, num_blocks : sequence, one entry per level, optional
        Sizes or numbers of blocks, as in :func:`mlrforecast.ops.check_levels`.
    block_ids : Tensor of int of shape (num_levels, S) or (B, num_levels, S), optional
        The block of each position on each level, for all sequences or for each of them. Positions
        of equal ids lie in one block; the ids themselves mean nothing and need be neither sorted
        nor without gaps. Kept as a copy.
    offset : int, at least 0, default 0
        Steps by which the first position lies inside the grid of blocks: position ``i`` lies in
        block ``(i + offset) // size``. Only without ``block_ids``.

    Attributes
    ----------
    length : int
        Time steps of the sequence.
    ranks : tuple of int
        Columns of each level.
    block_sizes : tuple of int or None, or None
        Block sizes, coarse to fine; the coarsest that cover every position are ``None``. ``None``
        altogether if ``block_ids`` were given.
    offset : int
        Steps by which the first position lies inside the grid of blocks.

    Raises
    ------
    ValueError
        If a rank, size, count or the offset is out of range, the sizes do not run coarse to fine,
        the shapes do not fit, or more than one description of the blocks is given.
    TypeError
        If an entry is not an integer or ``block_ids`` is not a tensor of integers.

    Examples
    --------
    >>> levels = Levels(6, (4, 2), block_sizes=(None, 4), offset=1)
    >>> levels.ids()
    tensor([[0, 0, 0, 0, 0, 0],
            [0, 0, 0, 1, 1, 1]])
    >>> levels.effective_rank()[0]
    tensor([6, 6, 6, 4, 4, 4])
    >>> Levels(5, (4, 2), block_ids=torch.tensor([[0, 0, 0, 0, 0], [7, 7, 3, 3, 3]])).starts()
    ((0,), (0, 2))
    """

    length: int
    ranks: tuple[int, ...]
    block_sizes: tuple[int | None, ...] | None
    offset: int
    _given: Tensor | None

    def __init__(
        self,
        length: int,
        ranks: Sequence[int],
        block_sizes: Sequence[int | None] | None = None,
        *,
        num_blocks: Sequence[int] | None = None,
        block_ids: Integer[Tensor, "*batch num_levels S"] | None = None,
        offset: int = 0,
    ) -> None:
        offset = check_offset(offset)
        sizes: tuple[int | None, ...] | None = None
        if block_ids is None:
            ranks, sizes = check_levels(length, ranks, block_sizes, num_blocks=num_blocks)
            sizes = whole_where_covering(length, sizes, offset)
        else:
            if block_sizes is not None or num_blocks is not None:
                raise ValueError("Give `block_sizes`, `num_blocks` or `block_ids`, only one.")
            if offset:
                raise ValueError(f"`offset` has no meaning with `block_ids`, got {offset}.")
            ranks, _ = check_levels(length, ranks)
            block_ids = _check_ids(block_ids, len(ranks), positive(length, "length"))
        # The one way to set what is frozen.
        for name, value in (
            ("length", positive(length, "length")),
            ("ranks", ranks),
            ("block_sizes", sizes),
            ("offset", offset),
            ("_given", block_ids),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """Write it as it is made, the ids by their shape."""
        if self._given is not None:
            blocks = f"block_ids=<{' x '.join(map(str, self._given.shape))}>"
        else:
            blocks = f"block_sizes={self.block_sizes}"
            blocks += f", offset={self.offset}" if self.offset else ""
        return f"Levels({self.length}, {self.ranks}, {blocks})"

    @property
    def num_levels(self) -> int:
        """Number of levels."""
        return len(self.ranks)

    @property
    def width(self) -> int:
        """Columns of a head that are compared: the sum of the ranks."""
        return sum(self.ranks)

    @property
    def batched(self) -> bool:
        """Whether each sequence of a batch has a partition of its own."""
        return self._given is not None and self._given.ndim == 3

    @property
    def nested(self) -> bool:
        """Whether every block lies inside one block of each coarser level."""
        if self._given is None:
            return all(itertools.starmap(self._nests, itertools.pairwise(self._sizes)))
        coarse, fine = self._given[..., :-1, :], self._given[..., 1:, :]
        # Blocks of the finer level side by side: inside one of them the coarser must not change.
        order = fine.argsort(-1)
        fine, coarse = fine.gather(-1, order), coarse.gather(-1, order)
        broken = (fine.diff(dim=-1) == 0) & (coarse.diff(dim=-1) != 0)
        return not bool(broken.any())

    @property
    def contiguous(self) -> bool:
        """Whether on every level the positions of a block are neighbours."""
        if self._given is None:
            return True
        borders = (self._given.diff(dim=-1) != 0).sum(-1)
        different = (self._given.sort(-1).values.diff(dim=-1) != 0).sum(-1)
        return bool((borders == different).all())

    @property
    def whole(self) -> bool:
        """Whether some level holds every position in one block, for each sequence."""
        if self._given is None:
            return any(
                size is None or self.offset % size + self.length <= size for size in self._sizes
            )
        return bool((self._given == self._given[..., :1]).all(-1).any(-1).all())

    def ids(self, device: torch.device | str | None = None) -> Int[Tensor, "*batch num_levels S"]:
        """Return the block of each position on each level.

        Parameters
        ----------
        device : torch.device or str, optional
            Where the result is made. Default: that of the given ids, or the CPU.

        Returns
        -------
        Tensor of shape (num_levels, S) or (B, num_levels, S), int64
            Those that were given, or the numbers ``(i + offset) // size`` of a grid.
        """
        if self._given is not None:
            return self._given.to(device=device, copy=True)
        steps = torch.arange(self.length, device=device) + self.offset
        # A size beyond int64 covers all that can be counted, as the largest int64 does.
        largest = torch.iinfo(torch.int64).max
        return torch.stack(
            [
                torch.zeros_like(steps) if size is None else blocks_of(steps, min(size, largest))
                for size in self._sizes
            ]
        )

    def shared(
        self, device: torch.device | str | None = None, *, num_queries: int | None = None
    ) -> Int[Tensor, "*batch T S"]:
        """Count the levels on which two positions lie in the same block.

        Parameters
        ----------
        device : torch.device or str, optional
            Where the result is made. Default: that of the given ids, or the CPU.
        num_queries : int from 1 to length, optional
            Rows for the newest positions only. Default: all.

        Returns
        -------
        Tensor of shape (T, S) or (B, T, S), int64
            A row for each of the newest ``T`` positions; without ``num_queries`` symmetric, with
            the number of levels on the diagonal.

        Raises
        ------
        ValueError
            If ``num_queries`` is out of range.
        """
        return self._sum_over_levels((1,) * self.num_levels, device, num_queries)

    def effective_rank(self, device: torch.device | str | None = None) -> Int[Tensor, "*batch S S"]:
        """Count the columns in which two positions are compared.

        Parameters
        ----------
        device : torch.device or str, optional
            Where the result is made. Default: that of the given ids, or the CPU.

        Returns
        -------
        Tensor of shape (S, S) or (B, S, S), int64
            The sum of the ranks of the levels that a pair shares.
        """
        return self._sum_over_levels(self.ranks, device, None)

    def starts(self) -> tuple[tuple[int, ...], ...]:
        """Return the first position of each block, level by level.

        Returns
        -------
        tuple of tuple of int
            Sorted positions, the first of each level 0.

        Raises
        ------
        ValueError
            If some block is not contiguous, or the sequences of a batch differ.
        """
        if self._given is None:
            return tuple((0, *self._inner_edges(size)) for size in self._sizes)
        if self.batched or not self.contiguous:
            state = "one partition for each sequence" if self.batched else "blocks with gaps"
            raise ValueError(f"`block_ids` must have one start for each block, got {state}.")
        borders = self._given.diff(dim=-1) != 0
        return tuple((0, *(border.nonzero().flatten() + 1).tolist()) for border in borders)

    def block_lengths(self) -> tuple[int | float, ...]:
        """Return how many positions a position meets on each level, itself included.

        Returns
        -------
        tuple of int or float
            Of a grid the block sizes, at most ``length``; short blocks at the ends count as whole
            ones. With ``block_ids`` the mean over all positions of the size of their own block.
        """
        if self._given is None:
            return tuple(
                self.length if size is None else min(size, self.length) for size in self._sizes
            )
        rows = self._given.movedim(-2, 0).reshape(self.num_levels, -1, self.length)
        pairs = (
            sum(int(row.unique(return_counts=True)[1].square().sum()) for row in level)
            for level in rows
        )
        return tuple(count / rows[0].numel() for count in pairs)

    def flops_per_token(self, num_heads: int = 1) -> int | float:
        """Count the multiply-adds of the scores per token, in the ``paper`` convention.

        Each level costs its rank times the length of its blocks, see :meth:`block_lengths`;
        causality is not exploited. Standard attention of the same width costs
        ``num_heads * width * length``.

        Parameters
        ----------
        num_heads : int, at least 1, default 1
            Attention heads.

        Returns
        -------
        int or float
            Multiply-adds per token, summed over heads and levels.
        """
        spans = self.block_lengths()
        per_head = sum(rank * span for rank, span in zip(self.ranks, spans, strict=True))
        return positive(num_heads, "num_heads") * per_head

    def plot(
        self, scores: Tensor | NDArray[Any] | None = None, *, sequence: int | None = None
    ) -> NDArray[Any]:
        """Draw the blocks of each level and the number of columns in which pairs are compared.

        Parameters
        ----------
        scores : Tensor or array of shape (T, S), optional
            Scores or weights of one head of one sequence, a row for each of the newest ``T``
            positions, drawn as a heat-map beside them. What is not finite stays empty.
        sequence : int, optional
            Which sequence of a batch to draw; only where each has a partition of its own.

        Returns
        -------
        array of Axes
            The blocks, the map, and the heat-map if there is one. ``axes[0].figure`` is the
            figure, to show, change or save.

        Raises
        ------
        ValueError
            If ``scores`` have another shape, or ``sequence`` is missing, superfluous or too large.
        """
        ids = self.ids("cpu")
        if self.batched != (sequence is not None):
            asked = "say which, such as sequence=0" if self.batched else "leave `sequence` out"
            kind = "one for each sequence" if self.batched else "one for all sequences"
            raise ValueError(f"The partition is {kind}: {asked}.")
        if sequence is not None:
            ids = ids[check_row(sequence, len(ids))]
        return draw_levels(ids.numpy(), self.ranks, check_scores(scores, self.length))

    @property
    def _sizes(self) -> tuple[int | None, ...]:
        """The block sizes of a grid."""
        assert self.block_sizes is not None
        return self.block_sizes

    def _inner_edges(self, size: int | None) -> range:
        """Return where blocks of a grid begin, the first position left out."""
        if size is None:
            return range(0)
        return range(size - self.offset % size, self.length, size)

    def _nests(self, coarse: int | None, fine: int | None) -> bool:
        """Tell whether each border between coarse blocks is one between fine blocks."""
        if coarse is None or (fine is not None and coarse % fine == 0):
            return True
        borders = self._inner_edges(coarse)
        # Of two neighbouring multiples of a size at most one is a multiple of a non-divisor.
        return len(borders) == 0 or (
            len(borders) == 1 and fine is not None and (borders[0] + self.offset) % fine == 0
        )

    def _sum_over_levels(
        self,
        weights: Sequence[int],
        device: torch.device | str | None,
        num_queries: int | None,
    ) -> Tensor:
        """Add the weights of the levels on which two positions share a block."""
        rows = self.length if num_queries is None else positive(num_queries, "num_queries")
        if rows > self.length:
            raise ValueError(f"`num_queries` must be at most the length {self.length}, got {rows}.")
        ids = self.ids(device)
        total = ids.new_zeros(*ids.shape[:-2], rows, self.length)
        for weight, level in zip(weights, ids.unbind(-2), strict=True):
            total += weight * (level[..., self.length - rows :, None] == level[..., None, :])
        return total


def _check_ids(block_ids: Tensor, num_levels: int, length: int) -> Tensor:
    """Check the shape and dtype of block ids, and return a copy of them as int64."""
    check_tensor(block_ids, "block_ids")
    if block_ids.dtype not in INTEGERS:
        raise TypeError(f"`block_ids` must be a tensor of integers, got {block_ids.dtype}.")
    fits = block_ids.ndim in (2, 3) and tuple(block_ids.shape[-2:]) == (num_levels, length)
    if not fits or not len(block_ids):
        raise ValueError(
            f"`block_ids` must have the shape (num_levels, S) = {(num_levels, length)} or "
            f"(B, num_levels, S), one row for each rank; got {tuple(block_ids.shape)}."
        )
    return block_ids.detach().to(torch.int64, copy=True)
