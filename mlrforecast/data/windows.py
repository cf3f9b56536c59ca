"""Training windows as views of one flat buffer.

Every channel of every series is a run of float32 values in one buffer, and a window is the slice
``buffer[start : start + context_length + prediction_length]``. Nothing is unfolded: memory grows
with the rows, not with the windows.
"""

from collections.abc import Generator, Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mlrforecast._core.errors import DataError
from mlrforecast.data import _storage
from mlrforecast.data._exogenous import Exogenous
from mlrforecast.data.batch import ForecastBatch
from mlrforecast.data.covariates import CovariateEncoding
from mlrforecast.data.panel import Panel
from mlrforecast.data.scaling import Scaling, scale_runs

MIN_ROWS = 2
"""A series needs a row of context and one to be forecast."""


class WindowStore:
    """All windows of a panel, each channel of each series on its own.

    Values are scaled by channel over the rows given here, so that the loss weighs all series
    alike. A series shorter than a window is padded with missing values: its contexts have at
    least ``min_context`` rows, or all but one, and its steps to forecast may end early.

    Parameters
    ----------
    panel : Panel
        The series: training rows only.
    encoding : CovariateEncoding
        How covariates are read.
    context_length, prediction_length : int
        Steps of the context and of the forecast.
    min_context : int
        Rows of context that a padded window has at least, where its series holds as many.
    scaling : {"standard", "robust", "mean_abs"}, optional
        How each channel is scaled, see :func:`mlrforecast.data.scale_runs`.

    Raises
    ------
    DataError
        If a series has fewer than 2 rows.

    Examples
    --------
    >>> import pandas as pd
    >>> from mlrforecast.data import read_panel
    >>> index = pd.date_range("2024-01-01", periods=10, freq="h")
    >>> panel = read_panel(pd.DataFrame({"y": range(10)}, index=index))
    >>> encoding = CovariateEncoding.fit(panel, calendar=False)
    >>> store = WindowStore(
    ...     panel, encoding, context_length=4, prediction_length=2, min_context=4
    ... )
    >>> len(store), store.gather(torch.tensor([0, 4])).future_target.shape
    (5, torch.Size([2, 2, 1]))
    """

    def __init__(
        self,
        panel: Panel,
        encoding: CovariateEncoding,
        *,
        context_length: int,
        prediction_length: int,
        min_context: int,
        scaling: Scaling | None = "standard",
    ) -> None:
        _check_lengths(panel)
        self.context_length = context_length
        self.prediction_length = prediction_length
        size = context_length + prediction_length
        lengths = panel.lengths
        shortest = np.minimum(min_context, lengths - 1)
        short = lengths < size
        before = np.where(short, np.maximum(context_length - shortest, 0), 0)
        after = np.where(short, np.maximum(shortest + prediction_length - lengths, 0), 0)
        # A run for each channel of each series.
        num_channels = panel.num_channels
        runs = np.repeat(before + lengths + after, num_channels)
        ends = np.cumsum(runs)
        self._storage = panel.storage
        buffer = self._storage.allocate((int(ends[-1]),), np.float32)
        firsts = (ends - runs).reshape(-1, num_channels)
        self.has_missing = _fill(buffer, firsts, before, panel, scaling)
        self.buffer = torch.from_numpy(buffer)
        self._num_channels = num_channels
        self._first = torch.from_numpy(ends - runs)
        self._last_number = torch.from_numpy(np.cumsum(runs - size + 1))
        self._windows = self.buffer.unfold(0, size, 1)
        self._exogenous = Exogenous(panel, encoding, context_length, prediction_length)
        self._before = before

    def __len__(self) -> int:
        """Return the number of windows."""
        return int(self._last_number[-1])

    @property
    def num_bytes(self) -> int:
        """Bytes of memory that the windows take; what is in files takes none."""
        tables = self._first.nbytes + self._last_number.nbytes
        if not self._storage.in_memory:
            return tables
        return self.buffer.nbytes + tables + self._exogenous.num_bytes

    def gather(self, numbers: Int[Tensor, " B"]) -> ForecastBatch:
        """Copy the windows of the given ``numbers``, 0 to ``len(self) - 1``, into a batch."""
        run = torch.searchsorted(self._last_number, numbers, right=True)
        start = numbers - torch.where(run > 0, self._last_number[run - 1], 0)
        windows = self._windows[self._first[run] + start].unsqueeze(-1)
        batch = split_windows(windows, self.context_length, missing=self.has_missing)
        if not self._exogenous.is_empty:
            series = (run // self._num_channels).numpy()
            cutoffs = start.numpy() - self._before[series] + self.context_length
            batch = self._exogenous.add_to(batch, series, cutoffs)
        self._storage.release()
        return batch

    def sample(
        self,
        batch_size: int,
        num_batches: int,
        *,
        seed: int,
        first: int = 0,
        share: slice = slice(None),
    ) -> Generator[ForecastBatch, None, None]:
        """Yield batches of windows drawn at random with replacement.

        Parameters
        ----------
        batch_size, num_batches : int
            Windows in a batch, and batches.
        seed : int
            Seed of the draw; the global random state is not used.
        first : int
            Batches at the start that are drawn but left out.
        share : slice
            Which windows of each batch are yielded.
        """
        generator = torch.Generator().manual_seed(seed)
        for number in range(num_batches):
            drawn = torch.randint(len(self), (batch_size,), generator=generator)
            if number >= first:
                yield self.gather(drawn[share].contiguous())

    def evenly_spaced(self, batch_size: int, limit: int) -> Iterator[ForecastBatch]:
        """Yield at most ``limit`` windows, evenly spread, in batches of ``batch_size``."""
        spaced = torch.linspace(0, len(self) - 1, min(limit, len(self)), dtype=torch.float64)
        numbers = spaced.round().long()
        for chunk in numbers.split(batch_size):
            yield self.gather(chunk)


def split_windows(
    windows: Float[Tensor, "B T C"], context_length: int, *, missing: bool
) -> ForecastBatch:
    """Cut ``windows`` after ``context_length`` steps; where ``missing``, NaN becomes a mask."""
    past, future = windows[:, :context_length], windows[:, context_length:]
    if not missing:
        return ForecastBatch(past, future)
    return ForecastBatch(
        past.nan_to_num(0.0), future.nan_to_num(0.0), ~past.isnan(), ~future.isnan()
    )


def _fill(
    buffer: np.ndarray,
    firsts: Int[np.ndarray, "S C"],
    before: Int[np.ndarray, " S"],
    panel: Panel,
    scaling: Scaling | None,
) -> bool:
    """Write each channel of each series, scaled, ``before`` places into a run of its own.

    Returns whether any place of the buffer is missing.
    """
    missing = False
    for group in _storage.groups(panel.lengths):
        bounds = panel.bounds[group.start : group.stop + 1]
        rows = panel.values[bounds[0] : bounds[-1]]
        first = firsts[group.start, 0]
        end = firsts[group.stop, 0] if group.stop < len(firsts) else len(buffer)
        part = buffer[first:end]
        part.fill(np.nan)
        places = firsts[group] + before[group, None] - first
        _fill_part(part, places, rows, bounds - bounds[0], scaling)
        missing = missing or bool(np.isnan(part).any())
        panel.storage.release()
    return missing


def _fill_part(
    buffer: np.ndarray,
    places: Int[np.ndarray, "S C"],
    rows: Float[np.ndarray, "N C"],
    bounds: Int[np.ndarray, " S1"],
    scaling: Scaling | None,
) -> None:
    """Write each channel of some series, scaled, into a buffer from a place of its own on."""
    count, num_channels = rows.shape
    width = max(1, _storage.BLOCK // count)
    for channel in range(0, num_channels, width):
        block = rows[:, channel : channel + width].T
        edges = np.append(bounds[:-1] + count * np.arange(len(block))[:, None], block.size)
        scaled = scale_runs(np.ascontiguousarray(block).reshape(-1), edges, scaling).values
        moves = places[:, channel : channel + width].T.reshape(-1) - edges[:-1]
        buffer[np.arange(block.size) + np.repeat(moves, np.diff(edges))] = scaled


def _check_lengths(panel: Panel) -> None:
    """Refuse a panel with a series that is too short to be trained on; name the first."""
    short = np.flatnonzero(panel.lengths < MIN_ROWS)
    if len(short):
        raise DataError(
            f"Every series needs at least {MIN_ROWS} rows to train on, but "
            f"{panel.owner(int(short[0]))} has {panel.lengths[short[0]]}"
            + (f" ({len(short)} of {len(panel)} series are too short)" * (len(short) > 1))
            + ". Leave short series out."
        )
