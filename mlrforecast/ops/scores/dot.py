"""Scores of standard attention: dot products of queries and keys."""

import math
from typing import Literal, TypeAlias

from jaxtyping import Float
from torch import Tensor

from mlrforecast.ops._checks import check_choice, check_tensor, number, positive
from mlrforecast.ops._layout import expand_heads

__all__ = ["LogitScale", "check_qk", "dot_scores", "logit_factor", "softmax_scale"]

LogitScale: TypeAlias = Literal["inverse_sqrt_width", "mup"]
"""Named rules for the factor of a dot product of ``r`` columns: ``1 / sqrt(r)``, or ``8 / r``."""


def logit_factor(width: int, logit_scale: LogitScale = "inverse_sqrt_width") -> float:
    """Return the factor of a dot product of ``width`` columns.

    Parameters
    ----------
    width : int, at least 1
        Columns that are compared.
    logit_scale : {"inverse_sqrt_width", "mup"}, default "inverse_sqrt_width"
        ``1 / sqrt(width)``, or ``8 / width`` as in the published code, which keeps the scores of
        any width on one scale once queries and keys have grown alike (muP). The two agree at 64
        columns.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If ``width`` is less than 1 or the rule is unknown.

    Examples
    --------
    >>> logit_factor(16), logit_factor(16, "mup"), logit_factor(64) == logit_factor(64, "mup")
    (0.25, 0.5, True)
    """
    check_choice(logit_scale, "logit_scale", ("inverse_sqrt_width", "mup"))
    width = positive(width, "width")
    return 8 / width if logit_scale == "mup" else 1 / math.sqrt(width)


def dot_scores(
    q: Float[Tensor, "B H T R"], k: Float[Tensor, "B G S R"], *, scale: float | None = None
) -> Float[Tensor, "B H T S"]:
    """Score every query against every key by their scaled dot product.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries.
    k : Tensor of shape (B, G, S, R)
        Keys. ``G`` divides ``H``; query head ``h`` reads key head ``h // (H // G)``.
    scale : float, optional
        Factor of the dot products, ``1 / sqrt(R)`` by default.

    Returns
    -------
    Tensor of shape (B, H, T, S)
        Scores before mask and softmax, in the dtype of ``q``.

    Raises
    ------
    ValueError
        If the shapes do not fit or the scale is not finite.
    TypeError
        If an argument is of the wrong type.

    Examples
    --------
    >>> import torch
    >>> q = k = torch.tensor([[[[1.0, 0.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0]]]])
    >>> dot_scores(q, k)[0, 0]
    tensor([[0.5000, 1.0000],
            [1.0000, 4.0000]])
    """
    check_qk(q, k)
    return softmax_scale(scale, q.shape[-1]) * (q @ expand_heads(k, q.shape[1]).transpose(-1, -2))


def softmax_scale(scale: float | None, width: int, name: str = "scale") -> float:
    """Return ``scale``, in messages ``name``; where it is None, that of ``width`` columns."""
    if scale is None:
        return logit_factor(width)
    value = number(scale, name)
    if not -math.inf < value < math.inf:
        raise ValueError(f"`{name}` must be finite, got {value}.")
    return value


def check_qk(q: Tensor, k: Tensor) -> None:
    """Check that queries ``q`` (B, H, T, R) and keys ``k`` (B, G, S, R) can be compared."""
    for name, x in (("q", q), ("k", k)):
        check_tensor(x, name)
    if not q.ndim == k.ndim == 4 or (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise ValueError(
            "`q` must have the shape (B, H, T, R) and `k` (B, G, S, R), got "
            f"{tuple(q.shape)} and {tuple(k.shape)}."
        )
    if any(size < 1 for size in (*q.shape, *k.shape)):
        raise ValueError(
            f"`q` and `k` must not be empty, got {tuple(q.shape)} and {tuple(k.shape)}."
        )
    if q.shape[1] % k.shape[1]:
        raise ValueError(
            f"The heads of `k`, G={k.shape[1]}, must divide those of `q`, H={q.shape[1]}."
        )
