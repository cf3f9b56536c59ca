"""Windows that roll through a frame, and their forecasts."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data import Panel, Series
from mlrforecast.models import EncoderConfig


class Windows(NamedTuple):
    """Views of the windows inside one series.

    Parameters
    ----------
    context : ndarray of shape (N, T, C)
        Contexts.
    actual : ndarray of shape (N, F, C)
        The steps that follow them.
    cutoffs : DatetimeIndex of length N
        The last stamp of each context.
    """

    context: np.ndarray
    actual: np.ndarray
    cutoffs: pd.DatetimeIndex


@dataclass(frozen=True, eq=False)
class RollingForecast:
    """Forecasts from the windows inside a frame, beside what happened.

    Parameters
    ----------
    forecast, actual : ndarray of shape (N, F, C)
        Point forecasts and actual values of ``N`` windows; NaN where no value was observed.
    quantiles : ndarray of shape (N, F, C, Q), or None
        Quantiles of the levels that were asked for.
    cutoffs : DatetimeIndex of length N
        The last stamp that each forecast could read.
    item_ids : ndarray of length N
        The item of each window; None for a wide frame.
    """

    forecast: np.ndarray
    actual: np.ndarray
    quantiles: np.ndarray | None
    cutoffs: pd.DatetimeIndex
    item_ids: np.ndarray

    @classmethod
    def of(
        cls, item: Series, windows: Windows, point: np.ndarray, quantiles: np.ndarray | None
    ) -> Self:
        """Put together what belongs to one series.

        Parameters
        ----------
        item : Series
            The series.
        windows : Windows
            Its windows.
        point, quantiles : ndarray of shape (N, F, C) and (N, F, C, Q)
            Their forecasts.
        """
        ids = np.empty(len(point), dtype=object)
        ids[:] = item.item_id
        return cls(point, windows.actual, quantiles, windows.cutoffs, ids)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Join the forecasts of several series, in their order.

        Parameters
        ----------
        parts : sequence of RollingForecast
            One a series, at least one.
        """
        if len(parts) == 1:
            return parts[0]
        quantiles = [part.quantiles for part in parts if part.quantiles is not None]
        return cls(
            np.concatenate([part.forecast for part in parts]),
            np.concatenate([part.actual for part in parts]),
            np.concatenate(quantiles) if quantiles else None,
            pd.DatetimeIndex(parts[0].cutoffs.append([part.cutoffs for part in parts[1:]])),
            np.concatenate([part.item_ids for part in parts]),
        )

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{field.name}: {getattr(getattr(self, field.name), 'shape', None)}"
            for field in fields(self)
        )
        return f"RollingForecast({shapes})"


def rolling_windows(panel: Panel, item: Series, config: EncoderConfig, step: int) -> Windows:
    """Return views of every ``step``-th window of a series, counted back from its newest row."""
    size = config.context_length + config.prediction_length
    rows = len(item.index)
    if rows < size:
        owner = "the frame" if item.item_id is None else panel.label(item, 0)
        raise DataError(
            f"A window needs {size} rows (context {config.context_length} + prediction_length "
            f"{config.prediction_length}), but {owner} has {rows}."
        )
    views = np.lib.stride_tricks.sliding_window_view(item.values, size, axis=0)
    views = views[(rows - size) % step :: step].swapaxes(1, 2)
    starts = np.arange((rows - size) % step, rows - size + 1, step)
    return Windows(
        views[:, : config.context_length],
        views[:, config.context_length :],
        item.index[starts + config.context_length - 1],
    )
