"""Checks that the scores share."""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]


def three_axes(array: ArrayLike, name: str, layout: str) -> Values:
    """Return an array of three axes in float64."""
    values = np.asarray(array, dtype=np.float64)
    if values.ndim != 3:
        raise ValueError(f"`{name}` must have the shape {layout}, got {values.shape}.")
    return values


def observed_values(actual: ArrayLike) -> tuple[Values, NDArray[np.bool_]]:
    """Return the actual values and where they were observed."""
    values = three_axes(actual, "actual", "[N, F, C]")
    seen = ~np.isnan(values)
    if not seen.any():
        raise ValueError(
            f"`actual` must hold at least one observed value, got {values.size} values, all NaN."
        )
    return values, seen


def observed_pairs(actual: ArrayLike, forecast: ArrayLike) -> tuple[Values, Values]:
    """Return all observed values and their forecasts, both flat."""
    values, seen = observed_values(actual)
    return values[seen], like(values, forecast, "forecast")[seen]


def like(actual: Values, array: ArrayLike, name: str) -> Values:
    """Return an array of the shape of the actual values."""
    values = three_axes(array, name, "[N, F, C]")
    if values.shape != actual.shape:
        raise ValueError(
            f"`{name}` must have the shape of `actual` {actual.shape}, got {values.shape}."
        )
    return values


def quantile_arrays(
    actual: Values, quantiles: ArrayLike, quantile_levels: Sequence[float]
) -> tuple[Values, Values]:
    """Return quantiles of the actual values and their levels in (0, 1)."""
    values = np.asarray(quantiles, dtype=np.float64)
    levels = np.asarray(quantile_levels, dtype=np.float64)
    if levels.ndim != 1 or not levels.size or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(
            f"`quantile_levels` must hold at least one level, all in (0, 1), got {quantile_levels}."
        )
    if values.shape != (*actual.shape, levels.size):
        raise ValueError(
            f"`quantiles` must have the shape [N, F, C, Q] = {(*actual.shape, levels.size)}, "
            f"got {values.shape}."
        )
    return values, levels


def usable_scales(
    scale: ArrayLike, seen: NDArray[np.bool_], score: str
) -> tuple[Values, NDArray[np.bool_]]:
    """Return the scale of every value, and which were observed and have a usable scale.

    Warns at the caller of the score.
    """
    scales = np.asarray(scale, dtype=np.float64)
    windows, _, channels = seen.shape
    if scales.shape not in {(windows, channels), (1, channels)}:
        raise ValueError(
            f"`scale` must have the shape [N, C] = {(windows, channels)} (or one row), "
            f"got {scales.shape}."
        )
    scales = np.broadcast_to(scales, (windows, channels))
    usable = np.isfinite(scales) & (scales > 0)
    if not usable.any():
        raise ValueError(
            f"`scale` must be positive somewhere, got zero or NaN for all {usable.size} windows: "
            "their past is constant or missing, so the scaled error is undefined."
        )
    if not usable.all():
        warnings.warn(
            f"{(~usable).sum()} of {usable.size} windows are left out of {score}: their scale is "
            "zero or NaN (constant or missing past).",
            UserWarning,
            stacklevel=3,
        )
    kept = seen & usable[:, None]
    if not kept.any():
        raise ValueError("`actual` holds no observed value in the series whose scale is usable.")
    return np.broadcast_to(scales[:, None], seen.shape), kept
