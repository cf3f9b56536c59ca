"""What the parameters of the estimator may be, and what they become."""

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from torch import nn

from mlrforecast.estimators import _rules
from mlrforecast.models import EncoderConfig
from mlrforecast.training import Parametrization, TrainingOptions

if TYPE_CHECKING:
    from mlrforecast.estimators.forecaster import MLRForecaster

MAX_SECONDS = 10**9

CONSTRAINTS: dict[str, list[Any]] = {
    "prediction_length": [Interval(Integral, 1, None, closed="left")],
    "context_length": [None, Interval(Integral, 1, None, closed="left")],
    # Not the names: scores can be registered later. The configuration checks them.
    "attention": [str, tuple, list],
    "ranks": [None, tuple, list],
    "block_sizes": [None, tuple, list],
    "attention_options": [None, Mapping],
    "positions": [StrOptions({"learned", "rotary", "none"})],
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
    "parametrization": [StrOptions(set(get_args(Parametrization)))],
    "early_stopping": ["boolean"],
    "patience": [Interval(Integral, 1, None, closed="left")],
    "max_time": [None, timedelta, Interval(Real, 0, MAX_SECONDS, closed="right")],
    "seed": [Interval(Integral, 0, 2**32 - 1, closed="both")],
    "accelerator": [StrOptions({"auto", "cpu", "gpu", "mps"})],
    "progress": ["boolean"],
}


def plain_parameters(forecaster: "MLRForecaster") -> dict[str, Any]:
    """Return the parameters as values of Python, those of numpy converted; check their types."""
    plain = {name: _plain(value) for name, value in forecaster.get_params(deep=False).items()}
    for name, value in plain.items():
        if isinstance(value, bool) and "boolean" not in CONSTRAINTS[name]:
            raise TypeError(f"`{name}` must be a number, got {value}.")
    limit = plain["max_time"]
    if isinstance(limit, timedelta) and limit <= timedelta(0):
        raise ValueError(f"`max_time` must be positive, got {limit!r}.")
    plain["quantile_levels"] = _rules.check_quantile_levels(plain["quantile_levels"])
    return plain


def _plain(value: Any) -> Any:
    """Turn numpy scalars into those of Python, arrays and lists into tuples, also in mappings."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (np.ndarray, list, tuple)):
        return tuple(_plain(entry) for entry in value)
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return value


def check_without_data(parameters: dict[str, Any]) -> None:
    """Build what the parameters describe, for series that are long enough for any context."""
    longest = parameters["prediction_length"] + 4 * _rules.MAX_CONTEXT
    model = _rules.build_skeleton(to_config(parameters, longest), parameters["backbone"])
    _rules.check_parametrization(model, parameters["parametrization"])


def check_agreement(parameters: dict[str, Any], config: EncoderConfig) -> None:
    """Raise a ValueError if a network was not built from these parameters."""
    fitted = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    for name, value in fitted.items():
        given = parameters[name]
        if given is None and name in ("context_length", "patch_length"):
            continue
        if given is None and name == "patch_stride":
            given = fitted["patch_length"]
        if given != value:
            raise ValueError(
                f"`{name}` is {given!r}, but the network was fitted with {value!r}. Set it back, "
                "or fit again."
            )


def to_config(parameters: dict[str, Any], longest: int) -> EncoderConfig:
    """Fill in what is derived from the data: the only mapping from parameters to a config."""
    context_length, patch_length = _rules.derive_lengths(
        longest,
        parameters["prediction_length"],
        parameters["context_length"],
        parameters["patch_length"],
    )
    given = {field.name: parameters[field.name] for field in dataclasses.fields(EncoderConfig)}
    derived = {
        "context_length": context_length,
        "patch_length": patch_length,
        "patch_stride": parameters["patch_stride"] or patch_length,
    }
    return EncoderConfig.from_dict({**given, **derived})


def training_options(parameters: dict[str, Any], num_windows: int) -> TrainingOptions:
    """Collect how the model is to be trained."""
    known = {field.name for field in dataclasses.fields(TrainingOptions)}
    given = {name: value for name, value in parameters.items() if name in known}
    if given["max_steps"] is None:
        given["max_steps"] = _rules.derive_steps(num_windows)
    if isinstance(given["max_time"], (int, float)):
        given["max_time"] = timedelta(seconds=given["max_time"])
    return TrainingOptions(**given)
