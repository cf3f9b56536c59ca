"""Multi-level attention beside a bias that models of others add to their scores."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from mlrforecast.ops._layout import expand_heads
from mlrforecast.ops.attention._inputs import check_dropout, check_qkv, follow_autocast
from mlrforecast.ops.scores._pairs import build_pairs
from mlrforecast.ops.scores.mlr import LevelScale, level_scales, scores_of_pairs

__all__ = ["biased_mlr_attention"]


def biased_mlr_attention(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    v: Float[Tensor, "B G S V"],
    bias: Float[Tensor, "#B #H #T #S"],
    *,
    ranks: Sequence[int],
    block_sizes: Sequence[int | None] | None = None,
    offset: int = 0,
    level_scale: LevelScale | Sequence[float] = "inverse_rank",
    divide_by_shared_levels: bool = False,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H T V"]:
    """Attend with multi-level low-rank scores to which a bias is added.

    The scores of all pairs are written out, as a bias of one number for each pair is too. Without
    a bias :func:`mlr_attention` computes the same in less time and memory.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries, not scaled: the last ``T`` of the ``S`` steps.
    k : Tensor of shape (B, G, S, R)
        Keys; ``G`` divides ``H``.
    v : Tensor of shape (B, G, S, V)
        Values.
    bias : Tensor that broadcasts to (B, H, T, S)
        Added to the scores after their scaling, such as a position bias; ``-inf``, or the lowest
        number of its dtype, hides a pair, so that causality and padding are a bias too.
    ranks, block_sizes, offset
        The levels, coarse to fine, as in :func:`mlr_attention`.
    level_scale, divide_by_shared_levels
        As in :func:`mlr_attention`.
    dropout_p : float in [0, 1), default 0
        Share of the weights that is dropped.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``. Rows whose pairs are all hidden by ``-inf`` are 0, with gradient 0.

    Raises
    ------
    ValueError
        If shapes, levels or options are not valid.
    TypeError
        If an argument is of the wrong type, or the dtypes differ or are not floating-point.

    Examples
    --------
    A bias of 0 for what was and of ``-inf`` for what comes is causal attention:

    >>> from mlrforecast.ops import mlr_attention
    >>> q, k, v = torch.randn(3, 1, 2, 6, 4, generator=torch.Generator().manual_seed(0))
    >>> bias = torch.full((1, 1, 6, 6), float("-inf")).triu(1)
    >>> levels = {"ranks": (2, 2), "block_sizes": (None, 3)}
    >>> out = biased_mlr_attention(q, k, v, bias, **levels)
    >>> torch.allclose(out, mlr_attention(q, k, v, causal=True, **levels), atol=1e-6)
    True
    """
    q, k, v = follow_autocast(q, k, v)
    check_qkv(q, k, v, causal=False)
    _check_bias(bias, q, k)
    dropout_p = check_dropout(dropout_p)
    pairs = build_pairs(
        q,
        k,
        ranks=ranks,
        block_sizes=block_sizes,
        num_blocks=None,
        block_ids=None,
        query_block_ids=None,
        offset=offset,
        window=None,
    )
    scales = level_scales(pairs.levels.ranks, level_scale)
    work = torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        scores = scores_of_pairs(
            q.to(work), k.to(work), pairs, scales, divide_by_shared_levels=divide_by_shared_levels
        )
        scores = scores + bias.to(work)
        if not pairs.share_surely:
            scores = scores.masked_fill(~pairs.any_level(q.device), float("-inf"))
        # A row that may attend no key would be 0/0.
        empty = scores.isneginf().all(-1, keepdim=True)
        weights = scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
        weights = torch.nn.functional.dropout(weights, dropout_p)
        return (weights @ expand_heads(v.to(work), q.shape[1])).to(v.dtype)


def _check_bias(bias: Tensor, q: Tensor, k: Tensor) -> None:
    """Check that a bias has a number for each pair."""
    shape = (*q.shape[:3], k.shape[2])
    fits = (
        isinstance(bias, Tensor)
        and bias.dtype.is_floating_point
        and bias.ndim == len(shape)
        and all(size in (1, whole) for size, whole in zip(bias.shape, shape, strict=True))
    )
    if not fits:
        given = bias if not isinstance(bias, Tensor) else f"{bias.dtype} of {tuple(bias.shape)}"
        raise ValueError(
            "`bias` must be a floating-point tensor that broadcasts to (B, H, T, S) = "
            f"{shape}, got {given}."
        )
