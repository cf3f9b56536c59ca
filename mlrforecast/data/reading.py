"""Frames in, a checked panel out: the one place where a caller's frame is read."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data._columns import (
    check_observed,
    check_values,
    read_covariate,
    read_numbers,
    static_of,
)
from mlrforecast.data._forms import to_pandas
from mlrforecast.data._regular import Kind, Table, check_duplicates, fill_gaps, resample
from mlrforecast.data._roles import Roles, find_roles
from mlrforecast.data._stamps import read_stamps
from mlrforecast.data._stream_panel import Request, apart, stream_panel
from mlrforecast.data.frequency import (
    check_regular_runs,
    infer_frequency,
    parse_frequency,
    propose_frequency,
    ticks_of,
)
from mlrforecast.data.panel import Covariate, Layout, Panel, name_at
from mlrforecast.data.schema import FrameSchema
from mlrforecast.data.streaming import FileDataset

_PLAIN = FrameSchema()


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """The rows of a frame in the caller's order, read column by column.

    Parameters
    ----------
    layout : Layout
        How the frame looked.
    labels : Index
        Long: the items, in order of appearance and in the dtype of the frame. Else the names of
        the targets.
    codes : ndarray of int of shape (N,)
        Number of the item of each row, 0 for a frame that is no long one.
    stamps : DatetimeIndex or Index of int, of length N
        Time of the rows.
    step : str, optional
        Frequency of the periods that the stamps were read from, if they were.
    targets : tuple of ndarray of shape (N,)
        Values of each target, float64. They may be the caller's own.
    past, known, static : tuple of Covariate
        Covariates, with an entry for each row.
    """

    layout: Layout
    labels: pd.Index
    codes: np.ndarray
    stamps: pd.Index
    step: str | None
    targets: tuple[np.ndarray, ...]
    past: tuple[Covariate, ...]
    known: tuple[Covariate, ...]
    static: tuple[Covariate, ...]


def read_panel(
    frame: object,
    schema: FrameSchema = _PLAIN,
    *,
    freq: str | int | None = None,
    argument: str = "X",
    newest: int | None = None,
    progress: bool = False,
) -> Panel:
    """Read and check a frame of any form and library; the frame itself is never changed.

    Rows may come in any order: they are sorted by series and time. Missing values stay NaN.
    Targets hold numbers of any dtype, nullable ones too; booleans, complex numbers and numbers in
    object columns are refused rather than converted unasked.

    Time is the column that the schema names, else a column named ``timestamp`` or ``ds``, else an
    index of stamps, periods or text that reads as stamps, else the one column that holds time,
    else an integer index. The index of a wide frame comes before those names. Text is read if
    there is one way to do so: ``01/02/2024`` alone is refused, ``13/02/2024`` is not.

    Parameters
    ----------
    frame : DataFrame, Series, ndarray, or entries of GluonTS
        Wide: a column for each series. Long: a row for each item and stamp, the two in columns or
        in the two levels of the index. A frame of pandas, polars, pyarrow or any other library
        that narwhals reads; a pandas Series; an array of shape (T,) or (T, C), whose columns are
        named 0 to C - 1 and whose time is 0 to T - 1. Entries of GluonTS are read as
        :func:`gluonts_to_long_frame` shows; one multivariate entry is a wide frame, and features
        that the schema does not name are left out. A :class:`FileDataset` holds a long frame;
        it is read block by block, and the frequency of the first block is that of all.
    schema : FrameSchema
        Which column is what, as far as that is not plain, and what becomes of gaps.
    freq : str or int, optional
        Frequency that the frame must have, as parsed by :func:`parse_frequency`; it takes the
        place of that of the schema.
    argument : str
        Name of the argument, for messages.
    newest : int, optional
        Rows of each series that are kept, the newest ones. Default: all.
    progress : bool
        Whether a bar shows, where a terminal does, how much of files has been read.

    Returns
    -------
    Panel
        The checked series; those of files are in scratch files, unless the ``newest`` rows alone
        are kept.

    Raises
    ------
    TypeError
        If ``frame`` is none of these objects, or a lazy frame.
    DataError
        If the frame is empty; if a column is absent, has two roles or none, or is named twice; if
        time is missing, duplicate, irregular, of another frequency or can be read in two ways; if
        an item is missing or cannot be hashed; if a value is no number, infinite or beyond 1e300;
        if a series or column has no value at all; if a static covariate changes within a series.
        If the rows of a series do not stand together in files, or a file cannot be read.
    ValueError
        If ``schema.freq`` is no frequency.
    OSError
        If the scratch folder has no room.

    Examples
    --------
    >>> index = pd.date_range("2024-01-01", periods=4, freq="h")
    >>> panel = read_panel(pd.DataFrame({"load": [1.0, 2.0, np.nan, 4.0]}, index=index))
    >>> panel.layout.form, panel.freq, panel.values.shape
    ('wide', 'h', (4, 1))
    >>> days = ["2024-05-01", "2024-05-02", "2024-05-03"]
    >>> frame = pd.DataFrame({"shop": "007", "day": days, "sold": [3, 1, 2], "promo": [0, 1, 0]})
    >>> schema = FrameSchema(id_column="shop", target="sold", known_covariates=("promo",))
    >>> panel = read_panel(frame, schema)
    >>> panel.layout.form, panel.freq, list(panel.labels), panel.known[0].name
    ('long', 'D', ['007'], 'promo')
    """
    if freq is not None:
        schema = replace(schema, freq=freq)
    if not isinstance(frame, FileDataset):
        panel = _panel_of(read_rows(frame, schema, argument=argument), schema, freq, argument)
        return panel if newest is None else panel.tail(newest)

    def items_of(block: pd.DataFrame) -> pd.Series:
        roles = find_roles(*to_pandas(block, argument), schema, argument)
        if roles.items is None:
            raise DataError(
                f"`{argument}` holds the rows of a wide frame, and a FileDataset must hold those "
                "of a long one. Name the column of the series with id_column."
            )
        return pd.Series(roles.items)

    def read(block: pd.DataFrame, known: str | int | None) -> Panel:
        rows = read_rows(block, schema, argument=argument)
        _check_together(rows)
        return _panel_of(rows, schema, known, argument)

    return stream_panel(Request(frame, schema, freq, newest, progress), items_of, read)


def _check_together(rows: Rows) -> None:
    """Refuse rows of a series that have rows of another one between them."""
    begins = np.append(0, np.flatnonzero(np.diff(rows.codes)) + 1)
    if len(begins) > len(rows.labels):
        _, first = np.unique(rows.codes[begins], return_index=True)
        again = np.setdiff1d(np.arange(len(begins)), first)[0]
        raise DataError(apart(name_at(rows.labels, int(rows.codes[begins[again]]))))


def _panel_of(rows: Rows, schema: FrameSchema, freq: str | int | None, argument: str) -> Panel:
    """Check rows, and make a panel of them."""
    rows = sort_rows(rows)
    owner, label = _naming(rows, argument)
    bounds = bounds_of(rows.codes)
    for covariate in rows.static:
        if covariate.categories is None:
            check_values(
                covariate.values, rows.stamps, bounds, _always(f"column {covariate.name!r}")
            )
    static = tuple(static_of(covariate, bounds, owner) for covariate in rows.static)
    table = _table_of(rows)
    _check_finite(table, bounds, label)
    table, found = _on_one_frequency(table, rows, schema, freq, owner)
    bounds = bounds_of(table.codes)
    if schema.resample is not None:
        # A sum may have grown beyond what is allowed.
        _check_finite(table, bounds, label)
    panel = _copied(rows, table, bounds, found, static)
    for channel in range(panel.num_channels):
        check_observed(panel.values[:, channel], bounds, label(channel))
    return panel


def read_rows(frame: object, schema: FrameSchema, *, argument: str, targets: bool = True) -> Rows:
    """Read the columns of a frame, row by row as they stand.

    Parameters
    ----------
    frame : object
        As for :func:`read_panel`.
    schema : FrameSchema
        Which column is what.
    argument : str
        Name of the argument, for messages.
    targets : bool
        Whether targets and past covariates are read. Without them, as in a frame of the steps to
        be forecast, columns that have no role are left out.

    Returns
    -------
    Rows
        Unsorted; values are not yet checked to be finite, nor stamps to be unique or regular.
    """
    table, layout = to_pandas(frame, argument, schema)
    roles = find_roles(table, layout, schema, argument, targets=targets)
    time = read_stamps(roles.time, roles.time_owner)
    codes, items = _factorize(roles, len(table), argument)

    def covariates(columns: dict[Hashable, pd.Series]) -> tuple[Covariate, ...]:
        return tuple(read_covariate(column, name, argument) for name, column in columns.items())

    return Rows(
        layout=roles.layout,
        labels=_names(table.columns, roles.targets) if items is None else items,
        codes=codes,
        stamps=time.times,
        step=time.step,
        targets=tuple(
            read_numbers(column, f"column {name!r}") for name, column in roles.targets.items()
        ),
        past=covariates(roles.past),
        known=covariates(roles.known),
        static=covariates(roles.static),
    )


def sort_rows(rows: Rows) -> Rows:
    """Return ``rows`` sorted by series and time; sorted ones are returned as they are."""
    ticks = ticks_of(rows.stamps)
    if rows.layout.form == "long":
        later = np.diff(ticks) >= 0
        series = np.diff(rows.codes)
        in_order = bool(((series > 0) | ((series == 0) & later)).all())
        order = None if in_order else np.lexsort((ticks, rows.codes))
    else:
        in_order = rows.stamps.is_monotonic_increasing
        order = None if in_order else np.argsort(ticks, kind="stable")
    if order is None:
        return rows
    return replace(
        rows,
        codes=rows.codes[order],
        stamps=rows.stamps[order],
        targets=tuple(values[order] for values in rows.targets),
        past=tuple(covariate.take(order) for covariate in rows.past),
        known=tuple(covariate.take(order) for covariate in rows.known),
        static=tuple(covariate.take(order) for covariate in rows.static),
    )


def bounds_of(codes: np.ndarray) -> np.ndarray:
    """Return the first row of each series, and the number of rows, of sorted ``codes``."""
    changes = np.flatnonzero(np.diff(codes)) + 1
    return np.concatenate([[0], changes, [len(codes)]]).astype(np.int64)


def _names(columns: pd.Index, targets: Iterable[Hashable]) -> pd.Index:
    """Return the names of the targets, as an index of the kind of the columns."""
    places = {name: place for place, name in enumerate(columns)}
    return columns.take(np.array([places[name] for name in targets], dtype=np.intp))


def _factorize(roles: Roles, rows: int, argument: str) -> tuple[np.ndarray, pd.Index | None]:
    """Return the number of the item of each row, and the items in order of appearance."""
    if roles.items is None:
        return np.zeros(rows, dtype=np.int64), None
    owner = (
        f"The item, the first level of the index of `{argument}`,"
        if roles.layout.indexed
        else f"Column {roles.layout.id_name!r} of `{argument}`"
    )
    _refuse_look_alikes(roles.items, owner)
    try:
        codes, found = pd.factorize(roles.items)
    except TypeError as error:
        first = roles.items[:1].tolist()[0]
        raise DataError(
            f"{owner} must hold hashable items such as text or numbers: {error} (first value "
            f"{first!r}). Convert it, e.g. with .astype(str)."
        ) from error
    if (codes < 0).any():
        raise DataError(f"{owner} is missing in row {int(np.argmax(codes < 0))}.")
    return codes, found.rename(None)


def _refuse_look_alikes(items: pd.Series | pd.Index, owner: str) -> None:
    """Refuse items that Python holds to be equal although they are written differently."""
    if items.dtype != object:
        return
    kind = pd.api.types.infer_dtype(items, skipna=True)
    if kind not in ("mixed", "mixed-integer", "mixed-integer-float"):
        return
    seen: dict[Hashable, Hashable] = {}
    for item in items.tolist():
        try:
            other = seen.setdefault(item, item)
        except TypeError:
            # What cannot be hashed is refused later.
            return
        if type(other) is not type(item):
            raise DataError(
                f"{owner} holds both {other!r} and {item!r}, which count as one item. Convert it, "
                "e.g. with .astype(str)."
            )


def _naming(
    rows: Rows, argument: str
) -> tuple[Callable[[int], str], Callable[[int], Callable[[int], str]]]:
    """Return how series are named in messages, and, for a column, the values of series."""

    def owner(number: int) -> str:
        if rows.layout.form == "long":
            return f"series {name_at(rows.labels, number)!r}"
        return f"`{argument}`"

    def label(channel: int) -> Callable[[int], str]:
        if rows.layout.form in ("long", "series"):
            return owner
        return _always(f"column {name_at(rows.labels, channel)!r}")

    return owner, label


def _table_of(rows: Rows) -> Table:
    """Return the sorted rows as what the functions of time work on."""
    columns: list[tuple[Hashable, np.ndarray, Kind]] = [
        (channel, values, "target") for channel, values in enumerate(rows.targets)
    ]
    columns += as_columns((*rows.past, *rows.known))
    return Table(rows.stamps, rows.codes, columns)


def as_columns(covariates: Iterable[Covariate]) -> list[tuple[Hashable, np.ndarray, Kind]]:
    """Return ``covariates`` as columns of a table."""
    return [(covariate.name, covariate.values, covariate.kind) for covariate in covariates]


def from_columns(
    covariates: Iterable[Covariate], columns: Iterable[tuple[Hashable, np.ndarray, Kind]]
) -> tuple[Covariate, ...]:
    """Return copies of ``covariates`` with the values that their ``columns`` have become."""
    return tuple(
        Covariate(covariate.name, np.array(values), covariate.categories)
        for covariate, (_, values, _) in zip(covariates, columns, strict=True)
    )


def _check_finite(
    table: Table, bounds: np.ndarray, label: Callable[[int], Callable[[int], str]]
) -> None:
    for place, (name, values, kind) in enumerate(table.columns):
        if kind == "target":
            check_values(values, table.stamps, bounds, label(place))
        elif kind == "number":
            check_values(values, table.stamps, bounds, _always(f"column {name!r}"))


def _always(name: str) -> Callable[[int], str]:
    """Return what names every series alike."""
    return lambda number: name


def _on_one_frequency(
    table: Table,
    rows: Rows,
    schema: FrameSchema,
    known: str | int | None,
    owner: Callable[[int], str],
) -> tuple[Table, str | int]:
    """Bring the rows onto one frequency as the schema says, and check that they are on it."""
    given = known
    if given is None and schema.freq is not None:
        given = parse_frequency(schema.freq)
    bounds = bounds_of(table.codes)
    if schema.resample is None:
        check_duplicates(table.stamps, bounds, owner)
    else:
        if given is None:
            longest = int(np.argmax(np.diff(bounds)))
            given = propose_frequency(table.stamps[bounds[longest] : bounds[longest + 1]])
        table = resample(table, given, schema.resample, schema.fill or "missing")
        bounds = bounds_of(table.codes)
    freq = infer_frequency(
        table.stamps,
        bounds,
        given=rows.step if given is None else given,
        fills=schema.fill is not None,
        owner=owner,
    )
    if schema.fill is not None:
        table = fill_gaps(table, freq, schema.fill)
        bounds = bounds_of(table.codes)
    check_regular_runs(table.stamps, bounds, freq, owner)
    return table, freq


def _copied(
    rows: Rows,
    table: Table,
    bounds: np.ndarray,
    freq: str | int,
    static: tuple[Covariate, ...],
) -> Panel:
    """Copy the columns of a table into a panel, which shares nothing with the caller's frame."""
    count = len(rows.targets)
    values = np.empty((len(table.stamps), count))
    for channel in range(count):
        values[:, channel] = table.columns[channel][1]
    covariates = from_columns((*rows.past, *rows.known), table.columns[count:])
    return Panel(
        layout=rows.layout,
        freq=freq,
        labels=rows.labels,
        index=table.stamps,
        values=values,
        bounds=bounds,
        past=covariates[: len(rows.past)],
        known=covariates[len(rows.past) :],
        static=static,
    )
