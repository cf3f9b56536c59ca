"""The forecast of a week reads nothing of the week, and stands beside what came to be."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster, load_dataset

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("ett_week", ROOT / "benchmarks" / "ett_week.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("loss", ["quantile", "mse"])
def test_forecasts_of_the_week_stand_beside_what_came_to_be(script, loss):
    data = load_dataset("synthetic")
    forecaster = MLRForecaster(24, loss=loss, max_steps=2, progress=False).fit(data.train)
    begin, channels = data.targets.index[1100], list(data.targets.columns[:2])
    rows = script.week(forecaster, data.targets, channels, begin)
    assert len(rows) == 2 * (48 + 24)
    assert [name for name in rows if name.startswith("quantile")] == (
        ["quantile_0.1", "quantile_0.9"] if loss == "quantile" else []
    )
    for channel in channels:
        own = rows[rows["channel"] == channel].set_index("timestamp")
        np.testing.assert_array_equal(own["actual"], data.targets[channel].iloc[1052:1124])
        assert own["forecast"].notna().tolist() == [False] * 48 + [True] * 24
        assert own.index[48] == begin
    changed = data.targets.copy()
    changed.iloc[1100:] = 1e6
    again = script.week(forecaster, changed, channels, begin)
    pd.testing.assert_series_equal(again["forecast"], rows["forecast"])
