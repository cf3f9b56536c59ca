"""Saved forecasters: a folder of safetensors and JSON that appears whole or not at all."""

import hashlib
import json
import secrets
import shutil
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from mlrforecast._core.errors import DataError, ModelFileError
from mlrforecast._version import __version__
from mlrforecast.data import Panel, Series
from mlrforecast.estimators._context import Context
from mlrforecast.estimators._parameters import plain_parameters
from mlrforecast.estimators._rules import build_model
from mlrforecast.models import EncoderConfig
from mlrforecast.training import isolated_seed

if TYPE_CHECKING:
    from mlrforecast.estimators.forecaster import MLRForecaster

FORMAT = 1
LIBRARY = "mlrforecast"
KEYS = {
    "format",
    "library",
    "parameters",
    "backbone",
    "config",
    "freq",
    "num_steps",
    "context",
    "sha256",
}
CONFIG, WEIGHTS, CONTEXT = "config.json", "model.safetensors", "context.safetensors"

Forecaster = TypeVar("Forecaster", bound="MLRForecaster")


def save(forecaster: "MLRForecaster", path: str | PathLike[str], *, with_context: bool) -> None:
    """Write a fitted forecaster to a folder, replacing an earlier model there."""
    target = Path(path).resolve()
    _check_target(target)
    context = forecaster.context_ if with_context else None
    if with_context and context is None:
        raise ValueError(
            "`with_context` needs a context, and this forecaster was loaded without one: fit it."
        )
    document = {
        "format": FORMAT,
        "library": f"{LIBRARY} {__version__}",
        "parameters": _write_parameters(forecaster),
        "backbone": None if forecaster.backbone is None else type(forecaster.backbone).__name__,
        "config": forecaster.config_.to_dict(),
        "freq": forecaster.freq_,
        "num_steps": forecaster.num_steps_,
        "context": None if context is None else _describe_context(context),
    }
    weights = forecaster.model_.state_dict()
    tensors = {WEIGHTS: {name: value.contiguous() for name, value in weights.items()}}
    if context is not None:
        tensors[CONTEXT] = _context_tensors(context.panel)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = _beside(target)
    draft.mkdir()
    try:
        for name, content in tensors.items():
            save_file(content, draft / name)
        document["sha256"] = {name: _sha256(draft / name) for name in tensors}
        (draft / CONFIG).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        _replace(draft, target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def load(
    cls: type[Forecaster], path: str | PathLike[str], backbone: nn.Module | None
) -> Forecaster:
    """Read a folder that :func:`save` wrote."""
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {str(folder)!r} to load a forecaster from.")
    document = _read_config(folder)
    tensors = {
        name: _read_tensors(folder, name, digest) for name, digest in document["sha256"].items()
    }
    _check_backbone(folder, document["backbone"], backbone)
    try:
        forecaster = cls(**_read_parameters(document["parameters"]), backbone=backbone)
        forecaster._validate_params()
        config = EncoderConfig.from_dict(document["config"])
        with isolated_seed(0):
            model = build_model(config, backbone)
        _fill(model, tensors[WEIGHTS])
        context = None
        if document["context"] is not None:
            context = _read_context(document["context"], tensors[CONTEXT], document["freq"])
        forecaster.num_steps_ = int(document["num_steps"])
        forecaster._set_fitted(model.eval(), document["freq"], context)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        raise ModelFileError(
            f"The forecaster in {str(folder)!r} cannot be built from its files: {e}"
        ) from e
    return forecaster


def _fill(model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Copy weights into a model, which must have the same in name and shape."""
    needed = {name: value.shape for name, value in model.state_dict().items()}
    found = {name: value.shape for name, value in weights.items()}
    if differing := sorted(dict(needed.items() ^ found.items())):
        raise ValueError(f"the weights do not fit the configuration, e.g. {differing[0]!r}.")
    model.load_state_dict(weights)


def _check_target(target: Path) -> None:
    """Refuse to write over anything but an earlier model or an empty folder."""
    if not target.exists():
        return
    if target.is_dir() and (not any(target.iterdir()) or _is_saved_forecaster(target)):
        return
    raise FileExistsError(
        f"`path` {str(target)!r} exists and is no saved forecaster; it is left alone. "
        "Name a new folder."
    )


def _is_saved_forecaster(folder: Path) -> bool:
    """Tell whether a folder holds a saved forecaster and nothing else."""
    if not {file.name for file in folder.iterdir()} <= {CONFIG, WEIGHTS, CONTEXT}:
        return False
    try:
        document = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and str(document.get("library")).startswith(LIBRARY)


def _check_backbone(folder: Path, saved: str | None, given: nn.Module | None) -> None:
    if saved is not None and given is None:
        raise ModelFileError(
            f"The forecaster in {str(folder)!r} has the custom backbone {saved!r}, whose code is "
            "not stored: pass a module of that class as `backbone`."
        )
    if saved is None and given is not None:
        raise ModelFileError(
            f"The forecaster in {str(folder)!r} has no custom backbone: leave `backbone` out."
        )


def _write_parameters(forecaster: "MLRForecaster") -> dict[str, Any]:
    """Return the constructor's parameters as JSON values, without the backbone."""
    forecaster._validate_params()
    parameters = plain_parameters(forecaster)
    del parameters["backbone"]
    if isinstance(limit := parameters["max_time"], timedelta):
        parameters["max_time"] = {"seconds": limit.total_seconds()}
    return parameters


def _read_parameters(fields: dict[str, Any]) -> dict[str, Any]:
    """Undo :func:`_write_parameters`; sequences become tuples."""
    parameters = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    if isinstance(limit := parameters.get("max_time"), dict):
        parameters["max_time"] = timedelta(seconds=limit["seconds"])
    return parameters


def _describe_context(context: Context) -> dict[str, Any]:
    """Return all of a context but its numbers as JSON values."""
    panel = context.panel
    index = panel.series[0].index
    zone = None if index.tz is None else str(index.tz)
    try:
        index.tz_convert(zone) if zone is not None else index
    except (KeyError, ValueError) as error:
        raise DataError(
            f"The time zone {zone!r} has no name that can be stored. Convert the stamps, e.g. "
            "with tz_convert('Europe/Paris'), or save without context."
        ) from error
    return {
        "form": panel.form,
        "names": [_plain_label(name) for name in panel.names],
        "labels": [_plain_label(label) for label in context.labels],
        "lengths": [len(item.index) for item in panel.series],
        "unit": index.unit,
        "time_zone": zone,
    }


def _plain_label(label: Any) -> str | int:
    if not isinstance(label, (str, int, np.integer)) or isinstance(label, bool):
        raise DataError(
            f"Only text and integers can be stored as column names and item ids, got {label!r} "
            f"of type {type(label).__name__}. Rename it, or save without context."
        )
    return str(label) if isinstance(label, str) else int(label)


def _context_tensors(panel: Panel) -> dict[str, torch.Tensor]:
    values = np.concatenate([item.values for item in panel.series])
    stamps = np.concatenate([item.index.asi8 for item in panel.series])
    return {"values": torch.from_numpy(values), "stamps": torch.from_numpy(stamps)}


def _read_context(
    described: dict[str, Any], tensors: dict[str, torch.Tensor], freq: str
) -> Context:
    """Undo :func:`_describe_context` and :func:`_context_tensors`."""
    stamps = pd.DatetimeIndex(tensors["stamps"].numpy().view(f"M8[{described['unit']}]"))
    if described["time_zone"] is not None:
        stamps = stamps.tz_localize("UTC").tz_convert(described["time_zone"])
    values = tensors["values"].numpy()
    form = described["form"]
    names, labels = (
        [_plain_label(label) for label in described[part]] for part in ("names", "labels")
    )
    lengths = np.array(described["lengths"], dtype=int)
    ids, channels = ([None], len(labels)) if form == "wide" else (labels, 1)
    if (
        form not in ("wide", "long")
        or len(lengths) != len(ids)
        or (lengths < 1).any()
        or values.shape != (lengths.sum(), channels)
        or len(stamps) != len(values)
        or (form == "wide" and names != labels)
        or (form == "long" and len(names) != 3)
    ):
        raise ValueError("the parts of its context do not fit together.")
    ends = np.cumsum(lengths)
    series = tuple(
        Series(item_id, stamps[end - length : end], values[end - length : end])
        for item_id, length, end in zip(ids, lengths, ends, strict=True)
    )
    return Context(Panel(form, tuple(names), freq, series), pd.Index(labels))


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        document = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        version = document["format"]
    except FileNotFoundError as error:
        raise ModelFileError(f"{str(folder)!r} holds no {CONFIG}: it is no forecaster.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(
            f"{CONFIG} in {str(folder)!r} is no description of a forecaster; it was altered or "
            "cut short."
        ) from error
    if version != FORMAT:
        raise ModelFileError(
            f"The forecaster in {str(folder)!r} has file format {version!r}; this version of "
            f"mlrforecast ({__version__}) reads {FORMAT}."
        )
    if differing := KEYS ^ set(document):
        raise ModelFileError(
            f"{CONFIG} in {str(folder)!r} lacks or adds {', '.join(sorted(differing))}."
        )
    if not str(document["library"]).startswith(LIBRARY) or not isinstance(document["freq"], str):
        raise ModelFileError(
            f"{CONFIG} in {str(folder)!r} must have text under 'freq', and {LIBRARY!r} with its "
            f"version under 'library', got {document['freq']!r} and {document['library']!r}."
        )
    files = {WEIGHTS} if document["context"] is None else {WEIGHTS, CONTEXT}
    if not isinstance(document["sha256"], dict) or set(document["sha256"]) != files:
        raise ModelFileError(
            f"{CONFIG} in {str(folder)!r} must list {' and '.join(sorted(files))} under 'sha256'."
        )
    return dict(document)


def _read_tensors(folder: Path, name: str, digest: str) -> dict[str, torch.Tensor]:
    file = folder / name
    if not file.is_file():
        raise ModelFileError(f"{str(folder)!r} lacks {name}.")
    found = _sha256(file)
    if found != digest:
        raise ModelFileError(
            f"{name} in {str(folder)!r} was altered or cut short: its sha256 is {found}, "
            f"{CONFIG} says {digest}."
        )
    try:
        return dict(load_file(file))
    except SafetensorError as error:
        raise ModelFileError(f"{name} in {str(folder)!r} cannot be read: {error}") from error


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _beside(target: Path) -> Path:
    """Return a new hidden name in the folder of the target."""
    return target.with_name(f".{target.name}-{secrets.token_hex(8)}")


def _replace(draft: Path, target: Path) -> None:
    """Put a finished folder in place of the target, which may hold an earlier model."""
    if not target.exists():
        draft.rename(target)
        return
    old = target.rename(_beside(target))
    try:
        draft.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
