"""Saved forecasters: a folder of safetensors and JSON that appears whole or not at all."""

import hashlib
import json
import shutil
import tempfile
from copy import deepcopy
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
from mlrforecast.models import EncoderConfig, EncoderForecaster

if TYPE_CHECKING:
    from mlrforecast.estimators.forecaster import MLRForecaster

FORMAT = 1
CONFIG, WEIGHTS, CONTEXT = "config.json", "model.safetensors", "context.safetensors"

Forecaster = TypeVar("Forecaster", bound="MLRForecaster")


def save(forecaster: "MLRForecaster", path: str | PathLike[str], *, with_context: bool) -> None:
    """Write a fitted forecaster to a folder, replacing an earlier model there."""
    target = Path(path)
    _check_target(target)
    context = forecaster.context_ if with_context else None
    if with_context and context is None:
        raise ValueError("`with_context` needs a context, and this forecaster has none: fit it.")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        state = {name: value.contiguous() for name, value in forecaster.model_.state_dict().items()}
        save_file(state, draft / WEIGHTS)
        document = {
            "format": FORMAT,
            "library": f"mlrforecast {__version__}",
            "parameters": _plain_parameters(forecaster),
            "backbone": None if forecaster.backbone is None else type(forecaster.backbone).__name__,
            "config": forecaster.config_.to_dict(),
            "freq": forecaster.freq_,
            "num_steps": forecaster.num_steps_,
            "context": None if context is None else _save_context(context, draft / CONTEXT),
            "sha256": {
                file.name: hashlib.sha256(file.read_bytes()).hexdigest()
                for file in sorted(draft.glob("*.safetensors"))
            },
        }
        (draft / CONFIG).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        draft.chmod(0o755)
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
        forecaster = cls(**_tupled(document["parameters"]), backbone=backbone)
        config = EncoderConfig.from_dict(_tupled(document["config"]))
        model = EncoderForecaster(config, deepcopy(backbone))
        model.load_state_dict(tensors[WEIGHTS])
        context = _load_context(document["context"], tensors.get(CONTEXT), document["freq"])
        forecaster.num_steps_ = int(document["num_steps"])
        forecaster._set_fitted(model.eval(), str(document["freq"]), context)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelFileError(
            f"The forecaster in {str(folder)!r} cannot be built from its files: {error}"
        ) from error
    return forecaster


def _check_target(target: Path) -> None:
    """Refuse to write over anything but an earlier model or an empty folder."""
    if not target.exists() or (target / CONFIG).is_file():
        return
    if not target.is_dir() or any(target.iterdir()):
        raise FileExistsError(
            f"`path` {str(target)!r} exists and is no saved forecaster; it is left alone."
        )


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


def _plain_parameters(forecaster: "MLRForecaster") -> dict[str, Any]:
    """Return the constructor's parameters as JSON values, without the backbone."""
    parameters = dict(forecaster.get_params(deep=False))
    del parameters["backbone"]
    if parameters["max_time"] is not None and not isinstance(parameters["max_time"], (int, float)):
        parameters["max_time"] = parameters["max_time"].total_seconds()
    return {
        name: list(value) if isinstance(value, (tuple, list, np.ndarray)) else value
        for name, value in parameters.items()
    }


def _tupled(fields: dict[str, Any]) -> dict[str, Any]:
    """Turn JSON lists back into tuples."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }


def _save_context(panel: Panel, path: Path) -> dict[str, Any]:
    """Write the values and stamps of a panel; return what describes them."""
    labels = [*panel.names, *(item.item_id for item in panel.series)]
    for label in labels:
        if not isinstance(label, (str, int, np.integer, type(None))):
            raise DataError(
                f"Only text and integers can be stored as column names and item ids, "
                f"got {label!r} of type {type(label).__name__}."
            )
    index = panel.series[0].index
    save_file(
        {
            "values": torch.from_numpy(np.concatenate([item.values for item in panel.series])),
            "stamps": torch.from_numpy(np.concatenate([item.index.asi8 for item in panel.series])),
        },
        path,
    )
    plain = [int(label) if isinstance(label, np.integer) else label for label in labels]
    return {
        "form": panel.form,
        "names": plain[: len(panel.names)],
        "item_ids": plain[len(panel.names) :],
        "lengths": [len(item.index) for item in panel.series],
        "unit": index.unit,
        "time_zone": None if index.tz is None else str(index.tz),
    }


def _load_context(
    described: dict[str, Any] | None, tensors: dict[str, torch.Tensor] | None, freq: str
) -> Panel | None:
    """Undo :func:`_save_context`."""
    if described is None or tensors is None:
        return None
    stamps = pd.DatetimeIndex(tensors["stamps"].numpy().view(f"M8[{described['unit']}]"))
    if described["time_zone"] is not None:
        stamps = stamps.tz_localize("UTC").tz_convert(described["time_zone"])
    values = tensors["values"].numpy()
    ends = np.cumsum(described["lengths"])
    series = tuple(
        Series(item_id, stamps[end - length : end], values[end - length : end])
        for item_id, length, end in zip(
            described["item_ids"], described["lengths"], ends, strict=True
        )
    )
    return Panel(described["form"], tuple(described["names"]), freq, series)


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        document = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        version = document["format"]
    except FileNotFoundError as error:
        raise ModelFileError(f"{str(folder)!r} holds no {CONFIG}: it is no forecaster.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{CONFIG} in {str(folder)!r} cannot be read: {error!r}") from error
    if version != FORMAT:
        raise ModelFileError(
            f"The forecaster in {str(folder)!r} has file format {version!r}; this version of "
            f"mlrforecast ({__version__}) reads {FORMAT}."
        )
    needed = {"parameters", "backbone", "config", "freq", "num_steps", "context", "sha256"}
    if missing := needed - set(document):
        raise ModelFileError(f"{CONFIG} in {str(folder)!r} lacks {', '.join(sorted(missing))}.")
    if not isinstance(document["sha256"], dict) or not set(document["sha256"]) <= {
        WEIGHTS,
        CONTEXT,
    }:
        raise ModelFileError(f"{CONFIG} in {str(folder)!r} names files that are not part of one.")
    return dict(document)


def _read_tensors(folder: Path, name: str, digest: str) -> dict[str, torch.Tensor]:
    file = folder / name
    if not file.is_file():
        raise ModelFileError(f"{str(folder)!r} lacks {name}.")
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != digest:
        raise ModelFileError(
            f"{name} in {str(folder)!r} was altered or cut short: its sha256 is {found}, "
            f"{CONFIG} says {digest}."
        )
    try:
        return dict(load_file(file))
    except SafetensorError as error:
        raise ModelFileError(f"{name} in {str(folder)!r} cannot be read: {error}") from error


def _replace(draft: Path, target: Path) -> None:
    """Put a finished folder in place of the target, which may hold an earlier model."""
    if not target.exists():
        draft.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
    target.rename(old / target.name)
    draft.rename(target)
    shutil.rmtree(old)
