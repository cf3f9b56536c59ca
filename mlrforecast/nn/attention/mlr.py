"""MLR scores: columns shared out among levels of blocks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor

from mlrforecast.nn.attention.dot import DotScore, check_window, fixed_window, window_of
from mlrforecast.nn.attention.score import Heads, Reach, Step, attentions, check_counts
from mlrforecast.nn.cost import window_pairs
from mlrforecast.ops import (
    Levels,
    check_levels,
    level_scales,
    mlr_attention,
    mlr_step_attention,
    newest_whole_offset,
)
from mlrforecast.ops.scores import LevelScale

__all__ = ["MLRScore", "MLRWindowScore", "default_ranks"]


def default_ranks(head_width: int) -> tuple[int, ...]:
    """Return half of the columns for the whole sequence and a quarter for each of two finer levels.

    Parameters
    ----------
    head_width : int
        Columns of a head.

    Returns
    -------
    tuple of int
        Ranks, coarse to fine; they sum to ``head_width``.

    Examples
    --------
    >>> default_ranks(8), default_ranks(2)
    ((4, 2, 2), (1, 1))
    """
    if head_width < 4:
        return (1,) * head_width
    quarter = head_width // 4
    return (head_width - 2 * quarter, quarter, quarter)


class MLRScore(DotScore):
    """Dot products whose columns count on their own level of blocks only.

    Parameters
    ----------
    heads : Heads
        Sizes and switches of the layer. The queries and keys are normalised before they are cut
        into levels, if they are.
    ranks : sequence of int, optional
        Columns of each level, coarse to fine; they sum to the head width (or ``qk_width``).
        Default: half of them, a quarter, a quarter.
    block_sizes : sequence of int or None, optional
        Steps of a block of each level, coarse to fine, None for the whole sequence. Default: each
        level halves the blocks of the one before.
    num_blocks : sequence of int, optional
        Blocks of each level instead of their size.
    qk_width : int, optional
        Columns of a head that are compared. Default: those of its values.
    newest_whole : bool, optional
        Whether blocks are counted back from the newest step, so that the newest is whole.
        Default: only if the attention is not causal; a causal grid must not move as the sequence
        grows.
    level_scale, divide_by_shared_levels, divide_by_num_levels, unshared
        As in :func:`mlrforecast.ops.mlr_attention`. The published code has ``level_scale=
        "inverse_rank"``, the default here is the factor of standard attention.

    Examples
    --------
    >>> from mlrforecast.nn import StructuredAttention
    >>> layer = StructuredAttention(16, 2, attention="mlr", ranks=(6, 2), block_sizes=(None, 24))
    >>> [reach.first(100) for reach in layer.score.reaches()]
    [0, 96]
    """

    positional: ClassVar[bool] = True
    takes_block_ids: ClassVar[bool] = True
    takes_query_block_ids: ClassVar[bool] = True

    def __init__(
        self,
        heads: Heads,
        *,
        ranks: Sequence[int] | None = None,
        block_sizes: Sequence[int | None] | None = None,
        num_blocks: Sequence[int] | None = None,
        qk_width: int | None = None,
        newest_whole: bool | None = None,
        level_scale: LevelScale | Sequence[float] = "inverse_sqrt_width",
        divide_by_shared_levels: bool = False,
        divide_by_num_levels: bool = False,
        unshared: Literal["mask", "zero"] = "mask",
    ) -> None:
        super().__init__(heads, qk_width=qk_width)
        self.ranks = default_ranks(self.qk_width)
        if ranks is not None:
            self.ranks = check_counts(ranks, "ranks")
        if sum(self.ranks) != self.qk_width:
            raise ValueError(
                f"`ranks` must sum to the head width {self.qk_width}, got {self.ranks} "
                f"(sum {sum(self.ranks)})."
            )
        check_levels(heads.context_length or 1, self.ranks, block_sizes, num_blocks=num_blocks)
        level_scales(self.ranks, level_scale)
        if unshared not in ("mask", "zero"):
            raise ValueError(f"`unshared` must be one of mask, zero; got {unshared!r}.")
        if newest_whole is not None and not isinstance(newest_whole, bool):
            raise TypeError(f"`newest_whole` must be True, False or None, got {newest_whole!r}.")
        self.sections = self.ranks
        self.block_sizes = block_sizes
        self.num_blocks = num_blocks
        self.newest_whole = newest_whole
        self.level_scale = level_scale
        self.divide_by_shared_levels = divide_by_shared_levels
        self.divide_by_num_levels = divide_by_num_levels
        self.unshared: Literal["mask", "zero"] = unshared

    def attend(
        self,
        q: Float[Tensor, "B H T R"],
        k: Float[Tensor, "B G S R"],
        v: Float[Tensor, "B G S V"],
        *,
        causal: bool,
        key_mask: Bool[Tensor, "B S"] | None,
        dropout_p: float,
        block_ids: Int[Tensor, "*batch num_levels S"] | None = None,
        query_block_ids: Int[Tensor, "*query_batch num_levels T"] | None = None,
    ) -> Float[Tensor, "B H T V"]:
        """Attend level by level, by ``block_ids`` and ``query_block_ids`` if given."""
        attend = partial(
            mlr_attention,
            q,
            k,
            v,
            ranks=self.ranks,
            causal=causal,
            key_mask=key_mask,
            window=self._window(k.shape[2]),
            level_scale=self.level_scale,
            divide_by_shared_levels=self.divide_by_shared_levels,
            divide_by_num_levels=self.divide_by_num_levels,
            unshared=self.unshared,
            dropout_p=dropout_p,
        )
        if block_ids is not None:
            return attend(block_ids=block_ids, query_block_ids=query_block_ids)
        sizes = self.sizes(k.shape[2])
        back = not causal if self.newest_whole is None else self.newest_whole
        offset = newest_whole_offset(k.shape[2], sizes) if back else 0
        return attend(block_sizes=sizes, offset=offset)

    def sizes(self, length: int) -> tuple[int | None, ...]:
        """Return the block size of each level in a sequence of ``length`` steps."""
        length = self.heads.context_length or length
        return check_levels(length, self.ranks, self.block_sizes, num_blocks=self.num_blocks)[1]

    def paper_scores(self, length: int) -> int:
        """Count each level's blocks of ``length`` steps only."""
        return length * int(Levels(length, self.ranks, self.sizes(length)).flops_per_token())

    def _window(self, length: int) -> int | None:
        """Return the window of the coarsest level, if it has one."""
        del length
        return None

    def reaches(self) -> tuple[Reach, ...]:
        """Keep each level's columns of the newest block."""
        if self.block_sizes is None and self.heads.context_length is None:
            raise ValueError(
                "`cache` needs fixed `block_sizes` (or `context_length`), got neither: by default "
                "the blocks grow with the sequence."
            )
        if self.newest_whole:
            raise ValueError("`cache` needs blocks that stay in place: leave `newest_whole` out.")
        return tuple(
            Reach(columns=rank, first=_first_of_block(size))
            for rank, size in zip(self.ranks, self.sizes(1), strict=True)
        )

    def first_value(self, step: int) -> int:
        """Return the oldest step whose value is read: any, if pairs without a block attend."""
        return 0 if self.unshared == "zero" else super().first_value(step)

    def attend_step(self, step: Step) -> Float[Tensor, "B H T V"]:
        """Attend to what was kept, each level to its own keys."""
        return mlr_step_attention(
            step.q,
            step.keys,
            step.v,
            length=step.length,
            block_sizes=self.sizes(1),
            window=self._window(1),
            key_mask=step.key_mask,
            level_scale=self.level_scale,
            divide_by_shared_levels=self.divide_by_shared_levels,
            divide_by_num_levels=self.divide_by_num_levels,
            unshared=self.unshared,
        )


class MLRWindowScore(MLRScore):
    """MLR scores whose coarsest level counts within a window instead of its blocks.

    Parameters
    ----------
    heads : Heads
        Sizes and switches of the layer.
    window : int, optional
        Largest distance at which the coarsest level counts. Default: half of the sequence.
    ranks, block_sizes, num_blocks, qk_width, newest_whole
        As in :class:`MLRScore`; the coarsest block size is not read.
    level_scale, divide_by_shared_levels, divide_by_num_levels, unshared
        As in :class:`MLRScore`.

    Examples
    --------
    >>> from mlrforecast.nn import StructuredAttention
    >>> options = {"ranks": (6, 2), "block_sizes": (None, 24), "window": 48}
    >>> layer = StructuredAttention(16, 2, attention="mlr_window", **options)
    >>> [reach.first(100) for reach in layer.score.reaches()]
    [52, 96]
    """

    takes_query_block_ids: ClassVar[bool] = False

    def __init__(
        self,
        heads: Heads,
        *,
        window: int | None = None,
        ranks: Sequence[int] | None = None,
        block_sizes: Sequence[int | None] | None = None,
        num_blocks: Sequence[int] | None = None,
        qk_width: int | None = None,
        newest_whole: bool | None = None,
        level_scale: LevelScale | Sequence[float] = "inverse_sqrt_width",
        divide_by_shared_levels: bool = False,
        divide_by_num_levels: bool = False,
        unshared: Literal["mask", "zero"] = "mask",
    ) -> None:
        super().__init__(
            heads,
            ranks=ranks,
            block_sizes=block_sizes,
            num_blocks=num_blocks,
            qk_width=qk_width,
            newest_whole=newest_whole,
            level_scale=level_scale,
            divide_by_shared_levels=divide_by_shared_levels,
            divide_by_num_levels=divide_by_num_levels,
            unshared=unshared,
        )
        self.window = check_window(window)

    def paper_scores(self, length: int) -> int:
        """Count the window of ``length`` steps on the coarsest level, blocks on the others."""
        coarsest = window_pairs(length, window_of(self.window, self.heads, length))
        spans = (length if size is None else min(size, length) for size in self.sizes(length)[1:])
        finer = sum(rank * span for rank, span in zip(self.ranks[1:], spans, strict=True))
        return self.ranks[0] * coarsest + length * finer

    def _window(self, length: int) -> int | None:
        """Return the window of the coarsest level."""
        return window_of(self.window, self.heads, length)

    def reaches(self) -> tuple[Reach, ...]:
        """Keep the window of the coarsest level, and the newest block of each other."""
        window = fixed_window(self.window, self.heads)
        coarsest, *finer = super().reaches()
        first = Reach(columns=coarsest.columns, first=lambda step: max(0, step - window))
        return (first, *finer)


def _first_of_block(size: int | None) -> Callable[[int], int]:
    """Return the function that gives the first step of a step's block."""
    return lambda step: 0 if size is None else step // size * size


attentions.register("mlr", MLRScore)
attentions.register("mlr_window", MLRWindowScore)
