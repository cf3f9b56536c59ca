"""Files of rows, or of a series in each record, read piece by piece."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast._core.optional import import_optional
from mlrforecast.data._entries import Entry

Format: TypeAlias = Literal["parquet", "arrow", "jsonl"]

SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}

ROWS = 250_000
"""Rows of a piece, or values of the series in it; more where one record holds more."""

RECORDS = 128
"""Records with a series each that are looked at in one go."""

_SHAPE = "._np_shape"


@runtime_checkable
class Source(Protocol):
    """A file."""

    def holds_series(self, target: str) -> bool:
        """Tell whether each record holds a whole series, as a list named ``target``."""

    def num_rows(self) -> int | None:
        """Return the number of records, None where only reading would tell."""

    def rows(self, count: int) -> Iterator[pd.DataFrame]:
        """Yield records as rows of a frame, ``count`` to twice as many at a time."""

    def entries(self, target: str) -> Iterator[list[Entry]]:
        """Yield records that hold a series each, in lists of about :data:`ROWS` values."""


def open_source(path: Path, form: Format) -> Source:
    """Return the source of a file of a format."""
    return Lines(path) if form == "jsonl" else Tables(path, form)


class Tables:
    """A file of parquet, or of record batches of Arrow.

    Parameters
    ----------
    path : Path
        The file.
    form : {"parquet", "arrow"}
        What it is.
    """

    def __init__(self, path: Path, form: Format) -> None:
        self._path, self._form = path, form
        self._purpose = f"Reading {path.name!r}"
        self._arrow = import_optional("pyarrow", extra="parquet", purpose=self._purpose)
        self._parquet = import_optional("pyarrow.parquet", extra="parquet", purpose=self._purpose)

    def holds_series(self, target: str) -> bool:
        with self._readable():
            if self._form == "parquet":
                schema = self._parquet.read_schema(self._path)
            else:
                schema = self._batches_file().schema
        number = schema.get_field_index(target)
        # Of each of its lists, Arrow knows the type of the values.
        return number >= 0 and hasattr(schema.field(number).type, "value_field")

    def num_rows(self) -> int | None:
        with self._readable():
            if self._form == "parquet":
                return int(self._parquet.read_metadata(self._path).num_rows)
            if not self._is_random_access():
                return None
            read = import_optional("pyarrow.dataset", extra="parquet", purpose=self._purpose)
            return int(read.dataset(self._path, format="ipc").count_rows())

    def rows(self, count: int) -> Iterator[pd.DataFrame]:
        held: list[Any] = []
        missing = count
        for batch in self._batches(count):
            held.append(batch)
            missing -= batch.num_rows
            if missing <= 0:
                yield self._frame(held)
                held, missing = [], count
        if held:
            yield self._frame(held)

    def entries(self, target: str) -> Iterator[list[Entry]]:
        records = (
            _with_shapes(record)
            for batch in self._batches(RECORDS)
            for record in self._frame([batch]).to_dict("records")
        )
        return _gathered(records, target)

    def _frame(self, batches: list[Any]) -> pd.DataFrame:
        frame: pd.DataFrame = self._arrow.Table.from_batches(batches).to_pandas()
        return frame

    def _batches(self, count: int) -> Iterator[Any]:
        """Yield batches of at most so many records."""
        with self._readable():
            if self._form == "parquet":
                file = self._parquet.ParquetFile(self._path)
                for group in range(file.num_row_groups):
                    # A reader of all groups would keep what it has read.
                    yield from file.iter_batches(batch_size=count, row_groups=[group])
            elif self._is_random_access():
                yield from self._slices(count)
            else:
                for batch in self._batches_file():
                    for first in range(0, batch.num_rows, count):
                        yield batch.slice(first, count)

    def _slices(self, count: int) -> Iterator[Any]:
        """Yield batches of at most so many records of a file that may be one large batch."""
        for number in range(self._batches_file().num_record_batches):
            first, more = 0, True
            while more:
                # A mapping ends with the last batch that was read from it, and its memory too.
                batch = self._batches_file().get_batch(number)
                if batch.num_rows:
                    yield batch.slice(first, count)
                first += count
                more = first < batch.num_rows

    def _is_random_access(self) -> bool:
        with self._path.open("rb") as file:
            return file.read(6) == b"ARROW1"

    def _batches_file(self) -> Any:
        if self._is_random_access():
            return self._arrow.ipc.open_file(self._arrow.memory_map(str(self._path)))
        return self._arrow.ipc.open_stream(self._arrow.OSFile(str(self._path)))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Say which file is none of its format."""
        try:
            yield
        except (self._arrow.ArrowException, OSError) as error:
            raise DataError(
                f"File {str(self._path)!r} cannot be read as {self._form}: {error}"
            ) from error


class Lines:
    """A file with a JSON object in each line, perhaps compressed.

    Parameters
    ----------
    path : Path
        The file; compressed by gzip if its name ends in ``.gz``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def holds_series(self, target: str) -> bool:
        return any(isinstance(record.get(target), list) for record in islice(self._records(), 1))

    def num_rows(self) -> int | None:
        return None

    def rows(self, count: int) -> Iterator[pd.DataFrame]:
        records = self._records()
        while part := list(islice(records, count)):
            yield pd.DataFrame(part)

    def entries(self, target: str) -> Iterator[list[Entry]]:
        return _gathered(self._records(), target)

    def _records(self) -> Iterator[Entry]:
        for number, line in enumerate(self._lines(), start=1):
            if line.isspace():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise DataError(f"{self._named(number)} is no JSON: {error}") from error
            if not isinstance(record, dict):
                shown = line[:40].decode(errors="replace")
                raise DataError(f"{self._named(number)} must be a JSON object, got {shown!r}.")
            yield record

    def _lines(self) -> Iterator[bytes]:
        opened: Any = gzip.open if self._path.suffix == ".gz" else open
        lines: IO[bytes]
        with opened(self._path, "rb") as lines:
            try:
                yield from lines
            except (EOFError, OSError, zlib.error) as error:
                raise DataError(f"File {str(self._path)!r} cannot be read: {error}") from error

    def _named(self, number: int) -> str:
        return f"Line {number} of {str(self._path)!r}"


def _gathered(records: Iterable[Entry], target: str) -> Iterator[list[Entry]]:
    """Put records together until they hold about as many values as a piece."""
    part: list[Entry] = []
    count = 0
    for record in records:
        part.append(record)
        count += int(np.size(record.get(target, ())))
        if count >= ROWS:
            yield part
            part, count = [], 0
    if part:
        yield part


def _with_shapes(record: Mapping[Any, Any]) -> Entry:
    """Undo what GluonTS does to arrays of several axes: it flattens them and keeps the shape."""
    shapes = {name: record[name] for name in record if name.endswith(_SHAPE)}
    arrays = {
        name.removesuffix(_SHAPE): np.reshape(record[name.removesuffix(_SHAPE)], shape)
        for name, shape in shapes.items()
    }
    return {name: value for name, value in record.items() if name not in shapes} | arrays
