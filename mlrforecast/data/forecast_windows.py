"""Windows to forecast from: any cutoffs inside a panel, copied when they are asked for."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from mlrforecast.data._exogenous import Exogenous
from mlrforecast.data.batch import ForecastBatch
from mlrforecast.data.covariates import CovariateEncoding
from mlrforecast.data.panel import Panel
from mlrforecast.data.scaling import Scaling, scale_windows
from mlrforecast.data.windows import split_windows


class ForecastInput(NamedTuple):
    """What a model reads, and what turns its forecast back into the unit of the frame.

    Parameters
    ----------
    batch : ForecastBatch
        Contexts, each scaled by its own values, and covariates.
    loc, scale : ndarray of shape (B, 1, C)
        ``forecast * scale + loc`` is in the unit of the frame.
    observed : ndarray of bool of shape (B, 1, C)
        Whether a context holds any value.
    varied : ndarray of bool of shape (B, 1, C)
        Whether it holds two different ones.
    """

    batch: ForecastBatch
    loc: np.ndarray
    scale: np.ndarray
    observed: np.ndarray
    varied: np.ndarray


class ForecastWindows:
    """Windows at given cutoffs of a panel.

    Parameters
    ----------
    panel : Panel
        Rows before and after the cutoffs; those after hold known covariates and the calendar, and
        targets where they are known, otherwise NaN.
    encoding : CovariateEncoding
        How covariates are read.
    series, cutoffs : ndarray of int of shape (W,)
        The series of each window, and how many rows of it stand before its forecast.
    context_length, prediction_length : int
        Steps of a window before and after its cutoff.
    scaling : {"standard", "robust", "mean_abs"}, optional
        How each context is scaled, see :func:`mlrforecast.data.scale_windows`.

    Examples
    --------
    >>> import pandas as pd
    >>> from mlrforecast.data import read_panel
    >>> index = pd.date_range("2024-01-01", periods=10, freq="h")
    >>> panel = read_panel(pd.DataFrame({"y": range(10)}, index=index))
    >>> windows = ForecastWindows(
    ...     panel,
    ...     CovariateEncoding.fit(panel, calendar=False),
    ...     series=np.array([0, 0]),
    ...     cutoffs=np.array([6, 8]),
    ...     context_length=3,
    ...     prediction_length=2,
    ... )
    >>> windows.contexts(slice(0, 2))[..., 0].tolist(), windows.actual(slice(1, 2)).ravel().tolist()
    ([[3.0, 4.0, 5.0], [5.0, 6.0, 7.0]], [8.0, 9.0])
    """

    def __init__(
        self,
        panel: Panel,
        encoding: CovariateEncoding,
        *,
        series: Int[np.ndarray, " W"],
        cutoffs: Int[np.ndarray, " W"],
        context_length: int,
        prediction_length: int,
        scaling: Scaling | None = "standard",
    ) -> None:
        self.panel = panel
        self.series = series
        self.cutoffs = cutoffs
        self.context_length = context_length
        self.prediction_length = prediction_length
        self.scaling: Scaling | None = scaling
        self._exogenous = Exogenous(panel, encoding, context_length, prediction_length)

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.series)

    def gather(self, windows: slice) -> ForecastInput:
        """Copy a slice of ``windows`` into a batch, scaled in float64 before they are float32."""
        contexts = self.contexts(windows)
        scaled = scale_windows(contexts, self.scaling)
        missing = np.isnan(contexts)
        values = torch.from_numpy(scaled.values.astype(np.float32))
        future = torch.zeros(len(values), self.prediction_length, values.shape[2])
        batch = split_windows(
            torch.cat([values, future], dim=1), self.context_length, missing=bool(missing.any())
        )
        if not self._exogenous.is_empty:
            batch = self._exogenous.add_to(batch, self.series[windows], self.cutoffs[windows])
        highest = np.where(missing, -np.inf, contexts).max(axis=1, keepdims=True)
        lowest = np.where(missing, np.inf, contexts).min(axis=1, keepdims=True)
        observed = highest > -np.inf
        return ForecastInput(batch, scaled.loc, scaled.scale, observed, highest > lowest)

    def contexts(self, windows: slice) -> Float[np.ndarray, "B T C"]:
        """Copy the contexts of a slice of ``windows``; NaN before the first row of a series."""
        return self._values(windows, np.arange(-self.context_length, 0))

    def actual(self, windows: slice) -> Float[np.ndarray, "B F C"]:
        """Copy what follows a slice of ``windows``; NaN after the last row of a series."""
        return self._values(windows, np.arange(self.prediction_length))

    def _values(self, windows: slice, steps: np.ndarray) -> np.ndarray:
        """Copy the values of steps counted from the cutoffs; NaN outside of a series."""
        return self.panel.values_at(self.series[windows], self.cutoffs[windows, None] + steps)
