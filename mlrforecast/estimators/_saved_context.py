"""The context of a forecaster as JSON values and tensors, and back."""

import dataclasses
import re
from collections.abc import Hashable
from typing import Any, get_args

import narwhals as nw
import numpy as np
import pandas as pd
import torch

from mlrforecast._core.errors import DataError
from mlrforecast.data import Covariate, CovariateEncoding, Layout, Panel, check_regular_runs
from mlrforecast.data.panel import Form
from mlrforecast.data.writing import has_index

UNITS = ("s", "ms", "us", "ns")
ROLES = ("past", "known", "static")
NAMES = ("id_name", "time_name", "target_name")
SWITCHES = ("indexed", "flat")
LIBRARIES = [library.value for library in nw.Implementation if library.value != "unknown"]

Tensors = dict[str, torch.Tensor]


def describe_context(panel: Panel) -> dict[str, Any]:
    """Return all of a context but its numbers as JSON values."""
    layout = dataclasses.asdict(panel.layout)
    return {
        "layout": layout | {name: _plain_name(layout[name]) for name in NAMES},
        "labels": _describe_labels(panel.labels),
        "time": _describe_time(panel.index),
        "categories": {
            role: [_plain_categories(covariate) for covariate in getattr(panel, role)]
            for role in ROLES
        },
    }


def context_tensors(panel: Panel) -> Tensors:
    """Return the numbers of a context: float64 values, int64 stamps, lengths and codes."""
    stamps = panel.index.asi8 if isinstance(panel.index, pd.DatetimeIndex) else panel.index
    arrays = {"values": panel.values, "stamps": stamps, "lengths": panel.lengths}
    for role in ROLES:
        for number, covariate in enumerate(getattr(panel, role)):
            arrays[f"{role}.{number}"] = covariate.values
    return {name: torch.from_numpy(_plain_array(values)) for name, values in arrays.items()}


def read_context(
    described: dict[str, Any], tensors: Tensors, freq: str | int, encoding: CovariateEncoding
) -> Panel:
    """Undo :func:`describe_context` and :func:`context_tensors`."""
    labels = _read_labels(described["labels"])
    layout = _read_layout(described["layout"], labels)
    parts = dict(tensors)
    values = _take(parts, "values", torch.float64)
    lengths = _take(parts, "lengths", torch.int64)
    index = _read_time(described["time"], _take(parts, "stamps", torch.int64))
    series, channels = (len(labels), 1) if layout.form == "long" else (1, len(labels))
    if (
        lengths.shape != (series,)
        # Before they are added up, which could overflow.
        or ((lengths < 1) | (lengths > len(values))).any()
        or values.shape != (lengths.sum(), channels)
        or index.shape != (len(values),)
        or isinstance(freq, int) == isinstance(index, pd.DatetimeIndex)
    ):
        raise ValueError("the parts of its context do not fit together.")
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    check_regular_runs(index, bounds, freq, lambda number: f"series {number} of its context")
    counts = {"past": len(values), "known": len(values), "static": series}
    covariates = {
        role: _read_covariates(described["categories"][role], parts, role, encoding, counts[role])
        for role in ROLES
    }
    if parts:
        raise ValueError("its context holds more than values, stamps, lengths and covariates.")
    return Panel(
        layout=layout,
        freq=freq,
        labels=labels,
        index=index,
        values=values,
        bounds=bounds,
        past=covariates["past"],
        known=covariates["known"],
        static=covariates["static"],
    )


def _read_covariates(
    categories: list[list[str] | None],
    parts: Tensors,
    role: str,
    encoding: CovariateEncoding,
    count: int,
) -> tuple[Covariate, ...]:
    """Return the covariates of a role, which must be those that the encoding reads."""
    fitted = getattr(encoding, role)
    if len(categories) != len(fitted):
        raise ValueError("the covariates of its context are not those that it was trained with.")
    covariates = []
    for number, (column, names) in enumerate(zip(fitted, categories, strict=True)):
        dtype = torch.float64 if names is None else torch.int64
        values = _take(parts, f"{role}.{number}", dtype)
        if (names is None) != (column.categories is None) or values.shape != (count,):
            raise ValueError(f"covariate {column.name!r} of its context is not one.")
        texts = None if names is None else tuple(map(_plain_text, names))
        if texts is not None and (
            len(set(texts)) < len(texts) or ((values < -1) | (values >= len(texts))).any()
        ):
            raise ValueError(f"the categories of covariate {column.name!r} are none.")
        covariates.append(Covariate(column.name, values, texts))
    return tuple(covariates)


def _take(parts: Tensors, name: str, dtype: torch.dtype) -> np.ndarray:
    """Remove a tensor and return its numbers, which must be finite or missing."""
    tensor = parts.pop(name)
    if tensor.dtype != dtype or torch.isinf(tensor).any():
        raise ValueError(f"{name!r} of its context must hold finite numbers of {dtype}.")
    return tensor.numpy()


def _plain_array(values: Any) -> np.ndarray:
    """Return an array that a tensor can share."""
    dtype = np.float64 if np.asarray(values).dtype.kind == "f" else np.int64
    # Not writable are those that pandas holds.
    return np.array(values, dtype=dtype)


def _read_layout(fields: dict[str, Any], labels: pd.Index) -> Layout:
    """Read how the frame looked."""
    names = {name: _plain_name(fields[name]) for name in NAMES}
    layout = Layout(**{**fields, **names})
    held_by = {"array": ["numpy"], "series": ["pandas"]}.get(layout.form, LIBRARIES)
    columns = [layout.time_name, *labels] if layout.form == "wide" else list(names.values())
    if (
        layout.form not in get_args(Form)
        or layout.native not in held_by
        or any(not isinstance(fields[name], bool) for name in SWITCHES)
        or ((layout.flat or layout.form == "series") and len(labels) != 1)
        or (layout.form == "long" and layout.indexed and not has_index(layout))
        or (not layout.indexed and len(set(columns)) < len(columns))
    ):
        raise ValueError("the layout of its context is none.")
    return layout


def _describe_time(index: pd.Index) -> dict[str, Any] | None:
    """Return the unit and the zone of stamps, None for integers."""
    if not isinstance(index, pd.DatetimeIndex):
        return None
    zone = None if index.tz is None else str(index.tz)
    try:
        _in_zone(index, zone)
    except (KeyError, ValueError, OSError) as error:
        raise DataError(
            f"The time zone {zone!r} has no name that can be stored. Convert the stamps, e.g. "
            "with tz_convert('Europe/Paris'), or save without context."
        ) from error
    return {"unit": index.unit, "zone": zone}


def _read_time(described: dict[str, Any] | None, ticks: np.ndarray) -> pd.Index:
    """Undo :func:`_describe_time`."""
    if described is None:
        numbers: pd.Index = pd.Index(ticks)
        return numbers
    unit, zone = described["unit"], described["zone"]
    if unit not in UNITS:
        raise ValueError("the time of its context has no unit.")
    stamps: pd.DatetimeIndex = pd.DatetimeIndex(ticks.view(f"M8[{unit}]"))
    if stamps.hasnans:
        raise ValueError("its context lacks a time stamp.")
    return stamps if zone is None else _in_zone(stamps.tz_localize("UTC"), zone)


def _in_zone(index: pd.DatetimeIndex, zone: str | None) -> pd.DatetimeIndex:
    """Convert stamps to a zone that is known by its name."""
    if zone is None:
        return index
    if not isinstance(zone, str) or not re.fullmatch(r"[\w+:/-]{1,64}", zone):
        raise ValueError("its time zone is no name.")
    return index.tz_convert(zone)


def _plain_label(label: Any) -> str | int:
    """Return a label as a value of JSON."""
    if not isinstance(label, (str, int, np.integer)) or isinstance(label, bool):
        raise DataError(
            "Only text and integers can be stored as names of columns and of the index and as "
            f"item ids, got {label!r} of type {type(label).__name__}. Rename it, or save without "
            "context."
        )
    return str(label) if isinstance(label, str) else int(label)


def _plain_name(name: Hashable | None) -> str | int | None:
    """Return a name that may be None as a value of JSON."""
    return None if name is None else _plain_label(name)


def _plain_categories(covariate: Covariate) -> list[str] | None:
    return None if covariate.categories is None else list(covariate.categories)


def _plain_text(text: Any) -> str:
    if not isinstance(text, str):
        raise ValueError("its context has categories that are no text.")
    return text


def _describe_labels(labels: pd.Index) -> dict[str, Any]:
    return {
        # A Series may be without a name.
        "values": [_plain_name(label) for label in labels],
        "dtype": _describe_dtype(labels.dtype),
        "name": _plain_name(labels.name),
    }


def _describe_dtype(dtype: Any) -> str | dict[str, Any]:
    """Return a dtype of labels as JSON values."""
    if isinstance(dtype, pd.CategoricalDtype):
        return {"categories": _describe_labels(dtype.categories), "ordered": bool(dtype.ordered)}
    if isinstance(dtype, pd.StringDtype):
        return {"storage": dtype.storage, "missing": str(dtype.na_value)}
    return str(dtype)


def _read_labels(described: dict[str, Any]) -> pd.Index:
    """Undo :func:`_describe_labels`."""
    values = [_plain_name(label) for label in described["values"]]
    name = _plain_name(described["name"])
    labels: pd.Index = pd.Index(values, dtype=_read_dtype(described["dtype"]), name=name)
    if list(labels) != values or not labels.is_unique:
        raise ValueError("the labels of its context do not fit their type, or are not unique.")
    return labels


def _read_dtype(described: Any) -> Any:
    """Undo :func:`_describe_dtype`."""
    if isinstance(described, str):
        return pd.api.types.pandas_dtype(described[:64])
    if "categories" in described:
        return pd.CategoricalDtype(_read_labels(described["categories"]), described["ordered"])
    # Pandas before 2.3 knows no other missing value, and so no such argument.
    missing = {} if described["missing"] == "<NA>" else {"na_value": np.nan}
    try:
        return pd.StringDtype(described["storage"], **missing)
    except ImportError:
        # Saved where pyarrow was at hand, which holds text for pandas but is not needed.
        return pd.StringDtype("python", **missing)
