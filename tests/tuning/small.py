"""A frame, an estimator and a space whose trials take a blink."""

from typing import Any

import numpy as np
import pandas as pd

from mlrforecast import MLRForecaster

HORIZON = 4
SPACE: dict[str, Any] = {
    "learning_rate": {"grid_search": [1e-3, 1e-2]},
    "dropout": [0.0, 0.1, 0.2],
}


def forecaster(**parameters: Any) -> MLRForecaster:
    settings: dict[str, Any] = {
        "max_steps": 6,
        "width": 8,
        "num_heads": 2,
        "num_layers": 1,
        "hidden_width": 8,
        "batch_size": 16,
        "accelerator": "cpu",
        "progress": False,
    }
    return MLRForecaster(HORIZON, **(settings | parameters))


def frame(rows: int = 90) -> pd.DataFrame:
    """Two noisy weekly waves."""
    index = pd.date_range("2024-01-01", periods=rows, freq="D")
    noise = np.random.default_rng(0).normal(scale=0.2, size=(rows, 2))
    wave = np.sin(2 * np.pi * np.arange(rows)[:, None] / 7 + np.arange(2))
    return pd.DataFrame(10 + wave + noise, index=index, columns=["a", "b"])
