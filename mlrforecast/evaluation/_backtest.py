"""Forecasts from many cutoffs beside what happened."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from numpy.typing import NDArray

from mlrforecast.data import Panel, future_stamps
from mlrforecast.evaluation._scores import By, score_table
from mlrforecast.plots import plot_backtest, plot_error_by_step

__all__ = ["Backtest", "seasonal_scale"]

_ROUNDING = 1e-12
"""Seasonal errors below this share of the largest value of a series are rounding."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Backtest:
    """Forecasts from many cutoffs, beside what happened.

    Windows are ordered by series, and inside a series from old to new.

    Parameters
    ----------
    forecast, actual : ndarray of shape (N, F, C)
        Point forecasts and actual values of ``N`` windows; NaN where no value was observed. Of a
        long frame ``C`` is 1, of a wide one the number of its columns.
    quantiles : ndarray of shape (N, F, C, Q), or None
        Quantiles, if any were asked for.
    quantile_levels : tuple of float
        Their levels, ``Q`` of them.
    panel : Panel
        All rows that were read, those before the first cutoff included.
    series : ndarray of int of shape (N,)
        The series of each window.
    num_rows : ndarray of int of shape (N,)
        Rows of that series before the forecast.
    season_length : int
        Steps of a season, for scaled errors.

    Attributes
    ----------
    cutoffs : Index of length N
        The last stamp that each forecast could read.
    item_ids : ndarray of length N
        The item of each window; None for a wide frame.
    frame : DataFrame
        All of it as a tidy frame, see :attr:`frame`.

    Examples
    --------
    >>> from mlrforecast import MLRForecaster, load_dataset
    >>> data = load_dataset("synthetic")
    >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
    >>> backtest = forecaster.fit(data.train).backtest(data.targets, windows=3)
    >>> backtest
    Backtest(windows: 3, prediction_length: 24, channels: 3, quantile_levels: ())
    >>> list(backtest.frame.columns)
    ['item_id', 'cutoff', 'timestamp', 'actual', 'forecast']
    """

    forecast: Float[np.ndarray, "N F C"]
    actual: Float[np.ndarray, "N F C"]
    quantiles: Float[np.ndarray, "N F C Q"] | None
    quantile_levels: tuple[float, ...]
    panel: Panel
    series: Int[np.ndarray, " N"]
    num_rows: Int[np.ndarray, " N"]
    season_length: int

    def __repr__(self) -> str:
        num_windows, steps, channels = self.forecast.shape
        return (
            f"Backtest(windows: {num_windows}, prediction_length: {steps}, channels: {channels}, "
            f"quantile_levels: {self.quantile_levels})"
        )

    @cached_property
    def cutoffs(self) -> pd.Index:
        """The last stamp that each forecast could read, of length N."""
        rows = self.panel.bounds[self.series] + self.num_rows - 1
        cutoffs: pd.Index = self.panel.index[rows]
        return cutoffs

    @cached_property
    def item_ids(self) -> np.ndarray:
        """The item of each window, of length N; None for a wide frame."""
        items = np.full(len(self.panel), None, dtype=object)
        if self.panel.layout.form == "long":
            items[:] = self.panel.labels.tolist()
        return np.asarray(items[self.series])

    @cached_property
    def frame(self) -> pd.DataFrame:
        """All forecasts in one tidy frame, a row for each item, cutoff and step.

        The columns are ``item_id`` (of a wide frame the name of the column), ``cutoff``,
        ``timestamp``, ``actual``, ``forecast``, and one for each quantile level, such as
        ``"0.9"``. Rows are ordered by item, then cutoff, then time.
        """
        num_windows, steps, channels = self.forecast.shape
        # Channel before window: the cutoffs of a column stand together. A long frame has one.
        order = (2, 0, 1)
        stamps = future_stamps(self.cutoffs, self.panel.freq, steps)
        rows = np.tile(np.arange(num_windows * steps), channels)
        labels = self.panel.labels
        if self.panel.layout.form == "long":
            items = labels[self.series.repeat(steps)]
        else:
            items = labels.repeat(num_windows * steps)
        if isinstance(items, pd.MultiIndex):
            items = pd.Index(items.tolist(), tupleize_cols=False)
        columns = {
            "item_id": items,
            "cutoff": self.cutoffs.repeat(steps)[rows],
            "timestamp": stamps[rows],
            "actual": self.actual.transpose(order).reshape(-1),
            "forecast": self.forecast.transpose(order).reshape(-1),
        }
        if self.quantiles is not None:
            spread = self.quantiles.transpose(*order, 3).reshape(len(rows), -1)
            columns |= {
                f"{level:g}": spread[:, number] for number, level in enumerate(self.quantile_levels)
            }
        return pd.DataFrame(columns)

    def residuals(self) -> pd.DataFrame:
        """Return the tidy frame with one column more, ``residual``: actual minus forecast.

        Returns
        -------
        DataFrame
            As :attr:`frame`; NaN where no value was observed.
        """
        frame = self.frame.copy()
        frame.insert(5, "residual", frame["actual"] - frame["forecast"])
        return frame

    def scores(
        self, by: By | None = None, *, scale: np.ndarray | None = None
    ) -> pd.Series | pd.DataFrame:
        """Return the scores of all forecasts, or of each item, cutoff or step.

        Parameters
        ----------
        by : {"item", "cutoff", "step"}, optional
            What to have a row for. Default: all forecasts together.
        scale : ndarray of shape (N, C), optional
            What :meth:`scale` gives, of who has it from another backtest of the same windows.

        Returns
        -------
        Series or DataFrame
            MSE, MAE, RMSE, MASE and sMAPE; with quantiles also WQL, CRPS (the mean quantile loss
            over the levels), the coverage of each interval, and MSIS of the widest one. NaN where
            a score is undefined: where nothing was observed, where no scale is positive (MASE,
            MSIS), where all values are zero (WQL).

        Raises
        ------
        ValueError
            If ``by`` is something else.
        """
        return score_table(self, by, scale=scale)

    def plot(
        self,
        *,
        items: Sequence[Hashable] | None = None,
        max_items: int = 4,
        max_cutoffs: int = 8,
    ) -> NDArray[Any]:
        """Draw what happened and the forecasts over it.

        Parameters
        ----------
        items, max_items, max_cutoffs
            As in :func:`mlrforecast.plots.plot_backtest`.

        Returns
        -------
        ndarray of Axes
            One a series; nothing is shown or saved.
        """
        return plot_backtest(self.frame, items=items, max_items=max_items, max_cutoffs=max_cutoffs)

    def plot_error_by_step(self, score: str = "MAE") -> Axes:
        """Draw how a score grows with the steps ahead.

        Parameters
        ----------
        score : str
            A column of ``scores(by="step")``.

        Returns
        -------
        Axes
            Nothing is shown or saved.

        Raises
        ------
        ValueError
            If there is no such score.
        """
        table = pd.DataFrame(self.scores(by="step"))
        if score not in table:
            raise ValueError(f"`score` must be one of {', '.join(map(str, table))}, got {score!r}.")
        return plot_error_by_step(table[[score]], ylabel=score)

    def scale(self) -> Float[np.ndarray, "N C"]:
        """Return the seasonal error of all rows before each cutoff, the unit of scaled errors.

        Returns
        -------
        ndarray of shape (N, C)
            Mean absolute difference of rows a season apart; of rows that follow each other where
            there are no more than ``season_length`` rows. NaN where no such pair was observed.
        """
        return seasonal_scale(self.panel, self.series, self.num_rows, self.season_length)


def seasonal_scale(
    panel: Panel, series: np.ndarray, num_rows: np.ndarray, season_length: int
) -> Float[np.ndarray, "N C"]:
    """Return the seasonal error of the rows before some cutoffs.

    Parameters
    ----------
    panel : Panel
        The series.
    series, num_rows : ndarray of int of shape (N,)
        The series of each cutoff, and its rows before it.
    season_length : int
        Steps of a season.

    Returns
    -------
    ndarray of shape (N, C)
        As :meth:`Backtest.scale`.

    Examples
    --------
    >>> from mlrforecast.data import read_panel
    >>> panel = read_panel(np.array([1.0, 2, 4, 8, 16]))
    >>> float(seasonal_scale(panel, np.array([0]), np.array([4]), 1)[0, 0])
    2.3333333333333335
    """
    last = panel.bounds[series] + num_rows - 1
    scales = np.full((len(series), panel.num_channels), np.nan)
    for lag in {season_length, 1}:
        chosen = (num_rows > season_length) == (lag == season_length)
        total, count = _differences(panel, lag)
        total, count = total[last[chosen]], count[last[chosen]]
        scales[chosen] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    # What is left of a season that repeats itself exactly is rounding.
    sizes = pd.DataFrame(np.abs(panel.values)).groupby(_owners(panel)).cummax().ffill()
    return np.where(scales <= _ROUNDING * sizes.to_numpy()[last], 0.0, scales)


def _differences(panel: Panel, lag: int) -> tuple[np.ndarray, np.ndarray]:
    """Return running sums and counts, inside series, of absolute differences ``lag`` rows apart."""
    values = panel.values
    steps = np.full(values.shape, np.nan)
    steps[lag:] = np.abs(values[lag:] - values[:-lag])
    places = np.arange(len(values)) - np.repeat(panel.bounds[:-1], panel.lengths)
    # From one series to the next.
    steps[places < lag] = np.nan
    seen = ~np.isnan(steps)
    steps[~seen] = 0.0
    total, count = (
        pd.DataFrame(part).groupby(_owners(panel)).cumsum().to_numpy()
        for part in (steps, seen.astype(np.int64))
    )
    return total, count


def _owners(panel: Panel) -> np.ndarray:
    """Return the number of the series of each row."""
    return np.repeat(np.arange(len(panel)), panel.lengths)
