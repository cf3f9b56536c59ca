"""Forecasts written back in the form of the frame that was given."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mlrforecast.data import Panel, future_index
from mlrforecast.models import EncoderConfig


def check_levels_requested(
    levels: Sequence[float] | None, config: EncoderConfig
) -> tuple[float, ...] | None:
    """Return the levels asked of a forecast, or say why they cannot be had."""
    if levels is None:
        return None
    if config.loss != "quantile":
        raise ValueError(
            f"`quantile_levels` need loss='quantile'; this forecaster has loss={config.loss!r}."
        )
    given = tuple(float(level) for level in levels)
    lowest, highest = config.quantile_levels[0], config.quantile_levels[-1]
    outside = [level for level in given if not lowest <= level <= highest]
    if outside or not given or len(set(given)) < len(given):
        raise ValueError(
            f"`quantile_levels` must be different levels within the trained ones, {lowest:g} to "
            f"{highest:g}, got {given}. Others are trained with "
            "MLRForecaster(quantile_levels=...)."
        )
    return given


def level_name(level: float) -> str:
    """Return the column name of a quantile level.

    >>> level_name(0.9)
    '0.9'
    """
    return f"{level:g}"


def forecast_frame(
    panel: Panel,
    point: np.ndarray,
    quantiles: np.ndarray | None,
    levels: tuple[float, ...] | None,
) -> pd.DataFrame:
    """Build the frame of a forecast.

    Parameters
    ----------
    panel : Panel
        The contexts that were forecast.
    point : ndarray of shape (B, F, C)
        Point forecast of each series.
    quantiles : ndarray of shape (B, F, C, Q), optional
        Quantiles of the ``levels``.
    levels : tuple of float, optional
        Their levels.
    """
    names = [] if levels is None else [level_name(level) for level in levels]
    if panel.form == "wide":
        return _wide_frame(panel, point[0], None if quantiles is None else quantiles[0], names)
    id_name, time_name, target_name = panel.names
    prediction_length = point.shape[1]
    stamps = [future_index(item.index[-1], panel.freq, prediction_length) for item in panel.series]
    ids = pd.Series([item.item_id for item in panel.series])
    columns = {
        id_name: ids.repeat(prediction_length).to_numpy(),
        time_name: stamps[0].append(stamps[1:]),
        target_name: point[:, :, 0].reshape(-1),
    }
    if quantiles is not None:
        for number, name in enumerate(names):
            columns[name] = quantiles[:, :, 0, number].reshape(-1)
    return pd.DataFrame(columns)


def _wide_frame(
    panel: Panel, point: np.ndarray, quantiles: np.ndarray | None, names: list[str]
) -> pd.DataFrame:
    index = future_index(panel.series[0].index[-1], panel.freq, len(point))
    if quantiles is None:
        return pd.DataFrame(point, index=index, columns=list(panel.names))
    values = np.concatenate([point[..., None], quantiles], axis=-1)
    columns = pd.MultiIndex.from_product([panel.names, ["point", *names]])
    return pd.DataFrame(values.reshape(len(point), -1), index=index, columns=columns)


def first_items(panel: Panel, count: int) -> Panel:
    """Return a panel of the first series, or of all channels for a wide frame."""
    if panel.form == "wide":
        return panel
    return Panel(panel.form, panel.names, panel.freq, panel.series[:count])


def wide_history(panel: Panel) -> pd.DataFrame:
    """Return the values of a panel side by side, a column a channel or an item."""
    if panel.form == "wide":
        item = panel.series[0]
        return pd.DataFrame(item.values, index=item.index, columns=list(panel.names))
    columns = {
        item.item_id: pd.Series(item.values[:, 0], index=item.index) for item in panel.series
    }
    return pd.DataFrame(columns)


def wide_forecast(forecast: pd.DataFrame, panel: Panel) -> pd.DataFrame:
    """Bring a long forecast into the wide form, with pairs (item, "point" or level) on top."""
    id_name, time_name, target_name = panel.names
    renamed = forecast.rename(columns={target_name: "point"})
    parts = {
        item.item_id: renamed[renamed[id_name] == item.item_id]
        .set_index(time_name)
        .drop(columns=id_name)
        for item in panel.series
    }
    return pd.concat(parts, axis=1)
