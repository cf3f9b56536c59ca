"""Checks of arguments that several parts share."""

from numbers import Integral


def at_least(least: int, name: str, value: object) -> int:
    """Return a whole number that is not below a bound."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be a whole number, got {value!r}.")
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}, got {value}.")
    return int(value)
