"""Rows of a long frame as Arrow tables: those that a forecast reads, and which go together."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast._core.optional import import_optional
from mlrforecast.data import FileDataset
from mlrforecast.data.reading import read_rows
from mlrforecast.data.schema import FrameSchema

KEY, AHEAD = "__mlrforecast_series__", "__mlrforecast_ahead__"
"""Columns of the number that all rows of a series share, and of which rows are of the future."""

PURPOSE = "A forecast from parquet files on Ray"


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns that a forecast reads.

    Parameters
    ----------
    item, time, target : str
        Their names.
    types : mapping of str to DataType
        What each column, covariates included, is in the tables.
    ahead : tuple of str
        Those that rows of the future have.
    static : tuple of str
        Those of static covariates.
    indexed : bool
        Whether pandas wrote items and time from the index of a frame.
    """

    item: str
    time: str
    target: str
    types: Mapping[str, Any]
    ahead: tuple[str, ...]
    static: tuple[str, ...]
    indexed: bool


def arrow() -> ModuleType:
    """Import Arrow, with the modules that are used here."""
    extra = {"extra": "tune", "purpose": PURPOSE}
    for part in ("pyarrow.compute", "pyarrow.parquet"):
        import_optional(part, **extra)
    return import_optional("pyarrow", **extra)


def find_columns(history: FileDataset, future: FileDataset | None, schema: FrameSchema) -> Columns:
    """Return the columns of files, or say what is wrong with them."""
    pa = arrow()
    there = _types_of(history)
    sample = next((rows for file in history.sources for rows in file.rows(1) if len(rows)), None)
    if sample is None:
        raise DataError("`source` is empty: its files have no rows.")
    layout = read_rows(sample[:1], schema, argument="source").layout
    names = {"item": layout.id_name, "time": layout.time_name, "target": layout.target_name}
    if layout.form != "long" or not all(name in there for name in names.values()):
        raise DataError(
            "`source` must hold the rows of a long frame, with named columns for the series, the "
            f"time and the target; its columns are {', '.join(map(repr, there))}."
        )
    known = tuple(map(str, schema.known_covariates))
    static = tuple(map(str, schema.static_covariates))
    wanted = [*names.values(), *schema.past_covariates, *known, *static]
    types = {str(name): there[str(name)] for name in wanted}
    item, time = str(layout.id_name), str(layout.time_name)
    if pa.types.is_dictionary(types[item]):
        types[item] = types[item].value_type
    _check_time(pa, time, types[time])
    ahead = (item, time, *known)
    if future is not None:
        _promote(pa, types, _types_of(future), ahead)
    return Columns(
        item=item,
        time=time,
        target=str(layout.target_name),
        types=types,
        ahead=ahead,
        static=static,
        indexed=layout.indexed,
    )


def _types_of(dataset: FileDataset) -> dict[str, Any]:
    """Return the types of the columns of the first file."""
    schema = import_optional("pyarrow.parquet", extra="tune", purpose=PURPOSE).read_schema(
        dataset.files[0]
    )
    return dict(zip(schema.names, schema.types, strict=True))


def _check_time(pa: ModuleType, name: str, kind: Any) -> None:
    """Refuse time that has no order of its own."""
    known = pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind)
    if not known:
        raise DataError(
            f"Column {name!r} of `source` must hold time stamps, dates or integers, got {kind}. "
            "Convert it before the files are written."
        )


def _promote(
    pa: ModuleType, types: dict[str, Any], later: Mapping[str, Any], names: tuple[str, ...]
) -> None:
    """Give columns types that hold the values of the future too."""
    for name in names:
        if name not in later:
            raise DataError(f"`future` lacks the column {name!r}.")
        kind = later[name]
        if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(types[name]):
            kind = kind.value_type
        try:
            both = pa.unify_schemas(
                [pa.schema([(name, types[name])]), pa.schema([(name, kind)])],
                promote_options="permissive",
            )
        except pa.ArrowException as error:
            raise DataError(
                f"Column {name!r} holds {types[name]} in `source` and {kind} in `future`. Bring "
                "both to one type."
            ) from error
        types[name] = both.field(0).type


class Preparation:
    """Makes of blocks of files what goes to the worker that forecasts.

    Parameters
    ----------
    columns : Columns
        The columns that are kept.
    newest : int or None
        Rows of each series that are kept, the newest ones; None for all.
    """

    def __init__(self, columns: Columns, newest: int | None) -> None:
        self._columns, self._newest = columns, newest

    def history(self, table: Any) -> Any:
        """Return rows of the past, each with the number of its series."""
        table = self._conformed(table, tuple(self._columns.types))
        if self._newest is not None:
            table = newest_rows(table, self._columns, self._newest)
        return self._marked(table, ahead=False)

    def future(self, table: Any) -> Any:
        """Return rows of the future, each with the number of its series."""
        return self._marked(self._conformed(table, self._columns.ahead), ahead=True)

    def _conformed(self, table: Any, names: tuple[str, ...]) -> Any:
        """Return columns in the types that all blocks have; those without a name are missing."""
        pa = arrow()
        types = self._columns.types
        arrays = [
            table[name].cast(types[name]) if name in names else pa.nulls(len(table), types[name])
            for name in types
        ]
        return pa.table(arrays, schema=pa.schema(list(types.items())))

    def _marked(self, table: Any, *, ahead: bool) -> Any:
        """Add what brings rows together, and apart again."""
        pa = arrow()
        items = pd.Series(table[self._columns.item].to_pandas())
        keys = pd.util.hash_pandas_object(items, index=False).to_numpy().view(np.int64)
        table = table.append_column(KEY, pa.array(keys))
        return table.append_column(AHEAD, pa.array(np.full(len(table), ahead)))


def newest_rows(table: Any, columns: Columns, count: int) -> Any:
    """Return the newest rows of each series; static covariates of those that go are kept."""
    pa = arrow()
    if not len(table):
        return table
    codes, _ = pd.factorize(table[columns.item].to_pandas())
    time = table[columns.time]
    # Rows without a time stay, to be complained about.
    ticks = pa.compute.fill_null(time.cast(_ticks_type(pa, time.type)), np.iinfo(np.int64).max)
    order = np.lexsort((ticks.to_numpy(), codes))
    ends = np.append(np.flatnonzero(np.diff(codes[order])), len(order) - 1)
    lengths = np.diff(ends, prepend=-1)
    rank = np.repeat(ends, lengths) - np.arange(len(order))
    kept = np.sort(order[rank < count])
    for name in columns.static:
        table = _with_static(pa, table, name, codes)
    return table.take(pa.array(kept))


def _ticks_type(pa: ModuleType, kind: Any) -> Any:
    """Return the type of integers of the width of a type of time."""
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()


def _with_static(pa: ModuleType, table: Any, name: str, codes: np.ndarray) -> Any:
    """Return a table whose missing values of a static covariate are those of their series."""
    column = table[name]
    there = column.is_valid().to_numpy(zero_copy_only=False)
    if there.all():
        return table
    source = np.full(codes.max() + 2, -1)
    source[codes[there]] = np.flatnonzero(there)
    own = source[codes]
    rows = np.where(there | (own < 0), np.arange(len(codes)), own)
    return table.set_column(table.schema.get_field_index(name), name, column.take(pa.array(rows)))
