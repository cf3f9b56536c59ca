"""Attention over bilinear scores: features of queries and keys, then one fused call."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast.ops._layout import expand_heads
from mlrforecast.ops.attention._inputs import check_values
from mlrforecast.ops.attention.standard import standard_attention
from mlrforecast.ops.matrices.base import StructuredMatrix
from mlrforecast.ops.scores.bilinear import bilinear_keys, check_context
from mlrforecast.ops.scores.bilinear_btt import btt_factor, btt_matrix
from mlrforecast.ops.scores.bilinear_mlr import feature_pairs
from mlrforecast.ops.scores.dot import LogitScale, softmax_scale

__all__ = ["bilinear_attention", "bilinear_btt_attention", "bilinear_mlr_attention"]


def bilinear_attention(
    x: Float[Tensor, "B T D"],
    context: Float[Tensor, "B S D"],
    v: Float[Tensor, "B G S V"],
    matrix: StructuredMatrix,
    *,
    norm_weight: Float[Tensor, "D"] | None = None,
    scale: float | None = None,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H T V"]:
    """Attend by bilinear scores: a structured matrix per head in place of two projections.

    Parameters
    ----------
    x : Tensor of shape (B, T, D)
        Layer input at the queries.
    context : Tensor of shape (B, S, D)
        Layer input at the keys: ``x`` itself, a longer sequence that ends with it, or (without
        ``causal``) another one.
    v : Tensor of shape (B, G, S, V)
        Values. ``G`` divides ``H``; query head ``h`` reads value head ``h // (H // G)``.
    matrix : StructuredMatrix with batch axes that count H heads
        ``M_h``, D x D; its weights are used as they are.
    norm_weight, scale
        As in :func:`mlrforecast.ops.bilinear_scores`.
    causal : bool, default False
        Whether a query attends only to its own and earlier steps; the queries are then the last
        ``T`` of the ``S`` steps.
    key_mask : bool Tensor of shape (B, S), optional
        True where a key may be attended, False at padding.
    dropout_p : float in [0, 1), default 0
        Share of the weights that is dropped.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``. Rows that may attend no key are 0, with gradient 0.

    Raises
    ------
    ValueError
        If the shapes do not fit or an option is out of range.
    TypeError
        If an argument is of the wrong type, or the dtypes differ or are not floating-point.

    References
    ----------
    "Customizing the Inductive Biases of Softmax Attention using Structured Matrices", ICML 2025,
    https://arxiv.org/abs/2509.07963

    Examples
    --------
    >>> from mlrforecast.ops import BlockTensorTrain
    >>> matrix = BlockTensorTrain(torch.zeros(2, 2, 2, 2), torch.zeros(2, 2, 2, 2))
    >>> x = torch.ones(1, 2, 4)
    >>> v = torch.tensor([0.0, 2.0]).reshape(1, 1, 2, 1)
    >>> bilinear_attention(x, x, v, matrix, causal=True).flatten()
    tensor([0., 1., 0., 1.])
    """
    check_context(x, context)
    k = bilinear_keys(context, matrix, norm_weight)
    num_heads = k.shape[1]
    check_values(v, context, num_heads)
    return standard_attention(
        x[:, None].expand(-1, num_heads, -1, -1),
        k,
        expand_heads(v, num_heads),
        causal=causal,
        key_mask=key_mask,
        scale=softmax_scale(scale, x.shape[-1]),
        dropout_p=dropout_p,
    )


def bilinear_btt_attention(
    x: Float[Tensor, "B T D"],
    context: Float[Tensor, "B S D"],
    v: Float[Tensor, "B G S V"],
    q_weight: Float[Tensor, "Hb a cs"],
    k_weight: Float[Tensor, "c d Gbs"],
    *,
    num_heads: int,
    norm_weight: Float[Tensor, "D"],
    logit_scale: LogitScale = "inverse_sqrt_width",
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H T V"]:
    """Attend by bilinear scores whose matrix is a block tensor train.

    Parameters
    ----------
    x, context : Tensor of shape (B, T, D) and (B, S, D)
        Layer input at the queries and at the keys, as in :func:`bilinear_attention`.
    v : Tensor of shape (B, G, S, V)
        Values. ``G`` divides ``H`` and need not be that of ``k_weight``.
    q_weight, k_weight, num_heads, norm_weight, logit_scale
        As in :func:`mlrforecast.ops.bilinear_btt_scores`.
    causal, key_mask, dropout_p
        As in :func:`bilinear_attention`.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``. Rows that may attend no key are 0, with gradient 0.

    Raises
    ------
    ValueError
        If the shapes do not fit or an option is out of range.
    TypeError
        If an argument is of the wrong type, or the dtypes differ or are not floating-point.

    References
    ----------
    "Customizing the Inductive Biases of Softmax Attention using Structured Matrices", ICML 2025,
    https://arxiv.org/abs/2509.07963

    Examples
    --------
    >>> x, v = torch.ones(1, 2, 6), torch.tensor([0.0, 2.0]).reshape(1, 1, 2, 1)
    >>> q_weight, k_weight = torch.ones(3, 2, 2), torch.ones(2, 3, 3)
    >>> options = {"num_heads": 1, "norm_weight": torch.ones(6)}
    >>> bilinear_btt_attention(x, x, v, q_weight, k_weight, **options).flatten()
    tensor([1., 1.])
    """
    check_context(x, context)
    return bilinear_attention(
        x,
        context,
        v,
        btt_matrix(q_weight, k_weight, num_heads=num_heads),
        norm_weight=norm_weight,
        scale=btt_factor(x.shape[-1], logit_scale),
        causal=causal,
        key_mask=key_mask,
        dropout_p=dropout_p,
    )


def bilinear_mlr_attention(
    x: Float[Tensor, "B T D"],
    context: Float[Tensor, "B S D"],
    v: Float[Tensor, "B G S V"],
    q_weights: Sequence[Tensor],
    k_weights: Sequence[Tensor],
    *,
    num_heads: int,
    q_norms: Sequence[Tensor] | None = None,
    k_norms: Sequence[Tensor] | None = None,
    logit_scale: LogitScale = "inverse_sqrt_width",
    divide_by_num_levels: bool = False,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H T V"]:
    """Attend by bilinear scores whose matrix is multi-level low rank over blocks of features.

    Parameters
    ----------
    x, context : Tensor of shape (B, T, D) and (B, S, D)
        Layer input at the queries and at the keys, as in :func:`bilinear_attention`.
    v : Tensor of shape (B, G, S, V)
        Values. ``G`` divides ``H`` and need not be that of ``k_weights``.
    q_weights, k_weights, num_heads, q_norms, k_norms, logit_scale, divide_by_num_levels
        As in :func:`mlrforecast.ops.bilinear_mlr_scores`.
    causal, key_mask, dropout_p
        As in :func:`bilinear_attention`.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``. Rows that may attend no key are 0, with gradient 0.

    Raises
    ------
    ValueError
        If the shapes do not fit or an option is out of range.
    TypeError
        If an argument is of the wrong type, or the dtypes differ or are not floating-point.

    References
    ----------
    "Customizing the Inductive Biases of Softmax Attention using Structured Matrices", ICML 2025,
    https://arxiv.org/abs/2509.07963

    Examples
    --------
    >>> x, v = torch.ones(1, 2, 2), torch.tensor([0.0, 2.0]).reshape(1, 1, 2, 1)
    >>> weights = [torch.ones(1, 2, 1), torch.ones(2, 1, 1)]
    >>> bilinear_mlr_attention(x, x, v, weights, weights, num_heads=1).flatten()
    tensor([1., 1.])
    """
    q_levels, k_levels, factors = feature_pairs(
        x,
        context,
        q_weights,
        k_weights,
        num_heads=num_heads,
        q_norms=q_norms,
        k_norms=k_norms,
        factors=(logit_scale, divide_by_num_levels),
    )
    k = torch.cat(k_levels, -1)
    check_values(v, context, num_heads)
    if v.shape[1] != k.shape[1]:
        k, v = expand_heads(k, num_heads), expand_heads(v, num_heads)
    return standard_attention(
        torch.cat([q * factor for q, factor in zip(q_levels, factors, strict=True)], -1),
        k,
        v,
        causal=causal,
        key_mask=key_mask,
        scale=1.0,
        dropout_p=dropout_p,
    )
