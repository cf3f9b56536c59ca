"""Covariates stand where they belong in time: shifted by one step, each of these would fail.

The covariate is noise, so a target made of it can be forecast only by who reads the right row.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster

CONTEXT, ROWS = 24, 600
QUICK: dict[str, Any] = {
    "context_length": CONTEXT,
    "target": "y",
    "width": 8,
    "num_heads": 2,
    "num_layers": 1,
    "hidden_width": 8,
    "dropout": 0.0,
    "loss": "mse",
    "frequency_weight": 0.0,
    "batch_size": 64,
    "max_steps": 100,
    "learning_rate": 0.1,
    "calendar": False,
    "accelerator": "cpu",
    "progress": False,
}


def follows(lag: int) -> pd.DataFrame:
    """A target that is, but for its unit, the covariate of ``lag`` hours ago."""
    noise = np.random.default_rng(0).normal(20.0, 5.0, ROWS + 2)
    index = pd.date_range("2024-01-01", periods=ROWS, freq="h")
    y = 3.0 * noise[1 - lag : 1 - lag + ROWS] - 7.0
    return pd.DataFrame({"y": y, "x": noise[1 : 1 + ROWS]}, index=index)


def relative_error(role: str, lag: int, prediction_length: int) -> float:
    """Error on rows that were not trained on, in standard deviations of the target."""
    frame = follows(lag)
    fitted = MLRForecaster(prediction_length, **QUICK, **{role: ["x"]}).fit(frame[:500])
    rolled = fitted.backtest(frame[500 - CONTEXT :], step=prediction_length)
    return float(np.sqrt(np.mean((rolled.forecast - rolled.actual) ** 2)) / frame["y"].std())


@pytest.mark.parametrize("prediction_length", [1, 6])
@pytest.mark.parametrize("lag", [0, 1], ids=["this hour", "last hour"])
def test_a_target_that_is_a_known_covariate(lag: int, prediction_length: int) -> None:
    assert relative_error("known_covariates", lag, prediction_length) < 0.15


def test_a_target_that_is_the_past_covariate_of_last_hour() -> None:
    assert relative_error("past_covariates", 1, 1) < 0.2


@pytest.mark.parametrize(("role", "lag"), [("past_covariates", 0), ("known_covariates", -1)])
def test_what_is_not_known_yet_cannot_be_learnt(role: str, lag: int) -> None:
    assert relative_error(role, lag, 1) > 0.8
