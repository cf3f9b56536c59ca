"""Checks of single arguments: each names the argument, the rule and the value."""

import math
from numbers import Integral, Real


def count(name: str, value: object, *, least: int = 1) -> int:
    """Return a value as an int of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"`{name}` must be an integer of at least {least}, got {value!r}.")
    return int(value)


def above_zero(name: str, value: object) -> float:
    """Return a value as a finite float above 0."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number, got {value!r}.")
    number = float(value)
    if not 0 < number < math.inf:
        raise ValueError(f"`{name}` must be a finite number above 0, got {value!r}.")
    return number
