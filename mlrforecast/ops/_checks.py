"""Checks of single arguments: each names the argument, the rule and the value."""

import operator
from collections.abc import Iterable
from typing import SupportsFloat, SupportsIndex, TypeVar

from torch import Tensor

__all__ = [
    "LARGEST",
    "check_choice",
    "check_tensor",
    "entries",
    "integer",
    "number",
    "positive",
    "positives",
]

LARGEST = 2**62
"""Largest step that is counted: a sum of two still fits into int64."""

_Entry = TypeVar("_Entry")


def entries(values: Iterable[_Entry], name: str) -> tuple[_Entry, ...]:
    """Return the entries of a sequence."""
    try:
        return tuple(values)
    except TypeError:
        raise TypeError(
            f"`{name}` must be a sequence with one entry for each level, got {values!r}."
        ) from None


def integer(value: SupportsIndex, name: str) -> int:
    """Return ``value`` as an int, refusing bools and floats."""
    if isinstance(value, bool):
        raise TypeError(f"`{name}` must be an integer, got {value!r}.")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` must be an integer, got {value!r}.") from None


def positive(value: SupportsIndex, name: str) -> int:
    """Return ``value`` if it is an integer of at least 1."""
    result = integer(value, name)
    if result < 1:
        raise ValueError(f"`{name}` must be at least 1, got {result}.")
    return result


def positives(values: Iterable[SupportsIndex], name: str) -> tuple[int, ...]:
    """Return the entries of a sequence of integers of at least 1."""
    return tuple(positive(x, f"{name}[{lvl}]") for lvl, x in enumerate(entries(values, name)))


def number(value: SupportsFloat, name: str) -> float:
    """Return ``value`` as a float, refusing text."""
    try:
        if not isinstance(value, str | bytes):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"`{name}` must be a number, got {value!r}.")


def check_choice(value: str, name: str, choices: Iterable[str]) -> None:
    """Check that ``value`` is one of ``choices``."""
    if value not in tuple(choices):
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}; got {value!r}.")


def check_tensor(value: object, name: str) -> None:
    """Check that ``value`` is a tensor that holds data."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"`{name}` must be a torch.Tensor, got a {type(value).__name__}. "
            "Convert it with torch.as_tensor."
        )
    if value.is_meta:
        raise ValueError(f"`{name}` must be on a device that holds data, got {value.device}.")
