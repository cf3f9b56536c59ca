"""Checks of arguments: one message that names the argument, the rule and the value."""

from typing import SupportsIndex

import torch
from torch import Tensor


def whole(name: str, value: SupportsIndex, least: int = 1) -> int:
    """Return a whole number of at least ``least``."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"`{name}` must be an int, got {value!r}.")
    number = value.__index__()
    if number < least:
        raise ValueError(f"`{name}` must be at least {least}, got {number}.")
    return number


def row(name: str, value: Tensor, dtypes: tuple[torch.dtype, ...], least: int = 1) -> Tensor:
    """Check a tensor of one axis by its type and shape alone, which wait for no device."""
    if not isinstance(value, Tensor) or value.dtype not in dtypes:
        found = value.dtype if isinstance(value, Tensor) else type(value).__name__
        names = " or ".join(str(dtype) for dtype in dtypes)
        raise TypeError(f"`{name}` must be a tensor of {names}, got {found}.")
    if value.ndim != 1 or len(value) < least:
        raise ValueError(
            f"`{name}` must have one axis of at least {least}, got the shape {tuple(value.shape)}."
        )
    return value


def same_device(name: str, found: torch.device, other: str, expected: torch.device) -> None:
    """Check that two arguments live on one device."""
    if found != expected:
        raise ValueError(f"`{name}` must be on the device of `{other}`, {expected}, got {found}.")
