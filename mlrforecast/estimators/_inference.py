"""Forecasts from windows, in batches, on a device."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from mlrforecast._core import devices
from mlrforecast._core.errors import DataError
from mlrforecast.data import CovariateEncoding, ForecastBatch, ForecastWindows, Panel
from mlrforecast.estimators._forecasts import Forecasts, count_details
from mlrforecast.models import EncoderConfig, EncoderForecaster
from mlrforecast.nn import DISTRIBUTIONS

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
            scaling=config.data_scaling,
        )

    def forecast(self, windows: ForecastWindows, *, point_only: bool = False) -> Forecasts:
        """Forecast from windows, in float64 and in the units of the panel.

        With ``point_only`` nothing is kept of the uncertainty, which takes much more memory.
        """
        config = self.model.config
        count, channels = len(windows), windows.panel.num_channels
        point = np.empty((count, config.prediction_length, channels))
        details = None
        if (num_details := count_details(config)) > 0 and not point_only:
            details = np.empty((*point.shape, num_details))
        scales = np.empty((count, 1, channels))
        varied = np.empty(scales.shape, dtype=bool)
        device = devices.find_device(self.accelerator)
        self.model.to(device)
        try:
            for rows in slices(count, max(1, BATCH // channels)):
                given = windows.gather(rows)
                scales[rows] = np.where(given.observed, given.scale, np.nan)
                varied[rows] = given.varied
                for part in slices(channels, BATCH):
                    there = np.s_[:, :, part]
                    loc, scale = given.loc[there], scales[rows][there]
                    here = rows, slice(None), part
                    forecast, found = self._call(given.batch, part, device)
                    point[here], found = rescale(config, forecast, found, loc, scale)
                    if details is not None:
                        details[here] = found
        finally:
            self.model.cpu()
        return Forecasts(config=config, point=point, details=details, scale=scales, varied=varied)

    def _call(
        self, batch: ForecastBatch, channels: slice, device: torch.device
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Run the network on some channels of a batch."""
        observed = batch.past_observed
        part = batch._replace(
            past_target=batch.past_target[..., channels],
            past_observed=None if observed is None else observed[..., channels],
        )
        with torch.inference_mode():
            point, quantiles = self.model.forecast(part.to(device))
        values = point.cpu().double().numpy()
        return values, None if quantiles is None else quantiles.cpu().double().numpy()


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


def rescale(
    config: EncoderConfig,
    point: np.ndarray,
    details: np.ndarray | None,
    loc: np.ndarray,
    scale: np.ndarray,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Bring point forecasts (B, F, C) and their details (B, F, C, K) into the unit of the frame."""
    if details is not None and config.loss in DISTRIBUTIONS:
        details = DISTRIBUTIONS[config.loss].rescale(details, loc, scale)
    elif details is not None:
        details = details * scale[..., None] + loc[..., None]
    return point * scale + loc, details
