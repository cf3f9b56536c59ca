"""Data sets of the GluonTS repository: in a folder, in the cache of GluonTS, or fetched by it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError, DatasetNotFoundError
from mlrforecast._core.offline import offline_switch
from mlrforecast._core.optional import import_optional
from mlrforecast.data._aliases import parse_frequency
from mlrforecast.data._checks import FOLDER_VARIABLE
from mlrforecast.data._entries import ITEM, TARGET, TIME, Entry, entry_frames
from mlrforecast.data._files import find_files, folders
from mlrforecast.data._stamps import read_stamps
from mlrforecast.data.schema import FrameSchema
from mlrforecast.data.streaming import FileDataset

_METADATA = "metadata.json"
# What periods are called, of what pandas calls the frequency of their ends.
_PERIODS = {"ME": "M", "QE": "Q", "YE": "Y", "MS": "M", "QS": "Q", "YS": "Y"}


class RepositoryData(NamedTuple):
    """A data set of the GluonTS repository.

    Parameters
    ----------
    frame : DataFrame
        Columns ``item_id``, ``timestamp`` (start of each period), ``target`` and features: the
        whole series, the test included.
    freq : str
        Step between the rows of a series.
    prediction_length : int
        Rows to forecast.
    num_windows : int
        How many forecasts of each series the test scores; each begins where the one before ends.
    past, known, static : tuple of str
        Columns of features by role.
    """

    frame: pd.DataFrame
    freq: str
    prediction_length: int
    num_windows: int
    past: tuple[str, ...]
    known: tuple[str, ...]
    static: tuple[str, ...]


def repository_names() -> list[str]:
    """Return the names of all data sets that GluonTS knows, sorted.

    Returns
    -------
    list of str
        Such as ``"m4_hourly"``.

    Raises
    ------
    MissingDependencyError
        If GluonTS is not installed.
    """
    return sorted(_repository("The list of data sets of GluonTS").dataset_names)


def read_repository(
    name: str, *, root: str | os.PathLike[str] | None = None, download: bool = True
) -> RepositoryData:
    """Read a data set of the GluonTS repository.

    A folder of that name, which holds what GluonTS writes (``metadata.json``, ``train``,
    ``test``), is sought below ``root``, the folder named by ``MLRFORECAST_DATA`` and the user's
    cache, then in the cache of GluonTS, ``~/.gluonts/datasets``; none of this needs GluonTS. Else
    GluonTS downloads it into its cache.

    Parameters
    ----------
    name : str
        A name of :func:`repository_names`.
    root : path, optional
        An existing folder to look through first.
    download : bool
        Whether GluonTS may download it. The environment variables ``MLRFORECAST_OFFLINE`` and
        ``HF_HUB_OFFLINE`` switch that off too.

    Returns
    -------
    RepositoryData
        Of a test set that repeats each series, cut at several ends, the longest of each.

    Raises
    ------
    DatasetNotFoundError
        If it is in no folder and may not, or cannot, be downloaded.
    MissingDependencyError
        If it must be downloaded, and GluonTS is not installed.
    ValueError
        If GluonTS knows no data set of that name.
    DataError
        If the files are not what GluonTS writes.
    """
    folder = _find(name, root)
    if folder is None:
        folder = _fetch(name, download)
    return _read(folder)


def _find(name: str, root: str | os.PathLike[str] | None) -> Path | None:
    """Return the first folder of a data set."""
    places = [folder for _, folder in folders(root)]
    for place in [*places, _cache()]:
        for found in find_files(place, _METADATA):
            for folder in found.parents[:2]:
                if folder.name == name and (folder / "test").is_dir():
                    return folder
    return None


def _cache() -> Path:
    """Return the folder in which GluonTS keeps data sets."""
    return Path.home() / ".gluonts" / "datasets"


def _fetch(name: str, download: bool) -> Path:
    """Let GluonTS download a data set."""
    off = "download=False" if not download else offline_switch()
    if off:
        raise DatasetNotFoundError(_sought(name, f"download (switched off by {off})"))
    repository = _repository(f"The download of the GluonTS data set {name!r}")
    if name not in repository.dataset_names:
        raise ValueError(
            f"`name` must be a data set of GluonTS, got {name!r}. "
            f"Available: {', '.join(sorted(repository.dataset_names))}."
        )
    # What is there is not complete, or it would have been found.
    try:
        repository.get_dataset(name, path=_cache(), regenerate=True)
    except OSError as error:
        raise DatasetNotFoundError(_sought(name, f"download by GluonTS ({error})")) from error
    found = _find(name, None)
    if found is None:
        raise DatasetNotFoundError(_sought(name, "download by GluonTS, which left no test set"))
    return found


def _sought(name: str, last: str) -> str:
    return (
        f"Data set {name!r} of GluonTS was not found: no folder of that name with metadata.json, "
        f"train and test lies in root, in the folder of {FOLDER_VARIABLE}, in the user's cache or "
        f"in {_cache()}. Last tried: {last}."
    )


def _repository(purpose: str) -> Any:
    return import_optional("gluonts.dataset.repository", extra="gluonts", purpose=purpose)


def _read(folder: Path) -> RepositoryData:
    """Read a folder that GluonTS wrote."""
    nested = folder / "metadata" / _METADATA
    metadata = _read_metadata(nested if nested.is_file() else folder / _METADATA)
    alias, horizon = _alias_of_periods(metadata["freq"]), int(metadata["prediction_length"])
    train = folder / "train"
    num_series = sum(1 for _ in _entries(train)) if train.is_dir() else 0
    kept, num_windows = _longest(list(_entries(folder / "test")), num_series)
    for entry in kept:
        entry["start"] = pd.Period(entry["start"], alias)
    frame, _, schema = entry_frames(kept, FrameSchema(), find_roles=True, long=True)
    begins = read_stamps(frame[TIME], "The start of entries")
    return RepositoryData(
        frame.assign(**{TIME: begins.times}),
        str(parse_frequency(begins.step or alias)),
        horizon,
        num_windows,
        *(tuple(map(str, names)) for names in _roles_of(schema)),
    )


def _roles_of(schema: FrameSchema) -> tuple[tuple[Any, ...], ...]:
    return schema.past_covariates, schema.known_covariates, schema.static_covariates


def _read_metadata(path: Path) -> dict[str, Any]:
    try:
        metadata = json.loads(path.read_bytes())
    except ValueError as error:
        raise DataError(f"File {str(path)!r} is no JSON: {error}") from error
    needed = ("freq", "prediction_length")
    if not isinstance(metadata, dict) or any(metadata.get(name) is None for name in needed):
        raise DataError(f"File {str(path)!r} must hold {' and '.join(needed)}, got {metadata}.")
    return metadata


def _alias_of_periods(freq: str) -> str:
    """Return the alias of periods, which in metadata may be that of any pandas."""
    offset = pd.tseries.frequencies.to_offset(str(parse_frequency(freq)))
    assert offset is not None
    name, dash, anchor = offset.rule_code.partition("-")
    return f"{offset.n}{_PERIODS.get(name, name)}{dash}{anchor}"


def _entries(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries in the files of a folder."""
    for part in FileDataset(folder).entries(TARGET):
        for entry in part:
            yield dict(entry)


def _longest(entries: list[dict[str, Any]], num_series: int) -> tuple[list[dict[str, Any]], int]:
    """Return the longest entry of each series, and how many there are of each."""
    items = [entry.get(ITEM) for entry in entries]
    repeats = num_series and len(entries) > num_series and len(entries) % num_series == 0
    if len(set(map(str, items))) == len(entries) and repeats:
        # Windows have names of their own, one window of all series after the other.
        items = [place % num_series for place in range(len(entries))]
    groups: dict[Any, list[dict[str, Any]]] = {}
    for place, (item, entry) in enumerate(zip(items, entries, strict=True)):
        groups.setdefault(place if item is None else item, []).append(entry)
    kept = []
    for item, windows in groups.items():
        longest = max(windows, key=lambda entry: len(entry[TARGET]))
        for other in windows:
            _check_part(other, longest, item)
        kept.append(longest | {ITEM: str(item)})
    return kept, min(map(len, groups.values()), default=0)


def _check_part(window: Entry, longest: Entry, item: object) -> None:
    """Refuse a window that is not the beginning of the longest one of its series."""
    values = np.asarray(window[TARGET], dtype=np.float64)
    whole = np.asarray(longest[TARGET], dtype=np.float64)[: len(values)]
    if window["start"] != longest["start"] or not np.array_equal(values, whole, equal_nan=True):
        raise DataError(
            f"The windows of item_id {item!r} in a test set must be one series, cut at several "
            "ends, but they differ before the end of the shorter one."
        )
