"""Small runs that several tests make."""

from typing import Any

import numpy as np
import pandas as pd
import torch

from mlrforecast.data import CovariateEncoding, FrameSchema, WindowStore, read_panel
from mlrforecast.models import EncoderConfig, EncoderForecaster
from mlrforecast.training import isolated_seed

CONTEXT, FUTURE = 48, 12


def windows_of(columns: dict[str, Any], calendar: bool = False, **roles: Any) -> WindowStore:
    """Windows of an hourly frame."""
    index = pd.date_range("2024", periods=len(columns["load"]), freq="h")
    panel = read_panel(pd.DataFrame(columns, index=index), FrameSchema(**roles))
    encoding = CovariateEncoding.fit(panel, calendar=calendar)
    lengths = {"context_length": CONTEXT, "prediction_length": FUTURE, "min_context": 12}
    return WindowStore(panel, encoding, **lengths)


def store_of(rows: int = 600, noise: float = 0.1, seed: int = 0) -> WindowStore:
    """A daily wave with noise: the noise is what no forecast can get below."""
    hours = np.arange(rows)
    values = np.sin(2 * np.pi * hours / 24) + noise * np.random.default_rng(seed).normal(size=rows)
    return windows_of({"load": values})


def model_of(seed: int = 0, **fields: Any) -> EncoderForecaster:
    sizes = {"patch_length": 12, "patch_stride": 12, "width": 16, "num_layers": 1, "num_heads": 2}
    with isolated_seed(seed):
        return EncoderForecaster(
            EncoderConfig(
                context_length=CONTEXT,
                prediction_length=FUTURE,
                **{"loss": "mse", **sizes, **fields},
            )
        )


def weights(model: EncoderForecaster) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
