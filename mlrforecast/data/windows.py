"""Training windows as views of one flat buffer.

Every channel of every series is a run of float32 values in one buffer, and a window is the slice
``buffer[start : start + context_length + prediction_length]``. Nothing is unfolded: memory grows
with the rows, not with the windows.
"""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mlrforecast._core.errors import DataError
from mlrforecast.data.batch import ForecastBatch
from mlrforecast.data.panel import Panel


class WindowStore:
    """All windows of a panel, each channel of each series on its own.

    Values are standardised by channel: mean 0 and standard deviation 1 over the observed rows
    given here, so that the loss weighs all series alike. Series shorter than a window are padded
    with missing values on the left; every window has at least ``min_context`` rows of context.

    Parameters
    ----------
    panel : Panel
        The series.
    context_length, prediction_length : int
        Steps of the context and of the forecast.
    min_context : int
        Rows of context that the shortest series must have.

    Raises
    ------
    DataError
        If a series has fewer than ``min_context + prediction_length`` rows.

    Examples
    --------
    >>> import pandas as pd
    >>> from mlrforecast.data import read_panel
    >>> index = pd.date_range("2024-01-01", periods=10, freq="h")
    >>> panel = read_panel(pd.DataFrame({"y": range(10)}, index=index))
    >>> store = WindowStore(panel, context_length=4, prediction_length=2, min_context=4)
    >>> len(store), store.gather(torch.tensor([0, 4])).future_target.shape
    (5, torch.Size([2, 2, 1]))
    """

    def __init__(
        self, panel: Panel, *, context_length: int, prediction_length: int, min_context: int
    ) -> None:
        self.context_length = context_length
        self.prediction_length = prediction_length
        _check_lengths(panel, min_context + prediction_length, min_context)
        size = context_length + prediction_length
        lengths = np.array([len(item.index) for item in panel.series])
        pads = np.where(lengths < size, context_length - min_context, 0)
        num_channels = len(panel.channels)
        runs = np.repeat(lengths + pads, num_channels)
        ends = np.cumsum(runs)
        self.buffer = torch.empty(int(ends[-1]), dtype=torch.float32)
        flat = self.buffer.numpy()
        position = 0
        for item, pad in zip(panel.series, pads, strict=True):
            for channel in range(num_channels):
                flat[position : position + pad] = np.nan
                position += int(pad)
                values, _, _ = _standardised(item.values[None, :, channel, None])
                values = values[0, :, 0]
                flat[position : position + len(values)] = values
                position += len(values)
        self.has_missing = bool(torch.isnan(self.buffer).any())
        self._first = torch.from_numpy(ends - runs)
        self._last_number = torch.from_numpy(np.cumsum(runs - size + 1))
        self._windows = self.buffer.unfold(0, size, 1)

    def __len__(self) -> int:
        """Return the number of windows."""
        return int(self._last_number[-1])

    def gather(self, numbers: Int[Tensor, " B"]) -> ForecastBatch:
        """Copy the windows of the given ``numbers``, 0 to ``len(self) - 1``, into a batch."""
        run = torch.searchsorted(self._last_number, numbers, right=True)
        before = torch.where(run > 0, self._last_number[run - 1], 0)
        windows = self._windows[self._first[run] + numbers - before]
        return _split(windows.unsqueeze(-1), self.context_length, missing=self.has_missing)

    def sample(self, batch_size: int, num_batches: int, *, seed: int) -> Iterator[ForecastBatch]:
        """Yield batches of windows drawn at random with replacement.

        Parameters
        ----------
        batch_size, num_batches : int
            Windows in a batch, and batches.
        seed : int
            Seed of the draw; the global random state is not used.
        """
        generator = torch.Generator().manual_seed(seed)
        for _ in range(num_batches):
            yield self.gather(torch.randint(len(self), (batch_size,), generator=generator))

    def evenly_spaced(self, batch_size: int, limit: int) -> Iterator[ForecastBatch]:
        """Yield at most ``limit`` windows, evenly spread, in batches of ``batch_size``."""
        spaced = torch.linspace(0, len(self) - 1, min(limit, len(self)), dtype=torch.float64)
        numbers = spaced.round().long()
        for chunk in numbers.split(batch_size):
            yield self.gather(chunk)


def context_batch(
    values: Float[np.ndarray, "B T C"], prediction_length: int
) -> tuple[ForecastBatch, np.ndarray, np.ndarray]:
    """Standardise contexts one by one in float64, for forecasting.

    Parameters
    ----------
    values : ndarray of shape (B, T, C)
        Contexts with NaN where missing.
    prediction_length : int
        Steps of the (empty) future in the batch.

    Returns
    -------
    batch : ForecastBatch
        Float32 contexts of mean 0 and standard deviation 1.
    loc, scale : ndarray of shape (B, 1, C)
        What turns a forecast of the batch back: ``forecast * scale + loc``; 0 and 1 where nothing
        was observed.

    Examples
    --------
    >>> batch, loc, scale = context_batch(np.array([[[10.0], [np.nan], [14.0]]]), 2)
    >>> batch.past_target.flatten().tolist(), batch.past_observed.flatten().tolist()
    ([-1.0, 0.0, 1.0], [True, False, True])
    >>> loc.item(), scale.item()
    (12.0, 2.0)
    """
    standard, loc, scale = _standardised(values)
    missing = np.isnan(values)
    windows = torch.from_numpy(standard.astype(np.float32))
    future = torch.zeros(len(values), prediction_length, values.shape[2])
    batch = _split(
        torch.cat([windows, future], dim=1), values.shape[1], missing=bool(missing.any())
    )
    return batch, loc, scale


def _split(windows: Float[Tensor, "B T C"], context_length: int, *, missing: bool) -> ForecastBatch:
    """Cut windows into context and future; NaN becomes 0 and a mask."""
    past, future = windows[:, :context_length], windows[:, context_length:]
    if not missing:
        return ForecastBatch(past, future)
    return ForecastBatch(
        past.nan_to_num(0.0), future.nan_to_num(0.0), ~past.isnan(), ~future.isnan()
    )


def _standardised(
    values: Float[np.ndarray, "B T C"],
) -> tuple[Float[np.ndarray, "B T C"], Float[np.ndarray, "B 1 C"], Float[np.ndarray, "B 1 C"]]:
    """Bring values to mean 0 and standard deviation 1 along time; also return both. NaN stays.

    A constant becomes exactly 0 with scale 1. Neither a large level nor the size of the values
    costs accuracy: both are taken out before anything is squared.
    """
    observed = ~np.isnan(values)
    count = np.maximum(observed.sum(axis=1, keepdims=True), 1)
    newest = values.shape[1] - 1 - observed[:, ::-1].argmax(axis=1, keepdims=True)
    level = np.nan_to_num(np.take_along_axis(values, newest, axis=1))
    centred = values - level
    size = np.max(np.abs(centred), axis=1, keepdims=True, initial=0.0, where=observed)
    size[size == 0] = 1.0
    centred /= size
    mean = np.sum(centred, axis=1, keepdims=True, where=observed) / count
    centred -= mean
    squares = np.sum(np.square(centred), axis=1, keepdims=True, where=observed)
    deviation = np.sqrt(squares / count)
    deviation[deviation == 0] = 1.0
    centred /= deviation
    return centred, level + mean * size, deviation * size


def _check_lengths(panel: Panel, required: int, min_context: int) -> None:
    """Refuse a panel with a series of fewer than ``required`` rows; name the shortest."""
    short = [item for item in panel.series if len(item.index) < required]
    if short:
        item = min(short, key=lambda series: len(series.index))
        raise DataError(
            f"Every series needs at least {required} rows ({min_context} of context + "
            f"prediction_length {required - min_context}), but "
            f"{item.owner} has {len(item.index)}"
            + (f" ({len(short)} of {len(panel.series)} series are too short)" * (len(short) > 1))
            + ". Leave short series out, or lower prediction_length or patch_length."
        )
