"""Random windows of series: what a model reads, and what it is to forecast."""

import hashlib
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mlrforecast.pretraining._checks import at_least, entries, share
from mlrforecast.pretraining._checks import series as checked
from mlrforecast.pretraining.arrow import read_arrow

__all__ = ["Windows"]


class Windows:
    """Draw windows of series from several sources.

    Parameters
    ----------
    sources : sequence of paths or of sequences of arrays of shape (T,)
        Arrow files, or series themselves; NaN is a missing value.
    weights : sequence of float, optional
        How often each source is drawn from, relative to the others. Default: equally often.
    context_length, prediction_length : int
        Steps that are read and forecast.
    min_past : int
        Least steps before a forecast. Series with fewer and ``prediction_length`` more are left
        out.
    drop_rate : float in [0, 1)
        Most of the steps that are read and are made missing values: the share is drawn anew for
        each window.

    Raises
    ------
    ValueError
        If a source has no series that is long enough, a series is no row of finite values and NaN,
        the weights do not fit, or a number is out of its range.
    TypeError
        If an argument is of the wrong type.

    Examples
    --------
    >>> windows = Windows([[np.arange(50.0)]], context_length=8, prediction_length=2, min_past=4)
    >>> context, future = windows.draw(3, seed=0, step=0)
    >>> context.shape, future.shape, bool((future[:, 0] == context[:, -1] + 1).all())
    (torch.Size([3, 8]), torch.Size([3, 2]), True)
    """

    def __init__(
        self,
        sources: Sequence[str | PathLike[str] | Sequence[Any]],
        weights: Sequence[float] | None = None,
        *,
        context_length: int,
        prediction_length: int,
        min_past: int = 60,
        drop_rate: float = 0.0,
    ) -> None:
        self.context_length = at_least(1, "context_length", context_length)
        self.prediction_length = at_least(1, "prediction_length", prediction_length)
        self.min_past = at_least(1, "min_past", min_past)
        self.drop_rate = share("drop_rate", drop_rate)
        if isinstance(sources, PathLike):
            raise TypeError(f"`sources` must be a sequence of files or series, got {sources!r}.")
        self.sources = [
            self._read(source, number) for number, source in enumerate(entries("sources", sources))
        ]
        if not self.sources:
            raise ValueError("`sources` must hold at least one source of series, got none.")
        self.shares = self._shares(weights)

    def draw(
        self, count: int, *, seed: int, step: int, share: slice = slice(None)
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B F"]]:
        """Draw the windows of one step.

        Parameters
        ----------
        count : int
            Windows of the step.
        seed, step : int
            They determine the windows; nothing else does.
        share : slice
            Those of the windows that are returned: the share of one of several processes.

        Returns
        -------
        context : Tensor of shape (B, context_length), float32
            NaN where nothing is known, and before the first step of a series.
        future : Tensor of shape (B, prediction_length), float32
            The steps that follow.
        """
        rng = np.random.default_rng([seed, step])
        context = np.full((count, self.context_length), np.nan, dtype=np.float32)
        future = np.empty((count, self.prediction_length), dtype=np.float32)
        for row, place in enumerate(rng.choice(len(self.sources), size=count, p=self.shares)):
            source = self.sources[place]
            series = source[rng.integers(len(source))]
            cut = rng.integers(self.min_past, len(series) - self.prediction_length + 1)
            past = series[max(cut - self.context_length, 0) : cut]
            context[row, -len(past) :] = past
            future[row] = series[cut : cut + self.prediction_length]
        if self.drop_rate:
            rates = rng.uniform(0, self.drop_rate, size=(count, 1))
            context[rng.random(context.shape) < rates] = np.nan
        return torch.from_numpy(context[share]), torch.from_numpy(future[share])

    def digest(self) -> str:
        """Return the sha256 of all that determines what is drawn, as hexadecimal digits."""
        found = hashlib.sha256(repr(self._settings()).encode())
        for source in self.sources:
            for series in source:
                found.update(f"{len(series)} ".encode())
                found.update(series.tobytes())
        return found.hexdigest()

    def _settings(self) -> tuple[Any, ...]:
        lengths = self.context_length, self.prediction_length, self.min_past
        return (*lengths, self.drop_rate, self.shares.tolist(), list(map(len, self.sources)))

    def _read(self, source: Any, number: int) -> list[np.ndarray]:
        """Return the series of a source that are long enough."""
        name = f"sources[{number}]"
        series: Any = source
        if isinstance(source, str | PathLike):
            series = read_arrow(source)
        arrays = [
            checked(f"{name}[{place}]", each, np.float32)
            for place, each in enumerate(entries(name, series))
        ]
        least = self.min_past + self.prediction_length
        found = [array for array in arrays if len(array) >= least]
        if not found:
            raise ValueError(
                f"`sources[{number}]` must hold a series of at least {least} steps (`min_past` and "
                f"`prediction_length`); its {len(arrays)} series have at most "
                f"{max(map(len, arrays), default=0)}."
            )
        return found

    def _shares(self, weights: Sequence[float] | None) -> np.ndarray:
        """Return the probability of each source."""
        if weights is None:
            return np.full(len(self.sources), 1 / len(self.sources))
        try:
            given = np.asarray(weights, dtype=float)
        except (TypeError, ValueError):
            given = np.zeros(0)
        if given.shape != (len(self.sources),) or not (given > 0).all() or np.isinf(given).any():
            raise ValueError(
                f"`weights` must be a positive number for each of the {len(self.sources)} sources, "
                f"got {weights!r}."
            )
        return np.asarray(given / given.sum())
