"""Measure memory and time of a fit on files against one on the same rows in a frame.

Run it from the root of the repository::

    python benchmarks/streaming.py benchmarks/results/streaming/streaming.csv

It writes files of hourly series with 2, 8 and 32 million rows into a temporary folder, and fits on
each in a process of its own: on a frame, which is read from the file first, and on a
``FileDataset``. A last pair of processes has a limit on its memory (``RLIMIT_DATA``, of all that is
not mapped from files) that is below what the frame needs.

What the rows say:

``file_mb``
    Size of the file.
``seconds_to_read``
    Until all rows are checked, and stand in a panel: the file is read, and the frame too.
``seconds_to_first_step``
    Until the first training step: the above, the windows, and the start of the trainer.
``seconds_a_step``
    Median over the steps after the first five.
``peak_anonymous_mb``
    The most memory of the process that no file backs (``RssAnon``), sampled every 10 ms: Python
    and torch included. This is what a system cannot take back without a swap.
``peak_resident_mb``
    The most resident memory (``VmHWM``), pages of scratch files included.
``outcome``
    ``trained``, or the error that ended the fit.
``weights``
    The first digits of the sha256 of the trained weights: equal for equal rows.

The network is small (width 8, one layer, a context of 96 steps), so that the data is what is seen.
"""

import argparse
import csv
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import mlrforecast
from mlrforecast import MLRForecaster
from mlrforecast.benchmark import cpu_model
from mlrforecast.data import FileDataset, WindowStore
from mlrforecast.training.module import ForecastModule

COLUMNS = (
    "data",
    "format",
    "rows",
    "series",
    "file_mb",
    "limit_mb",
    "outcome",
    "seconds_to_read",
    "seconds_to_first_step",
    "seconds_a_step",
    "peak_anonymous_mb",
    "peak_resident_mb",
    "weights",
    "cpu",
    "versions",
    "command",
)
ROWS_OF_SERIES, SERIES_OF_GROUP = 2_000, 200
SIZES = (2_000_000, 8_000_000, 32_000_000)
LINES = 2_000_000
"""Rows of the file of JSON lines: it is read at a tenth of the speed of the others."""
STEPS = 40
LIMIT_MB = 800
"""Less than the rows of the largest file take in a frame."""
SETTINGS = {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Of every process. The other pools of Arrow reserve far more than they use, which counts too."""


def main() -> None:
    """Run all cases, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--case", help="of one process: data, path and limit as JSON")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(run(**json.loads(arguments.case))))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path, count in _write_files(Path(folder)):
            limited = count == SIZES[-1] and path.suffix == ".parquet"
            for limit in (None, LIMIT_MB) if limited else (None,):
                for data in ("frame", "files"):
                    found = _in_process(arguments.output, data, path, limit)
                    rows.append(_described(found, data, path, count, limit))
                    print(rows[-1], flush=True)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with arguments.output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _described(
    found: dict[str, Any], data: str, path: Path, rows: int, limit: int | None
) -> dict[str, Any]:
    packages = {"mlrforecast": mlrforecast, "torch": torch, "pandas": pd, "pyarrow": pa}
    versions = [f"{name} {package.__version__}" for name, package in packages.items()]
    return {
        "data": data,
        "format": path.suffix[1:],
        "rows": rows,
        "series": rows // ROWS_OF_SERIES,
        "file_mb": round(path.stat().st_size / 1e6),
        "limit_mb": "" if limit is None else limit,
        **found,
        "cpu": cpu_model(),
        "versions": f"python {platform.python_version()}, {', '.join(versions)}",
        "command": "python benchmarks/streaming.py benchmarks/results/streaming/streaming.csv",
    }


def _write_files(folder: Path) -> list[tuple[Path, int]]:
    """Write all files."""
    files = []
    for rows in SIZES:
        for form in ("parquet", "arrow"):
            path = folder / f"{rows}.{form}"
            _write(path, rows)
            files.append((path, rows))
    path = folder / f"{LINES}.jsonl"
    with path.open("w") as file:
        for table in _tables(LINES):
            table.to_pandas().to_json(
                file, orient="records", lines=True, date_format="iso", double_precision=15
            )
    files.append((path, LINES))
    return files


def _write(path: Path, rows: int) -> None:
    schema = next(_tables(ROWS_OF_SERIES * SERIES_OF_GROUP)).schema
    if path.suffix == ".parquet":
        with pq.ParquetWriter(path, schema) as writer:
            for table in _tables(rows):
                writer.write_table(table)
        return
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for table in _tables(rows):
            writer.write_table(table)


def _tables(rows: int) -> Any:
    """Yield groups of whole series: a daily wave with noise, each at its own level."""
    rng = np.random.default_rng(0)
    hours = np.arange(ROWS_OF_SERIES)
    stamps = np.datetime64("2020-01-01", "us") + hours * np.timedelta64(1, "h")
    for first in range(0, rows // ROWS_OF_SERIES, SERIES_OF_GROUP):
        numbers = np.arange(first, min(first + SERIES_OF_GROUP, rows // ROWS_OF_SERIES))
        wave = np.sin(2 * np.pi * hours / 24) + rng.normal(size=(len(numbers), len(hours)))
        yield pa.table(
            {
                "item_id": np.repeat([f"series {number}" for number in numbers], len(hours)),
                "timestamp": np.tile(stamps, len(numbers)),
                "target": (numbers[:, None] + wave).round(4).ravel(),
            }
        )


def _in_process(output: Path, data: str, path: Path, limit: int | None) -> dict[str, Any]:
    """Run one case in a process of its own."""
    case = json.dumps({"data": data, "path": str(path), "limit": limit})
    done = subprocess.run(
        [sys.executable, __file__, str(output), "--case", case],
        capture_output=True,
        text=True,
        env=os.environ | SETTINGS,
    )
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    if limit is None:
        raise RuntimeError(done.stderr[-2000:])
    return {"outcome": done.stderr.strip().splitlines()[-1].split(":")[0].split(".")[-1]}


def run(data: str, path: str, limit: int | None) -> dict[str, Any]:
    """Fit once, and return what was measured."""
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit * 10**6, limit * 10**6))
    moments: dict[str, float] = {}
    steps: list[float] = []
    _note_first(WindowStore, "__init__", lambda: moments.setdefault("read", time.perf_counter()))
    _note_first(ForecastModule, "training_step", lambda: steps.append(time.perf_counter()))
    peak = _Peak()
    start = time.perf_counter()
    forecaster = MLRForecaster(
        prediction_length=24,
        context_length=96,
        width=8,
        num_heads=2,
        num_layers=1,
        hidden_width=16,
        max_steps=STEPS,
        accelerator="cpu",
        progress=False,
    )
    forecaster.fit(_frame(path) if data == "frame" else FileDataset(path))
    digest = hashlib.sha256()
    for tensor in forecaster.model_.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return {
        "outcome": "trained",
        "seconds_to_read": round(moments["read"] - start, 2),
        "seconds_to_first_step": round(steps[0] - start, 2),
        "seconds_a_step": round(float(np.median(np.diff(steps[5:]))), 4),
        "peak_anonymous_mb": round(peak.anonymous / 1e6),
        "peak_resident_mb": round(_status("VmHWM") / 1e6),
        "weights": digest.hexdigest()[:12],
    }


def _frame(path: str) -> pd.DataFrame:
    if path.endswith(".jsonl"):
        return pd.read_json(path, lines=True, precise_float=True)
    return pd.read_parquet(path) if path.endswith(".parquet") else pd.read_feather(path)


def _note_first(owner: type, name: str, note: Callable[[], object]) -> None:
    """Call ``note`` before each call of a method."""
    method = getattr(owner, name)
    if name == "training_step":
        # Lightning looks at the arguments.
        def step(self: Any, batch: Any) -> Any:
            note()
            return method(self, batch)

        setattr(owner, name, step)
        return

    def call(self: Any, *args: Any, **options: Any) -> Any:
        note()
        return method(self, *args, **options)

    setattr(owner, name, call)


class _Peak:
    """Watches the anonymous memory of this process."""

    def __init__(self) -> None:
        self.anonymous = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.anonymous = max(self.anonymous, _status("RssAnon"))
            time.sleep(0.01)


def _status(name: str) -> int:
    """Return the bytes that the system counts for this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


if __name__ == "__main__":
    main()
