"""What one call of attention asks for, checked once and read by every backend."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from mlrforecast.ops._checks import check_tensor, number
from mlrforecast.ops.levels import (
    check_levels,
    check_offset,
    is_nested,
    shared_levels,
    whole_where_covering,
)
from mlrforecast.ops.scores.mlr import LevelScale, level_scales

__all__ = ["AttentionCase", "Link", "Unshared", "build_case", "check_key_mask", "check_qkv"]

Link: TypeAlias = Literal["softmax", "identity"]
Unshared: TypeAlias = Literal["mask", "zero"]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


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
    check_qkv(q, k, v)
    check_key_mask(key_mask, q)
    batch, num_heads, length, width = q.shape
    ranks, sizes = check_levels(length, ranks, block_sizes, num_blocks=num_blocks)
    if sum(ranks) != width:
        raise ValueError(
            f"`ranks` must sum to the head width R={width}, got {ranks} (sum {sum(ranks)})."
        )
    _check_choice(unshared, "unshared", ("mask", "zero"))
    _check_choice(link, "link", ("softmax", "identity"))
    dropout_p = number(dropout_p, "dropout_p")
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"`dropout_p` must lie in [0, 1), got {dropout_p}.")
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
        dropout_p=dropout_p,
        dtype=q.dtype,
        device=q.device,
    )


def check_qkv(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Check that three tensors form one attention problem."""
    if q.ndim != 4 or k.shape != q.shape or v.ndim != 4 or v.shape[:-1] != q.shape[:-1]:
        raise ValueError(
            "`q` and `k` must have one shape (B, H, T, R) and `v` the shape (B, H, T, V), got "
            f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}."
        )
    if min(q.shape) < 1 or v.shape[-1] < 1:
        raise ValueError(f"`q` and `v` must not be empty, got {tuple(q.shape)}, {tuple(v.shape)}.")
    if not (q.dtype == k.dtype == v.dtype) or q.dtype not in _DTYPES:
        raise TypeError(
            "`q`, `k` and `v` must have one floating-point dtype of 16 bits or more, got "
            f"{q.dtype}, {k.dtype} and {v.dtype}. Cast them, or run under torch.autocast."
        )
    if not (q.device == k.device == v.device):
        raise ValueError(
            f"`q`, `k` and `v` must be on one device, got {q.device}, {k.device}, {v.device}."
        )


def check_key_mask(key_mask: Tensor | None, q: Tensor) -> None:
    """Check that a key mask says yes or no to every key of ``q``'s sequences."""
    if key_mask is None:
        return
    check_tensor(key_mask, "key_mask")
    expected = (q.shape[0], q.shape[2])
    if key_mask.dtype != torch.bool or tuple(key_mask.shape) != expected:
        raise ValueError(
            f"`key_mask` must be a bool tensor of shape (B, T) = {expected}, True where a key may "
            f"be attended; got {key_mask.dtype} of shape {tuple(key_mask.shape)}."
        )
    if key_mask.device != q.device:
        raise ValueError(f"`key_mask` must be on {q.device} as `q`, got {key_mask.device}.")


def _check_choice(value: str, name: str, choices: tuple[str, ...]) -> None:
    """Check that ``value`` is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}; got {value!r}.")
