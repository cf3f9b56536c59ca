"""The rows that a forecast reads, and the labels that it is written under."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data import Panel, Series


class Context(NamedTuple):
    """The newest rows of each series of a frame.

    Parameters
    ----------
    panel : Panel
        The rows.
    labels : Index
        Wide: the columns of the frame. Long: the item of each series, in the dtype of the frame.
    """

    panel: Panel
    labels: pd.Index

    def draw_from(self, count: int) -> "Context":
        """Return the first ``count`` columns or series, under labels of one level."""
        panel, labels = self.panel, self.labels[:count]
        flat = pd.Index(
            [", ".join(map(str, name)) if isinstance(name, tuple) else name for name in labels],
            dtype=object,
        )
        if panel.form == "long":
            return Context(Panel("long", panel.names, panel.freq, panel.series[:count]), flat)
        item = panel.series[0]
        shown = Series(None, item.index, item.values[:, :count])
        return Context(Panel("wide", tuple(flat), panel.freq, (shown,)), flat)


def take_context(frame: pd.DataFrame, panel: Panel, rows: int) -> Context:
    """Copy the newest rows of a panel, so that the frame it was read from can be freed."""
    series = tuple(
        Series(item.item_id, item.index[-rows:].copy(deep=True), item.values[-rows:].copy())
        for item in panel.series
    )
    tail = Panel(panel.form, panel.names, panel.freq, series)
    if panel.form == "wide":
        return Context(tail, frame.columns)
    ids = frame[panel.names[0]]
    return Context(tail, pd.Index(ids.unique(), dtype=ids.dtype))


def stack_contexts(panel: Panel, context_length: int) -> np.ndarray:
    """Return the rows as an array (B, T, C), NaN before the first row of a short series."""
    contexts = np.stack([_pad_context(item.values, context_length) for item in panel.series])
    empty = np.argwhere(np.isnan(contexts).all(axis=1))
    if len(empty):
        number, channel = empty[0]
        raise DataError(
            f"A forecast needs at least one observed value, but the last {context_length} rows "
            f"of {panel.label(panel.series[number], channel)} are all missing. Leave it out, or "
            "fill it with values."
        )
    return contexts


def _pad_context(values: np.ndarray, context_length: int) -> np.ndarray:
    """Return the newest ``context_length`` rows, padded with NaN on the old side if need be."""
    missing = max(0, context_length - len(values))
    return np.pad(values[-context_length:], ((missing, 0), (0, 0)), constant_values=np.nan)
