"""What the parameters of the estimator may be, and what they become."""

import dataclasses
from datetime import timedelta
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils._param_validation import Hidden, Interval, StrOptions
from torch import nn

from mlrforecast.data import Panel
from mlrforecast.estimators import _rules
from mlrforecast.models import EncoderConfig
from mlrforecast.nn import attentions
from mlrforecast.training import TrainingOptions

if TYPE_CHECKING:
    from mlrforecast.estimators.forecaster import MLRForecaster

CONSTRAINTS: dict[str, list[Any]] = {
    "prediction_length": [Interval(Integral, 1, None, closed="left")],
    "context_length": [None, Interval(Integral, 1, None, closed="left")],
    "attention": [StrOptions(set(attentions))],
    "ranks": [None, tuple, list],
    "block_sizes": [None, tuple, list],
    "patch_length": [None, Interval(Integral, 1, None, closed="left")],
    "patch_stride": [None, Interval(Integral, 1, None, closed="left")],
    "width": [Interval(Integral, 1, None, closed="left")],
    "num_heads": [Interval(Integral, 1, None, closed="left")],
    "num_layers": [Interval(Integral, 1, None, closed="left")],
    "hidden_width": [Interval(Integral, 1, None, closed="left")],
    "dropout": [Interval(Real, 0, 1, closed="left")],
    "head_dropout": [Interval(Real, 0, 1, closed="left")],
    "loss": [StrOptions({"quantile", "mae", "mse"})],
    "quantile_levels": [tuple, list, np.ndarray],
    "frequency_weight": [Interval(Real, 0, 1, closed="both")],
    "backbone": [None, nn.Module],
    "max_steps": [None, Interval(Integral, 1, None, closed="left")],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "weight_decay": [Interval(Real, 0, None, closed="left")],
    "early_stopping": ["boolean"],
    "patience": [Interval(Integral, 1, None, closed="left")],
    "max_time": [None, timedelta, Hidden(Interval(Real, 0, None, closed="neither"))],
    "seed": [Interval(Integral, 0, 2**32 - 1, closed="both")],
    "accelerator": [StrOptions({"auto", "cpu", "gpu", "mps"})],
    "progress": ["boolean"],
}


def to_config(forecaster: "MLRForecaster", panel: Panel) -> EncoderConfig:
    """Fill in what is derived from the data: the only mapping from parameters to a config."""
    context_length, patch_length = _rules.derive_lengths(
        panel,
        forecaster.prediction_length,
        forecaster.context_length,
        forecaster.patch_length,
    )
    given = {
        field.name: getattr(forecaster, field.name) for field in dataclasses.fields(EncoderConfig)
    }
    ranks, block_sizes = forecaster.ranks, forecaster.block_sizes
    return EncoderConfig.from_dict(
        {
            **given,
            "context_length": context_length,
            "patch_length": patch_length,
            "patch_stride": forecaster.patch_stride or patch_length,
            "quantile_levels": _rules.check_quantile_levels(forecaster.quantile_levels),
            "ranks": None if ranks is None else tuple(ranks),
            "block_sizes": None if block_sizes is None else tuple(block_sizes),
        }
    )


def training_options(forecaster: "MLRForecaster", num_windows: int) -> TrainingOptions:
    """Collect how the model is to be trained."""
    limit = forecaster.max_time
    if limit is not None and not isinstance(limit, timedelta):
        limit = timedelta(seconds=limit)
    return TrainingOptions(
        max_steps=forecaster.max_steps or _rules.derive_steps(num_windows),
        batch_size=forecaster.batch_size,
        learning_rate=forecaster.learning_rate,
        weight_decay=forecaster.weight_decay,
        seed=forecaster.seed,
        accelerator=forecaster.accelerator,
        max_time=limit,
        early_stopping=forecaster.early_stopping,
        patience=forecaster.patience,
        progress=forecaster.progress,
    )
