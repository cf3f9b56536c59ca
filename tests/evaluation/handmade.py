"""Backtests of made-up forecasts."""

import numpy as np
import pandas as pd

from mlrforecast.data import read_panel
from mlrforecast.evaluation import Backtest

NAN = np.nan
LEVELS = (0.025, 0.1, 0.5, 0.9, 0.975)


def wide_frame(rows=60, channels=3, *, seed=0):
    values = np.random.default_rng(seed).normal(size=(rows, channels)).cumsum(axis=0)
    index = pd.date_range("2024-01-01", periods=rows, freq="h")
    return pd.DataFrame(values, index=index, columns=[f"c{n}" for n in range(channels)])


def long_frame(lengths, *, seed=0):
    """A frame of items b0, a1, b2, ... in this order, which is not that of the alphabet."""
    rng = np.random.default_rng(seed)
    parts = [
        pd.DataFrame(
            {
                "item_id": f"{'ba'[number % 2]}{number}",
                "timestamp": pd.date_range("2024-01-01", periods=length, freq="D"),
                "target": rng.normal(size=length).cumsum(),
            }
        )
        for number, length in enumerate(lengths)
    ]
    return pd.concat(parts, ignore_index=True)


def backtest_of(frame, *, steps=4, windows=3, stride=2, levels=LEVELS, season=3, seed=1):
    """Random forecasts of the last windows of each series."""
    panel = read_panel(frame)
    series = np.repeat(np.arange(len(panel)), windows)
    later = np.tile(np.arange(windows)[::-1], len(panel))
    num_rows = panel.lengths[series] - steps - stride * later
    rows, _ = panel.places(series, num_rows[:, None] + np.arange(steps))
    actual = panel.values[rows]
    rng = np.random.default_rng(seed)
    spread = np.sort(rng.normal(size=(*actual.shape, len(levels))), axis=-1)
    return Backtest(
        forecast=rng.normal(size=actual.shape),
        actual=actual,
        quantiles=spread if levels else None,
        quantile_levels=tuple(levels),
        panel=panel,
        series=series,
        num_rows=num_rows,
        season_length=season,
    )
