"""What one call of attention asks for, checked once and read by every backend."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from mlrforecast.ops._checks import check_choice
from mlrforecast.ops.attention._inputs import (
    check_dropout,
    check_key_mask,
    check_qkv,
)
from mlrforecast.ops.levels import (
    check_levels,
    check_offset,
    is_nested,
    shared_levels,
    whole_where_covering,
)
from mlrforecast.ops.scores.mlr import LevelScale, level_scales

__all__ = ["AttentionCase", "Link", "Unshared", "build_case"]

Link: TypeAlias = Literal["softmax", "identity"]
Unshared: TypeAlias = Literal["mask", "zero"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionCase:
    """One checked call: levels, switches, sizes, precision and device, without the tensors.

    ``block_sizes`` is canonical for the length: a size that covers every position is ``None``.
    ``scales`` holds the factor of each level, the division by the number of levels included.
    """

    ranks: tuple[int, ...]
    block_sizes: tuple[int | None, ...]
    offset: int
    scales: tuple[float, ...]
    length: int
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
    def nested(self) -> bool:
        """Whether every block lies inside one block of each coarser level."""
        return is_nested(self.block_sizes)

    @property
    def masks_unshared(self) -> bool:
        """Whether there may be pairs without a common block that must not be attended."""
        return self.unshared == "mask" and None not in self.block_sizes

    def visible(self, key_mask: Tensor | None) -> Tensor:
        """Return the boolean mask (B or 1, 1, T, T), True where a query may attend a key."""
        visible = torch.ones(self.length, self.length, dtype=torch.bool, device=self.device)
        if self.causal:
            visible = visible.tril()
        if self.masks_unshared:
            shared = shared_levels(
                self.length, self.block_sizes, offset=self.offset, device=self.device
            )
            visible = visible & (shared > 0)
        if key_mask is None:
            return visible[None, None]
        return visible & key_mask[:, None, None, :]


def build_case(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    block_sizes: Sequence[int | None] | None,
    num_blocks: Sequence[int] | None,
    offset: int,
    causal: bool,
    key_mask: Tensor | None,
    level_scale: LevelScale | Sequence[float],
    divide_by_shared_levels: bool,
    divide_by_num_levels: bool,
    unshared: Unshared,
    link: Link,
    dropout_p: float,
) -> AttentionCase:
    """Check the arguments of one call against each other."""
    check_qkv(q, k, v, causal=causal)
    _check_one_sequence(q, k)
    check_key_mask(key_mask, k)
    batch, num_heads, length, width = q.shape
    ranks, sizes = check_levels(length, ranks, block_sizes, num_blocks=num_blocks)
    if sum(ranks) != width:
        raise ValueError(
            f"`ranks` must sum to the head width R={width}, got {ranks} (sum {sum(ranks)})."
        )
    check_choice(unshared, "unshared", ("mask", "zero"))
    check_choice(link, "link", ("softmax", "identity"))
    offset = check_offset(offset)
    return AttentionCase(
        ranks=ranks,
        block_sizes=whole_where_covering(length, sizes, offset),
        offset=offset,
        scales=level_scales(ranks, level_scale, divide_by_num_levels=divide_by_num_levels),
        length=length,
        batch=batch,
        num_heads=num_heads,
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


def _check_one_sequence(q: Tensor, k: Tensor) -> None:
    """Check that queries and keys are of the same steps and heads."""
    if k.shape != q.shape:
        raise ValueError(
            "`q` and `k` must have one shape (B, H, T, R), got "
            f"{tuple(q.shape)} and {tuple(k.shape)}."
        )
