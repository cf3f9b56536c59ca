"""Checks of single arguments that several parts make: each names the argument and the value."""

from typing import Any

import numpy as np

__all__ = ["check_switch", "real_numbers"]


def check_switch(name: str, value: object) -> None:
    """Check that a value is True or False, as numbers and words have a truth too.

    Parameters
    ----------
    name : str
        Of the argument.
    value : object
        What was given.

    Raises
    ------
    TypeError
        If it is something else.

    Examples
    --------
    >>> check_switch("causal", "no")
    Traceback (most recent call last):
    ...
    TypeError: `causal` must be True or False, got 'no'.
    """
    if not isinstance(value, bool):
        raise TypeError(f"`{name}` must be True or False, got {value!r}.")


def real_numbers(name: str, value: Any, dtype: type[np.floating[Any]]) -> np.ndarray:
    """Return an array of whatever shape; what the type cannot hold is infinite in it.

    Parameters
    ----------
    name : str
        Of the argument.
    value : array_like
        The numbers.
    dtype : type
        A type of floating point.

    Returns
    -------
    ndarray

    Raises
    ------
    TypeError
        If there is text or a complex number in it, or rows of several lengths.

    Examples
    --------
    >>> real_numbers("series", [1, None, 2], np.float32)
    array([ 1., nan,  2.], dtype=float32)
    >>> real_numbers("series", [1j], np.float32)
    Traceback (most recent call last):
    ...
    TypeError: `series` must be a series of real numbers, got [1j].
    """
    try:
        numbers = np.asarray(value)
        if numbers.dtype.kind in "biufO":
            with np.errstate(over="ignore"):
                return numbers.astype(dtype)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"`{name}` must be a series of real numbers, got {value!r:.100}.")
