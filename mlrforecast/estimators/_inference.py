"""Forecasts from arrays of contexts, in batches, on a device."""

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
        raise ValueError(f"`accelerator` is {accelerator!r}, but torch finds no such device here.")
    return torch.device({"gpu": "cuda"}.get(accelerator, accelerator))


def forecast(
    model: EncoderForecaster,
    contexts: np.ndarray,
    levels: tuple[float, ...] | None,
    device: torch.device,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Forecast from contexts of shape (B, T, C) with NaN where missing.

    Returns the point forecast (B, F, C) and, if levels are given, quantiles (B, F, C, Q), in
    float64 and in the units of the contexts; NaN where a context holds no value.
    """
    model.to(device)
    size = max(1, BATCH // contexts.shape[2])
    points, quantiles = [], []
    try:
        for start in range(0, len(contexts), size):
            chunk = contexts[start : start + size]
            batch, loc, scale = context_batch(chunk, model.config.prediction_length)
            observed = batch.past_observed
            with torch.inference_mode():
                point, trained = model(
                    batch.past_target.to(device),
                    None if observed is None else observed.to(device),
                )
            scale = np.where(np.isnan(chunk).all(axis=1, keepdims=True), np.nan, scale)
            points.append(point.cpu().numpy() * scale + loc)
            if levels is not None:
                assert trained is not None
                picked = interpolate_levels(
                    trained.double().cpu().numpy(), model.config.quantile_levels, levels
                )
                quantiles.append(picked * scale[..., None] + loc[..., None])
    finally:
        model.cpu()
    return np.concatenate(points), np.concatenate(quantiles) if quantiles else None


def interpolate_levels(
    trained: np.ndarray, trained_levels: tuple[float, ...], levels: tuple[float, ...]
) -> np.ndarray:
    """Interpolate quantiles of shape (..., Q) linearly between the trained levels."""
    positions = np.interp(levels, trained_levels, np.arange(len(trained_levels)))
    below = np.floor(positions).astype(int)
    above = np.ceil(positions).astype(int)
    share = positions - below
    return np.asarray(trained[..., below] * (1 - share) + trained[..., above] * share)
