"""Checks of arguments that several parts share."""

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np

from mlrforecast._core.arguments import real_numbers


def at_least(least: int, name: str, value: object) -> int:
    """Return a whole number that is not below a bound."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be a whole number, got {value!r}.")
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}, got {value}.")
    return int(value)


def finite(name: str, value: object) -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number, got {value!r}.")
    if not math.isfinite(value):
        raise ValueError(f"`{name}` must be finite, got {value}.")
    return float(value)


def share(name: str, value: object) -> float:
    """Return a number in [0, 1)."""
    number = finite(name, value)
    if not 0 <= number < 1:
        raise ValueError(f"`{name}` must lie in [0, 1), got {value!r}.")
    return number


def above_zero(name: str, value: object) -> float:
    """Return a number above 0."""
    number = finite(name, value)
    if number <= 0:
        raise ValueError(f"`{name}` must be above 0, got {value!r}.")
    return number


def entries(name: str, value: Any) -> list[Any]:
    """Return the entries of a sequence; text is none."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"`{name}` must be a sequence, got {value!r:.100}.")
    return list(value)


def workers(value: object) -> int:
    """Return the number of processes, below 0 counted back from all cores."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`num_workers` must be a whole number, got {value!r}.")
    if value == 0:
        raise ValueError("`num_workers` must be at least 1, or -1 for all cores; got 0.")
    return int(value)


def series(name: str, value: Any, dtype: type[np.floating[Any]]) -> np.ndarray:
    """Return a series of shape (T,); NaN is a missing value."""
    row = real_numbers(name, value, dtype)
    if row.ndim != 1:
        raise ValueError(f"`{name}` must be a series of shape (T,), got {row.shape}.")
    if len(infinite := np.flatnonzero(np.isinf(row))):
        raise ValueError(
            f"`{name}` must be finite or NaN in {np.dtype(dtype)}, got "
            f"{np.asarray(value)[infinite[0]]} at step {infinite[0]}."
        )
    return row
