"""The context of a forecaster as JSON values and tensors, and back."""

import re
from typing import Any

import numpy as np
import pandas as pd
import torch

from mlrforecast._core.errors import DataError
from mlrforecast.data import Panel, Series
from mlrforecast.estimators._context import Context

UNITS = ("s", "ms", "us", "ns")


def describe_context(context: Context) -> dict[str, Any]:
    """Return all of a context but its numbers as JSON values."""
    panel = context.panel
    index = panel.series[0].index
    zone = None if index.tz is None else str(index.tz)
    try:
        _in_zone(index, zone)
    except (KeyError, ValueError, OSError) as error:
        raise DataError(
            f"The time zone {zone!r} has no name that can be stored. Convert the stamps, e.g. "
            "with tz_convert('Europe/Paris'), or save without context."
        ) from error
    return {
        "form": panel.form,
        "names": [_plain_label(name) for name in panel.names],
        "labels": _describe_labels(context.labels),
        "index_name": _plain_name(index.name if panel.form == "wide" else None),
        "lengths": [len(item.index) for item in panel.series],
        "unit": index.unit,
        "time_zone": zone,
    }


def context_tensors(panel: Panel) -> dict[str, torch.Tensor]:
    """Return the numbers of a context: float64 values and int64 stamps."""
    values = np.concatenate([item.values for item in panel.series])
    stamps = np.concatenate([item.index.asi8 for item in panel.series])
    return {"values": torch.from_numpy(values), "stamps": torch.from_numpy(stamps)}


def read_context(described: dict[str, Any], tensors: dict[str, torch.Tensor], freq: str) -> Context:
    """Undo :func:`describe_context` and :func:`context_tensors`."""
    values, stamps = _read_numbers(described, tensors)
    form = described["form"]
    names = [_plain_label(label) for label in described["names"]]
    labels = _read_labels(described["labels"])
    lengths = np.array(described["lengths"], dtype=int)
    ids, channels = ([None], len(labels)) if form == "wide" else (list(labels), 1)
    if (
        form not in ("wide", "long")
        or len(lengths) != len(ids)
        or (lengths < 1).any()
        or values.shape != (lengths.sum(), channels)
        or len(stamps) != len(values)
        or (form == "wide" and names != list(labels))
        or (form == "long" and len(set(names)) != 3)
    ):
        raise ValueError("the parts of its context do not fit together.")
    ends = np.cumsum(lengths)
    series = tuple(
        Series(item_id, stamps[end - length : end], values[end - length : end])
        for item_id, length, end in zip(ids, lengths, ends, strict=True)
    )
    if not all(item.index.is_monotonic_increasing and item.index.is_unique for item in series):
        raise ValueError("the time stamps of its context do not rise.")
    return Context(Panel(form, tuple(names), freq, series), labels)


def _read_numbers(
    described: dict[str, Any], tensors: dict[str, torch.Tensor]
) -> tuple[np.ndarray, pd.DatetimeIndex]:
    """Return the values and the stamps of a context."""
    values, ticks, unit = tensors["values"], tensors["stamps"], described["unit"]
    if (
        len(tensors) != 2
        or values.dtype != torch.float64
        or ticks.dtype != torch.int64
        or unit not in UNITS
    ):
        raise ValueError("its context must be float64 values and int64 stamps in a unit of time.")
    if torch.isinf(values).any():
        raise ValueError("its context holds infinite values.")
    stamps = pd.DatetimeIndex(ticks.numpy().view(f"M8[{unit}]"))
    if stamps.hasnans:
        raise ValueError("its context lacks a time stamp.")
    zone = described["time_zone"]
    stamps = stamps if zone is None else _in_zone(stamps.tz_localize("UTC"), zone)
    return values.numpy(), stamps.rename(_plain_name(described["index_name"]))


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


def _plain_name(name: Any) -> str | int | None:
    return None if name is None else _plain_label(name)


def _describe_labels(labels: pd.Index) -> dict[str, Any]:
    return {
        "values": [_plain_label(label) for label in labels],
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
    values = [_plain_label(label) for label in described["values"]]
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
