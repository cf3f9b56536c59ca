"""Reversible instance normalisation."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast.data.scaling import LEAST_IQR, NORMAL_IQR, SCALINGS, Scaling


class Normalised(NamedTuple):
    """A window in its own unit, with the way back.

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
    x: Float[Tensor, "B T"],
    observed: Bool[Tensor, "B T"] | None = None,
    scaling: Scaling = "standard",
) -> Normalised:
    """Normalise each window by its own observed values.

    A constant window keeps the scale 0, so that whatever a model makes of it, the forecast is
    the constant; with ``"mean_abs"`` so does a window of zeros.

    Parameters
    ----------
    x : Tensor of shape (B, T)
        Windows, 0 where missing.
    observed : Tensor of bool of shape (B, T), optional
        True where a value was observed; everywhere if omitted.
    scaling : {"standard", "robust", "mean_abs"}
        Mean and standard deviation; median and distance of the quartiles as a share of that of a
        normal distribution (the standard deviation where the quartiles are equal); or 0 and the
        mean of the absolute values.

    Returns
    -------
    Normalised
        Values, location and scale.

    Raises
    ------
    ValueError
        If the scaling is unknown.

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
    >>> instance_normalise(torch.tensor([[1.0, 3.0]]), scaling="mean_abs").values
    tensor([[0.5000, 1.5000]])
    """
    if scaling not in SCALINGS:
        raise ValueError(f"`scaling` must be one of {', '.join(SCALINGS)}, got {scaling!r}.")
    if observed is None:
        observed = torch.ones_like(x, dtype=torch.bool)
    count = observed.sum(dim=1, keepdim=True).clamp(min=1)
    if scaling == "mean_abs":
        scale = (x * observed).abs().sum(dim=1, keepdim=True) / count
        values = x * observed / scale.where(scale > 0, 1.0)
        return Normalised(values, torch.zeros_like(scale), scale)
    # Taking the newest value out first makes a constant exactly 0, whatever its rounding.
    steps = torch.arange(x.shape[1], device=x.device)
    level = x.gather(1, (steps * observed).argmax(dim=1, keepdim=True))
    centred = (x - level) * observed
    centre = centred.sum(dim=1, keepdim=True) / count
    around = (centred - centre) * observed
    scale = _root(around.square().sum(dim=1, keepdim=True) / count)
    if scaling == "robust":
        lower, centre, upper = _quartiles(centred, observed)
        distance = (upper - lower) / NORMAL_IQR
        largest = around.abs().amax(dim=1, keepdim=True)
        # Beside a tiny distance of the quartiles, an outlier would be too large for float32.
        scale = distance.where(distance > LEAST_IQR * largest, scale)
        around = (centred - centre) * observed
    return Normalised(around / scale.where(scale > 0, 1.0), level + centre, scale)


def _root(x: Tensor) -> Tensor:
    """Take the square root, with the gradient 0 at 0."""
    return x.where(x > 0, 1.0).sqrt().where(x > 0, 0.0)


def _quartiles(x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the quartiles of the observed values of each window, 0 where there are none."""
    # What is missing stands behind all values, at a number, for infinity would spoil gradients.
    ordered = x.masked_fill(~observed, torch.finfo(x.dtype).max).sort(dim=1).values
    last = observed.sum(dim=1, keepdim=True) - 1
    found = []
    for share in (0.25, 0.5, 0.75):
        place = share * last.clamp(min=0)
        below = place.long()
        low = ordered.gather(1, below)
        high = ordered.gather(1, (below + 1).minimum(last.clamp(min=0)))
        quartile = torch.lerp(low, high, (place - below).to(x.dtype))
        found.append(quartile.where(last >= 0, 0.0))
    return found[0], found[1], found[2]
