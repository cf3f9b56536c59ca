"""Bilinear scores whose matrix is a block tensor train: full rank from few parameters."""

import math

from jaxtyping import Float
from torch import Tensor

from mlrforecast.ops._checks import check_choice, check_tensor, positive
from mlrforecast.ops.matrices import BlockTensorTrain
from mlrforecast.ops.scores.bilinear import bilinear_scores
from mlrforecast.ops.scores.dot import LogitScale

__all__ = ["bilinear_btt_scores", "btt_factor", "btt_matrix"]


def bilinear_btt_scores(
    x: Float[Tensor, "B T D"],
    context: Float[Tensor, "B S D"],
    q_weight: Float[Tensor, "Hb a cs"],
    k_weight: Float[Tensor, "c d Gbs"],
    *,
    num_heads: int,
    norm_weight: Float[Tensor, "D"],
    logit_scale: LogitScale = "inverse_sqrt_width",
) -> Float[Tensor, "B H T S"]:
    """Score every pair by a bilinear form whose matrix is a block tensor train.

    ``scale * x_i . norm(M_h context_j)`` with the matrices of :func:`btt_matrix`. The norm is
    always on; only the key's side is normalised.

    Parameters
    ----------
    x : Tensor of shape (B, T, D)
        Layer input at the queries.
    context : Tensor of shape (B, S, D)
        Layer input at the keys: ``x`` itself, or another sequence.
    q_weight : Tensor of shape (H * b, a, c * s)
        The factor on the query's side, ``a * b = D``. It is used as it is, see
        :func:`mlrforecast.ops.rms_clamp`.
    k_weight : Tensor of shape (c, d, G * b * s)
        The factor on the key's side, ``c * d = D``, of ``G`` heads that divide ``H``.
    num_heads : int, at least 1
        Query heads ``H``.
    norm_weight : Tensor of shape (D,)
        Weight of a LayerNorm (without bias, shared by the heads) of ``M_h context_j``.
    logit_scale : {"inverse_sqrt_width", "mup"}, default "inverse_sqrt_width"
        Factor of the scores, ``1 / sqrt(D)`` or ``1 / D`` (without the 8 of the other scores, as
        in the published code).

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
    >>> x = torch.arange(6.0).reshape(1, 1, 6)
    >>> q_weight, k_weight = torch.ones(3, 2, 2), torch.ones(2, 3, 3)
    >>> scores = bilinear_btt_scores(
    ...     x, x, q_weight, k_weight, num_heads=1, norm_weight=torch.ones(6)
    ... )
    >>> scores.shape
    torch.Size([1, 1, 1, 1])
    """
    matrix = btt_matrix(q_weight, k_weight, num_heads=num_heads)
    return bilinear_scores(
        x, context, matrix, norm_weight=norm_weight, scale=btt_factor(x.shape[-1], logit_scale)
    )


def btt_matrix(
    q_weight: Float[Tensor, "Hb a cs"], k_weight: Float[Tensor, "c d Gbs"], *, num_heads: int
) -> BlockTensorTrain:
    """Return the matrix of every head from the two weights of a layer.

    ``M_h[(α, β), (γ, δ)] = sum over σ of q_weight[h b + β, α, γ s + σ] * k_weight[γ, δ,
    (g b + β) s + σ]`` for head ``h`` of group ``g``, with row ``α b + β`` and column ``γ d + δ``.

    Parameters
    ----------
    q_weight : Tensor of shape (H * b, a, c * s)
        The factor on the query's side.
    k_weight : Tensor of shape (c, d, G * b * s)
        The factor on the key's side; each of its ``G`` heads serves ``H / G`` query heads.
    num_heads : int, at least 1
        Query heads ``H``.

    Returns
    -------
    BlockTensorTrain with batch axes (G, H / G)

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is of the wrong type.

    Examples
    --------
    >>> import torch
    >>> matrix = btt_matrix(torch.ones(2 * 3, 2, 2), torch.ones(2, 3, 2 * 3), num_heads=2)
    >>> matrix.shape, matrix.batch_shape
    ((6, 6), (2, 1))
    """
    check_tensor(q_weight, "q_weight")
    check_tensor(k_weight, "k_weight")
    num_heads = positive(num_heads, "num_heads")
    if not _fits(q_weight, k_weight, num_heads):
        raise ValueError(
            f"`q_weight` must have the shape (H * b, a, c * s) with H={num_heads} and `k_weight` "
            f"(c, d, G * b * s) with a G that divides H and a * b = c * d, got "
            f"{tuple(q_weight.shape)} and {tuple(k_weight.shape)}."
        )
    rows = q_weight.shape[0] // num_heads
    head_width = rows * (q_weight.shape[2] // k_weight.shape[0])
    right = k_weight.unflatten(-1, (-1, head_width)).movedim(2, 0)
    left = q_weight.unflatten(0, (right.shape[0], -1, rows))
    return BlockTensorTrain(right=right[:, None], left=left)


def btt_factor(width: int, logit_scale: LogitScale) -> float:
    """Return the factor of scores of ``width`` columns by ``logit_scale``: 1 / sqrt(D) or 1 / D."""
    check_choice(logit_scale, "logit_scale", ("inverse_sqrt_width", "mup"))
    return 1 / width if logit_scale == "mup" else 1 / math.sqrt(width)


def _fits(q_weight: Tensor, k_weight: Tensor, num_heads: int) -> bool:
    """Say whether two weights are those of block tensor trains of ``num_heads`` heads."""
    if not q_weight.ndim == k_weight.ndim == 3 or min(*q_weight.shape, *k_weight.shape) < 1:
        return False
    (heads_b, a, c_s), (c, d, g_b_s) = q_weight.shape, k_weight.shape
    if heads_b % num_heads or c_s % c or a * heads_b != num_heads * c * d:
        return False
    columns = (heads_b // num_heads) * (c_s // c)
    return g_b_s % columns == 0 and num_heads % (g_b_s // columns) == 0
