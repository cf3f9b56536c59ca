"""GluonTS entries as long frames, and the GluonTS dataset repository by name."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast._core.optional import import_optional

__all__ = ["gluonts_to_long_frame", "load_gluonts"]

_PERIOD_ALIASES = {"H": "h", "T": "min", "S": "s", "ME": "M", "QE": "Q", "YE": "Y"}


def gluonts_to_long_frame(entries: Iterable[Mapping[str, Any]], freq: str) -> pd.DataFrame:
    """Convert GluonTS entries to a long frame.

    Only the targets are taken; features such as ``"feat_dynamic_real"`` are left out.

    Parameters
    ----------
    entries : iterable of mappings
        Such as a ``PandasDataset``, a ``ListDataset`` or a ``FileDataset``. Each with ``"start"``
        (a Period, or what makes one), ``"target"`` (a one-dimensional array, NaN where missing)
        and, optionally, ``"item_id"``; the position of an entry stands in for an absent id.
    freq : str
        Step between values, as GluonTS metadata gives it; ``"H"``, ``"T"`` and ``"S"`` of old
        pandas are read as ``"h"``, ``"min"`` and ``"s"``. Only needed where a start is no Period,
        which carries its own.

    Returns
    -------
    DataFrame
        Columns ``item_id`` (str), ``timestamp`` (start of each period) and ``target`` (float),
        in the order of the entries.

    Raises
    ------
    DataError
        If an entry lacks a field, a target is not one-dimensional, an id occurs twice, or there
        is no entry at all.

    Examples
    --------
    >>> entries = [{"item_id": "a", "start": pd.Period("2024-01-01", "D"), "target": [1.0, 2.0]}]
    >>> gluonts_to_long_frame(entries, "D")
      item_id  timestamp  target
    0       a 2024-01-01     1.0
    1       a 2024-01-02     2.0
    """
    parts: dict[str, pd.DataFrame] = {}
    for position, entry in enumerate(entries):
        item_id = str(entry.get("item_id", position))
        if absent := [key for key in ("start", "target") if key not in entry]:
            raise DataError(f"entry {position} (item_id {item_id!r}) lacks {absent}")
        if item_id in parts:
            raise DataError(f"item_id {item_id!r} occurs twice, again at entry {position}")
        target = np.asarray(entry["target"], dtype=np.float64)
        if target.ndim != 1:
            raise DataError(
                f"target of item_id {item_id!r} must have one dimension, got shape {target.shape}. "
                "Split a multivariate series into one entry for each variable."
            )
        start = entry["start"]
        if not isinstance(start, pd.Period):
            start = pd.Period(start, _period_alias(freq))
        periods = pd.period_range(start, periods=len(target))
        parts[item_id] = pd.DataFrame(
            {"item_id": item_id, "timestamp": periods.to_timestamp(how="start"), "target": target}
        )
    if not parts:
        raise DataError("entries must hold at least one series, got none")
    return pd.concat(parts.values(), ignore_index=True)


def _period_alias(freq: str) -> str:
    """Write a frequency of old or new pandas as Period understands it today."""
    unit = freq.lstrip("0123456789")
    return freq.removesuffix(unit) + _PERIOD_ALIASES.get(unit, unit)


def load_gluonts(name: str, *, split: Literal["train", "test"] = "test") -> pd.DataFrame:
    """Load a data set of the GluonTS repository as a long frame.

    GluonTS downloads it at first use and keeps it in a cache of its own.

    Parameters
    ----------
    name : str
        A name that GluonTS knows, such as ``"m4_hourly"``.
    split : {"test", "train"}, default "test"
        ``"test"`` holds the whole series, ``"train"`` leaves off their last
        ``prediction_length`` values. Some test sets repeat each series, cut at several ends;
        these are refused, since an id may occur only once.

    Returns
    -------
    DataFrame
        Columns ``item_id``, ``timestamp`` and ``target``.

    Raises
    ------
    MissingDependencyError
        If GluonTS is not installed.
    ValueError
        If ``split`` is neither of the two, or GluonTS knows no data set of that name.
    DataError
        If the entries cannot be made into one long frame.

    Examples
    --------
    >>> load_gluonts("m4_hourly", split="validation")
    Traceback (most recent call last):
    ...
    ValueError: split must be 'train' or 'test', got 'validation'
    """
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    repository = import_optional(
        "gluonts.dataset.repository", extra="gluonts", purpose=f"The GluonTS data set {name!r}"
    )
    if name not in repository.dataset_names:
        raise ValueError(
            f"`name` must be a data set of GluonTS, got {name!r}. "
            f"Available: {', '.join(sorted(repository.dataset_names))}"
        )
    dataset = repository.get_dataset(name)
    return gluonts_to_long_frame(getattr(dataset, split), dataset.metadata.freq)
