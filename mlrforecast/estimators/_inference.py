"""Forecasts from windows, in batches, on a device."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from mlrforecast._core.errors import DataError
from mlrforecast.data import CovariateEncoding, ForecastBatch, ForecastWindows, Panel
from mlrforecast.models import EncoderForecaster

BATCH = 512
"""Univariate windows a forward pass."""


class Predictor(NamedTuple):
    """A trained network and what it needs to forecast from a panel.

    Parameters
    ----------
    model : EncoderForecaster
        The network.
    encoding : CovariateEncoding
        How covariates were read in training.
    accelerator : str
        Where to forecast.
    """

    model: EncoderForecaster
    encoding: CovariateEncoding
    accelerator: str

    def windows(self, panel: Panel, series: np.ndarray, cutoffs: np.ndarray) -> ForecastWindows:
        """Return the windows of some series that end their context after ``cutoffs`` rows."""
        config = self.model.config
        return ForecastWindows(
            panel,
            self.encoding,
            series=series,
            cutoffs=cutoffs,
            context_length=config.context_length,
            prediction_length=config.prediction_length,
            scaling=config.scaling,
        )

    def forecast(
        self, windows: ForecastWindows, levels: tuple[float, ...] | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Forecast from windows.

        Returns the point forecast (W, F, C), and if levels are given the quantiles
        (W, F, C, Q), in float64 and in the units of the panel; NaN where a context holds no value.
        """
        num_channels = windows.panel.num_channels
        shape = (len(windows), windows.prediction_length, num_channels)
        points = np.empty(shape)
        quantiles = None if levels is None else np.empty((*shape, len(levels)))
        device = find_device(self.accelerator)
        self.model.to(device)
        try:
            for rows in slices(len(windows), max(1, BATCH // num_channels)):
                given = windows.gather(rows)
                scale = np.where(given.observed, given.scale, np.nan)
                for channels in slices(num_channels, BATCH):
                    here = rows, slice(None), channels
                    point, trained = self._call(given.batch, channels, device)
                    there = np.s_[:, :, channels]
                    points[here] = point * scale[there] + given.loc[there]
                    if quantiles is not None and levels is not None and trained is not None:
                        picked = interpolate_levels(
                            trained, self.model.config.quantile_levels, levels
                        )
                        quantiles[here] = picked * scale[there][..., None]
                        quantiles[here] += given.loc[there][..., None]
        finally:
            self.model.cpu()
        return points, quantiles

    def _call(
        self, batch: ForecastBatch, channels: slice, device: torch.device
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Run the network on some channels of a batch."""
        observed = batch.past_observed
        part = batch._replace(
            past_target=batch.past_target[..., channels],
            past_observed=None if observed is None else observed[..., channels],
        )
        given = {name: tensor for name, tensor in part._asdict().items() if tensor is not None}
        moved = ForecastBatch(**{name: tensor.to(device) for name, tensor in given.items()})
        with torch.inference_mode():
            point, quantiles = self.model.forecast(moved)
        values = point.cpu().double().numpy()
        return values, None if quantiles is None else quantiles.cpu().double().numpy()


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


def slices(count: int, size: int) -> Iterator[slice]:
    """Cut ``count`` entries into slices of ``size``, the last may be smaller."""
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


def check_observed(panel: Panel, context_length: int) -> None:
    """Check that every channel of the newest rows of each series holds a value."""
    seen = np.logical_or.reduceat(~np.isnan(panel.values), panel.bounds[:-1], axis=0)
    empty = np.argwhere(~seen)
    if not len(empty):
        return
    others = f" ({len(empty)} in all)" * (len(empty) > 1)
    raise DataError(
        f"A forecast needs at least one observed value, but the last {context_length} rows of "
        f"{panel.label(int(empty[0, 0]), int(empty[0, 1]))} are all missing{others}. Leave it "
        "out, or fill it with values."
    )


def interpolate_levels(
    trained: np.ndarray, trained_levels: tuple[float, ...], levels: tuple[float, ...]
) -> np.ndarray:
    """Interpolate quantiles of shape (..., Q) linearly between the trained levels."""
    positions = np.interp(levels, trained_levels, np.arange(len(trained_levels)))
    below = np.floor(positions).astype(int)
    above = np.ceil(positions).astype(int)
    share = positions - below
    return np.asarray(trained[..., below] * (1 - share) + trained[..., above] * share)
