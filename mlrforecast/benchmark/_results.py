"""Result files of the horizon benchmark, and the log of final runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from mlrforecast._core.locks import locked
from mlrforecast._core.result_table import ResultTable, split_torn

RESULTS = ResultTable(
    columns=(
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
        "mse_by_step",
        "windows",
        "parameters",
        "train_seconds",
        "config_hash",
        "hardware",
        "versions",
        "command",
    ),
    key=("dataset", "target", "split", "horizon", "model", "attention", "seed", "config_hash"),
    whole=("horizon", "context_length", "windows", "parameters"),
    real=("mse", "mae", "validation_mse", "train_seconds"),
)
LOG_NAME = "final_runs.log"


def append_log(folder: Path, entry: Mapping[str, object]) -> None:
    """Note a final run, one JSON object a line."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOG_NAME, write=True) as file:
        # An entry that a stop cut off still counts, and must not swallow this one.
        end = b"\n" if split_torn(file.read())[1] else b""
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
    columns = list(RESULTS.columns)
    frame = pd.DataFrame([{name: str(row[name]) for name in columns} for row in rows])
    frame = frame.reindex(columns=columns)
    for name in RESULTS.whole:
        frame[name] = frame[name].astype("int64")
    for name in RESULTS.real:
        frame[name] = frame[name].astype("float64")
    return frame
