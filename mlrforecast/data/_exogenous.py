"""Covariates and calendar of windows, gathered from the rows of a panel."""

import numpy as np
import torch

from mlrforecast.data._covariate_columns import Columns, batch_columns
from mlrforecast.data.batch import ForecastBatch
from mlrforecast.data.calendar import calendar_features
from mlrforecast.data.covariates import CovariateEncoding, columns_of
from mlrforecast.data.panel import Panel


class Exogenous:
    """All that a window holds beside its targets.

    Parameters
    ----------
    panel : Panel
        The rows.
    encoding : CovariateEncoding
        How they are read.
    context_length, prediction_length : int
        Steps of a window before and after its cutoff.
    """

    def __init__(
        self, panel: Panel, encoding: CovariateEncoding, context_length: int, prediction_length: int
    ) -> None:
        self._cycles = encoding.cycles
        self._past, self._known = columns_of(encoding.past), columns_of(encoding.known)
        self._encoded = encoding.encode(panel)
        self._panel = panel
        self._context_length = context_length
        self._prediction_length = prediction_length
        self.is_empty = all(part is None for part in self._encoded)

    @property
    def num_bytes(self) -> int:
        """Bytes of memory that the encoded columns take."""
        return sum(part.nbytes for part in self._encoded if part is not None)

    def add_to(
        self, batch: ForecastBatch, series: np.ndarray, cutoffs: np.ndarray
    ) -> ForecastBatch:
        """Return a batch with its covariates.

        Parameters
        ----------
        batch : ForecastBatch
            Targets of B windows.
        series, cutoffs : ndarray of int of shape (B,)
            The series of each window, and how many rows of it stand before its forecast; fewer
            than a context, and more than the series has, where the window is padded.
        """
        context, future = self._context_length, self._prediction_length
        past, known, static, clock = self._encoded
        steps = cutoffs[:, None] + np.arange(-context, future)
        tensors: dict[str, torch.Tensor] = {}
        if past is not None:
            numbers = self._rows(past, self._past, series, steps[:, :context])
            tensors["past_covariates"] = torch.from_numpy(numbers)
        if known is not None:
            numbers = self._rows(known, self._known, series, steps)
            tensors["known_covariates"] = torch.from_numpy(numbers)
        if static is not None:
            tensors["static_covariates"] = torch.from_numpy(static[series])
        if clock is not None:
            rows, outside = self._panel.places(series, steps[:, context:])
            features = calendar_features(clock[rows], self._cycles)
            features[outside] = 0.0
            tensors["calendar"] = torch.from_numpy(features)
        return batch._replace(**tensors)

    def _rows(
        self,
        encoded: np.ndarray,
        columns: Columns,
        series: np.ndarray,
        steps: np.ndarray,
    ) -> np.ndarray:
        """Gather the columns of some steps, missing outside of a series."""
        rows, outside = self._panel.places(series, steps)
        gathered = encoded[rows]
        if outside.any():
            gathered[outside] = np.where(columns.numeric, np.nan, 0.0)
        return batch_columns(gathered, columns, self._context_length)
