"""Reversible instance normalisation."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Normalised(NamedTuple):
    """A window brought to mean 0 and standard deviation 1, with the way back.

    Parameters
    ----------
    values : Tensor of shape (B, T)
        Normalised values; 0 where missing.
    loc, scale : Tensor of shape (B, 1)
        ``values * scale + loc`` gives the observed values back.
    """

    values: Float[Tensor, "B T"]
    loc: Float[Tensor, "B 1"]
    scale: Float[Tensor, "B 1"]


def instance_normalise(
    x: Float[Tensor, "B T"], observed: Bool[Tensor, "B T"] | None = None
) -> Normalised:
    """Normalise each window by the mean and standard deviation of its observed values.

    A constant window keeps the scale 0, so that whatever a model makes of it, the forecast is
    the constant.

    Parameters
    ----------
    x : Tensor of shape (B, T)
        Windows, 0 where missing.
    observed : Tensor of bool of shape (B, T), optional
        True where a value was observed; everywhere if omitted.

    Returns
    -------
    Normalised
        Values, mean and standard deviation.

    References
    ----------
    Reversible Instance Normalization for Accurate Time-Series Forecasting against Distribution
    Shift, ICLR 2022; without its learned affine map.

    Examples
    --------
    >>> import torch
    >>> normal = instance_normalise(torch.tensor([[1.0, 3.0]]))
    >>> normal.values, normal.loc, normal.scale
    (tensor([[-1.,  1.]]), tensor([[2.]]), tensor([[1.]]))
    """
    if observed is None:
        observed = torch.ones_like(x, dtype=torch.bool)
    count = observed.sum(dim=1, keepdim=True).clamp(min=1)
    # Taking the newest value out first makes a constant exactly 0, whatever its rounding.
    steps = torch.arange(x.shape[1], device=x.device)
    level = x.gather(1, (steps * observed).argmax(dim=1, keepdim=True))
    centred = (x - level) * observed
    mean = centred.sum(dim=1, keepdim=True) / count
    centred = (centred - mean) * observed
    scale = (centred.square().sum(dim=1, keepdim=True) / count).sqrt()
    return Normalised(centred / scale.where(scale > 0, 1.0), level + mean, scale)
