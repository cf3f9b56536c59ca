"""Result files: one CSV line per run, and the log of final runs."""

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

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

Row = dict[str, object]


def row_key(row: Mapping[str, object]) -> tuple[str, ...]:
    """Identify a run by the text of its key columns, as they stand in a file."""
    return tuple(str(row[name]) for name in KEY)


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a result file, as text; none if there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(
                f"{path.name} is not a result file of this benchmark: its header must be "
                f"{','.join(COLUMNS)}. Move it away, or choose another folder with --out."
            )
        rows: list[Row] = []
        for number, row in enumerate(reader, start=2):
            if None in row or None in row.values():
                raise ValueError(
                    f"Line {number} of {path.name} must hold {len(COLUMNS)} fields and does not. "
                    "Remove that line and start again; the other runs are kept."
                )
            rows.append(dict(row))
    return rows


def append_row(path: Path, row: Mapping[str, object]) -> None:
    """Append one run with one write, so that a stop in between leaves whole lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        pass
    else:
        with os.fdopen(handle, "wb") as file:
            file.write(_line(COLUMNS))
    _append(path, _line([row[name] for name in COLUMNS]))


def append_log(folder: Path, entry: Mapping[str, object]) -> None:
    """Note a final run, one JSON object a line."""
    folder.mkdir(parents=True, exist_ok=True)
    _append(folder / LOG_NAME, (json.dumps(entry) + "\n").encode())


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
    return sum(1 for line in path.read_text(encoding="utf-8").splitlines() if line.strip())


def as_frame(rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Put rows, fresh or read from a file, into one frame with numbers as numbers."""
    frame = pd.DataFrame([{name: str(row[name]) for name in COLUMNS} for row in rows])
    frame = frame.reindex(columns=list(COLUMNS))
    for name in ("horizon", "context_length", "windows", "parameters"):
        frame[name] = frame[name].astype("int64")
    for name in ("mse", "mae", "validation_mse", "train_seconds"):
        frame[name] = frame[name].astype("float64")
    return frame


def _append(path: Path, line: bytes) -> None:
    handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


def _line(fields: Sequence[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue().encode()
