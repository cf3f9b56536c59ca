"""Bilinear scores: a matrix per head between the input at the query and that at the key."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import layer_norm, linear

from mlrforecast.ops._checks import check_tensor
from mlrforecast.ops.matrices.base import StructuredMatrix
from mlrforecast.ops.matrices.low_rank import LowRank
from mlrforecast.ops.scores.dot import softmax_scale

__all__ = [
    "bilinear_keys",
    "bilinear_scores",
    "check_context",
    "check_dtype",
    "is_narrow",
    "normalised",
]

_NARROW = 256
"""Columns up to which a structured matrix is written out to be multiplied with many rows."""


def bilinear_scores(
    x: Float[Tensor, "B T D"],
    context: Float[Tensor, "B S D"],
    matrix: StructuredMatrix,
    *,
    norm_weight: Float[Tensor, "D"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T S"]:
    """Score every pair by a bilinear form, ``scale * x_i . norm(M_h context_j)``.

    Parameters
    ----------
    x : Tensor of shape (B, T, D)
        Layer input at the queries.
    context : Tensor of shape (B, S, D)
        Layer input at the keys: ``x`` itself, or another sequence.
    matrix : StructuredMatrix with batch axes that count H heads
        ``M_h``, D x D; its weights are used as they are.
    norm_weight : Tensor of shape (D,), optional
        Weight of a LayerNorm (without bias, shared by the heads) of ``M_h context_j``. Without it
        nothing is normalised.
    scale : float, optional
        Factor of the scores, ``1 / sqrt(D)`` by default.

    Returns
    -------
    Tensor of shape (B, H, T, S)
        Scores before mask and softmax.

    Raises
    ------
    ValueError
        If the shapes do not fit or the scale is not finite.
    TypeError
        If an argument is of the wrong type.

    References
    ----------
    "Customizing the Inductive Biases of Softmax Attention using Structured Matrices", ICML 2025,
    https://arxiv.org/abs/2509.07963

    Examples
    --------
    >>> from mlrforecast.ops import BlockTensorTrain
    >>> matrix = BlockTensorTrain(torch.ones(2, 2, 2, 2), torch.ones(2, 2, 2, 2))
    >>> x = torch.tensor([[[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]])
    >>> bilinear_scores(x, x, matrix).shape
    torch.Size([1, 2, 2, 2])
    >>> bilinear_scores(x, x, matrix)[0, 0]
    tensor([[0.5000, 2.0000],
            [2.0000, 8.0000]])
    """
    check_context(x, context)
    check_matrix(matrix, x)
    heads = matrix.dense().reshape(-1, *matrix.shape)
    keys = normalised(context[:, None] @ heads.transpose(-1, -2), norm_weight)
    return softmax_scale(scale, x.shape[-1]) * (x[:, None] @ keys.transpose(-1, -2))


def bilinear_keys(
    context: Float[Tensor, "B S D"],
    matrix: StructuredMatrix,
    norm_weight: Float[Tensor, "D"] | None = None,
) -> Float[Tensor, "B H S D"]:
    """Return what stands for each step as a key, ``norm(M_h context_j)``, by the fast product.

    Parameters
    ----------
    context : Tensor of shape (B, S, D)
        Layer input at the keys.
    matrix : StructuredMatrix with batch axes that count H heads
        ``M_h``, D x D.
    norm_weight : Tensor of shape (D,), optional
        Weight of a LayerNorm, as in :func:`bilinear_scores`.

    Returns
    -------
    Tensor of shape (B, H, S, D)

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is of the wrong type.

    Examples
    --------
    >>> from mlrforecast.ops import BlockTensorTrain
    >>> matrix = BlockTensorTrain(torch.ones(2, 2, 2, 2), torch.ones(2, 2, 2, 2))
    >>> bilinear_keys(torch.ones(1, 3, 4), matrix).shape
    torch.Size([1, 2, 3, 4])
    """
    check_context(context, context)
    check_matrix(matrix, context)
    batch, length, width = context.shape
    # A low-rank one is two plain products already.
    if is_narrow(context, matrix) and not isinstance(matrix, LowRank):
        with torch.autocast(context.device.type, enabled=False):
            heads = matrix.dense().reshape(-1, width)
        keys = linear(context, heads).unflatten(-1, (-1, width))
        return normalised(keys, norm_weight).transpose(1, 2)
    axes = len(matrix.batch_shape)
    keys = matrix.apply(context.reshape(batch, *[1] * axes, length, width))
    return normalised(keys.flatten(1, axes), norm_weight)


def is_narrow(x: Tensor, weight: Tensor | StructuredMatrix) -> bool:
    """Tell whether a matrix, written out, is multiplied with these rows faster than its factors.

    One large product takes less time than many small ones and the copies between them, although it
    multiplies more. Writing the matrix out takes as long as the product with ``D`` rows. Gradients
    are summed over the rows before they reach the factors, for which half precision is too coarse.

    Parameters
    ----------
    x : Tensor of shape (B, T, D)
        The rows.
    weight : Tensor or StructuredMatrix
        What would be written out, or a tensor of its dtype.
    """
    rows, width = x.shape[0] * x.shape[1], x.shape[-1]
    return width <= _NARROW and rows >= 4 * width and weight.dtype.itemsize >= 4


def normalised(features: Tensor, weight: Tensor | None) -> Tensor:
    """Apply a LayerNorm without bias to the rows of ``features``, unless ``weight`` is None."""
    if weight is None:
        return features
    check_tensor(weight, "norm weight")
    if tuple(weight.shape) != (features.shape[-1],):
        raise ValueError(
            f"The weight of a norm must have the shape ({features.shape[-1]},), as it normalises "
            f"that many columns; got {tuple(weight.shape)}."
        )
    return layer_norm(features, weight.shape, weight, eps=1e-5)


def check_context(x: Tensor, context: Tensor) -> None:
    """Check that layer inputs ``x`` (B, T, D) and ``context`` (B, S, D) can be compared."""
    for name, sequence in (("x", x), ("context", context)):
        check_tensor(sequence, name)
    if not x.ndim == context.ndim == 3 or x.shape[::2] != context.shape[::2]:
        raise ValueError(
            "`x` must have the shape (B, T, D) and `context` (B, S, D), got "
            f"{tuple(x.shape)} and {tuple(context.shape)}."
        )
    if any(size < 1 for size in (*x.shape, *context.shape)):
        raise ValueError(
            f"`x` and `context` must not be empty, got {tuple(x.shape)}, {tuple(context.shape)}."
        )
    check_dtype(context, "context", x)


def check_dtype(weight: Tensor | StructuredMatrix, name: str, x: Tensor) -> None:
    """Check that ``weight``, called ``name``, has the dtype of ``x``, unless under autocast."""
    if weight.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(
            f"`{name}` must have the dtype of the layer input, {x.dtype}, got {weight.dtype}. "
            "Cast one of them, or run under torch.autocast."
        )


def check_matrix(matrix: StructuredMatrix, x: Tensor) -> None:
    """Check that ``matrix`` is of the width of ``x``, with a batch axis for heads."""
    if not isinstance(matrix, StructuredMatrix):
        raise TypeError(f"`matrix` must be a StructuredMatrix, got a {type(matrix).__name__}.")
    width = x.shape[-1]
    if matrix.shape != (width, width) or not matrix.batch_shape:
        raise ValueError(
            f"`matrix` must be {width} x {width}, as `x` has D={width} columns, with a batch axis "
            f"for the heads; got {matrix.shape} and the batch axes {matrix.batch_shape}."
        )
    check_dtype(matrix, "matrix", x)
