"""The columns that covariates have in a batch."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

LARGEST, LARGEST_RELATIVE = 1e4, 10.0
"""Standardised and relative numbers beyond these are cut off there: none overflows a network."""

# Below this share of its mean, or of all rows' deviation, a deviation is a matter of rounding.
_LEAST_DEVIATION = 1e-10


class Columns(NamedTuple):
    """Which of ``K`` encoded columns are what.

    Parameters
    ----------
    numeric : ndarray of bool of shape (K,)
        Numbers; all others are codes of categories.
    marked : ndarray of bool, one a numeric column
        Numbers that have a column which says where they are missing.
    """

    numeric: Bool[np.ndarray, " K"]
    marked: Bool[np.ndarray, " K2"]


def batch_columns(
    encoded: Float[np.ndarray, "*shape K"], columns: Columns, context_length: int | None
) -> Float[np.ndarray, "*shape K2"]:
    """Turn encoded columns of windows into those of a batch.

    Parameters
    ----------
    encoded : ndarray of float64 of shape (B, T, K), or (S, K) for static ones
        Standardised numbers, NaN where missing, and codes of categories.
    columns : Columns
        Which are what.
    context_length : int or None
        Steps whose values the relative numbers are relative to; None leaves these out.

    Returns
    -------
    ndarray of float32 of shape (B, T, K2) or (S, K2)
        Standardised numbers, relative numbers, marks of missing ones, codes.
    """
    numbers = encoded[..., columns.numeric]
    missing = np.isnan(numbers)
    numbers[missing] = 0.0
    parts = [np.clip(numbers, -LARGEST, LARGEST)]
    if context_length is not None:
        parts.append(_relative(numbers, missing, context_length))
    parts += [missing[..., columns.marked], encoded[..., ~columns.numeric]]
    return np.concatenate(parts, axis=-1, dtype=np.float32)


def _relative(
    numbers: Float[np.ndarray, "B T K"], missing: Bool[np.ndarray, "B T K"], context_length: int
) -> Float[np.ndarray, "B T K"]:
    """Bring numbers, 0 where missing, to mean 0 and standard deviation 1 over their context."""
    # Time last, where sums are fast.
    values = np.ascontiguousarray(numbers.swapaxes(1, 2))
    observed = np.ascontiguousarray(~missing.swapaxes(1, 2))
    context = slice(context_length)
    count = np.maximum(observed[..., context].sum(axis=-1, keepdims=True), 1)
    mean = values[..., context].sum(axis=-1, keepdims=True) / count
    values = (values - mean) * observed
    squares = np.square(values[..., context]).sum(axis=-1, keepdims=True)
    deviation = np.sqrt(squares / count)
    moves = deviation > _LEAST_DEVIATION * np.maximum(np.abs(mean), 1.0)
    values *= moves / np.where(moves, deviation, 1.0)
    relative: np.ndarray = np.clip(values, -LARGEST_RELATIVE, LARGEST_RELATIVE, out=values)
    return relative.swapaxes(1, 2)
