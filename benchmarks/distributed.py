"""Measure what a second worker of Ray brings to a fit, and to forecasts from parquet files.

Run it from the root of the repository, on an idle machine with two CPUs or more::

    python benchmarks/distributed.py benchmarks/results/distributed/distributed.csv

Each case runs twice a round, with little work and with much, and what the work takes is the
difference, so that starting Ray and its workers does not count; it has a column of its own. The
cases of a round take turns, so that what else the machine does meets all alike. Every worker
computes with one thread.

What the rows say:

``task``
    ``fit``: windows a training step sees, of a network of width 64 with two layers and a context
    of 336 steps. ``predict``: series of 500 rows in parquet files, from reading to forecasts that
    are written.
``runs_on``
    ``processes`` of this machine without Ray, or workers of ``ray``.
``a_second``, ``_low``, ``_high``
    Windows or series a second: median, lowest and highest of the rounds.
``start_seconds``
    Median time of the case with little work.
"""

import argparse
import csv
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Of all processes, before torch is imported.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pandas as pd
import ray
import torch

import mlrforecast
from mlrforecast import MLRForecaster
from mlrforecast._core.cluster import connected
from mlrforecast.benchmark import cpu_model
from mlrforecast.data import FileDataset
from mlrforecast.integrations import predict_parquet

COLUMNS = (
    "task",
    "runs_on",
    "workers",
    "amount",
    "a_second",
    "a_second_low",
    "a_second_high",
    "start_seconds",
    "rounds",
    "cpu",
    "cpus",
    "versions",
    "command",
)
BATCH, STEPS = 512, (5, 55)
SERIES, ROWS, FILES = (200, 10_200), 500, 8
ROUNDS = 3
NETWORK: dict[str, Any] = {
    "prediction_length": 24,
    "context_length": 336,
    "batch_size": BATCH,
    "accelerator": "cpu",
    "progress": False,
}
OUTPUT = "distributed.csv"
CASES = (
    ("fit", "processes", 1),
    ("fit", "ray", 1),
    ("fit", "processes", 2),
    ("fit", "ray", 2),
    ("predict", "processes", 1),
    ("predict", "ray", 1),
    ("predict", "ray", 2),
)

Case = tuple[str, str, int]


def main() -> None:
    """Run all rounds of all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    seconds: dict[Case, list[tuple[float, float]]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as folder:
        frame, forecaster = _prepare(Path(folder))
        for _ in range(arguments.rounds):
            for case in CASES:
                task, runs_on, workers = case
                run = _fit(frame) if task == "fit" else _predict(forecaster, Path(folder))
                little, much = (_timed(run, size, runs_on, workers) for size in (0, 1))
                seconds[case].append((little, much))
                print(*case, f"{little:.2f} {much:.2f}", flush=True)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with arguments.output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(_row(case, found) for case, found in seconds.items())


def _prepare(folder: Path) -> tuple[pd.DataFrame, MLRForecaster]:
    """Write the files, and fit what forecasts from them."""
    rng = np.random.default_rng(0)
    hours = pd.date_range("2024-01-01", periods=ROWS, freq="h")
    wave = np.sin(2 * np.pi * np.arange(ROWS) / 24)
    for size, count in enumerate(SERIES):
        source = folder / f"source {size}"
        source.mkdir()
        for number, items in enumerate(np.array_split(np.arange(count), FILES)):
            values = wave + rng.normal(size=(len(items), ROWS))
            frame = pd.DataFrame(
                {
                    "item_id": np.repeat([f"series {item}" for item in items], ROWS),
                    "timestamp": np.tile(hours, len(items)),
                    "target": values.ravel(),
                }
            )
            frame.to_parquet(source / f"{number}.parquet", index=False)
    small = pd.read_parquet(folder / "source 0")
    return small, MLRForecaster(**NETWORK, max_steps=5).fit(small)


def _fit(frame: pd.DataFrame) -> Callable[[int, str, int], None]:
    def run(size: int, runs_on: str, workers: int) -> None:
        options = {"max_steps": STEPS[size], "devices": workers, "width": 64, "num_layers": 2}
        distributed = "ray" if runs_on == "ray" else None
        MLRForecaster(**NETWORK, **options).fit(frame, distributed=distributed)

    return run


def _predict(forecaster: MLRForecaster, folder: Path) -> Callable[[int, str, int], None]:
    def run(size: int, runs_on: str, workers: int) -> None:
        source = folder / f"source {size}"
        with tempfile.TemporaryDirectory() as out:
            if runs_on == "ray":
                predict_parquet(forecaster, source, out, progress=False)
            else:
                forecaster.predict(FileDataset(source)).to_parquet(Path(out) / "all.parquet")

    return run


def _timed(run: Callable[[int, str, int], None], size: int, runs_on: str, workers: int) -> float:
    """Return the seconds of a run, the start of Ray included."""
    begin = time.perf_counter()
    if runs_on == "ray":
        with connected(num_cpus=workers):
            run(size, runs_on, workers)
    else:
        run(size, runs_on, workers)
    return time.perf_counter() - begin


def _row(case: Case, seconds: list[tuple[float, float]]) -> dict[str, Any]:
    task, runs_on, workers = case
    amount = BATCH * (STEPS[1] - STEPS[0]) if task == "fit" else SERIES[1] - SERIES[0]
    speeds = sorted(amount / (much - little) for little, much in seconds)
    versions = {"mlrforecast": mlrforecast, "ray": ray, "torch": torch}
    listed = [f"{name} {module.__version__}" for name, module in versions.items()]
    return {
        "task": task,
        "runs_on": runs_on,
        "workers": workers,
        "amount": amount,
        "a_second": round(statistics.median(speeds)),
        "a_second_low": round(speeds[0]),
        "a_second_high": round(speeds[-1]),
        "start_seconds": round(statistics.median(little for little, _ in seconds), 1),
        "rounds": len(seconds),
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "versions": f"python {platform.python_version()}, {', '.join(listed)}",
        "command": "python benchmarks/distributed.py benchmarks/results/distributed/" + OUTPUT,
    }


if __name__ == "__main__":
    main()
