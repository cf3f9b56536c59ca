"""Tables of files and pipes: read as frames, and written from them."""

import csv
import gzip
import io
import lzma
import os
import re
import sys
import warnings
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
from pandas.api import types as dtypes

from mlrforecast._core.errors import DataError
from mlrforecast._core.optional import import_optional
from mlrforecast.cli._paths import whole_file

STREAM = "-"
ITEM_NAMES = ("item_id", "unique_id")

_ENDS = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".csv.xz": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_OPENERS = {".gz": gzip.open, ".xz": lzma.open}
# What stands for a missing value, everywhere but in the items: a shop may be called "NA".
_MISSING = ("", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "NULL", "null", "None", "#N/A", "-nan")
_STAMP_WITH_OFFSET = re.compile(r"\d{4}-.*\d{2}:?\d{2}\S*\s*(Z|[+-]\d{2}(?::?\d{2})?)\s*$")
_READ_ERRORS = (ValueError, EOFError, OSError, lzma.LZMAError, pd.errors.ParserWarning)


def form_of(name: str, given: str | None, option: str) -> str:
    """Return the format of a file: by the end of its name, else the one that was said."""
    for end, form in _ENDS.items():
        if name.lower().endswith(end):
            return form
    if given is not None:
        return given
    if name == STREAM:
        return "csv"
    raise ValueError(
        f"`{option}` must end in {', '.join(_ENDS)}, got {name!r}. Say what it is with --format."
    )


def name_of(source: str) -> str:
    """Return how a source is called in messages."""
    return "stdin" if source == STREAM else repr(source)


def read_table(source: str, *, form: str, items: Collection[Hashable] = ITEM_NAMES) -> pd.DataFrame:
    """Read a table.

    Parameters
    ----------
    source : str
        A file, or ``"-"`` for stdin.
    form : {"csv", "parquet"}
        Its format.
    items : collection of hashable
        Columns of a csv that hold items, which stay text: ``007`` is not 7.

    Returns
    -------
    DataFrame
        Columns as they stand. A first column without a name, as pandas writes its index, becomes
        the index. Stamps of several UTC offsets become stamps in UTC.

    Raises
    ------
    DataError
        If the source is no such table; the message names it.
    OSError
        If the file cannot be opened.
    """
    with _opened(source) as file:
        try:
            return _read_parquet(file) if form == "parquet" else _read_csv(file, items)
        except _READ_ERRORS as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DataError(f"{name_of(source)} cannot be read as {form}: {reason}") from error


@contextmanager
def _opened(source: str) -> Iterator[BinaryIO]:
    """Open a source so that it can be read twice."""
    if source == STREAM:
        yield io.BytesIO(sys.stdin.buffer.read())
        return
    if not Path(source).exists():
        raise FileNotFoundError(f"There is no file {source!r}.")
    if Path(source).is_dir():
        raise IsADirectoryError(f"{source!r} is a folder, not a file.")
    opener: Any = _OPENERS.get(Path(source).suffix.lower(), open)
    with opener(source, "rb") as file:
        # What is no file on a disk, such as a pipe with a name, cannot be read twice.
        yield file if os.path.isfile(source) else io.BytesIO(file.read())


def _read_parquet(file: BinaryIO) -> pd.DataFrame:
    _need_pyarrow()
    return pd.read_parquet(file, engine="pyarrow")


def _need_pyarrow() -> None:
    """Say what brings pyarrow if it is absent."""
    import_optional("pyarrow", extra="parquet", purpose="A parquet file")


def _read_csv(file: BinaryIO, items: Collection[Hashable]) -> pd.DataFrame:
    names = _header(file)
    file.seek(0)
    with warnings.catch_warnings():
        # Rows that are longer than the header would be cut.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame = pd.read_csv(
            file,
            header=0,
            names=names,
            index_col=False,
            dtype={name: str for name in names if name in items},
            na_values={name: [""] if name in items else list(_MISSING) for name in names},
            keep_default_na=False,
            low_memory=False,
            encoding="utf-8-sig",
        )
    for name in names:
        if name not in items:
            frame[name] = _in_utc(frame[name])
    if names[0] == "":
        return frame.set_index("").rename_axis(None)
    return frame


def _header(file: BinaryIO) -> list[str]:
    """Return the names of the columns, which must differ."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        names = next((row for row in csv.reader(text) if row), [])
    finally:
        text.detach()
    if not names:
        raise ValueError("it is empty.")
    if len(names) == 1 and ";" in names[0]:
        raise ValueError(f"its fields must have commas between them, the first line is {names[0]}.")
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"it has more than one column named {name!r}.")
        if name == "" and place > 0:
            raise ValueError(f"column {place + 1} has no name.")
    return names


def _in_utc(column: pd.Series) -> pd.Series:
    """Return stamps in UTC if they have more than one UTC offset, as a zone with summer time."""
    text = dtypes.is_object_dtype(column.dtype) or isinstance(column.dtype, pd.StringDtype)
    first = column.dropna()[:1].tolist() if text else []
    if not first or not _STAMP_WITH_OFFSET.match(str(first[0])):
        return column
    offsets = column.dropna().astype(str).str.extract(_STAMP_WITH_OFFSET)[0]
    # Without an offset a stamp says not when it was; the library has an error for it.
    if offsets.isna().any() or offsets.nunique() == 1:
        return column
    try:
        return pd.to_datetime(column, format="ISO8601", utc=True)
    except ValueError:
        return column


def flatten(frame: Any) -> pd.DataFrame:
    """Return a forecast with its time in a column, and one level of columns."""
    if isinstance(frame.columns, pd.MultiIndex):
        frame = frame.set_axis(
            [label if name == "point" else f"{label}_{name}" for label, name in frame.columns],
            axis=1,
        )
    if isinstance(frame.index, pd.RangeIndex):
        return pd.DataFrame(frame)
    known = ("item_id", "timestamp")[-frame.index.nlevels :]
    names = [
        default if name is None else name
        for name, default in zip(frame.index.names, known, strict=True)
    ]
    return pd.DataFrame(frame.rename_axis(columns=None).reset_index(names=names))


def write_table(frame: pd.DataFrame, out: str, *, form: str) -> None:
    """Write a table to a file, whole or not at all, or to stdout for ``"-"``."""
    if form == "parquet":
        _need_pyarrow()
    if out == STREAM:
        _write(frame, sys.stdout.buffer, form)
        return
    with whole_file(Path(out)) as draft, _opener_for(out)(draft, "wb") as file:
        _write(frame, file, form)


def _opener_for(name: str) -> Any:
    return _OPENERS.get(Path(name).suffix.lower(), open)


def _write(frame: pd.DataFrame, file: Any, form: str) -> None:
    if form == "parquet":
        buffer = io.BytesIO()
        frame.to_parquet(buffer, engine="pyarrow", index=False)
        content = buffer.getvalue()
    else:
        content = with_text_stamps(frame).to_csv(index=False, lineterminator="\n").encode()
    file.write(content)
    file.flush()


def with_text_stamps(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose stamps are text in ISO 8601, with the UTC offset if it is known."""
    frame = frame.copy()
    for name in frame.columns:
        if dtypes.is_datetime64_any_dtype(frame[name].dtype):
            frame[name] = _as_text(frame[name])
    return frame


def _as_text(stamps: pd.Series) -> pd.Series:
    if stamps.dt.tz is None and bool((stamps == stamps.dt.normalize()).all()):
        return pd.Series(stamps.dt.strftime("%Y-%m-%d"))
    return pd.Series([stamp.isoformat() for stamp in stamps], index=stamps.index, dtype=object)


@contextmanager
def naming(**sources: str | None) -> Iterator[None]:
    """Let errors about frames name the files that they were read from, and options as such.

    Parameters
    ----------
    **sources : str or None
        Argument of the library, such as ``X``, and its source, None for an option that was not
        given; the first is the one of a message that names none.
    """
    try:
        yield
    except DataError as error:
        text = str(error)
        if not any(f"`{name}`" in text for name in sources):
            text = f"{_called(*next(iter(sources.items())))}: {text}"
        for name, source in sources.items():
            text = text.replace(f"`{name}`", _called(name, source))
        raise DataError(re.sub(r"\b([a-z_]+)=(?:\.\.\.|('[^']*'))", _as_option, text)) from error


def _called(argument: str, source: str | None) -> str:
    return f"`--{argument}`" if source is None else name_of(source)


def _as_option(found: re.Match[str]) -> str:
    """Write ``id_column=...`` as an option of a command."""
    return f"--{found[1].replace('_', '-')}" + (f" {found[2]}" if found[2] else "")
