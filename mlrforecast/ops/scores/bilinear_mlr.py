"""Bilinear scores whose matrix is multi-level low rank: blocks of features, not of steps."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, einsum

from mlrforecast.ops._checks import check_tensor, entries, positive
from mlrforecast.ops._layout import expand_heads
from mlrforecast.ops.scores.bilinear import check_context, check_dtype, is_narrow, normalised
from mlrforecast.ops.scores.dot import LogitScale, logit_factor

__all__ = ["bilinear_mlr_features", "bilinear_mlr_scores", "feature_pairs", "level_factors"]


def bilinear_mlr_scores(
    x: Float[Tensor, "B T D"],
    context: Float[Tensor, "B S D"],
    q_weights: Sequence[Tensor],
    k_weights: Sequence[Tensor],
    *,
    num_heads: int,
    q_norms: Sequence[Tensor] | None = None,
    k_norms: Sequence[Tensor] | None = None,
    logit_scale: LogitScale = "inverse_sqrt_width",
    divide_by_num_levels: bool = False,
) -> Float[Tensor, "B H T S"]:
    """Score every pair by a bilinear form whose matrix is multi-level low rank.

    Level ``lvl`` cuts the ``D`` columns of the input into ``p`` blocks and compares the ``r``
    projections of each block with those of the same block of the other step. Without norms the
    matrix is ``M_h = sum over levels of scale * blockdiag(Q K^T)``, of rank up to
    ``min(D, sum r p)``. As in the published code the sum may be divided by the number of levels;
    a division by the levels that a pair shares has no meaning here, where every pair shares all.

    Parameters
    ----------
    x : Tensor of shape (B, T, D)
        Layer input at the queries.
    context : Tensor of shape (B, S, D)
        Layer input at the keys: ``x`` itself, or another sequence.
    q_weights : sequence of Tensor of shape (p, D / p, H * r), one per level
        Projections of the queries, heads outermost in the last axis. They are used as they are,
        see :func:`mlrforecast.ops.rms_clamp`.
    k_weights : sequence of Tensor of shape (p, D / p, G * r), one per level
        Projections of the keys, of ``G`` heads that divide ``H``.
    num_heads : int, at least 1
        Query heads ``H``.
    q_norms, k_norms : sequence of Tensor of shape (r * p,), one per level, optional
        Weights of a LayerNorm (without bias, shared by the heads) of each level's features.
    logit_scale : {"inverse_sqrt_width", "mup"}, default "inverse_sqrt_width"
        Factor of each level, ``1 / sqrt(r p)`` or ``8 / (r p)``.
    divide_by_num_levels : bool, default False
        Whether all scores are divided by the number of levels.

    Returns
    -------
    Tensor of shape (B, H, T, S)
        Scores before mask and softmax.

    Raises
    ------
    ValueError
        If the shapes do not fit or an option is not valid.
    TypeError
        If an argument is of the wrong type.

    References
    ----------
    "Customizing the Inductive Biases of Softmax Attention using Structured Matrices", ICML 2025,
    https://arxiv.org/abs/2509.07963

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    >>> whole, halves = torch.ones(1, 2, 1), torch.ones(2, 1, 1)
    >>> bilinear_mlr_scores(x, x, [whole], [whole], num_heads=1)[0, 0]
    tensor([[ 9., 21.],
            [21., 49.]])
    >>> scores = bilinear_mlr_scores(x, x, [halves], [halves], num_heads=1)
    >>> torch.allclose(scores[0, 0], x[0] @ x[0].T / 2**0.5)
    True
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
    scores = x.new_zeros(())
    for q, k, factor in zip(q_levels, k_levels, factors, strict=True):
        scores = scores + factor * (q @ expand_heads(k, num_heads).transpose(-1, -2))
    return scores


def bilinear_mlr_features(
    x: Float[Tensor, "B T D"],
    weights: Sequence[Tensor],
    *,
    num_heads: int,
    norms: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Return what each level compares of every step: its blocks' projections, normalised.

    Parameters
    ----------
    x : Tensor of shape (B, T, D)
        Layer input.
    weights : sequence of Tensor of shape (p, D / p, num_heads * r), one per level
        Projections, heads outermost in the last axis.
    num_heads : int, at least 1
        Heads of the weights: ``H`` for queries, ``G`` for keys.
    norms : sequence of Tensor of shape (r * p,), one per level, optional
        Weights of a LayerNorm of each level's features.

    Returns
    -------
    tuple of Tensor of shape (B, num_heads, T, r * p), one per level
        The ``p`` blocks of one projection stand side by side: column ``rank * p + block``.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is of the wrong type.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    >>> weight = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]).repeat(2, 1, 1)
    >>> bilinear_mlr_features(x, [weight], num_heads=1)[0].flatten()
    tensor([1., 3., 2., 4.])
    """
    check_context(x, x)
    num_heads = positive(num_heads, "num_heads")
    weights = entries(weights, "weights")
    scales = (None,) * len(weights) if norms is None else entries(norms, "norms")
    if not weights or len(scales) != len(weights):
        raise ValueError(
            "`weights` must hold at least one level, and `norms` one entry for each, got "
            f"{len(weights)} and {len(scales)}."
        )
    for lvl, weight in enumerate(weights):
        _check_weight(weight, x, num_heads, lvl)
    project = _project_at_once if is_narrow(x, weights[0]) else _project
    levels = project(x, weights, num_heads)
    return tuple(
        normalised(features, scale).transpose(1, 2)
        for features, scale in zip(levels, scales, strict=True)
    )


def level_factors(
    columns: Sequence[int], logit_scale: LogitScale, *, divide_by_num_levels: bool
) -> tuple[float, ...]:
    """Return the factor of each level's dot product of ``columns[lvl]`` features.

    ``logit_scale`` and ``divide_by_num_levels`` are those of :func:`bilinear_mlr_scores`.
    """
    divisor = len(columns) if divide_by_num_levels else 1
    return tuple(logit_factor(width, logit_scale) / divisor for width in columns)


def feature_pairs(
    x: Tensor,
    context: Tensor,
    q_weights: Sequence[Tensor],
    k_weights: Sequence[Tensor],
    *,
    num_heads: int,
    q_norms: Sequence[Tensor] | None,
    k_norms: Sequence[Tensor] | None,
    factors: tuple[LogitScale, bool],
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[float, ...]]:
    """Return the features of queries and keys on each level, and the level's factor.

    Parameters
    ----------
    x, context, q_weights, k_weights, num_heads, q_norms, k_norms
        As in :func:`bilinear_mlr_scores`.
    factors : tuple of str and bool
        Its ``logit_scale`` and ``divide_by_num_levels``.
    """
    check_context(x, context)
    q_weights, k_weights = entries(q_weights, "q_weights"), entries(k_weights, "k_weights")
    q_levels = bilinear_mlr_features(x, q_weights, num_heads=num_heads, norms=q_norms)
    num_kv_heads = _num_kv_heads(q_weights, k_weights, num_heads)
    k_levels = bilinear_mlr_features(context, k_weights, num_heads=num_kv_heads, norms=k_norms)
    logit_scale, divide_by_num_levels = factors
    columns = [q.shape[-1] for q in q_levels]
    scales = level_factors(columns, logit_scale, divide_by_num_levels=divide_by_num_levels)
    return q_levels, k_levels, scales


def _check_weight(weight: Tensor, x: Tensor, num_heads: int, lvl: int) -> None:
    """Check the weight of a level."""
    check_tensor(weight, f"weights[{lvl}]")
    if weight.ndim != 3 or weight.shape[0] * weight.shape[1] != x.shape[-1]:
        raise ValueError(
            f"Weight {lvl} must have the shape (p, D / p, heads * r) with D={x.shape[-1]}, "
            f"got {tuple(weight.shape)}."
        )
    if weight.shape[2] % num_heads or not weight.shape[2]:
        raise ValueError(
            f"The last axis of weight {lvl} must hold at least one column for each of "
            f"{num_heads} heads, and equally many, got {tuple(weight.shape)}."
        )
    check_dtype(weight, f"weights[{lvl}]", x)


def _project(x: Tensor, weights: Sequence[Tensor], num_heads: int) -> list[Tensor]:
    """Project each block of columns by itself: (B, T, num_heads, r * p) on each level."""
    levels = []
    for weight in weights:
        blocks = x.unflatten(-1, weight.shape[:2])
        features = einsum("btpm,pmhr->bthrp", blocks, weight.unflatten(-1, (num_heads, -1)))
        levels.append(features.flatten(-2))
    return levels


def _project_at_once(x: Tensor, weights: Sequence[Tensor], num_heads: int) -> list[Tensor]:
    """Project all blocks of all levels in one product, with zeros outside the blocks."""
    written, columns = [], []
    for weight in weights:
        p, _, width = weight.shape
        # One axis is the block that is read, the other one that which is written.
        diagonal = torch.diag_embed(weight.movedim(0, -1)).permute(2, 0, 1, 3)
        columns.append(width // num_heads * p)
        written.append(diagonal.reshape(x.shape[-1], num_heads, columns[-1]))
    features = (x @ torch.cat(written, -1).flatten(1)).unflatten(-1, (num_heads, -1))
    return list(features.split(columns, -1))


def _num_kv_heads(q_weights: Sequence[Tensor], k_weights: Sequence[Tensor], num_heads: int) -> int:
    """Return the heads of the key weights: as wide as the query's heads, on every level."""
    for lvl, weight in enumerate(k_weights):
        check_tensor(weight, f"k_weights[{lvl}]")
    shapes = [[tuple(x.shape) for x in weights] for weights in (q_weights, k_weights)]
    count = num_heads * shapes[1][0][-1] // shapes[0][0][-1] if all(map(all, shapes)) else 0
    wanted = [(*q[:2], q[-1] // num_heads * count) for q in shapes[0]]
    if shapes[1] != wanted or count < 1 or num_heads % count:
        raise ValueError(
            "`q_weights` must have the shapes (p, D / p, H * r) and `k_weights` (p, D / p, G * r) "
            f"with one G that divides H={num_heads}, got {shapes[0]} and {shapes[1]}."
        )
    return count
