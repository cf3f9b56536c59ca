"""Forecasts from arrays of contexts, in batches, on a device."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from mlrforecast.data import context_batch
from mlrforecast.models import EncoderForecaster

BATCH = 512
"""Univariate windows a forward pass."""


def find_device(accelerator: str) -> torch.device:
    """Return the device of an accelerator's name, or say that it is not there."""
    available = {
        "cpu": True,
        "gpu": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if accelerator == "auto":
        accelerator = next(name for name in ("gpu", "mps", "cpu") if available[name])
    if not available[accelerator]:
        raise ValueError(
            f"`accelerator` is {accelerator!r}, but torch finds no such device here. "
            "Set it to 'auto' or 'cpu'."
        )
    return torch.device({"gpu": "cuda"}.get(accelerator, accelerator))


def forecast(
    model: EncoderForecaster,
    contexts: Sequence[np.ndarray],
    levels: tuple[float, ...] | None,
    accelerator: str,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Forecast from arrays of contexts, each of shape (N, T, C) with NaN where missing.

    Returns the point forecast (B, F, C), ``B`` being the sum of all ``N``, and if levels are
    given the quantiles (B, F, C, Q), in float64 and in the units of the contexts; NaN where a
    context holds no value.
    """
    config = model.config
    num_channels = contexts[0].shape[2]
    shape = (sum(map(len, contexts)), config.prediction_length, num_channels)
    points = np.empty(shape)
    quantiles = None if levels is None else np.empty((*shape, len(levels)))
    device = find_device(accelerator)
    model.to(device)
    try:
        start = 0
        for chunk in _chunks(contexts, max(1, BATCH // num_channels)):
            here = slice(start, start + len(chunk))
            start += len(chunk)
            batch, loc, scale = context_batch(chunk, config.prediction_length)
            observed = batch.past_observed
            with torch.inference_mode():
                point, trained = model(
                    batch.past_target.to(device),
                    None if observed is None else observed.to(device),
                )
            scale = np.where(np.isnan(chunk).all(axis=1, keepdims=True), np.nan, scale)
            points[here] = point.cpu().numpy() * scale + loc
            if quantiles is not None and levels is not None:
                picked = interpolate_levels(
                    trained.cpu().double().numpy(), config.quantile_levels, levels
                )
                quantiles[here] = picked * scale[..., None] + loc[..., None]
    finally:
        model.cpu()
    return points, quantiles


def _chunks(contexts: Sequence[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Copy windows into arrays of ``size``, the last may be smaller, across the given arrays."""
    held: list[np.ndarray] = []
    count = 0
    for array in contexts:
        start = 0
        while start < len(array):
            part = array[start : start + size - count]
            held.append(part)
            count += len(part)
            start += len(part)
            if count == size:
                yield np.concatenate(held)
                held, count = [], 0
    if held:
        yield np.concatenate(held)


def interpolate_levels(
    trained: np.ndarray, trained_levels: tuple[float, ...], levels: tuple[float, ...]
) -> np.ndarray:
    """Interpolate quantiles of shape (..., Q) linearly between the trained levels."""
    positions = np.interp(levels, trained_levels, np.arange(len(trained_levels)))
    below = np.floor(positions).astype(int)
    above = np.ceil(positions).astype(int)
    share = positions - below
    return np.asarray(trained[..., below] * (1 - share) + trained[..., above] * share)
