"""Levels that are asked of a forecast, and forecasts side by side for a drawing."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from mlrforecast.data import Panel, future_index
from mlrforecast.estimators._rules import check_level_numbers
from mlrforecast.models import EncoderConfig


def check_levels_requested(
    levels: Iterable[float] | None, config: EncoderConfig
) -> tuple[float, ...] | None:
    """Return the levels asked of a forecast, or say why they cannot be had."""
    if levels is None:
        return None
    if config.loss != "quantile":
        raise ValueError(
            f"`quantile_levels` need loss='quantile'; this forecaster has loss={config.loss!r}."
        )
    given = check_level_numbers(levels)
    lowest, highest = config.quantile_levels[0], config.quantile_levels[-1]
    outside = [level for level in given if not lowest <= level <= highest]
    if outside or not given or len(set(given)) < len(given):
        raise ValueError(
            f"`quantile_levels` must be different levels within the trained ones, {lowest:g} to "
            f"{highest:g}, got {given}. Others are trained with "
            "MLRForecaster(quantile_levels=...)."
        )
    return given


def first_items(panel: Panel, count: int) -> Panel:
    """Return the first ``count`` series of a long panel, or channels of another one."""
    if panel.layout.form == "long":
        return panel.select(np.arange(min(count, len(panel))))
    return replace(panel, labels=panel.labels[:count], values=panel.values[:, :count])


def wide_history(panel: Panel, steps: int) -> pd.DataFrame:
    """Return the newest ``steps`` of each series side by side, a column a channel or an item."""
    return _side_by_side(panel, [(item.index, item.values) for item in panel.tail(steps)])


def wide_forecast(
    panel: Panel,
    point: np.ndarray,
    quantiles: np.ndarray | None,
    levels: Sequence[float] | None,
) -> pd.DataFrame:
    """Return a forecast side by side, with levels in pairs (item, "point" or level) on top."""
    ahead = [future_index(item.index[-1], panel.freq, point.shape[1]) for item in panel]
    if quantiles is None:
        return _side_by_side(panel, list(zip(ahead, point, strict=True)))
    values = np.concatenate([point[..., None], quantiles], axis=-1)
    names = ["point", *(f"{level:g}" for level in levels or ())]
    parts = [
        _side_by_side(panel, list(zip(ahead, values[..., number], strict=True)))
        for number in range(len(names))
    ]
    return pd.DataFrame(pd.concat(parts, axis=1, keys=names)).swaplevel(axis=1)


def _side_by_side(panel: Panel, parts: list[tuple[pd.Index, np.ndarray]]) -> pd.DataFrame:
    """Return the values (T, C) of each series in columns named by labels of one level."""
    frames = [pd.DataFrame(values, index=index) for index, values in parts]
    frame = frames[0] if len(frames) == 1 else pd.DataFrame(pd.concat(frames, axis=1, sort=True))
    return frame.set_axis(_flat(panel.labels), axis=1)


def _flat(labels: pd.Index) -> pd.Index:
    """Return labels of one level."""
    flat = [", ".join(map(str, name)) if isinstance(name, tuple) else name for name in labels]
    return pd.Index(flat, dtype=object)
