"""Rotary positions: columns turned in pairs by an angle that grows with the step."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from mlrforecast.ops._checks import check_tensor, integer, positives

__all__ = ["rotate"]


def rotate(
    x: Float[Tensor, "B H T R"],
    *,
    start: int = 0,
    sections: Sequence[int] | None = None,
    base: float = 10000.0,
) -> Float[Tensor, "B H T R"]:
    """Turn pairs of columns by angles that grow with the step.

    The dot product of two turned rows depends on the columns and on the distance of their steps
    only. Where a score cuts the columns into levels, each level is a section of its own: its pairs
    turn from fast to slow, and no pair is torn apart.

    Parameters
    ----------
    x : Tensor of shape (B, H, T, R)
        Queries or keys.
    start : int, at least 0, default 0
        Step of the first row.
    sections : sequence of int, optional
        Columns that are turned together; they sum to ``R``, which is the default. The last column
        of an odd section is left as it is.
    base : float, above 1, default 10000
        The slowest pair of a section of ``r`` columns turns by ``base ** (2 / r - 1)`` a step.

    Returns
    -------
    Tensor of shape (B, H, T, R)
        In the dtype of ``x``; each row keeps its norm.

    Raises
    ------
    ValueError
        If the sections do not sum to ``R``, ``start`` is negative or ``base`` is not above 1.
    TypeError
        If ``x`` is not a tensor or a number is not one.

    References
    ----------
    RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv 2104.09864.

    Examples
    --------
    >>> x = torch.tensor([[[[1.0, 0.0]]]]).expand(1, 1, 4, 2)
    >>> turned = rotate(x, start=2)
    >>> (turned[..., :1, :] * turned[..., 1:, :]).sum(-1)  # the cosines of 1, 2 and 3
    tensor([[[ 0.5403, -0.4161, -0.9900]]])
    """
    check_tensor(x, "x")
    length, width = x.shape[-2:]
    widths = (width,) if sections is None else positives(sections, "sections")
    if sum(widths) != width:
        raise ValueError(f"`sections` must sum to the {width} columns of `x`, got {widths}.")
    if integer(start, "start") < 0:
        raise ValueError(f"`start` must be at least 0, got {start}.")
    if not base > 1:
        raise ValueError(f"`base` must be above 1, got {base}.")
    steps = torch.arange(start, start + length, device=x.device, dtype=torch.float64)
    return torch.cat([_turn(part, steps, base) for part in x.split(list(widths), -1)], -1)


def _turn(x: Tensor, steps: Tensor, base: float) -> Tensor:
    """Turn one section: column ``i`` of its first half with column ``i`` of its second."""
    half = x.shape[-1] // 2
    frequencies = base ** (-torch.arange(half, device=x.device, dtype=torch.float64) / max(half, 1))
    # Angles in float64: at step 100,000 those of float32 would be off by 1/100.
    angles = steps[:, None] * frequencies
    precise = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(precise), angles.sin().to(precise)
    first, second, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return torch.cat([part.to(x.dtype) for part in turned] + [rest], -1)
