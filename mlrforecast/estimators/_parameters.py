"""What the parameters of the estimator may be, and what they become."""

import dataclasses
from collections.abc import Hashable, Mapping
from datetime import timedelta
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import nn

from mlrforecast._core import devices
from mlrforecast.data import CovariateEncoding, FrameSchema, Scaling, parse_frequency
from mlrforecast.data.gluonts import is_entry_column
from mlrforecast.data.schema import Fill, Resample
from mlrforecast.estimators import _rules
from mlrforecast.models import EncoderConfig, EncoderForecaster
from mlrforecast.models.encoder import Loss
from mlrforecast.nn import Encoder
from mlrforecast.training import Parametrization, TrainingOptions
from mlrforecast.training.loggers import check_loggers
from mlrforecast.training.options import LoggerName, Precision, Schedule

if TYPE_CHECKING:
    from mlrforecast.estimators.forecaster import MLRForecaster

MAX_SECONDS = 10**9

COLUMN = ("target", "id_column", "timestamp_column")
COLUMNS = ("past_covariates", "known_covariates", "static_covariates")

CONSTRAINTS: dict[str, list[Any] | str] = {
    "prediction_length": [Interval(Integral, 1, None, closed="left")],
    "context_length": [None, Interval(Integral, 1, None, closed="left")],
    # Any hashable object may name a column.
    **dict.fromkeys((*COLUMN, *COLUMNS), "no_validation"),
    "calendar": ["boolean"],
    "season_length": [None, Interval(Integral, 1, None, closed="left")],
    "freq": [None, str, Interval(Integral, 1, None, closed="left")],
    "fill": [None, StrOptions(set(get_args(Fill)))],
    "resample": [None, StrOptions(set(get_args(Resample)))],
    "scaling": [StrOptions(set(get_args(Scaling)))],
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
    "loss": [StrOptions(set(get_args(Loss)))],
    "quantile_levels": [tuple, list, np.ndarray],
    "frequency_weight": [Interval(Real, 0, 1, closed="both")],
    "linear_share": [None, Interval(Real, 0, 1, closed="left")],
    "backbone": [None, nn.Module],
    "max_steps": [None, Interval(Integral, 1, None, closed="left")],
    "batch_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "weight_decay": [Interval(Real, 0, None, closed="left")],
    "parametrization": [StrOptions(set(get_args(Parametrization)))],
    "schedule": [StrOptions(set(get_args(Schedule)))],
    "warmup_steps": [None, Interval(Integral, 0, None, closed="left")],
    "gradient_clip": [None, Interval(Real, 0, None, closed="neither")],
    "ema_decay": [None, Interval(Real, 0, 1, closed="neither")],
    "early_stopping": ["boolean"],
    "patience": [Interval(Integral, 1, None, closed="left")],
    "max_time": [None, timedelta, Interval(Real, 0, MAX_SECONDS, closed="right")],
    "seed": [Interval(Integral, 0, 2**32 - 1, closed="both")],
    "accelerator": [StrOptions({"auto", "cpu", "gpu", "mps"})],
    "devices": [Interval(Integral, 1, None, closed="left")],
    "precision": [StrOptions(set(get_args(Precision)))],
    "compile": ["boolean"],
    "checkpoint_dir": [None, str, PathLike],
    "logger": [None, str, tuple, list],
    "log_dir": [None, str, PathLike],
    "warm_start": ["boolean"],
    "progress": ["boolean"],
}


def plain_parameters(forecaster: "MLRForecaster") -> dict[str, Any]:
    """Return the parameters as values of Python, those of numpy converted; check their types."""
    plain: dict[str, Any] = {}
    for name, value in forecaster.get_params(deep=False).items():
        plain[name] = _columns(name, value) if name in COLUMN + COLUMNS else _plain(value)
        if isinstance(plain[name], bool) and "boolean" not in CONSTRAINTS[name]:
            raise TypeError(f"`{name}` must be a number, got {value}.")
    if plain["freq"] is not None:
        plain["freq"] = parse_frequency(plain["freq"])
    limit = plain["max_time"]
    if isinstance(limit, timedelta) and limit <= timedelta(0):
        raise ValueError(f"`max_time` must be positive, got {limit!r}.")
    plain["quantile_levels"] = _rules.check_quantile_levels(plain["quantile_levels"])
    plain["logger"] = _loggers(plain["logger"])
    for name in FOLDERS:
        if plain[name] is not None and not fspath(plain[name]):
            raise ValueError(f"`{name}` must name a folder, got an empty text.")
        plain[name] = None if plain[name] is None else Path(plain[name])
    return plain


FOLDERS = ("checkpoint_dir", "log_dir")
LOCAL = (*FOLDERS, "logger")
"""What belongs to a machine, and so to no file of a model."""


def _loggers(names: Any) -> tuple[LoggerName, ...]:
    """Return the names of loggers as a tuple."""
    given = (names,) if isinstance(names, str) else tuple(names or ())
    known = get_args(LoggerName)
    for name in given:
        if name not in known:
            raise ValueError(f"`logger` must be among {', '.join(known)}, got {name!r}.")
    return given


def _plain(value: Any) -> Any:
    """Turn numpy scalars into those of Python, arrays and lists into tuples, also in mappings."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (np.ndarray, list, tuple)):
        return tuple(_plain(entry) for entry in value)
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return value


def _columns(name: str, value: Any) -> Any:
    """Return the names of columns as a tuple, or the one name that ``target`` may be."""
    if isinstance(value, (list, tuple, np.ndarray, pd.Index)) and name not in _ONE:
        names = tuple(_plain_name(name, entry) for entry in value)
        if not names and name == "target":
            raise ValueError("`target` must name at least one column, got an empty sequence.")
        return names
    if name in COLUMNS:
        raise TypeError(
            f"`{name}` must be a sequence of names of columns, such as ['temperature'], got "
            f"{value!r}."
        )
    return _plain_name(name, value)


_ONE = ("id_column", "timestamp_column")


def _plain_name(parameter: str, name: Any) -> Hashable:
    """Return the name of a column, as a value of Python if it is text or an integer of numpy."""
    if isinstance(name, bool) or not isinstance(name, Hashable):
        raise TypeError(f"`{parameter}` must hold names of columns, got {name!r}.")
    return name.item() if isinstance(name, (np.integer, np.str_)) else name


def names_of_columns(frame: Any) -> list[Any]:
    """Return the names of the columns of a frame that was read; numbers for an array."""
    if isinstance(frame, np.ndarray):
        return list(range(1 if frame.ndim == 1 else frame.shape[1]))
    if isinstance(frame, pd.Series):
        return [frame.name]
    # pyarrow keeps the columns themselves where others keep the names.
    return list(getattr(frame, "column_names", None) or frame.columns)


def to_schema(parameters: dict[str, Any]) -> FrameSchema:
    """Collect what the parameters say of a frame."""
    fields = (field.name for field in dataclasses.fields(FrameSchema))
    return FrameSchema(**{name: parameters[name] for name in fields})


def check_without_data(parameters: dict[str, Any]) -> None:
    """Build what the parameters describe, for series that give as many tokens as any can."""
    derived = parameters["context_length"] is None and parameters["patch_length"] is None
    # Patches begin to grow from twice as many tokens on; longer series give fewer.
    context = 2 * _rules.NUM_TOKENS - 1 if derived else _rules.MAX_CONTEXT
    longest = parameters["prediction_length"] + 2 * context
    config = to_config(parameters, longest, CovariateEncoding())
    model = _rules.build_skeleton(config, parameters["backbone"])
    _rules.check_parametrization(model, parameters["parametrization"])
    _check_training(parameters)


def _check_training(parameters: dict[str, Any]) -> None:
    """Refuse settings of the training that do not go together."""
    steps, warmup = parameters["max_steps"], parameters["warmup_steps"]
    if steps is not None and warmup is not None and warmup > steps:
        raise ValueError(f"`warmup_steps` must be at most `max_steps` ({steps}), got {warmup}.")
    if (parameters["log_dir"] is None) != (not parameters["logger"]):
        raise ValueError(
            "`logger` and `log_dir` go together: what is logged, and in which folder; got "
            f"{parameters['logger']!r} and {parameters['log_dir']!r}."
        )
    check_loggers(parameters["logger"])
    device = devices.find_device(parameters["accelerator"])
    if parameters["precision"] == "16-mixed" and device.type == "cpu":
        raise ValueError("`precision`='16-mixed' needs a GPU; a CPU can have 'bf16-mixed'.")
    _check_devices(parameters["devices"], parameters["batch_size"], device)


def _check_devices(devices: int, batch_size: int | str, device: torch.device) -> None:
    """Check that there are so many devices, and that they can share the windows of a step."""
    if devices == 1:
        return
    most = {"cuda": torch.cuda.device_count(), "mps": 1}.get(device.type, devices)
    if devices > most:
        raise ValueError(
            f"`devices` is {devices}, but torch finds {most} of the kind {device.type!r} here."
        )
    if batch_size != "auto" and int(batch_size) % devices:
        raise ValueError(
            f"`batch_size` must be a multiple of `devices` ({devices}), which share the windows "
            f"of each step, got {batch_size}."
        )


def as_fitted(parameters: dict[str, Any], schema: FrameSchema) -> dict[str, Any]:
    """Return parameters with the covariates that ``fit`` found in entries of GluonTS.

    They have roles of their own, unless parameters name some.
    """
    roles = {name: getattr(schema, name) for name in COLUMNS}
    found = [column for names in roles.values() for column in names]
    if any(parameters[name] for name in COLUMNS) or not all(map(is_entry_column, found)):
        return parameters
    return parameters | roles


def check_agreement(parameters: dict[str, Any], config: EncoderConfig, schema: FrameSchema) -> None:
    """Raise a ValueError if a forecaster was not fitted with these parameters."""
    fitted = {name: getattr(config, name) for name in _fields_of_config()}
    fitted |= {field.name: getattr(schema, field.name) for field in dataclasses.fields(schema)}
    # A calendar that was asked for is left out where the series are too short to teach one.
    fitted["calendar"] = config.num_calendar_features > 0 or parameters["calendar"]
    for name, value in fitted.items():
        given = parameters[name]
        if given is None and name in ("context_length", "patch_length", "linear_share"):
            continue
        if given is None and name == "patch_stride":
            given = fitted["patch_length"]
        if given != value:
            raise ValueError(
                f"`{name}` is {given!r}, but the network was fitted with {value!r}. Set it back, "
                "or fit again."
            )


def check_backbone(backbone: nn.Module | None, model: EncoderForecaster) -> None:
    """Raise a ValueError if a network has the backbone of another class."""
    fitted, given = type(model.backbone), Encoder if backbone is None else type(backbone)
    if fitted is not given:
        raise ValueError(
            f"`backbone` is of the class {given.__name__}, but the network was fitted with "
            f"{fitted.__name__}. Set it back, or fit again."
        )


def to_config(
    parameters: dict[str, Any], longest: int, encoding: CovariateEncoding
) -> EncoderConfig:
    """Fill in what is derived from the data: the only mapping from parameters to a config."""
    context_length, patch_length = derive_lengths(parameters, longest)
    share = parameters["linear_share"]
    if share is None:
        share = _rules.derive_linear_share(parameters["prediction_length"])
    derived = {
        "linear_share": share,
        "context_length": context_length,
        "patch_length": patch_length,
        "patch_stride": parameters["patch_stride"] or patch_length,
        **{name: getattr(encoding, name) for name in OF_ENCODING},
    }
    return EncoderConfig.from_dict(
        {name: parameters[name] for name in _fields_of_config()} | derived
    )


OF_ENCODING = (
    "past_cardinalities",
    "known_cardinalities",
    "static_cardinalities",
    "num_calendar_features",
)
"""Fields of a configuration that the columns of a frame determine."""


def _fields_of_config() -> list[str]:
    """Return the fields of a configuration that are parameters."""
    every = [field.name for field in dataclasses.fields(EncoderConfig)]
    return [name for name in every if name not in OF_ENCODING]


def derive_lengths(parameters: dict[str, Any], longest: int) -> tuple[int, int]:
    """Return context and patch length for series of at most ``longest`` rows."""
    names = ("prediction_length", "context_length", "patch_length")
    return _rules.derive_lengths(longest, *(parameters[name] for name in names))


def training_options(parameters: dict[str, Any], num_windows: int) -> TrainingOptions:
    """Collect how the model is to be trained; a batch size that is to be found is the least."""
    known = {field.name for field in dataclasses.fields(TrainingOptions)}
    given = {name: value for name, value in parameters.items() if name in known}
    if given["max_steps"] is None:
        steps = _rules.derive_steps(num_windows, parameters["prediction_length"])
        given["max_steps"] = max(steps, given["warmup_steps"] or 0)
    if given["batch_size"] == "auto":
        given["batch_size"] = given["devices"]
    if isinstance(given["max_time"], (int, float)):
        given["max_time"] = timedelta(seconds=given["max_time"])
    return TrainingOptions(**given)
