"""Levels that are asked of a forecast, and forecasts side by side for a drawing."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from mlrforecast.data import Panel, future_index
from mlrforecast.estimators._rules import check_level_numbers
from mlrforecast.models import EncoderConfig
from mlrforecast.nn import DISTRIBUTIONS

FAN = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Levels that are shown where none were asked for."""


def default_levels(config: EncoderConfig, *, calibrated: bool) -> tuple[float, ...] | None:
    """Return the levels to show, None if there is a point alone."""
    if config.loss == "quantile" and not calibrated:
        return config.quantile_levels
    if config.loss in ("mae", "mse") and not calibrated:
        return None
    return FAN


def with_median(levels: tuple[float, ...] | None) -> tuple[float, ...] | None:
    """Add the median to levels; to less than two, where it cannot be had, nothing is added."""
    if levels is None or len(levels) == 1 or 0.5 in levels:
        return levels
    return tuple(sorted((*levels, 0.5)))


def check_levels_requested(
    levels: Iterable[float] | None, config: EncoderConfig, *, calibrated: bool
) -> tuple[float, ...] | None:
    """Return the levels asked of a forecast, or say why they cannot be had."""
    if levels is None:
        return None
    given = check_level_numbers(levels)
    if not given or not all(0 < level < 1 for level in given) or len(set(given)) < len(given):
        raise ValueError(
            f"`quantile_levels` must be different levels in (0, 1), to 6 decimals, got {given}."
        )
    if calibrated or config.loss in DISTRIBUTIONS:
        return given
    if config.loss != "quantile":
        raise ValueError(
            f"`quantile_levels`: loss={config.loss!r} forecasts a point only. Choose "
            "loss='quantile' or a distribution, or learn intervals from its errors with "
            "`calibrate`."
        )
    trained = config.quantile_levels
    if len(trained) == 1 and given != trained:
        raise ValueError(
            f"`quantile_levels` must be ({trained[0]:g},), the only one that was trained, got "
            f"{given}. Others are between or beyond two trained ones: "
            "MLRForecaster(quantile_levels=(0.1, 0.9))."
        )
    return given


def choose_items(panel: Panel, items: Sequence[Hashable]) -> Panel:
    """Return the series of a long panel, or the channels of another one, with some names."""
    if isinstance(items, str) or not isinstance(items, Sequence | np.ndarray | pd.Index):
        raise TypeError(f"`items` must be a sequence of names, got {items!r}.")
    known = {name: number for number, name in enumerate(panel.labels.tolist())}
    if missing := [name for name in items if name not in known]:
        raise ValueError(
            f"`items` must be names of series, such as {next(iter(known))!r}, got {missing[0]!r}."
        )
    numbers = np.array([known[name] for name in items], dtype=np.int64)
    if not len(numbers):
        raise ValueError("`items` must name at least one series, got none.")
    if panel.layout.form == "long":
        return panel.select(numbers)
    return replace(panel, labels=panel.labels[numbers], values=panel.values[:, numbers])


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
