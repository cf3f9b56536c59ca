"""What one call of attention asks for, checked once and read by every backend."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from mlrforecast._core.arguments import check_switch
from mlrforecast.ops._checks import check_choice
from mlrforecast.ops.attention._inputs import (
    check_dropout,
    check_key_mask,
    check_qkv,
)
from mlrforecast.ops.levels import Levels
from mlrforecast.ops.scores._pairs import LevelPairs, build_pairs
from mlrforecast.ops.scores.mlr import LevelScale, level_scales

__all__ = ["AttentionCase", "Link", "Unshared", "build_case", "nesting_refusal"]

Link: TypeAlias = Literal["softmax", "identity"]
Unshared: TypeAlias = Literal["mask", "zero"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionCase:
    """One checked call: levels, switches, sizes, precision and device, without the tensors.

    ``scales`` holds the factor of each level, the division by the number of levels included.
    """

    pairs: LevelPairs
    scales: tuple[float, ...]
    batch: int
    num_heads: int
    value_width: int
    causal: bool
    masked_keys: bool
    divide_by_shared_levels: bool
    unshared: Unshared
    link: Link
    dropout_p: float
    dtype: torch.dtype
    device: torch.device

    @property
    def levels(self) -> Levels:
        """The blocks; of two sequences those of the keys, followed by those of the queries."""
        return self.pairs.levels

    @property
    def masks_unshared(self) -> bool:
        """Whether there may be pairs without a common block that must not be attended."""
        return self.unshared == "mask" and not self.pairs.share_surely

    @property
    def masks_future(self) -> bool:
        """Whether some query comes before some key that it must not attend."""
        # A branch, and no expression: a graph for any length must know the answer.
        if self.pairs.num_queries == 1:
            return False
        return self.causal

    def visible(self, key_mask: Tensor | None) -> Tensor | None:
        """Return what each query may attend, bool (B or 1, 1, T or 1, S); None for everything."""
        visible = None if key_mask is None else key_mask[:, None, None, :]
        if self.masks_future:
            queries, keys = self.pairs.num_queries, self.pairs.num_keys
            past = torch.ones(queries, keys, dtype=torch.bool, device=self.device)
            past = past.tril(keys - queries)[None, None]
            visible = past if visible is None else visible & past
        if self.masks_unshared:
            shared = self.pairs.any_level(self.device)
            shared = shared if self.levels.batched else shared[None, None]
            visible = shared if visible is None else visible & shared
        return visible


def build_case(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    block_sizes: Sequence[int | None] | None,
    num_blocks: Sequence[int] | None,
    block_ids: Tensor | None,
    query_block_ids: Tensor | None,
    offset: int,
    causal: bool,
    key_mask: Tensor | None,
    window: int | None,
    level_scale: LevelScale | Sequence[float],
    divide_by_shared_levels: bool,
    divide_by_num_levels: bool,
    unshared: Unshared,
    link: Link,
    dropout_p: float,
) -> AttentionCase:
    """Check the arguments of one call against each other."""
    check_qkv(q, k, v, causal=causal)
    if causal and query_block_ids is not None:
        raise ValueError(
            "`causal` needs queries and keys of one sequence, and `query_block_ids` are those of "
            "another one. Give causal=False."
        )
    check_key_mask(key_mask, k)
    pairs = build_pairs(
        q,
        k,
        ranks=ranks,
        block_sizes=block_sizes,
        num_blocks=num_blocks,
        block_ids=block_ids,
        query_block_ids=query_block_ids,
        offset=offset,
        window=window,
    )
    check_switch("divide_by_shared_levels", divide_by_shared_levels)
    check_choice(unshared, "unshared", ("mask", "zero"))
    check_choice(link, "link", ("softmax", "identity"))
    return AttentionCase(
        pairs=pairs,
        scales=level_scales(
            pairs.levels.ranks, level_scale, divide_by_num_levels=divide_by_num_levels
        ),
        batch=q.shape[0],
        num_heads=q.shape[1],
        value_width=v.shape[-1],
        causal=causal,
        masked_keys=key_mask is not None,
        divide_by_shared_levels=divide_by_shared_levels,
        unshared=unshared,
        link=link,
        dropout_p=check_dropout(dropout_p),
        dtype=q.dtype,
        device=q.device,
    )


def nesting_refusal(case: AttentionCase) -> str | None:
    """Return why the pairs of a case are no rectangles that share a number of levels, or None."""
    if not case.levels.contiguous:
        return "it needs blocks without gaps, and equal `block_ids` are no neighbours"
    if not case.levels.nested:
        return (
            f"it needs nested blocks, each inside one block of the level above, got {case.levels}"
        )
    if case.unshared == "zero" and not case.pairs.share_surely:
        return "pairs without a common block are attended with score 0, and it never meets them"
    return None
