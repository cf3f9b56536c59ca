"""GluonTS entries, which are mappings with a start, a target and features, as plain frames.

They are known by what they hold, so that GluonTS itself need not be installed.
"""

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data._aliases import parse_frequency
from mlrforecast.data._entry_stamps import stamps_of
from mlrforecast.data.schema import FrameSchema

Entry: TypeAlias = Mapping[str, Any]
Role: TypeAlias = Literal["past", "known", "static"]

ITEM, TIME, TARGET = "item_id", "timestamp", "target"
ROLES: tuple[Role, ...] = ("past", "known", "static")


@dataclass(frozen=True)
class Field:
    """A field of features: what its rows are to a forecast, and whether they are categories."""

    role: Role
    is_category: bool


FIELDS: dict[str, Field] = {
    "past_feat_dynamic_real": Field("past", is_category=False),
    "past_feat_dynamic_cat": Field("past", is_category=True),
    "feat_dynamic_real": Field("known", is_category=False),
    "feat_dynamic_cat": Field("known", is_category=True),
    "feat_static_real": Field("static", is_category=False),
    "feat_static_cat": Field("static", is_category=True),
}


class EntryFrames(NamedTuple):
    """Entries as a frame.

    Parameters
    ----------
    frame : DataFrame
        The rows that the targets cover.
    future : DataFrame or None
        Known covariates of the rows after them, if there are any.
    schema : FrameSchema
        Which column is what.
    """

    frame: pd.DataFrame
    future: pd.DataFrame | None
    schema: FrameSchema


def as_entries(given: object) -> Iterable[Entry] | None:
    """Return entries if something yields them, None of anything else."""
    if isinstance(given, pd.DataFrame | pd.Series | np.ndarray | Mapping | str | bytes):
        return None
    if not isinstance(given, Iterable):
        return None
    try:
        iterator: Iterator[Any] = iter(given)
        found: Any = next(iterator, None)
    except (TypeError, NotImplementedError):
        # Some sparse arrays say that they can be iterated over.
        return None
    if not isinstance(found, Mapping) or not found.keys() & {"start", "target"}:
        return None
    # What can be iterated over once has just lost its first entry.
    entries: Any = itertools.chain([found], iterator) if iterator is given else given
    return entries  # type: ignore[no-any-return]


def role_of(column: Hashable) -> Role | None:
    """Return the role of a column by the name that a field of entries gives it."""
    name, _, number = str(column).rpartition("_")
    return FIELDS[name].role if number.isdigit() and name in FIELDS else None


def entry_frames(
    entries: Iterable[Entry],
    schema: FrameSchema,
    *,
    find_roles: bool = False,
    long: bool = False,
) -> EntryFrames:
    """Turn entries into a frame, with the columns that a schema names.

    Parameters
    ----------
    entries : iterable of mappings
        With ``"start"``, ``"target"`` and, as they come, ``"item_id"`` and features.
    schema : FrameSchema
        Names of the columns for item, time, target and covariates, and the frequency.
    find_roles : bool
        Whether all features become covariates, if the schema names no covariate.
    long : bool
        Whether one multivariate entry makes a long frame too.

    Returns
    -------
    EntryFrames
        A wide frame of one multivariate entry, else a long one.

    Raises
    ------
    DataError
        If an entry breaks a rule.
    """
    read = _Entries(entries)
    one = read.targets[0].ndim == 2 and len(read.targets) == 1
    is_wide = one and not long and schema.id_column is None and not schema.static_covariates
    if find_roles:
        schema = _with_roles(schema, read.columns(static=not is_wide))
    freq = None if schema.freq is None else parse_frequency(schema.freq)
    rows = _Rows(read, schema, freq, is_wide=is_wide)
    ahead = read.ahead(schema)
    return EntryFrames(rows.history(), rows.future(ahead) if ahead.any() else None, schema)


def schema_of_entries(entries: Iterable[Entry], schema: FrameSchema) -> FrameSchema:
    """Give all features of entries their roles, unless a schema says which are covariates."""
    return _with_roles(schema, _Entries(entries).columns(static=True))


def _with_roles(schema: FrameSchema, columns: Sequence[str]) -> FrameSchema:
    """Give every feature its role, unless a schema says which ones are covariates."""
    if schema.past_covariates or schema.known_covariates or schema.static_covariates:
        return schema
    roles: dict[str, Any] = {
        f"{role}_covariates": tuple(column for column in columns if role_of(column) == role)
        for role in ROLES
    }
    return replace(schema, **roles)


class _Entries:
    """What entries hold, field by field and checked."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.items: list[str] = []
        self.starts: list[Any] = []
        self.targets: list[np.ndarray] = []
        self.features: dict[str, list[np.ndarray]] = {}
        self._seen: set[str] = set()
        for position, entry in enumerate(entries):
            self._add(position, entry)
        if not self.items:
            raise DataError("entries must hold at least one series, got none.")
        self.lengths = np.array([target.shape[-1] for target in self.targets], dtype=np.int64)

    def _add(self, position: int, entry: Entry) -> None:
        if not isinstance(entry, Mapping):
            raise DataError(
                f"entry {position} must be a mapping with start and target, got "
                f"{type(entry).__name__}."
            )
        item = entry.get(ITEM)
        item = str(position if item is None else item)
        if absent := [name for name in ("start", TARGET) if entry.get(name) is None]:
            raise DataError(f"entry {position} (item_id {item!r}) lacks {', '.join(absent)}.")
        if item in self._seen:
            raise DataError(
                f"item_id {item!r} occurs twice, again at entry {position}. Give each series its "
                "own; of windows of one series, as a rolling test set has them, keep the longest."
            )
        self._seen.add(item)
        target = _numbers(entry[TARGET], TARGET, item)
        if target.ndim not in (1, 2) or not target.size:
            raise DataError(
                f"target of item_id {item!r} must have the shape (T,) or (C, T), with at least one "
                f"value, got {target.shape}."
            )
        self.items.append(item)
        self.starts.append(entry["start"])
        self.targets.append(target)
        self._add_features(entry, item, target.shape[-1])

    def _add_features(self, entry: Entry, item: str, length: int) -> None:
        given = [name for name in FIELDS if entry.get(name) is not None and np.size(entry[name])]
        if len(self.items) == 1:
            self.features = {name: [] for name in given}
        if given != list(self.features):
            raise DataError(
                f"All entries must have the same features, but item_id {item!r} has "
                f"{', '.join(given) or 'none'} and {self.items[0]!r} has "
                f"{', '.join(self.features) or 'none'}."
            )
        for name in given:
            values = _feature(entry[name], name, item)
            known = self.features[name]
            if known and len(known[0]) != len(values):
                raise DataError(
                    f"{name} of item_id {item!r} has {len(values)} rows, and that of "
                    f"{self.items[0]!r} has {len(known[0])}. All must have the same."
                )
            if values.ndim == 2 and values.shape[1] < length:
                raise DataError(
                    f"{name} of item_id {item!r} has {values.shape[1]} values, but its target has "
                    f"{length}: a feature must cover the target."
                )
            known.append(values)

    def columns(self, *, static: bool) -> list[str]:
        """Return the names of the columns of features."""
        return [
            f"{name}_{number}"
            for name, values in self.features.items()
            if static or FIELDS[name].role != "static"
            for number in range(len(values[0]))
        ]

    def ahead(self, schema: FrameSchema) -> np.ndarray:
        """Return for how many rows after the target of each entry all known covariates go on."""
        named = {str(column).rpartition("_")[0] for column in schema.known_covariates}
        lasts = [
            np.array([values.shape[1] for values in self.features[name]])
            for name in self.features
            if name in named
        ]
        return np.min(lasts, axis=0) - self.lengths if lasts else np.zeros_like(self.lengths)


class _Rows:
    """Makes frames of some rows of all entries."""

    def __init__(
        self, read: _Entries, schema: FrameSchema, freq: str | int | None, *, is_wide: bool
    ) -> None:
        self._read, self._schema, self._freq, self._is_wide = read, schema, freq, is_wide
        named = (*schema.past_covariates, *schema.known_covariates, *schema.static_covariates)
        self._columns = [column for column in read.columns(static=not is_wide) if column in named]
        # A long frame has a series for each channel.
        self._channels = [
            1 if is_wide or target.ndim == 1 else len(target) for target in read.targets
        ]

    def history(self) -> pd.DataFrame:
        """Return the rows that the targets cover."""
        lengths = self._read.lengths
        first = np.zeros_like(lengths)
        return self._frame(first, lengths, self._targets(), self._columns)

    def future(self, counts: np.ndarray) -> pd.DataFrame:
        """Return the known covariates of ``counts`` rows after the target of each entry."""
        known = [column for column in self._columns if role_of(column) == "known"]
        return self._frame(self._read.lengths, counts, {}, known)

    def _frame(
        self,
        first: np.ndarray,
        counts: np.ndarray,
        targets: dict[Hashable, np.ndarray],
        features: list[str],
    ) -> pd.DataFrame:
        """Return ``counts`` rows of each entry from the ``first`` on."""
        schema, read = self._schema, self._read
        of_entry = np.repeat(np.arange(len(read.items)), self._channels)
        names = self._series()
        stamps = stamps_of(
            [read.starts[entry] for entry in of_entry],
            first[of_entry],
            counts[of_entry],
            self._freq,
            names,
        )
        time = TIME if schema.timestamp_column is None else schema.timestamp_column
        columns: dict[Hashable, Any] = {}
        if not self._is_wide:
            item = ITEM if schema.id_column is None else schema.id_column
            columns[item] = np.repeat(np.array(names, dtype=object), counts[of_entry])
            columns[time] = stamps
        columns |= targets
        columns |= {column: self._feature(column, first, counts) for column in features}
        return pd.DataFrame(columns, index=stamps.rename(time) if self._is_wide else None)

    def _series(self) -> list[str]:
        """Return the names of the series of a long frame."""
        read = self._read
        return [
            item if target.ndim == 1 else f"{item}.{channel}"
            for item, target, channels in zip(read.items, read.targets, self._channels, strict=True)
            for channel in range(channels)
        ]

    def _targets(self) -> dict[Hashable, np.ndarray]:
        """Return the columns of targets."""
        target, values = self._schema.target, self._read.targets
        named: tuple[Hashable, ...] = target if isinstance(target, tuple) else (target,)
        if not self._is_wide:
            only = named[0] if len(named) == 1 and target is not None else TARGET
            return {only: np.concatenate([each.ravel() for each in values])}
        count = len(values[0])
        names = named if target is not None and len(named) == count else range(count)
        return dict(zip(names, values[0], strict=True))

    def _feature(self, column: str, first: np.ndarray, counts: np.ndarray) -> Any:
        """Return a feature over some rows of each series."""
        name, _, place = column.rpartition("_")
        values, number = self._read.features[name], int(place)
        if FIELDS[name].role == "static":
            each = np.array([rows[number] for rows in values])
            found = np.repeat(np.repeat(each, self._channels), np.repeat(counts, self._channels))
        else:
            parts = zip(values, first, first + counts, self._channels, strict=True)
            found = np.concatenate(
                [np.tile(rows[number, begin:end], times) for rows, begin, end, times in parts]
            )
        return _categories(found, column) if FIELDS[name].is_category else found


def _numbers(values: Any, field: str, item: str) -> np.ndarray:
    """Return numbers, NaN where missing."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{field} of item_id {item!r} must hold numbers: {error}.") from error


def _feature(values: Any, field: str, item: str) -> np.ndarray:
    """Return a feature of shape (K, L), a static one (K,); numbers, or categories as text."""
    text = FIELDS[field].is_category and np.asarray(values).dtype.kind in "OSU"
    found = np.asarray(values, dtype=object) if text else _numbers(values, field, item)
    axes = 1 if FIELDS[field].role == "static" else 2
    found = np.atleast_1d(found) if axes == 1 else np.atleast_2d(found)
    if found.ndim != axes:
        shape = "(K,)" if axes == 1 else "(K, T)"
        raise DataError(
            f"{field} of item_id {item!r} must have the shape {shape}, got {found.shape}."
        )
    return found


def _categories(values: np.ndarray, column: str) -> Any:
    """Return text or whole numbers as categories."""
    if values.dtype.kind in "OU":
        return pd.Categorical(values.astype(object))
    missing = np.isnan(values)
    whole = np.where(missing, 0, values)
    if (whole % 1 != 0).any():
        raise DataError(
            f"{column} must hold whole numbers, which name categories, got "
            f"{whole[np.argmax(whole % 1 != 0)]:g}."
        )
    codes, found = pd.factorize(whole.astype(np.int64), sort=True)
    return pd.Categorical.from_codes(np.where(missing, -1, codes), categories=pd.Index(found))
