"""Saved forecasters: from an estimator to a folder of safetensors and JSON, and back."""

import os
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from mlrforecast._core.errors import DataError, ModelFileError
from mlrforecast._version import __version__
from mlrforecast.data import CovariateEncoding, FrameSchema, parse_frequency
from mlrforecast.estimators import _parameters
from mlrforecast.estimators._card import write_card
from mlrforecast.estimators._document import FORMAT, LIBRARY, MODEL_TYPE, short
from mlrforecast.estimators._fitting import Fitted
from mlrforecast.estimators._parameters import (
    COLUMN,
    COLUMNS,
    OF_ENCODING,
    as_fitted,
    check_agreement,
    plain_parameters,
    to_schema,
)
from mlrforecast.estimators._rules import build_model, build_skeleton
from mlrforecast.estimators._saved_calibration import (
    calibration_tensors,
    describe_calibration,
    read_calibration,
    read_dependence,
)
from mlrforecast.estimators._saved_context import context_tensors, describe_context, read_context
from mlrforecast.estimators._storage import read_model, write_model
from mlrforecast.models import EncoderConfig, EncoderForecaster
from mlrforecast.training import isolated_seed

if TYPE_CHECKING:
    from mlrforecast.estimators.forecaster import MLRForecaster

Forecaster = TypeVar("Forecaster", bound="MLRForecaster")

LONGEST_ALIAS = 64


def save(forecaster: "MLRForecaster", path: str | PathLike[str], *, with_context: bool) -> None:
    """Write a fitted forecaster to a folder, replacing an earlier model there."""
    folder = _folder(path)
    context = forecaster.context_ if with_context else None
    if with_context and context is None:
        raise ValueError(
            "`with_context` needs a context, and this forecaster has none: it was loaded without "
            "one, or fitted on a FileDataset. Fit it on a frame."
        )
    calibration = forecaster.calibration_
    document = {
        "model_type": MODEL_TYPE,
        "format": FORMAT,
        "library": f"{LIBRARY} {__version__}",
        "parameters": _write_parameters(forecaster),
        "backbone": None if forecaster.backbone is None else type(forecaster.backbone).__name__,
        "config": forecaster.config_.to_dict(),
        "encoding": forecaster.encoding_.to_dict(),
        "freq": forecaster.freq_,
        "num_steps": forecaster.num_steps_,
        "batch_size": forecaster.batch_size_,
        "dependence": forecaster.dependence_.tolist(),
        "calibration": None if calibration is None else describe_calibration(calibration),
        "context": None if context is None else describe_context(context),
    }
    weights = forecaster.model_.state_dict()
    tensors = {"model": {name: value.contiguous() for name, value in weights.items()}}
    if context is not None:
        tensors["context"] = context_tensors(context)
    if calibration is not None:
        tensors["calibration"] = calibration_tensors(calibration)
    card = write_card(forecaster, with_context=with_context)
    write_model(folder.resolve(), document, tensors, card)


def load(
    cls: type[Forecaster], path: str | PathLike[str], backbone: nn.Module | None
) -> Forecaster:
    """Read a folder that :func:`save` wrote."""
    folder = _folder(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {str(folder)!r} to load a forecaster from.")
    document, tensors = read_model(folder)
    _check_backbone(folder, document["backbone"], backbone)
    try:
        return _build(cls, document, tensors, backbone)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as e:
        raise ModelFileError(
            f"The forecaster in {str(folder)!r} cannot be built from its files: {short(e)}"
        ) from e


def _folder(path: str | PathLike[str]) -> Path:
    """Return a path that was given as one."""
    if not isinstance(path, str | PathLike):
        raise TypeError(f"`path` must be the path of a folder, got a {type(path).__name__}.")
    if not os.fspath(path):
        raise ValueError("`path` must name a folder, got an empty text.")
    return Path(path)


def _build(
    cls: type[Forecaster],
    document: dict[str, Any],
    tensors: dict[str, dict[str, torch.Tensor]],
    backbone: nn.Module | None,
) -> Forecaster:
    """Put a forecaster together from what was read."""
    forecaster = cls(**_read_parameters(document["parameters"]), backbone=backbone)
    forecaster._validate_params()
    parameters = plain_parameters(forecaster)
    schema = to_schema(parameters)
    config = EncoderConfig.from_dict(document["config"])
    check_agreement(parameters, config, schema)
    encoding = CovariateEncoding.from_dict(document["encoding"])
    freq = document["freq"]
    _check_freq(freq, schema, encoding)
    _check_encoding(encoding, schema, config)
    counts = {name: document[name] for name in ("num_steps", "batch_size")}
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError(f"its {name!r} is {count!r}.")
    context = None
    if document["context"] is not None:
        context = read_context(document["context"], tensors["context"], freq, encoding)
    calibration = None
    if document["calibration"] is not None:
        calibration = read_calibration(
            document["calibration"], tensors["calibration"], config.prediction_length
        )
    dependence = read_dependence(document["dependence"], config.prediction_length)
    model = _build_filled(config, backbone, tensors["model"])
    forecaster._set_fitted(
        Fitted(model.eval(), encoding, dependence, **counts),
        schema=schema,
        freq=freq,
        context=context,
        calibration=calibration,
    )
    return forecaster


def _build_filled(
    config: EncoderConfig, backbone: nn.Module | None, weights: dict[str, torch.Tensor]
) -> EncoderForecaster:
    """Build a model and give it weights, which must be its own in name, shape and type."""
    found = {name: (value.shape, value.dtype) for name, value in weights.items()}
    # Shapes first: a model of an altered configuration may fit no memory.
    if backbone is None and config.num_layers > len(found):
        raise ValueError(f"there are no weights for {config.num_layers} layers.")
    sketched = build_skeleton(config, backbone).state_dict()
    _check_equal({name: found.get(name, ((), None))[0] for name in sketched}, _shapes(sketched))
    with isolated_seed(0):
        model = build_model(config, backbone)
    needed = {name: (value.shape, value.dtype) for name, value in model.state_dict().items()}
    _check_equal(found, needed)
    model.load_state_dict(weights)
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise ValueError(f"the weights of {name!r} are not finite.")
    return model


def _shapes(state: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {name: value.shape for name, value in state.items()}


def _check_equal(found: dict[str, Any], needed: dict[str, Any]) -> None:
    """Compare what is known of weights by name."""
    for name in sorted(found.keys() | needed.keys()):
        if found.get(name) != needed.get(name):
            raise ValueError(f"the weights do not fit the configuration, e.g. {name!r}.")


def _check_freq(freq: str | int, schema: FrameSchema, encoding: CovariateEncoding) -> None:
    """Check that time can go on by a frequency, and has the calendar that is read."""
    longest = len(freq) > LONGEST_ALIAS if isinstance(freq, str) else freq >= 2**63
    if longest or parse_frequency(freq) != freq or schema.freq not in (None, freq):
        raise ValueError(f"its frequency is {short(repr(freq))}.")
    if isinstance(freq, int) and encoding.cycles:
        raise ValueError(f"integer time has no calendar, got {encoding.cycles}.")


def _check_encoding(
    encoding: CovariateEncoding, schema: FrameSchema, config: EncoderConfig
) -> None:
    """Check that covariates are read as the schema names them and as the network takes them."""
    for role in ("past", "known", "static"):
        names = tuple(column.name for column in getattr(encoding, role))
        if names != getattr(schema, f"{role}_covariates"):
            raise ValueError(f"its encoding of {role} covariates has other columns.")
    for name in OF_ENCODING:
        if getattr(encoding, name) != getattr(config, name):
            raise ValueError(f"its encoding of covariates does not fit `{name}`.")


def _check_backbone(folder: Path, saved: str | None, given: nn.Module | None) -> None:
    if saved is not None and given is None:
        raise ModelFileError(
            f"The forecaster in {str(folder)!r} has the custom backbone {short(saved)!r}, whose "
            "code is not stored: pass a module of that class as `backbone`."
        )
    if saved is None and given is not None:
        raise ModelFileError(
            f"The forecaster in {str(folder)!r} has no custom backbone: leave `backbone` out."
        )


def _write_parameters(forecaster: "MLRForecaster") -> dict[str, Any]:
    """Return the constructor's parameters as JSON values, without the backbone."""
    forecaster._validate_params()
    parameters = as_fitted(plain_parameters(forecaster), forecaster.schema_)
    check_agreement(parameters, forecaster.config_, forecaster.schema_)
    _parameters.check_backbone(forecaster.backbone, forecaster.model_)
    for name in ("backbone", *_parameters.LOCAL):
        del parameters[name]
    for name in COLUMN + COLUMNS:
        if not _is_stored(parameters[name]):
            raise DataError(
                f"Only text and integers can be stored as names of columns, but `{name}` is "
                f"{parameters[name]!r}. Rename the columns, fit and save again."
            )
    if isinstance(limit := parameters["max_time"], timedelta):
        parameters["max_time"] = {"seconds": limit.total_seconds()}
    return parameters


def _is_stored(names: Any) -> bool:
    """Tell whether JSON gives back names of columns, and tuples of them."""
    if isinstance(names, tuple):
        return all(map(_is_stored, names))
    return names is None or isinstance(names, str | int)


def _read_parameters(fields: dict[str, Any]) -> dict[str, Any]:
    """Undo :func:`_write_parameters`; sequences become tuples."""
    if named := sorted(fields.keys() & set(_parameters.LOCAL)):
        raise ValueError(f"a file must not say where to write: {', '.join(named)}.")
    parameters: dict[str, Any] = _with_tuples(fields)
    if isinstance(limit := parameters.get("max_time"), dict):
        parameters["max_time"] = timedelta(seconds=limit["seconds"])
    return parameters


def _with_tuples(value: Any) -> Any:
    """Return a value of JSON with tuples for its lists."""
    if isinstance(value, list):
        return tuple(map(_with_tuples, value))
    if isinstance(value, dict):
        return {name: _with_tuples(entry) for name, entry in value.items()}
    return value
