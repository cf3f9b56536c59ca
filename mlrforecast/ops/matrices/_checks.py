"""Checks that the structured matrices share."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mlrforecast.ops._checks import check_tensor, entries, number, positive

__all__ = ["check_scales", "common_batch", "divide", "take"]


def common_batch(tensors: Mapping[str, Tensor], core: int) -> tuple[int, ...]:
    """Check that all ``tensors`` have batch axes before ``core`` others, and broadcast these."""
    for name, x in tensors.items():
        check_tensor(x, name)
    axes = max(x.ndim for x in tensors.values()) - core
    shapes = {name: tuple(x.shape) for name, x in tensors.items()}
    if axes < 0 or any(x.ndim != axes + core for x in tensors.values()):
        raise ValueError(
            f"{_listed(tensors)} must each have {core} axes after equally many batch axes, "
            f"got the shapes {shapes}."
        )
    try:
        return tuple(torch.broadcast_shapes(*(x.shape[:axes] for x in tensors.values())))
    except RuntimeError:
        raise ValueError(
            f"The batch axes of {_listed(tensors)} must be equal or of size 1 where one is shared, "
            f"got the shapes {shapes}."
        ) from None


def take(parameters: Mapping[str, Tensor], name: str) -> Tensor:
    """Return the tensor of that name."""
    if name not in parameters:
        raise ValueError(f"`parameters` must hold {name!r}, got {', '.join(parameters)}.")
    return parameters[name]


def _listed(names: Mapping[str, object]) -> str:
    """Quote names for a message."""
    return " and ".join(f"`{name}`" for name in names)


def divide(total: int, parts: int, name: str) -> int:
    """Return ``total / parts`` if that is a whole number."""
    total, parts = positive(total, name), positive(parts, "the number of blocks")
    if total % parts:
        raise ValueError(f"{parts} blocks must divide `{name}` evenly, which is {total}.")
    return total // parts


def check_scales(scales: Sequence[float] | None, num_levels: int) -> tuple[float, ...]:
    """Return one factor a level, each finite and not 0."""
    if scales is None:
        return (1.0,) * num_levels
    checked = tuple(number(x, f"scales[{i}]") for i, x in enumerate(entries(scales, "scales")))
    if len(checked) != num_levels or not all(math.isfinite(x) and x for x in checked):
        raise ValueError(
            f"`scales` must hold one finite number, not 0, for each of the {num_levels} levels, "
            f"got {checked}."
        )
    return checked
