"""Result files: one CSV line per run, and the log of final runs."""

import csv
import io
import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from mlrforecast.benchmark._locks import locked

COLUMNS = (
    "dataset",
    "target",
    "split",
    "horizon",
    "model",
    "attention",
    "seed",
    "context_length",
    "mse",
    "mae",
    "validation_mse",
    "windows",
    "parameters",
    "train_seconds",
    "config_hash",
    "hardware",
    "versions",
    "command",
)
# What tells one run from another; a run whose key is in the file is not run again.
KEY = ("dataset", "target", "split", "horizon", "model", "attention", "seed", "config_hash")
LOG_NAME = "final_runs.log"
_WHOLE = ("horizon", "context_length", "windows", "parameters")
_REAL = ("mse", "mae", "validation_mse", "train_seconds")
_NEWLINE = b"\n"
_REMEDY = "Remove that line and start again; the other runs are kept."
_LOGGER = logging.getLogger(__name__)

Row = dict[str, object]


def row_key(row: Mapping[str, object]) -> tuple[str, ...]:
    """Identify a run by the text of its key columns, as they stand in a file."""
    return tuple(str(row[name]) for name in KEY)


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a result file, as text; none if there is no file yet.

    A last line without its end is what a stop in mid-write leaves: it is no run, and
    :func:`append_row` takes it away.
    """
    if not path.exists():
        return []
    with locked(path) as file:
        content = file.read()
    whole, torn = _split_torn(content)
    rows = _parse(path.name, whole)
    if torn:
        _check_torn_header(path.name, whole, torn)
        _LOGGER.warning(
            "Line %d of %s was cut off as it was written: it is left out, and its run done again.",
            whole.count(b"\n") + 1,
            path.name,
        )
    return rows


def append_row(path: Path, row: Mapping[str, object]) -> None:
    """Append one run with one write, so that a stop in between leaves whole lines.

    Nothing is written where the run stands there already, which another process may have done.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path, write=True) as file:
        content = file.read()
        whole, torn = _split_torn(content)
        if row_key(row) in map(row_key, _parse(path.name, whole)):
            return
        if torn:
            _check_torn_header(path.name, whole, torn)
            file.truncate(len(whole))
        header = b"" if whole else _line(COLUMNS)
        file.write(header + _line([row[name] for name in COLUMNS]))


def append_log(folder: Path, entry: Mapping[str, object]) -> None:
    """Note a final run, one JSON object a line."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOG_NAME, write=True) as file:
        # An entry that a stop cut off still counts, and must not swallow this one.
        end = b"\n" if _split_torn(file.read())[1] else b""
        file.write(end + (json.dumps(entry) + "\n").encode())


def count_final_runs(folder: Path) -> int:
    """Count the final runs in the log of a result folder.

    Parameters
    ----------
    folder : Path
        The folder that was given as ``out``.

    Returns
    -------
    int
        Number of entries in its ``final_runs.log``; 0 if there is none.

    Examples
    --------
    >>> count_final_runs(Path("no-such-folder"))
    0
    """
    path = folder / LOG_NAME
    if not path.exists():
        return 0
    return sum(1 for line in path.read_bytes().splitlines() if line.strip())


def as_frame(rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Put rows, fresh or read from a file, into one frame with numbers as numbers."""
    frame = pd.DataFrame([{name: str(row[name]) for name in COLUMNS} for row in rows])
    frame = frame.reindex(columns=list(COLUMNS))
    for name in _WHOLE:
        frame[name] = frame[name].astype("int64")
    for name in _REAL:
        frame[name] = frame[name].astype("float64")
    return frame


def _split_torn(content: bytes) -> tuple[bytes, bytes]:
    """Split what follows the last end of a line from the whole lines."""
    end = content.rfind(b"\n") + 1
    return content[:end], content[end:]


def _check_torn_header(name: str, whole: bytes, torn: bytes) -> None:
    """Refuse a file of one line without end that is not the beginning of the header."""
    if not whole and not _line(COLUMNS).startswith(torn):
        raise ValueError(_foreign(name))


def _foreign(name: str) -> str:
    return (
        f"{name} is not a result file of this benchmark: its header must be "
        f"{','.join(COLUMNS)}. Move it away, or choose another folder with --out."
    )


def _parse(name: str, whole: bytes) -> list[Row]:
    """Read whole lines; an error names the file, the line and the column."""
    if not whole:
        return []
    reader = csv.DictReader(io.StringIO(_decode(name, whole), newline=""))
    rows: list[Row] = []
    try:
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(_foreign(name))
        for row in reader:
            if None in row or None in row.values():
                raise ValueError(
                    f"Line {reader.line_num} of {name} must hold {len(COLUMNS)} fields and does "
                    f"not. {_REMEDY}"
                )
            _check_numbers(row, f"Line {reader.line_num} of {name}")
            rows.append(dict(row))
    except csv.Error as error:
        raise ValueError(
            f"Line {reader.line_num} of {name} is no CSV: {error}. {_REMEDY}"
        ) from error
    return rows


def _decode(name: str, whole: bytes) -> str:
    try:
        return whole.decode()
    except UnicodeDecodeError as error:
        before = whole[: error.start]
        raise ValueError(
            f"Line {before.count(_NEWLINE) + 1} of {name} is not UTF-8 text: column "
            f"{_column_at(before)!r} holds the byte 0x{whole[error.start]:02x}. {_REMEDY}"
        ) from error


def _column_at(before: bytes) -> str:
    """Name the column in which text before a byte ends."""
    fields = next(csv.reader([before.rpartition(_NEWLINE)[2].decode()]), [""])
    return COLUMNS[min(len(fields), len(COLUMNS)) - 1]


def _check_numbers(row: Mapping[str, object], where: str) -> None:
    """Check that the columns of numbers hold numbers, finite and not negative."""
    for name in (*_WHOLE, *_REAL):
        text = str(row[name])
        try:
            valid = 0 <= (int(text) if name in _WHOLE else float(text)) < math.inf
        except ValueError:
            valid = False
        if not valid:
            rule = "a whole number" if name in _WHOLE else "a finite number"
            raise ValueError(
                f"{where} must hold {rule} of at least 0 in column {name!r}, got {text!r}. "
                f"{_REMEDY}"
            )


def _line(fields: Sequence[object]) -> bytes:
    text = io.StringIO()
    # An end of a line inside a field would make half a row look whole.
    words = [" ".join(str(field).splitlines()) for field in fields]
    csv.writer(text, lineterminator="\n").writerow(words)
    return text.getvalue().encode()
