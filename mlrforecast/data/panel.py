"""Frames in, checked series out: the one place where a caller's frame is read.

A panel is a tuple of series that share one frequency. A wide frame gives one series whose
channels are its columns; a long frame gives one series of one channel for each item.
"""

import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from mlrforecast._core.errors import DataError
from mlrforecast.data.frequency import check_regular_runs, infer_frequency

LONG_NAMES = (("item_id", "timestamp", "target"), ("unique_id", "ds", "y"))
"""Column names that make a frame a long one: item, time stamp, target."""

# Differences, means and forecasts of larger values would not be finite.
_LARGEST = 1e300


@dataclass(frozen=True, eq=False)
class Series:
    """The rows of one item, sorted by time.

    Parameters
    ----------
    item_id : hashable or None
        The item, or None for a wide frame.
    index : DatetimeIndex of length T
        Regular time stamps, oldest first.
    values : ndarray of shape (T, C)
        Float64 values, NaN where missing.
    """

    item_id: Hashable | None
    index: pd.DatetimeIndex
    values: np.ndarray

    @property
    def owner(self) -> str:
        """Name all rows of the series the way their owner would, for messages."""
        return "the frame" if self.item_id is None else f"series {self.item_id!r}"

    def tail(self, rows: int) -> "Series":
        """Return the newest ``rows`` rows (all of them if there are fewer)."""
        return Series(self.item_id, self.index[-rows:], self.values[-rows:])


@dataclass(frozen=True, eq=False)
class Panel:
    """Series of one frame, with all that is needed to write a forecast in the same form.

    Parameters
    ----------
    form : {"wide", "long"}
        The form of the frame.
    names : tuple
        Wide: the columns. Long: the names of the item, time and target columns.
    freq : str
        Frequency of every series, as a pandas offset alias.
    series : tuple of Series
        In the order in which the items first appear.
    """

    form: Literal["wide", "long"]
    names: tuple[Hashable, ...]
    freq: str
    series: tuple[Series, ...]

    @property
    def channels(self) -> tuple[Hashable, ...]:
        """Names of the channels that every series has."""
        return self.names if self.form == "wide" else (self.names[2],)

    def label(self, series: Series, channel: int) -> str:
        """Name the ``channel`` of ``series`` the way its owner would, for messages."""
        if self.form == "wide":
            return f"column {self.names[channel]!r}"
        return f"series {series.item_id!r}"

    def tail(self, rows: int) -> "Panel":
        """Return the panel of each series' newest ``rows`` rows."""
        return Panel(self.form, self.names, self.freq, tuple(s.tail(rows) for s in self.series))


def read_panel(frame: pd.DataFrame, *, freq: str | None = None, argument: str = "X") -> Panel:
    """Read and check a wide or long frame; the frame itself is never changed.

    Rows may come in any order: they are sorted by time. Missing values stay NaN. Columns hold
    numbers of any dtype, nullable ones too; booleans, complex numbers and numbers in object
    columns are refused rather than converted unasked.

    Parameters
    ----------
    frame : DataFrame
        Wide: a ``DatetimeIndex`` and numeric columns. Long: the columns ``item_id``,
        ``timestamp``, ``target``, or ``unique_id``, ``ds``, ``y``, and no others.
    freq : str, optional
        Frequency that the frame must have; inferred from the stamps if omitted.
    argument : str
        Name of the argument, for messages.

    Returns
    -------
    Panel
        The checked series.

    Raises
    ------
    TypeError
        If ``frame`` is not a DataFrame.
    DataError
        If the frame is empty, in neither form, holds what is no number, infinite values or values
        beyond 1e300, items that cannot be hashed, duplicate, missing or irregular stamps, a column
        without any value, two columns of one name, or is of another frequency.

    Examples
    --------
    >>> index = pd.date_range("2024-01-01", periods=4, freq="h")
    >>> panel = read_panel(pd.DataFrame({"load": [1.0, 2.0, np.nan, 4.0]}, index=index))
    >>> panel.form, panel.freq, panel.series[0].values.shape
    ('wide', 'h', (4, 1))
    """
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(_no_frame(frame, argument))
    if frame.shape[0] == 0 or frame.shape[1] == 0:
        raise DataError(
            f"`{argument}` is empty: it has {frame.shape[0]} rows and {frame.shape[1]} columns."
        )
    for names in LONG_NAMES:
        if set(names) <= set(frame.columns):
            return _read_long(frame, names, freq, argument)
    if isinstance(frame.index, pd.DatetimeIndex):
        return _read_wide(frame, freq, argument)
    raise DataError(
        f"`{argument}` is in neither known form. A wide frame has a DatetimeIndex (this index is "
        f"of type {frame.index.dtype}) and numeric columns; a long frame has the columns "
        f"item_id, timestamp, target or unique_id, ds, y (this one has "
        f"{', '.join(map(repr, frame.columns[:8]))})."
    )


def _no_frame(given: object, argument: str) -> str:
    """Say that an argument is no DataFrame, and how a Series becomes one."""
    hint = " It becomes one with .to_frame()." if isinstance(given, pd.Series) else ""
    return f"`{argument}` must be a pandas DataFrame, got {type(given).__name__}.{hint}"


def _read_wide(frame: pd.DataFrame, freq: str | None, argument: str) -> Panel:
    doubled = frame.columns[frame.columns.duplicated()]
    if len(doubled):
        raise DataError(f"`{argument}` has more than one column named {doubled[0]!r}.")
    index = pd.DatetimeIndex(frame.index)
    _check_stamps(index, f"`{argument}`")
    values = np.column_stack([_numbers(frame[name], f"column {name!r}") for name in frame.columns])
    if not index.is_monotonic_increasing:
        order = np.argsort(index.asi8, kind="stable")
        index, values = index[order], values[order]
    starts = np.zeros(1, dtype=np.int64)
    for channel, name in enumerate(frame.columns):
        _check_values(values[:, channel], index, starts, [f"column {name!r}"].__getitem__)
    owner = [f"`{argument}`"].__getitem__
    _check_duplicates(index, starts, owner)
    freq = infer_frequency([index], given=freq, owner=owner)
    check_regular_runs(index, starts, freq, owner)
    return Panel("wide", tuple(frame.columns), freq, (Series(None, index, values),))


def _read_long(
    frame: pd.DataFrame, names: tuple[str, str, str], freq: str | None, argument: str
) -> Panel:
    _check_columns(frame, names, argument)
    id_name, time_name, target_name = names
    stamps = _parse_stamps(frame[time_name], argument)
    _check_stamps(stamps, f"column {time_name!r} of `{argument}`")
    values = _numbers(frame[target_name], f"column {target_name!r}")
    codes, found = _factorize(frame[id_name], argument)
    items = found.tolist()
    order = np.lexsort((stamps.asi8, codes))
    stamps, values = stamps[order], values[order]
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))

    def owner(number: int) -> str:
        return f"series {items[number]!r}"

    # All series at once: one by one, tens of thousands of them would take a minute.
    _check_values(values, stamps, starts, owner)
    _check_duplicates(stamps, starts, owner)
    ends = np.append(starts[1:], len(values))
    series = tuple(
        Series(item, stamps[start:end], values[start:end, None])
        for item, start, end in zip(items, starts, ends, strict=True)
    )
    freq = infer_frequency([item.index for item in series], given=freq, owner=owner)
    check_regular_runs(stamps, starts, freq, owner)
    return Panel("long", names, freq, series)


def _factorize(ids: pd.Series, argument: str) -> tuple[np.ndarray, pd.Index]:
    """Return the number of the item of each row, and the items in order of appearance."""
    try:
        return pd.factorize(ids)
    except TypeError as error:
        raise DataError(
            f"Column {ids.name!r} of `{argument}` must hold hashable items such as text or "
            f"numbers: {error} (first value {_first(ids)}). Convert it, e.g. with .astype(str)."
        ) from error


def _check_columns(frame: pd.DataFrame, names: tuple[str, str, str], argument: str) -> None:
    """Check that a long frame has its three columns once, no others, and no row without item."""
    doubled = frame.columns[frame.columns.duplicated()]
    if len(doubled):
        raise DataError(f"`{argument}` has more than one column named {doubled[0]!r}.")
    extra = [name for name in frame.columns if name not in names]
    if extra:
        raise DataError(
            f"`{argument}` has columns that are not used: {', '.join(map(repr, extra[:8]))}. "
            f"Select the ones that are: frame[{list(names)}]."
        )
    if frame[names[0]].isna().any():
        row = int(np.flatnonzero(frame[names[0]].isna())[0])
        raise DataError(f"Column {names[0]!r} of `{argument}` is missing in row {row}.")


def _parse_stamps(column: pd.Series, argument: str) -> pd.DatetimeIndex:
    """Read a time column: time stamps as they are, text of one clear format, no numbers."""
    held = dtypes.infer_dtype(column, skipna=True) if column.dtype == object else ""
    if dtypes.is_numeric_dtype(column.dtype) or held.startswith(("integer", "float", "mixed-int")):
        raise DataError(
            f"Column {column.name!r} of `{argument}` holds numbers ({column.dtype}, first value "
            f"{_first(column)}), not time stamps. Convert it with pd.to_datetime first."
        )
    problem: object
    try:
        with warnings.catch_warnings(record=True) as guesses:
            warnings.simplefilter("always")
            stamps = pd.DatetimeIndex(pd.to_datetime(column))
        if not guesses:
            return stamps
        problem = guesses[0].message
    except (ValueError, TypeError) as error:
        problem = error
    raise DataError(
        f"Column {column.name!r} of `{argument}` cannot be read as time stamps without a guess "
        f"(first value {_first(column)}): {str(problem).rstrip('.')}. "
        "Convert it with pd.to_datetime first."
    )


def _first(column: pd.Series) -> str:
    """Show the first value of a column as Python writes it."""
    return repr(column.iloc[:1].tolist()[0])


def _numbers(column: pd.Series, owner: str) -> np.ndarray:
    """Return the values as float64 with NaN for missing ones, without a copy where possible."""
    dtype = column.dtype
    if (
        not dtypes.is_numeric_dtype(dtype)
        or dtypes.is_bool_dtype(dtype)
        or dtypes.is_complex_dtype(dtype)
    ):
        raise DataError(
            f"{owner[0].upper()}{owner[1:]} must be numeric, got dtype {dtype} "
            f"(first value {_first(column)}). Convert it, e.g. with pd.to_numeric or "
            ".astype(float), or leave it out."
        )
    if isinstance(dtype, np.dtype):
        return column.to_numpy(dtype=np.float64)
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _check_stamps(stamps: pd.DatetimeIndex, owner: str) -> None:
    if stamps.hasnans:
        row = int(np.flatnonzero(np.asarray(stamps.isna()))[0])
        raise DataError(f"The time stamp of {owner} is missing in row {row}.")


def _check_duplicates(
    stamps: pd.DatetimeIndex, starts: np.ndarray, owner: Callable[[int], str]
) -> None:
    """Check that stamps, sorted within the runs that begin at ``starts``, rise in each run."""
    same = np.diff(stamps.asi8) == 0
    same[starts[1:] - 1] = False
    if same.any():
        row = int(np.argmax(same))
        raise DataError(
            f"Time stamps must be unique, but {owner(_run_of(row, starts))} has {stamps[row]} more "
            f"than once ({np.count_nonzero(same)} too many in all). Keep one row a stamp, "
            "e.g. with groupby(...).mean() or drop_duplicates."
        )


def _check_values(
    values: np.ndarray, stamps: pd.DatetimeIndex, starts: np.ndarray, owner: Callable[[int], str]
) -> None:
    """Check one column of values, in runs that begin at ``starts``."""
    infinite = np.isinf(values)
    if infinite.any():
        row = int(np.argmax(infinite))
        raise DataError(
            f"Values must be finite or missing, but {owner(_run_of(row, starts))} is {values[row]} "
            f"at {stamps[row]} ({np.count_nonzero(infinite)} in all). Replace them by NaN."
        )
    beyond = (values > _LARGEST) | (values < -_LARGEST)
    if beyond.any():
        row = int(np.argmax(beyond))
        raise DataError(
            f"Values must lie within -{_LARGEST:g} and {_LARGEST:g}, but "
            f"{owner(_run_of(row, starts))} is {values[row]} at {stamps[row]} "
            f"({np.count_nonzero(beyond)} in all). Replace them by NaN, or change the unit."
        )
    empty = np.logical_and.reduceat(np.isnan(values), starts)
    if empty.any():
        raise DataError(
            f"There is no observed value in {owner(int(np.argmax(empty)))}: "
            "all its rows are missing."
        )


def _run_of(row: int, starts: np.ndarray) -> int:
    """Return the number of the run that holds a row."""
    return int(np.searchsorted(starts, row, side="right")) - 1
