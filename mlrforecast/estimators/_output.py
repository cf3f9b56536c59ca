"""Forecasts written back in the form of the frame that was given."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from mlrforecast.data import future_index
from mlrforecast.estimators._context import Context
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


def forecast_frame(
    context: Context,
    point: np.ndarray,
    quantiles: np.ndarray | None,
    levels: tuple[float, ...] | None,
) -> pd.DataFrame:
    """Build the frame of a forecast.

    Parameters
    ----------
    context : Context
        What was forecast.
    point : ndarray of shape (B, F, C)
        Point forecast of each series.
    quantiles : ndarray of shape (B, F, C, Q), optional
        Quantiles of the ``levels``.
    levels : tuple of float, optional
        Their levels.
    """
    panel = context.panel
    names = [] if levels is None else [f"{level:g}" for level in levels]
    if panel.form == "wide":
        return _wide_frame(context, point[0], None if quantiles is None else quantiles[0], names)
    id_name, time_name, target_name = panel.names
    prediction_length = point.shape[1]
    columns = {
        id_name: context.labels.repeat(prediction_length),
        time_name: _future_stamps(context, prediction_length),
        target_name: point[:, :, 0].reshape(-1),
    }
    if quantiles is not None:
        for number, name in enumerate(names):
            columns[name] = quantiles[:, :, 0, number].reshape(-1)
    return pd.DataFrame(columns)


def _future_stamps(context: Context, prediction_length: int) -> pd.DatetimeIndex:
    """Return the stamps after every series; series that end together share the work."""
    panel = context.panel
    after: dict[pd.Timestamp, pd.DatetimeIndex] = {}
    for item in panel.series:
        last = item.index[-1]
        if last not in after:
            after[last] = future_index(last, panel.freq, prediction_length)
    parts = [after[item.index[-1]] for item in panel.series]
    return pd.DatetimeIndex(parts[0].append(parts[1:]))


def _wide_frame(
    context: Context, point: np.ndarray, quantiles: np.ndarray | None, names: list[str]
) -> pd.DataFrame:
    rows = context.panel.series[0].index
    index = future_index(rows[-1], context.panel.freq, len(point)).rename(rows.name)
    if quantiles is None:
        return pd.DataFrame(point, index=index, columns=context.labels)
    values = np.concatenate([point[..., None], quantiles], axis=-1)
    return pd.DataFrame(
        values.reshape(len(point), -1),
        index=index,
        columns=_with_level(context.labels, ["point", *names]),
    )


def _with_level(labels: pd.Index, names: list[str]) -> pd.MultiIndex:
    """Return the columns with one more level below them."""
    if isinstance(labels, pd.MultiIndex):
        return pd.MultiIndex.from_tuples(
            [(*label, name) for label in labels for name in names], names=[*labels.names, None]
        )
    # Not from_product, which sorts the labels and so needs ones that can be compared.
    levels: list[Any] = [labels, names]
    codes: list[Any] = [
        np.repeat(np.arange(len(labels)), len(names)),
        np.tile(np.arange(len(names)), len(labels)),
    ]
    return pd.MultiIndex(levels, codes, names=[labels.name, None])


def wide_history(context: Context, steps: int) -> pd.DataFrame:
    """Return the newest ``steps`` of each series side by side, a column a channel or an item."""
    panel = context.panel
    if panel.form == "wide":
        item = panel.series[0]
        return pd.DataFrame(item.values, index=item.index, columns=context.labels)[-steps:]
    columns = {
        label: pd.Series(item.values[-steps:, 0], index=item.index[-steps:])
        for label, item in zip(context.labels, panel.series, strict=True)
    }
    return pd.DataFrame(columns)


def wide_forecast(forecast: pd.DataFrame, context: Context) -> pd.DataFrame:
    """Bring a long forecast into the wide form, with pairs (item, "point" or level) on top."""
    if context.panel.form == "wide":
        return forecast
    id_name, time_name, target_name = context.panel.names
    renamed = forecast.rename(columns={target_name: "point"})
    parts = {
        label: renamed[renamed[id_name] == label].set_index(time_name).drop(columns=id_name)
        for label in context.labels
    }
    return pd.DataFrame(pd.concat(parts, axis=1, sort=True))
