"""Which pairs of a query and a key each level counts for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlrforecast.ops._checks import check_tensor
from mlrforecast.ops._layout import step_distances
from mlrforecast.ops.levels import Levels
from mlrforecast.ops.scores.dot import check_qk
from mlrforecast.ops.scores.window import check_window

__all__ = ["LevelPairs", "build_pairs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelPairs:
    """``T`` queries and ``S`` keys in the blocks of ``levels``.

    The keys are the first ``S`` positions of ``levels`` and the queries the last ``T``. Those of
    one sequence overlap; queries of another sequence follow the keys.
    """

    levels: Levels
    num_queries: int
    num_keys: int
    window: int | None = None
    """Largest distance at which the coarsest level counts, in place of its blocks."""

    @property
    def of_two_sequences(self) -> bool:
        """Whether queries and keys are steps of two sequences, and have no distance."""
        return self.levels.length != self.num_keys

    @property
    def share_surely(self) -> bool:
        """Whether every pair is known to share a level; False may mean that nobody looked."""
        if self.window is not None:
            return False
        if self.levels.block_sizes is None and torch.compiler.is_compiling():
            # A graph must not depend on what is in a tensor.
            return False
        return self.levels.whole

    def ids(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the blocks of the queries and those of the keys: (num_levels, T) and (..., S)."""
        ids = self.levels.ids(device)
        return ids[..., self.levels.length - self.num_queries :], ids[..., : self.num_keys]

    def by_level(self, device: torch.device) -> Iterator[Tensor]:
        """Yield for each level the pairs that it counts for, bool (T, S) or (B, 1, T, S)."""
        queries, keys = (ids.unbind(-2) for ids in self.ids(device))
        for lvl, (query, key) in enumerate(zip(queries, keys, strict=True)):
            if lvl == 0 and self.window is not None:
                distances = step_distances(self.num_queries, self.num_keys, device)
                yield distances.abs() <= self.window
            else:
                same = query[..., :, None] == key[..., None, :]
                yield same[:, None] if self.levels.batched else same

    def any_level(self, device: torch.device) -> Tensor:
        """Return the pairs that some level counts for, bool (T, S) or (B, 1, T, S)."""
        counted, *others = self.by_level(device)
        for pairs in others:
            counted = counted | pairs
        return counted


def build_pairs(
    q: Tensor,
    k: Tensor,
    *,
    ranks: Sequence[int],
    block_sizes: Sequence[int | None] | None,
    num_blocks: Sequence[int] | None,
    block_ids: Tensor | None,
    query_block_ids: Tensor | None,
    offset: int,
    window: int | None,
) -> LevelPairs:
    """Check the levels of queries (B, H, T, R) and keys (B, G, S, R)."""
    check_qk(q, k)
    num_queries, num_keys = q.shape[2], k.shape[2]
    if query_block_ids is None:
        _check_last_queries(num_queries, num_keys)
    elif block_ids is None or window is not None:
        given = "without `block_ids`" if block_ids is None else f"with window={window!r}"
        raise ValueError(
            "`query_block_ids` place the queries among the `block_ids` of another sequence, to "
            f"which they have no distance; got them {given}."
        )
    levels = Levels(
        num_keys, ranks, block_sizes, num_blocks=num_blocks, block_ids=block_ids, offset=offset
    )
    if levels.width != q.shape[3]:
        raise ValueError(
            f"`ranks` must sum to the head width R={q.shape[3]}, got {levels.ranks} "
            f"(sum {levels.width})."
        )
    _check_batch(block_ids, "block_ids", q)
    if query_block_ids is not None:
        levels = _with_queries(levels, query_block_ids, q)
    return LevelPairs(
        levels=levels,
        num_queries=num_queries,
        num_keys=num_keys,
        window=None if window is None else check_window(window, num_queries, num_keys),
    )


def _check_last_queries(num_queries: int, num_keys: int) -> None:
    """Check that the queries can be the last steps of the keys."""
    if num_queries > num_keys:
        raise ValueError(
            "Queries are the last T of the S steps of the keys, so levels need T <= S, got "
            f"T={num_queries} and S={num_keys}. For another sequence give `block_ids` and "
            "`query_block_ids`, with causal=False."
        )


def _check_batch(block_ids: Tensor | None, name: str, q: Tensor) -> None:
    """Check that there are as many partitions as sequences, or one for all."""
    if block_ids is not None and block_ids.ndim == 3 and len(block_ids) != len(q):
        raise ValueError(
            f"`{name}` must hold one partition for all or one for each of the B={len(q)} "
            f"sequences, got {len(block_ids)}."
        )


def _with_queries(levels: Levels, query_block_ids: Tensor, q: Tensor) -> Levels:
    """Let the queries of another sequence follow the keys."""
    check_tensor(query_block_ids, "query_block_ids")
    expected = (levels.num_levels, q.shape[2])
    if (
        query_block_ids.ndim not in (2, 3)
        or tuple(query_block_ids.shape[-2:]) != expected
        or query_block_ids.dtype.is_floating_point
        or query_block_ids.dtype == torch.bool
    ):
        raise ValueError(
            f"`query_block_ids` must be integers of the shape (num_levels, T) = {expected} or "
            f"(B, num_levels, T); got {query_block_ids.dtype} of shape "
            f"{tuple(query_block_ids.shape)}."
        )
    _check_batch(query_block_ids, "query_block_ids", q)
    keys = levels.ids(q.device)
    queries = query_block_ids.to(keys)
    leading = torch.broadcast_shapes(keys.shape[:-2], queries.shape[:-2])
    both = [ids.expand(*leading, *ids.shape[-2:]) for ids in (keys, queries)]
    return Levels(keys.shape[-1] + q.shape[2], levels.ranks, block_ids=torch.cat(both, -1))
