"""Train and forecast side by side with the PatchTST of neuralforecast, and write what it took.

Each model runs in a process of its own, those of neuralforecast in the environment of the Python
that ``--other`` names. The processes of a cell take turns, so that what else the machine does
meets all alike. Run it from the root of the repository, on an idle machine::

    python benchmarks/train_speed.py benchmarks/results/train --other ENV/bin/python

``--sizes`` and ``--datasets`` measure some cells, and keep the rows of the others that are there.

What the rows say:

``windows_a_step``, ``tokens``, ``parameters``
    What the network read in a step, counted where it was called, and its size. The context is cut
    into 63 tokens here; neuralforecast repeats the last value for a 64th.
``seconds_a_step``, ``_low``, ``_high``
    From one step to the next inside ``fit``, all between them included: median, and quantiles 0.1
    and 0.9, without the first two of a fit.
``fit_seconds``
    The whole of ``fit``, with as many steps as a round has and three more.
``seconds_a_forecast``, ``network_seconds``
    ``predict()`` of all series from what ``fit`` has kept; the network alone on as many windows as
    a step has.
``start_mb``, ``peak_fit_mb``, ``peak_mb``
    Memory of the process before the first ``fit``, and at most up to the end of ``fit`` and of
    ``predict``, in the first round.
``gflops``, ``mm_gflops``
    10^9 operations a second in the products that a step of standard attention consists of, and
    what one large ``torch.mm`` reaches in the same process.

``attention`` is "residual" for the default of neuralforecast, which adds the scores of the layer
before and keeps all of them; "standard" is its ``res_attention=False``.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from _rows import replace_rows
from _speed_worker import (
    CONTEXT,
    DROPOUT,
    HORIZON,
    PATCH,
    SIZES,
    STRIDE,
    gflop_a_step,
    serve,
)

import mlrforecast
from mlrforecast import MLRForecaster, load_dataset
from mlrforecast.benchmark import cpu_model
from mlrforecast.data import ForecastBatch
from mlrforecast.training.module import ForecastModule

NAMES = ("item_id", "timestamp", "target")


@dataclasses.dataclass(frozen=True)
class Variant:
    """One library with one model; the ratios are taken against the first one of a cell."""

    library: str
    attention: str
    loss: str


VARIANTS = (
    Variant("neuralforecast", "standard", "mae"),
    Variant("neuralforecast", "residual", "mae"),
    Variant("mlrforecast", "standard", "mae"),
    Variant("mlrforecast", "mlr", "mae"),
    Variant("mlrforecast", "mlr", "quantile"),
)
COLUMNS = (
    "library",
    "version",
    "torch",
    "size",
    "dataset",
    "attention",
    "loss",
    "windows_a_step",
    "tokens",
    "parameters",
    "seconds_a_step",
    "seconds_a_step_low",
    "seconds_a_step_high",
    "fit_seconds",
    "seconds_a_forecast",
    "network_seconds",
    "start_mb",
    "peak_fit_mb",
    "peak_mb",
    "gflops",
    "mm_gflops",
    "rounds",
    "steps",
    "threads",
    "hardware",
    "python",
    "command",
)


class Ours:
    """MLRForecaster."""

    def __init__(self, size: str, attention: str, loss: str, windows: int) -> None:
        # The mean absolute error alone on both sides; the row of the quantile loss is all ours.
        plain = {"frequency_weight": 0.0, "calendar": False} if loss == "mae" else {}
        self.parameters: dict[str, Any] = {
            "prediction_length": HORIZON,
            "context_length": CONTEXT,
            "patch_length": PATCH,
            "patch_stride": STRIDE,
            "dropout": DROPOUT,
            "attention": attention,
            "loss": loss,
            "batch_size": windows,
            "accelerator": "cpu",
            "progress": False,
            **SIZES[size],
            **plain,
        }
        self.seen: set[tuple[int, ...]] = set()

    def fit(self, frame: pd.DataFrame, steps: int, note: Callable[[], None]) -> None:
        """Train a new model; note each step."""
        seen: set[tuple[int, ...]] = set()
        step = ForecastModule.training_step

        def noted_step(module: ForecastModule, batch: ForecastBatch) -> torch.Tensor:
            note()
            seen.add(tuple(batch.past_target.shape))
            return step(module, batch)

        ForecastModule.training_step = noted_step  # type: ignore[method-assign]
        try:
            self.forecaster = MLRForecaster(**self.parameters, max_steps=steps).fit(frame)
        finally:
            ForecastModule.training_step = step  # type: ignore[method-assign]
        self.seen = seen

    def predict(self) -> pd.DataFrame:
        """Forecast all series."""
        return self.forecaster.predict()

    def network(self, contexts: torch.Tensor) -> torch.Tensor:
        """Forecast from contexts (B, T) with the network alone."""
        model = self.forecaster.model_
        calendar = torch.zeros(len(contexts), HORIZON, model.config.num_calendar_features)
        with torch.inference_mode():
            forecast: torch.Tensor = model(
                contexts.unsqueeze(-1), calendar=calendar if calendar.shape[-1] else None
            )[0]
        return forecast

    def counts(self) -> dict[str, Any]:
        """Return what describes the model."""
        (shape,) = self.seen
        return {
            "windows_a_step": shape[0],
            "parameters": self.forecaster.num_parameters_,
            "tokens": self.forecaster.model_.embedding.num_tokens,
            "version": mlrforecast.__version__,
            "torch": torch.__version__,
        }


def main() -> None:
    """Measure all cells and write one row for each model, or serve as a process of one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, nargs="?", help="folder of the CSV files to write")
    parser.add_argument("--other", help="Python of the environment that has neuralforecast")
    parser.add_argument("--windows", type=int, default=256, help="windows of a step")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="steps of a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--library", choices=("neuralforecast", "mlrforecast"))
    parser.add_argument("--attention", help=argparse.SUPPRESS)
    parser.add_argument("--loss", help=argparse.SUPPRESS)
    parser.add_argument("--size", help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.data is not None:
        serve(Ours(given.size, given.attention, given.loss, given.windows), NAMES)
        return
    if given.output is None or given.other is None:
        parser.error("name the folder of the CSV files and the Python of --other")
    run(given)


def etth1() -> np.ndarray:
    """Return the train rows of ETTh1, (7, 8640)."""
    return load_dataset("ETTh1").targets.to_numpy()[:8640].T.copy()


def panel() -> np.ndarray:
    """Return 1000 series of a day, a week, a trend and noise, (1000, 1000)."""
    rng = np.random.default_rng(0)
    hours = np.arange(1000)
    size, week, trend, level = rng.uniform(0.5, 2, (4, 1000, 1))
    shift = rng.uniform(0, 24, (1000, 1))
    waves = size * np.sin(2 * np.pi * (hours + shift) / 24)
    waves += week * np.sin(2 * np.pi * (hours + shift) / 168)
    return 10 * level + waves + trend * hours / 1000 + rng.normal(0, 0.3, (1000, 1000))


DATASETS: dict[str, Callable[[], np.ndarray]] = {"ETTh1": etth1, "1000 series": panel}


class Process:
    """One model in a process of its own, which waits for its turns."""

    def __init__(self, variant: Variant, size: str, data: Path, given: argparse.Namespace) -> None:
        self.variant = variant
        self.size = size
        self.rounds: list[dict[str, Any]] = []
        folder = Path(__file__).parent
        ours = variant.library == "mlrforecast"
        command = (
            [sys.executable, str(folder / "train_speed.py")]
            if ours
            else [given.other, str(folder / "_neuralforecast_worker.py")]
        )
        command += ["--size", size, "--attention", variant.attention]
        command += ["--loss", variant.loss] if ours else []
        command += ["--data", str(data), "--windows", str(given.windows)]
        command += ["--threads", str(given.threads)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(given.threads)}
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.start_mb = float(self._answer()["start_mb"])

    def measure(self, given: argparse.Namespace) -> None:
        """Take one turn."""
        ask = {"steps": given.steps + 3, "warm_up": 2, "windows": given.windows}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(ask) + "\n")
        self.process.stdin.flush()
        self.rounds.append(self._answer())

    def _answer(self) -> dict[str, Any]:
        """Read the next reply; what a library prints between is passed over."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("REPLY "):
                answer: dict[str, Any] = json.loads(line.removeprefix("REPLY "))
                return answer
        raise RuntimeError(f"The process of {self.variant} ended with {self.process.wait()}.")

    def close(self) -> None:
        """Let the process end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def row(self) -> dict[str, Any]:
        """Return what was measured, over all turns."""
        steps = np.concatenate([turn["steps"] for turn in self.rounds])
        low, middle, high = np.quantile(steps, (0.1, 0.5, 0.9))
        first = self.rounds[0]
        work = gflop_a_step(self.size, first["tokens"], first["windows_a_step"])

        def median(name: str) -> float:
            return statistics.median(turn[name] for turn in self.rounds)

        return {
            **dataclasses.asdict(self.variant),
            **{name: first[name] for name in ("version", "torch", "windows_a_step", "tokens")},
            "parameters": first["parameters"],
            "seconds_a_step": f"{middle:.4f}",
            "seconds_a_step_low": f"{low:.4f}",
            "seconds_a_step_high": f"{high:.4f}",
            "fit_seconds": f"{median('fit_seconds'):.3f}",
            "seconds_a_forecast": f"{median('predict_seconds'):.4f}",
            "network_seconds": f"{median('network_seconds'):.4f}",
            "start_mb": round(self.start_mb),
            "gflops": round(work / middle),
            "mm_gflops": round(max(turn["mm_gflops"] for turn in self.rounds)),
            "peak_fit_mb": round(first["peak_fit_mb"]),
            "peak_mb": round(first["peak_mb"]),
            "rounds": len(self.rounds),
            "steps": len(steps),
        }


def run(given: argparse.Namespace) -> None:
    """Measure the cells that were asked for; rows of others in the table stay."""
    given.output.mkdir(parents=True, exist_ok=True)
    context = {
        "threads": given.threads,
        "hardware": cpu_model(),
        "python": platform.python_version(),
        "command": shlex.join(["python", *sys.argv]),
    }
    for dataset in given.datasets:
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "values.npy"
            np.save(data, DATASETS[dataset]())
            for size in given.sizes:
                measured = cell(size, data, given)
                about = {"dataset": dataset, "size": size, **context}
                rows = [{**row, **about} for row in measured]
                replace_rows(given.output / "train_speed.csv", COLUMNS, rows, _rank)
                for row in measured:
                    print(dataset, size, json.dumps(row))


def _rank(row: dict[str, Any]) -> tuple[int, int]:
    """Return the place of a row's cell: rows of one cell took turns, and are replaced together."""
    return list(DATASETS).index(row["dataset"]), list(SIZES).index(row["size"])


def cell(size: str, data: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Let the models of one size and data set take turns."""
    variants = [v for v in VARIANTS if given.library in (None, v.library)]
    with contextlib.ExitStack() as stack:
        processes = []
        for variant in variants:
            process = Process(variant, size, data, given)
            stack.callback(process.close)
            processes.append(process)
        for _ in range(given.rounds):
            for process in processes:
                # What the turn before has left running, such as spinning threads, ends.
                time.sleep(0.3)
                process.measure(given)
        return [process.row() for process in processes]


if __name__ == "__main__":
    main()
