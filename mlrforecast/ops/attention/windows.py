"""Attention with a window: to near keys only, or to all keys and once more to near ones."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from mlrforecast.ops._checks import check_choice
from mlrforecast.ops.attention._fused import fused_attention
from mlrforecast.ops.attention._inputs import (
    check_dropout,
    check_key_mask,
    check_qkv,
    follow_autocast,
)
from mlrforecast.ops.attention.standard import standard_attention
from mlrforecast.ops.scores.dot import softmax_scale
from mlrforecast.ops.scores.window import check_parts, check_window, part_scales, window_mask

__all__ = ["global_window_attention", "sliding_window_attention"]

# Queries of a chunk are at least this many: smaller calls cost more than the keys they leave out.
_SHORTEST_CHUNK = 64


def sliding_window_attention(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    v: Float[Tensor, "B G S V"],
    *,
    window: int,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H T V"]:
    """Attend to near keys only: softmax of scaled dot products within a window.

    A causal query at position ``i`` sees ``i - window`` to ``i``, both included, that is
    ``window + 1`` keys (the convention of the published code); otherwise ``i - window`` to
    ``i + window``. Long sequences are cut into chunks, so that time and memory grow with
    ``T * window``.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries, those of the last ``T`` of the ``S`` steps.
    k : Tensor of shape (B, G, S, R)
        Keys. ``G`` divides ``H``; query head ``h`` reads key head ``h // (H // G)``.
    v : Tensor of shape (B, G, S, V)
        Values.
    window : int, at least 0
        Largest distance that is attended; 0 is the step itself.
    causal : bool, default False
        Whether a query attends only to its own and earlier steps.
    key_mask : bool Tensor of shape (B, S), optional
        True where a key may be attended, False at padding.
    scale : float, optional
        Factor of the dot products, ``1 / sqrt(R)`` by default.
    dropout_p : float in [0, 1), default 0
        Share of the weights that is dropped.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``. Rows that may attend no key are 0, with gradient 0.

    Raises
    ------
    ValueError
        If the shapes do not fit, ``T`` exceeds ``S``, or an option is out of range.
    TypeError
        If an argument is of the wrong type, or the dtypes differ or are not floating-point.

    Examples
    --------
    >>> q = k = torch.zeros(1, 1, 4, 1)
    >>> v = torch.tensor([0.0, 2.0, 4.0, 6.0]).reshape(1, 1, 4, 1)
    >>> sliding_window_attention(q, k, v, window=1, causal=True).flatten()
    tensor([0., 1., 3., 5.])
    """
    q, k, v = follow_autocast(q, k, v)
    check_qkv(q, k, v, causal=causal)
    check_key_mask(key_mask, k)
    num_queries, num_keys = q.shape[2], k.shape[2]
    window = check_window(window, num_queries, num_keys)
    scale, dropout_p = softmax_scale(scale, q.shape[-1]), check_dropout(dropout_p)
    if window >= num_keys - 1:
        return standard_attention(
            q, k, v, causal=causal, key_mask=key_mask, scale=scale, dropout_p=dropout_p
        )
    # No query reads a key before the window of the first.
    unread = max(0, num_keys - num_queries - window)
    k, v = k[:, :, unread:], v[:, :, unread:]
    key_mask = None if key_mask is None else key_mask[:, unread:]
    chunk = max(window + 1, _SHORTEST_CHUNK)
    attend = _whole if num_queries <= 2 * chunk else _chunked
    return attend(q, k, v, key_mask, window=window, causal=causal, scale=scale, dropout_p=dropout_p)


def global_window_attention(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    v: Float[Tensor, "B G S V"],
    *,
    ranks: Sequence[int],
    window: int,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
    scales: Sequence[float] | None = None,
    combine: Literal["mean", "sum"] = "mean",
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H T V"]:
    """Attend twice with one set of values: to all keys, and to near keys only.

    The first columns of queries and keys give the weights over all keys, the others those within
    the window, by a softmax each. The published code adds the two, so that the weights of a row
    sum to 2: ``combine="sum"``. The default halves the sum, so that they are a mean.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries, those of the last ``T`` of the ``S`` steps.
    k : Tensor of shape (B, G, S, R)
        Keys. ``G`` divides ``H``; query head ``h`` reads key head ``h // (H // G)``.
    v : Tensor of shape (B, G, S, V)
        Values.
    ranks : sequence of two int
        Columns for all keys, and for the window; they sum to ``R``.
    window : int, at least 0
        Largest distance that the second softmax attends, as in :func:`sliding_window_attention`.
    causal : bool, default False
        Whether a query attends only to its own and earlier steps.
    key_mask : bool Tensor of shape (B, S), optional
        True where a key may be attended, False at padding.
    scales : sequence of two float, optional
        Factors of the two dot products, ``1 / sqrt(rank)`` by default.
    combine : {"mean", "sum"}, default "mean"
        Whether the two results are averaged or added.
    dropout_p : float in [0, 1), default 0
        Share of the weights that is dropped, for each softmax by itself.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``. A part that may attend no key adds 0, with gradient 0.

    Raises
    ------
    ValueError
        If the shapes do not fit, ``T`` exceeds ``S``, or an option is out of range.
    TypeError
        If an argument is of the wrong type, or the dtypes differ or are not floating-point.

    Examples
    --------
    >>> q = k = torch.zeros(1, 1, 4, 2)
    >>> v = torch.tensor([0.0, 2.0, 4.0, 6.0]).reshape(1, 1, 4, 1)
    >>> options = {"ranks": (1, 1), "window": 1, "causal": True}
    >>> global_window_attention(q, k, v, **options).flatten()
    tensor([0.0000, 1.0000, 2.5000, 4.0000])
    >>> global_window_attention(q, k, v, combine="sum", **options).flatten()
    tensor([0., 2., 5., 8.])
    """
    q, k, v = follow_autocast(q, k, v)
    check_qkv(q, k, v, causal=causal)
    check_choice(combine, "combine", ("mean", "sum"))
    parts = check_parts(ranks, q.shape[-1])
    (q_all, q_near), (k_all, k_near) = q.split(parts, -1), k.split(parts, -1)
    scale_all, scale_near = part_scales(parts, scales)
    everywhere = standard_attention(
        q_all, k_all, v, causal=causal, key_mask=key_mask, scale=scale_all, dropout_p=dropout_p
    )
    near = sliding_window_attention(
        q_near,
        k_near,
        v,
        window=window,
        causal=causal,
        key_mask=key_mask,
        scale=scale_near,
        dropout_p=dropout_p,
    )
    return everywhere + near if combine == "sum" else (everywhere + near) / 2


def _whole(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    *,
    window: int,
    causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """Attend in one call, by a mask of all pairs."""
    near = window_mask(q.shape[2], k.shape[2], window=window, causal=causal, device=q.device)
    visible = near[None, None] if key_mask is None else near & key_mask[:, None, None, :]
    return fused_attention(q, k, v, visible, causal=False, scale=scale, dropout_p=dropout_p)


def _chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    *,
    window: int,
    causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """Attend chunk by chunk, each to the keys in reach of its queries, as items of one batch."""
    batch, num_queries = q.shape[0], q.shape[2]
    chunk, ahead = max(window + 1, _SHORTEST_CHUNK), 0 if causal else window
    count = -(-num_queries // chunk)
    span = window + chunk + ahead
    before = window - (k.shape[2] - num_queries)
    after = (count - 1) * chunk + span - before - k.shape[2]
    real = k.new_ones(1, k.shape[2], dtype=torch.bool) if key_mask is None else key_mask
    readable = pad(real, (before, after)).unfold(1, span, chunk)
    k, v = (
        pad(x, (0, 0, before, after)).unfold(2, span, chunk).permute(0, 2, 1, 4, 3).flatten(0, 1)
        for x in (k, v)
    )
    q = pad(q, (0, 0, 0, count * chunk - num_queries))
    q = q.unflatten(2, (count, chunk)).transpose(1, 2).flatten(0, 1)
    rows, columns = (torch.arange(n, device=q.device) for n in (chunk, span))
    distance = window + rows[:, None] - columns
    near = (distance <= window) & (distance >= -ahead)
    visible = readable.expand(batch, -1, -1).flatten(0, 1)[:, None, None, :] & near
    out = fused_attention(q, k, v, visible, causal=False, scale=scale, dropout_p=dropout_p)
    joined: Tensor = out.unflatten(0, (batch, count)).transpose(1, 2).flatten(2, 3)
    return joined[:, :, :num_queries]
