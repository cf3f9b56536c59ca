"""Measure how long a large frame takes until training starts, and how much memory.

Each case runs in a process of its own. Run it from the root of the repository::

    python benchmarks/frames_scale.py benchmarks/results/frames/scale.csv

What the rows say:

``seconds_to_windows``
    From the call of ``fit`` until the training windows are built: the frame is read, sorted,
    checked and scaled.
``seconds_to_first_step``
    From the call of ``fit`` until the first call of ``training_step``: the above, and the start
    of the trainer. This is the number of the promise "training starts within 10 s".
``fit_seconds``
    The whole of ``fit`` with ``max_steps=1``.
``predict_seconds``
    ``predict()`` of all series, with three quantile levels.
``frame_mb``
    What pandas says of the frame itself (``memory_usage(deep=True)``).
``start_mb``
    Memory of the process before ``fit``: Python, the imported packages and the frame.
``peak_fit_mb``, ``peak_mb``
    Largest resident memory of the process (``getrusage``), up to the end of ``fit`` and of
    ``predict``, with all of the above. ``peak_mb`` is the number of the promise "under 4 GB".
``peak_minus_start_mb``
    What ``fit`` and ``predict`` took on top of ``start_mb``.

All parameters of the forecaster but ``prediction_length``, ``max_steps`` and ``accelerator`` are at
their defaults.
"""

import argparse
import csv
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import mlrforecast
from mlrforecast import MLRForecaster
from mlrforecast.benchmark import cpu_model
from mlrforecast.data import WindowStore
from mlrforecast.training.module import ForecastModule

COLUMNS = (
    "case",
    "series",
    "rows",
    "seconds_to_windows",
    "seconds_to_first_step",
    "fit_seconds",
    "predict_seconds",
    "frame_mb",
    "start_mb",
    "peak_fit_mb",
    "peak_mb",
    "peak_minus_start_mb",
    "threads",
    "hardware",
    "mlrforecast",
    "torch",
    "pandas",
    "numpy",
    "python",
    "command",
)
LEVELS = (0.1, 0.5, 0.9)


def short_series(*, shuffled: bool = False, covariates: bool = False) -> pd.DataFrame:
    """Return a long frame of 100,000 series of 50 days, with ids as text."""
    series, rows = 100_000, 50
    rng = np.random.default_rng(0)
    ids = np.array([f"item_{number:06d}" for number in range(series)], dtype=object)
    frame = pd.DataFrame(
        {
            "item_id": np.repeat(ids, rows),
            "timestamp": np.tile(pd.date_range("2024-01-01", periods=rows, freq="D"), series),
            "target": rng.normal(size=series * rows),
        }
    )
    if covariates:
        frame["promo"] = rng.integers(0, 2, len(frame))
        frame["shop"] = np.repeat(rng.choice(["north", "south"], series), rows)
    if shuffled:
        frame = frame.sample(frac=1, random_state=0, ignore_index=True)
    return frame


def one_series(rows: int) -> pd.DataFrame:
    """Return a wide frame of one series, a value a second."""
    index = pd.date_range("2024-01-01", periods=rows, freq="s", tz="Europe/Berlin")
    return pd.DataFrame({"load": np.random.default_rng(0).normal(size=rows)}, index=index)


CASES: dict[str, tuple[Callable[[], pd.DataFrame], dict[str, Any]]] = {
    "100,000 series of 50 rows": (short_series, {}),
    "100,000 series of 50 rows, shuffled": (lambda: short_series(shuffled=True), {}),
    "100,000 series of 50 rows, covariates": (
        lambda: short_series(covariates=True),
        {"past_covariates": ["promo"], "static_covariates": ["shop"]},
    ),
    "one series of 1,000,000 rows": (lambda: one_series(1_000_000), {}),
    "one series of 10,000,000 rows": (lambda: one_series(10_000_000), {}),
}


def main() -> None:
    """Measure every case and write the rows, or one case and print its row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, nargs="?", help="CSV file to write")
    parser.add_argument("--case", choices=CASES, help="measure one case in this process, as JSON")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.case is not None:
        print(json.dumps(measure(arguments.case)))
        return
    if arguments.output is None:
        parser.error("name the CSV file to write, or a --case")
    context = {
        "threads": arguments.threads,
        "hardware": cpu_model(),
        "mlrforecast": mlrforecast.__version__,
        "torch": torch.__version__,
        "pandas": pd.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "command": f"python benchmarks/frames_scale.py {arguments.output}",
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with arguments.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for case in CASES:
            command = [sys.executable, __file__, "--case", case]
            command += ["--threads", str(arguments.threads)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            writer.writerow(json.loads(done.stdout.splitlines()[-1]) | context)
            file.flush()


def measure(case: str) -> dict[str, Any]:
    """Fit and forecast one case in this process."""
    build, parameters = CASES[case]
    frame = build()
    clock = _Clock()
    start = _resident_mb()
    forecaster = MLRForecaster(
        prediction_length=24, max_steps=1, accelerator="cpu", progress=False, **parameters
    )
    clock.start()
    forecaster.fit(frame)
    fitted, peak_fit = clock.now(), _peak_mb()
    clock.start()
    forecast = forecaster.predict(quantile_levels=LEVELS)
    predicted, peak = clock.now(), _peak_mb()
    series = frame["item_id"].nunique() if "item_id" in frame else 1
    assert len(forecast) == 24 * series
    return {
        "case": case,
        "series": series,
        "rows": len(frame),
        "seconds_to_windows": f"{clock.marks['windows']:.2f}",
        "seconds_to_first_step": f"{clock.marks['first step']:.2f}",
        "fit_seconds": f"{fitted:.2f}",
        "predict_seconds": f"{predicted:.2f}",
        "frame_mb": round(frame.memory_usage(deep=True).sum() / 1e6),
        "start_mb": round(start),
        "peak_fit_mb": round(peak_fit),
        "peak_mb": round(peak),
        "peak_minus_start_mb": round(peak - start),
    }


class _Clock:
    """Seconds since ``start``, noted where the windows are there and the first step begins."""

    def __init__(self) -> None:
        self.marks: dict[str, float] = {}
        self._begin = 0.0
        build, step = WindowStore.__init__, ForecastModule.training_step

        def noted_build(store: WindowStore, *arguments: Any, **options: Any) -> None:
            build(store, *arguments, **options)
            self.marks.setdefault("windows", self.now())

        def noted_step(module: ForecastModule, batch: Any) -> Any:
            self.marks.setdefault("first step", self.now())
            return step(module, batch)

        WindowStore.__init__ = noted_build  # type: ignore[method-assign]
        ForecastModule.training_step = noted_step  # type: ignore[method-assign]

    def start(self) -> None:
        self._begin = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._begin


def _peak_mb() -> float:
    """Return the largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Bytes on macOS, kilobytes elsewhere.
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def _resident_mb() -> float:
    """Return the resident memory of this process now; where that is not told, the peak."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024 / 1e6
    return _peak_mb()


if __name__ == "__main__":
    main()
