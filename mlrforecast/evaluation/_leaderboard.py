"""Models beside simple forecasts, on the same windows."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from mlrforecast.baselines import LinearBaseline, profile_mean, repeat_last, seasonal_naive
from mlrforecast.data import Panel
from mlrforecast.data.scaling import deviations
from mlrforecast.evaluation._backtest import Backtest
from mlrforecast.evaluation._scores import score_table

__all__ = ["leaderboard"]

BASELINES = ("seasonal naive", "mean of 7 seasons", "repeat last", "linear")

NUM_SEASONS = 7
"""Seasons in the mean profile."""

MAX_CONTEXT = 336
"""Rows that the linear baseline reads at most."""

MIN_WINDOWS = 10
"""Windows that the linear baseline is fitted to at least, counted over all channels."""

MAX_VALUES = 20_000_000
"""Values of all windows that the linear baseline is fitted to at most: bounds the memory."""

BLOCK = 4_000_000
"""Values of the past that are copied at once."""


def leaderboard(backtests: Mapping[str, Backtest], *, baselines: bool = True) -> pd.DataFrame:
    """Score models and simple forecasts on the same windows.

    The baselines read all rows before each cutoff and forecast the newest season (``"seasonal
    naive"``), the mean of the seven newest ones (``"mean of 7 seasons"``), and the last value
    (``"repeat last"``). A phase of a season that was never observed is forecast by the last value.
    ``"linear"`` is :class:`mlrforecast.baselines.LinearBaseline`, fitted once, on the rows before
    the first cutoff of each series, each in units of its standard deviation there. Its context is
    half as long as the rows there (the median over the series), at most 336.

    Parameters
    ----------
    backtests : mapping of str to Backtest
        The forecasts of each model, all from the same cutoffs of the same series.
    baselines : bool, default True
        Whether to add the simple forecasts.

    Returns
    -------
    DataFrame
        A row for each model, the lowest MASE first, with the columns of :meth:`Backtest.scores`.
        Scores of quantiles are NaN for forecasts without quantiles. ``attrs["left_out"]`` says for
        each baseline that could not be made why.

    Raises
    ------
    TypeError
        If ``backtests`` is no mapping of Backtests.
    ValueError
        If it is empty, names a model like a baseline, or holds backtests of different windows.

    Examples
    --------
    >>> from mlrforecast import MLRForecaster, load_dataset
    >>> data = load_dataset("synthetic")
    >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
    >>> backtest = forecaster.fit(data.train).backtest(data.targets, windows=3)
    >>> table = leaderboard({"mlr": backtest})
    >>> sorted(table.index)
    ['linear', 'mean of 7 seasons', 'mlr', 'repeat last', 'seasonal naive']
    >>> table.columns.tolist()
    ['MSE', 'MAE', 'RMSE', 'MASE', 'sMAPE']
    """
    _check(backtests, baselines)
    first = next(iter(backtests.values()))
    scale = first.scale()
    scores = {name: score_table(backtest, scale=scale) for name, backtest in backtests.items()}
    left_out: dict[str, str] = {}
    if baselines:
        bare = replace(first, quantiles=None, quantile_levels=())
        forecasts = _simple_forecasts(bare)
        try:
            forecasts["linear"] = _linear_forecast(bare, forecasts["repeat last"])
        except _TooFewRowsError as error:
            left_out["linear"] = str(error)
        for name, forecast in forecasts.items():
            scores[name] = score_table(replace(bare, forecast=forecast), scale=scale)
    columns = list(dict.fromkeys(column for row in scores.values() for column in row.index))
    rows = [row.reindex(columns) for row in scores.values()]
    table = pd.DataFrame(rows, index=pd.Index(scores, name="model"))
    table = table.sort_values("MASE", kind="stable")
    table.attrs["left_out"] = left_out
    return table


class _TooFewRowsError(Exception):
    """The linear baseline has nothing to learn from."""


def _check(backtests: Mapping[str, Backtest], baselines: bool) -> None:
    """Check the names, and that all backtests are of the same windows."""
    if not isinstance(backtests, Mapping):
        raise TypeError(
            "`backtests` must map names of models to their backtests, "
            f"got {type(backtests).__name__}."
        )
    if not backtests:
        raise ValueError("`backtests` must hold at least one backtest, got none.")
    for name, backtest in backtests.items():
        if not isinstance(backtest, Backtest):
            raise TypeError(
                f"`backtests` must hold Backtests, got {type(backtest).__name__} for {name!r}."
            )
        if baselines and name in BASELINES:
            raise ValueError(
                f"`backtests` must not use the names of the baselines {BASELINES}, got {name!r}. "
                "Rename it, or set `baselines=False`."
            )
    (first, reference), *others = backtests.items()
    for name, backtest in others:
        if difference := _difference(reference, backtest):
            raise ValueError(
                f"`backtests` must share their windows, but {name!r} and {first!r} differ in "
                f"their {difference}."
            )


def _difference(left: Backtest, right: Backtest) -> str | None:
    """Name what differs between the windows of two backtests."""
    if left.actual.shape != right.actual.shape:
        return f"shapes [N, F, C], {right.actual.shape} and {left.actual.shape}"
    if not left.panel.labels.equals(right.panel.labels) or np.any(left.series != right.series):
        return "series"
    if not left.cutoffs.equals(right.cutoffs):
        return "cutoffs"
    if left.season_length != right.season_length:
        return f"season_length, {right.season_length} and {left.season_length}"
    if np.any(left.num_rows != right.num_rows) or not _equal(left.scale(), right.scale()):
        return "rows before the cutoffs"
    if not _equal(left.actual, right.actual):
        return "actual values"
    return None


def _equal(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether two arrays are the same, missing values included."""
    return np.array_equal(left, right, equal_nan=True)


def _simple_forecasts(backtest: Backtest) -> dict[str, np.ndarray]:
    """Return the forecasts of the baselines without training, (N, F, C) each."""
    season, steps = backtest.season_length, backtest.forecast.shape[1]
    last = _from_past(backtest, 1, lambda past: repeat_last(past, steps))
    naive = _from_past(backtest, season, lambda past: seasonal_naive(past, steps, season))
    week = _rolled(
        backtest,
        np.arange(len(backtest.series)),
        season * NUM_SEASONS,
        lambda past: profile_mean(past, steps, season, NUM_SEASONS),
    )
    naive = np.where(np.isnan(naive), last, naive)
    week = np.where(np.isnan(week), naive, week)
    return {"seasonal naive": naive, "mean of 7 seasons": week, "repeat last": last}


def _from_past(
    backtest: Backtest, length: int, forecast: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Forecast from the newest ``length`` rows, and where values are missing from all rows."""
    made = _rolled(backtest, np.arange(len(backtest.series)), length, forecast)
    missing = np.flatnonzero(np.isnan(made).any(axis=(1, 2)))
    if len(missing):
        longest = int(backtest.num_rows[missing].max())
        made[missing] = _rolled(backtest, missing, max(longest, length), forecast)
    return made


def _rolled(
    backtest: Backtest,
    windows: np.ndarray,
    length: int,
    forecast: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Forecast some windows from the rows before them, some at a time."""
    panel = backtest.panel
    size = max(1, BLOCK // (length * panel.num_channels))
    made = np.empty((len(windows), *backtest.forecast.shape[1:]))
    for first in range(0, len(windows), size):
        part = windows[first : first + size]
        steps = backtest.num_rows[part, None] + np.arange(-length, 0)
        past = panel.values_at(backtest.series[part], steps)
        made[first : first + size] = forecast(past)
    return made


def _linear_forecast(backtest: Backtest, last: np.ndarray) -> np.ndarray:
    """Fit the linear baseline before the first cutoffs and forecast all windows.

    Where the whole context is missing, it is the ``last`` value.
    """
    steps = backtest.forecast.shape[1]
    first = backtest.panel.lengths
    np.minimum.at(first, backtest.series, backtest.num_rows)
    numbers = np.unique(backtest.series)
    first[np.setdiff1d(np.arange(len(first)), numbers)] = 0
    rows = int(np.median(first[numbers]))
    context = max(min(MAX_CONTEXT, rows // 2), 1)
    before, after = _training_windows(backtest.panel, first, context, steps)
    usable = ~(np.isnan(before).all(axis=1) | np.isnan(after).any(axis=1))
    if usable.sum() < MIN_WINDOWS:
        raise _TooFewRowsError(
            f"{rows} rows stand before the first cutoff: with a context of {context} rows, "
            f"{usable.sum()} windows have all of their {steps} steps there, and {MIN_WINDOWS} are "
            "needed. Backtest fewer windows, or give more rows."
        )
    model = LinearBaseline().fit(before, after)
    made = _rolled(backtest, np.arange(len(backtest.series)), context, model.predict)
    return np.where(np.isnan(made), last, made)


def _training_windows(
    panel: Panel, first: np.ndarray, context: int, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return windows inside the first rows of each series, in units of its deviation there.

    All of them, or if they were too many to hold, evenly spread ones.
    """
    counts = np.maximum(first - context - steps + 1, 0)
    total = int(counts.sum())
    spread = -(-total * (context + steps) * panel.num_channels // MAX_VALUES)
    chosen = np.arange(0, total, max(spread, 1))
    ends = np.cumsum(counts)
    series = np.searchsorted(ends, chosen, side="right")
    num_rows = chosen - (ends - counts)[series] + context
    values = panel.values_at(series, num_rows[:, None] + np.arange(-context, steps))
    held = np.flatnonzero(first)
    early = panel.head(first)
    units = deviations(early.values, np.append(early.bounds[held], len(early.values)))
    values /= units[np.searchsorted(held, series), None]
    return values[:, :context], values[:, context:]
