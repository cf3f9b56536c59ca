"""Data sets of GluonTS as frames, frames as data sets of GluonTS, and its repository by name."""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from mlrforecast._core.optional import import_optional
from mlrforecast.data._entries import (
    FIELDS,
    ITEM,
    TARGET,
    TIME,
    Entry,
    Field,
    Role,
    as_entries,
    entry_frames,
    role_of,
    schema_of_entries,
)
from mlrforecast.data._entry_stamps import period_alias
from mlrforecast.data._repository import RepositoryData, read_repository, repository_names
from mlrforecast.data._stamps import read_stamps
from mlrforecast.data.panel import Covariate, Panel, name_at
from mlrforecast.data.reading import read_panel
from mlrforecast.data.schema import FrameSchema
from mlrforecast.data.streaming import FileDataset

__all__ = [
    "RepositoryData",
    "entry_columns",
    "gluonts_to_long_frame",
    "is_entry_column",
    "period_of_start",
    "read_repository",
    "repository_names",
    "to_train_datasets",
    "unfold_entries",
]


def gluonts_to_long_frame(
    entries: Iterable[Mapping[str, Any]], freq: str | int | None = None
) -> pd.DataFrame:
    """Convert GluonTS entries to a long frame.

    A forecaster reads entries as they are; this shows what it reads.

    Parameters
    ----------
    entries : iterable of mappings
        Such as a ``PandasDataset``, a ``ListDataset`` or a ``FileDataset``. Each with ``"start"``
        (a Period, or a stamp or integer), ``"target"`` (shape (T,) or (C, T), NaN where missing)
        and, optionally, ``"item_id"`` (the position of an entry stands in for an absent one)
        and features: ``"feat_dynamic_real"``, ``"feat_dynamic_cat"``, the same with ``"past_"``
        before them (shape (K, T), or longer) and ``"feat_static_real"``, ``"feat_static_cat"``
        (shape (K,)).
    freq : str or int, optional
        Frequency of the stamps, in old or new notation. Needed where a start is a stamp. Of
        periods, the stamps are their beginnings, or their ends if ``freq`` is one of ends such as
        ``"ME"``; an integer makes integer time of them.

    Returns
    -------
    DataFrame
        Columns ``item_id`` (str), ``timestamp``, ``target`` (float) and one for each feature,
        ``feat_dynamic_real_0`` and so on, categories as such; rows in the order of the entries.
        Each channel of a multivariate entry is a series, ``"item.0"`` and so on. Features after
        the end of the target are left out.

    Raises
    ------
    DataError
        If an entry lacks a field or has one of another shape, entries differ in frequency or
        features, an id occurs twice, or there is no entry at all.

    Examples
    --------
    >>> entries = [{"item_id": "a", "start": pd.Period("2024-01-01", "D"), "target": [1.0, 2.0]}]
    >>> gluonts_to_long_frame(entries)
      item_id  timestamp  target
    0       a 2024-01-01     1.0
    1       a 2024-01-02     2.0
    """
    frame = entry_frames(entries, FrameSchema(freq=freq), find_roles=True, long=True).frame
    if isinstance(frame[TIME].dtype, pd.PeriodDtype):
        frame[TIME] = read_stamps(frame[TIME], "The start of entries").times
    return frame


def unfold_entries(
    given: object, schema: FrameSchema, *, find_roles: bool = False
) -> tuple[object, object, FrameSchema]:
    """Turn GluonTS entries into frames; whatever else is given is returned as it is.

    Parameters
    ----------
    given : object
        Entries, or a frame of any form.
    schema : FrameSchema
        Names of columns, and the frequency.
    find_roles : bool
        Whether all features become covariates, if the schema names no covariate.

    Returns
    -------
    frame : object
        A DataFrame with the columns of the schema: wide of one multivariate entry, its columns
        numbered from 0 on or named by the schema, else long.
    future : DataFrame or None
        The known covariates of what follows the targets, if there are any.
    schema : FrameSchema
        The schema, with the roles that were found.

    Examples
    --------
    >>> entry = {"start": pd.Period("2024", "Y"), "target": [1, 2], "feat_dynamic_real": [3, 4, 5]}
    >>> frame, future, schema = unfold_entries([entry], FrameSchema(), find_roles=True)
    >>> schema.known_covariates, future["feat_dynamic_real_0"].tolist()
    (('feat_dynamic_real_0',), [5.0])
    """
    if isinstance(given, FileDataset):
        return given, None, _schema_of_files(given, schema) if find_roles else schema
    entries = as_entries(given)
    if entries is None:
        return given, None, schema
    found = entry_frames(entries, schema, find_roles=find_roles)
    return found.frame, found.future, found.schema


def _schema_of_files(dataset: FileDataset, schema: FrameSchema) -> FrameSchema:
    """Give the features of files with a series in each record their roles."""
    target = schema.target if isinstance(schema.target, str) else TARGET
    if not dataset.holds_series(target):
        return schema
    first = next(dataset.entries(target), [])
    return schema_of_entries(first[:1], schema) if first else schema


def is_entry_column(column: object) -> bool:
    """Tell whether a ``column`` has the name that features of entries have in frames.

    Examples
    --------
    >>> is_entry_column("feat_dynamic_real_0"), is_entry_column("promotion")
    (True, False)
    """
    return role_of(column) is not None


def entry_columns(role: Role, are_categories: Iterable[bool]) -> list[str]:
    """Name the covariates of a role as features of entries.

    Parameters
    ----------
    role : {"past", "known", "static"}
        What they are to a forecast.
    are_categories : iterable of bool
        Whether each holds categories.

    Returns
    -------
    list of str
        Names in this order, numbers and categories counted apart.

    Examples
    --------
    >>> entry_columns("known", [False, True, False])
    ['feat_dynamic_real_0', 'feat_dynamic_cat_0', 'feat_dynamic_real_1']
    """
    fields = {field: name for name, field in FIELDS.items()}
    counts: Counter[str] = Counter()
    names = []
    for is_category in are_categories:
        name = fields[Field(role, is_category=is_category)]
        names.append(f"{name}_{counts[name]}")
        counts[name] += 1
    return names


def to_train_datasets(
    frame: object,
    schema: FrameSchema,
    *,
    freq: str | int,
    prediction_length: int,
    test: slice,
) -> Any:
    """Turn a frame into data sets of GluonTS.

    Each series, and each target of a wide frame, is an entry, with all values in float64 and the
    covariates in the fields of their roles, numbers and categories in the order of the schema.
    Categories are numbered in the order of their text; a missing one has the number after them.
    Names of covariates and numbers of categories stand in the metadata.

    Parameters
    ----------
    frame : DataFrame
        Any frame that a forecaster reads.
    schema : FrameSchema
        Which column is what.
    freq : str or int
        Step between the rows. Integer time ``t`` is written as the day that is ``t`` days after
        1970-01-01.
    prediction_length : int
        Rows to forecast.
    test : slice
        Rows of each series to be forecast; negative ones count from its end.

    Returns
    -------
    gluonts.dataset.common.TrainDatasets
        ``train``, the rows before the test, ``test``, those to its end, and ``metadata``.

    Raises
    ------
    MissingDependencyError
        If GluonTS is not installed.
    DataError
        If the frame breaks a rule.
    ValueError
        If pandas has no periods of the frequency.
    """
    common = import_optional(
        "gluonts.dataset.common", extra="gluonts", purpose="A data set of GluonTS"
    )
    panel = read_panel(frame, schema, freq=freq, argument="frame")
    alias = period_alias(panel.freq)
    columns = _Columns(panel)
    parts: dict[str, list[Entry]] = {"train": [], "test": []}
    for number in range(len(panel)):
        begin, end, _ = test.indices(int(panel.lengths[number]))
        for name, stop in (("train", begin), ("test", end)):
            parts[name] += _entries_of(panel, number, stop, alias, columns)
    metadata = common.MetaData(
        freq=alias,
        target=common.BasicFeatureInfo(name=TARGET),
        prediction_length=prediction_length,
        **columns.described(common),
    )
    return common.TrainDatasets(metadata=metadata, **parts)


class _Columns:
    """The covariates of a panel, by the fields that they go into."""

    def __init__(self, panel: Panel) -> None:
        self._fields: dict[str, list[Covariate]] = {
            name: [
                covariate
                for covariate in getattr(panel, field.role)
                if (covariate.categories is not None) == field.is_category
            ]
            for name, field in FIELDS.items()
        }
        self._arrays = {
            name: np.stack([_plain(each) for each in covariates])
            for name, covariates in self._fields.items()
            if covariates
        }

    def values(self, rows: slice, number: int) -> dict[str, np.ndarray]:
        """Return the fields of some rows of series ``number``."""
        return {
            name: array[:, number] if FIELDS[name].role == "static" else array[:, rows]
            for name, array in self._arrays.items()
        }

    def described(self, common: Any) -> dict[str, Any]:
        """Return what the metadata say of them; there is no word of past ones in it."""
        found: dict[str, Any] = {}
        for name, covariates in self._fields.items():
            if FIELDS[name].role == "past":
                continue
            found[name] = [
                common.BasicFeatureInfo(name=str(each.name))
                if each.categories is None
                else common.CategoricalFeatureInfo(
                    name=str(each.name),
                    cardinality=str(len(each.categories) + bool(each.missing.any())),
                )
                for each in covariates
            ]
        return found


def _plain(covariate: Covariate) -> np.ndarray:
    """Return numbers, or the number of each category; of a missing one, that after them."""
    if covariate.categories is None:
        return covariate.values
    return np.where(covariate.missing, len(covariate.categories), covariate.values).astype(np.int32)


def period_of_start(start: Any, freq: str | int) -> pd.Period:
    """Return the ``start`` of an entry as a period, of a frequency ``freq`` if it is none yet.

    Examples
    --------
    >>> period_of_start("2024-01-31", "ME")
    Period('2024-01', 'M')
    """
    if isinstance(start, pd.Period):
        return start
    whole = isinstance(start, int | np.integer)
    return _period_of(start if whole else pd.Timestamp(start), period_alias(freq))


def _period_of(stamp: Any, alias: str) -> pd.Period:
    """Return the period that a stamp, or an integer time, is written as."""
    with warnings.catch_warnings():
        # Periods of business days are to go.
        warnings.simplefilter("ignore", FutureWarning)
        if isinstance(stamp, pd.Timestamp):
            return pd.Period(stamp.tz_localize(None), freq=alias)
        return pd.Period(ordinal=int(stamp), freq=alias)


def _entries_of(
    panel: Panel, number: int, stop: int, alias: str, columns: _Columns
) -> list[dict[str, Any]]:
    """Return an entry for each channel of the first rows of a series."""
    first = int(panel.bounds[number])
    rows = slice(first, first + stop)
    begin = _period_of(panel.index[first], alias)
    features = columns.values(rows, number)
    long = panel.layout.form == "long"
    return [
        {
            ITEM: str(name_at(panel.labels, number if long else channel)),
            "start": begin,
            TARGET: panel.values[rows, channel],
            **features,
        }
        for channel in range(panel.num_channels)
    ]
