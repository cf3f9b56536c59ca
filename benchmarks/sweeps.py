"""Measure what a sweep costs beside the training of its trials.

Run it from the root of the repository, on an idle machine::

    python benchmarks/sweeps.py benchmarks/results/sweeps --other ENV/bin/python

``--other`` is the Python of an environment with neuralforecast and Ray; without it the rows of
neuralforecast stay as they are. ``--parts`` measures some of the parts: ``overhead`` (of this
library), ``other`` (of neuralforecast) and ``sharing``.

``overhead.csv``: the same trials, one thread each, in a plain loop, by ``executor="local"`` and by
Ray, one and two at a time; and the trials of neuralforecast's ``AutoPatchTST`` on Ray beside a loop
over its ``PatchTST``. All cases of a library take turns, in processes of their own.

``start_seconds``
    To start Ray on this machine; it is in no other column.
``wall_seconds``, ``_low``, ``_high``
    Of the sweep, without a refit (of neuralforecast with its refit): median over the rounds, least
    and most.
``seconds_a_trial``
    Of the loop of the same round: wall time over trials; median.
``overhead_seconds``
    A trial: wall time of the sweep times trials at a time, over trials (and refits), minus that of
    the loop of the same round; median. Trials that run at the same time slow each other: that is
    in it.
``overhead_percent``
    The same as a share of ``seconds_a_trial``.

``outside_percent``
    Wall time of the sweep times trials at a time, minus the time inside the trials, as a share of
    that: what is left if trials that slow each other are not counted. Not known of neuralforecast.

``sharing.csv``: sweeps of 5 and of 50 trials, two at a time, over one frame of 500 MB.

``store_mb``
    The most bytes in Ray's object store during the sweep.
``start_seconds_median``, ``_most``
    Of a trial in its worker, all that is not training and scoring: what it takes to get the data.
``worker_mb_median``, ``_most``
    Over the processes of workers, the most memory that no file and no other process shares
    (``RssAnon``), sampled: Python, torch and the windows of a fit, which are float32.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import torch
from _rows import replace_rows

import mlrforecast
from mlrforecast import MLRForecaster
from mlrforecast._core.cluster import connected
from mlrforecast.benchmark import cpu_model
from mlrforecast.estimators.folds import plan_folds, read_training_panel
from mlrforecast.tuning import tune
from mlrforecast.tuning._trial import Task, run_trial

HORIZON, CONTEXT, ROWS = 24, 168, 4_000
SIZES = {
    "long": (8, {"mlrforecast": 300, "neuralforecast": 320}),
    "short": (12, {"mlrforecast": 30}),
}
"""Trials, and steps of each, by how long they take: about 10 s and 1 s here."""
ROUNDS = 2
CASES = (("loop", 1), ("local", 1), ("local", 2), ("ray", 1), ("ray", 2))
BIG_ROWS, BIG_COLUMNS = 625_000, 100
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}
COMMAND = "python benchmarks/sweeps.py benchmarks/results/sweeps --other ENV/bin/python"

OVERHEAD = (
    "library",
    "trials_of",
    "executor",
    "workers",
    "trials",
    "rounds",
    "start_seconds",
    "wall_seconds",
    "wall_seconds_low",
    "wall_seconds_high",
    "trials_a_minute",
    "seconds_a_trial",
    "overhead_seconds",
    "overhead_percent",
    "outside_percent",
    "cpu",
    "versions",
    "command",
)
SHARING = (
    "frame_mb",
    "trials",
    "workers",
    "store_mb",
    "start_seconds_median",
    "start_seconds_most",
    "worker_mb_median",
    "worker_mb_most",
    "wall_seconds",
    "cpu",
    "versions",
    "command",
)


def main() -> None:
    """Run the parts, or one case in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--other", help="Python of an environment with neuralforecast")
    parser.add_argument("--parts", default="overhead,other,sharing")
    parser.add_argument("--case", help="of one process, as JSON")
    arguments = parser.parse_args()
    if arguments.case:
        case = json.loads(arguments.case)
        part = _share if case.pop("part") == "sharing" else _sweep
        print(json.dumps(part(**case)))
        return
    arguments.output.mkdir(parents=True, exist_ok=True)
    parts = set(arguments.parts.split(","))
    libraries = {"mlrforecast"} if "overhead" in parts else set()
    if "other" in parts and arguments.other:
        libraries.add("neuralforecast")
    for length, (trials, steps) in SIZES.items():
        for library in steps.keys() & libraries:
            rows = _compare(library, length, trials, steps[library], arguments.other)
            _save(arguments.output / "overhead.csv", OVERHEAD, rows)
    if "sharing" in parts:
        for trials in (5, 50):
            found = _in_process(sys.executable, __file__, {"part": "sharing", "trials": trials})
            _save(arguments.output / "sharing.csv", SHARING, [found | _shared()])


def _save(path: Path, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Write rows in place of the earlier ones of the same cases."""

    def rank(row: dict[str, Any]) -> tuple[str, ...]:
        named = ("library", "trials_of", "executor", "workers", "trials")
        return tuple(str(row[name]).zfill(4) for name in named if name in columns)

    replace_rows(path, columns, rows, rank)
    print(*rows, sep="\n", flush=True)


def _shared() -> dict[str, Any]:
    """Return what every row tells of the machine."""
    import ray

    packages = {"mlrforecast": mlrforecast, "torch": torch, "ray": ray}
    versions = [f"{name} {package.__version__}" for name, package in packages.items()]
    return {
        "cpu": cpu_model(),
        "versions": f"python {platform.python_version()}, {', '.join(versions)}",
        "command": COMMAND,
    }


def _in_process(python: str, script: str, case: dict[str, Any]) -> dict[str, Any]:
    """Run one case in a process of its own."""
    command = [python, script]
    command += ["unused", "--case", json.dumps(case)] if script == __file__ else [json.dumps(case)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | ENVIRONMENT, cwd=folder
        )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _compare(
    library: str, length: str, trials: int, steps: int, other: str | None
) -> list[dict[str, Any]]:
    """Run all cases of a library, in turns."""
    cases = [case for case in CASES if library == "mlrforecast" or case[0] != "local"]
    rates = np.geomspace(5e-4, 5e-3, trials).tolist()
    found: dict[tuple[str, int], list[dict[str, Any]]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "frame.parquet"
        _frame().to_parquet(path)
        shared = {"frame": str(path), "rates": rates, "steps": steps, "horizon": HORIZON}
        shared |= {"context": CONTEXT, "validation": 240}
        for _ in range(ROUNDS):
            for executor, workers in cases:
                case = shared | {"executor": executor, "workers": workers}
                if library == "mlrforecast":
                    one = _in_process(sys.executable, __file__, {"part": "overhead", **case})
                else:
                    worker = str(Path(__file__).with_name("_neuralforecast_sweep.py").resolve())
                    one = _in_process(str(other), worker, case)
                found[executor, workers].append(one)
    loops = [one["wall_seconds"] / trials for one in found["loop", 1]]
    return [
        _row(library, length, case, trials, runs, loops) | _shared() for case, runs in found.items()
    ]


def _row(
    library: str,
    length: str,
    case: tuple[str, int],
    trials: int,
    runs: list[dict[str, Any]],
    loops: list[float],
) -> dict[str, Any]:
    """Put the rounds of a case together."""
    executor, workers = case
    walls = [one["wall_seconds"] for one in runs]
    each = [
        one["wall_seconds"] * workers / (trials + workers * one["refits"]) - loop
        for one, loop in zip(runs, loops, strict=True)
    ]
    median = statistics.median
    return {
        "library": library,
        "trials_of": length,
        "executor": executor,
        "workers": workers,
        "trials": trials,
        "rounds": len(runs),
        "start_seconds": round(median(one["start_seconds"] for one in runs), 2),
        "wall_seconds": round(median(walls), 2),
        "wall_seconds_low": round(min(walls), 2),
        "wall_seconds_high": round(max(walls), 2),
        "trials_a_minute": round(60 * trials / median(walls), 2),
        "seconds_a_trial": round(median(loops), 3),
        "overhead_seconds": round(median(each), 3),
        "overhead_percent": round(
            100 * median(one / loop for one, loop in zip(each, loops, strict=True)), 1
        ),
        "outside_percent": _outside(runs, workers),
    }


def _outside(runs: list[dict[str, Any]], workers: int) -> float | str:
    """Return the share of a sweep that lies outside its trials, where it is known."""
    if not all("inside_seconds" in one for one in runs):
        return ""
    shares = [one["wall_seconds"] * workers / one["inside_seconds"] - 1 for one in runs]
    return round(100 * statistics.median(shares), 1)


def _frame() -> pd.DataFrame:
    """Return one noisy daily wave, as a long frame of the names that neuralforecast wants."""
    stamps = pd.date_range("2024-01-01", periods=ROWS, freq="h")
    noise = np.random.default_rng(0).normal(scale=0.3, size=ROWS)
    wave = np.sin(2 * np.pi * np.arange(ROWS) / 24)
    return pd.DataFrame({"unique_id": "a", "ds": stamps, "y": 10 + wave + noise})


def _sweep(
    frame: str,
    rates: list[float],
    steps: int,
    horizon: int,
    context: int,
    validation: int,
    executor: str,
    workers: int,
) -> dict[str, Any]:
    """Run one sweep, and say what it took."""
    forecaster = MLRForecaster(
        horizon,
        context_length=context,
        patch_length=16,
        patch_stride=16,
        max_steps=steps,
        accelerator="cpu",
        progress=False,
    )
    data = pd.read_parquet(frame)
    windows = validation // horizon
    if executor == "loop":
        return _loop(forecaster, data, rates, windows)
    begin = time.perf_counter()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        if executor == "ray":
            stack.enter_context(connected(None, num_cpus=workers))
        ready = time.perf_counter()
        result = tune(
            forecaster,
            data,
            {"learning_rate": {"grid_search": rates}},
            num_samples=1,
            folds=1,
            windows=windows,
            executor=executor,
            max_concurrent=workers,
            storage_path=Path(folder) / "sweep",
            refit=False,
            progress=False,
        )
        wall = time.perf_counter() - ready
    assert (result.trials["status"] == "finished").all()
    return {
        "start_seconds": ready - begin,
        "wall_seconds": wall,
        "inside_seconds": float(result.trials["seconds"].sum()),
        "refits": 0,
    }


def _loop(
    forecaster: MLRForecaster, data: pd.DataFrame, rates: list[float], windows: int
) -> dict[str, Any]:
    """Train and score the same configurations one after the other."""
    begin = time.perf_counter()
    panel, _ = read_training_panel(forecaster, data)
    task = _task(forecaster, panel, windows)
    with tempfile.TemporaryDirectory() as folder:
        for number, rate in enumerate(rates):
            run_trial(
                task, {"learning_rate": rate}, lambda report: None, folder=Path(folder, str(number))
            )
    wall = time.perf_counter() - begin
    return {"start_seconds": 0.0, "wall_seconds": wall, "refits": 0}


def _task(forecaster: MLRForecaster, panel: Any, windows: int) -> Task:
    return Task(
        panel=panel,
        forecaster=forecaster,
        plans={HORIZON: plan_folds(panel, HORIZON, folds=1, windows=windows)},
        metric="MASE",
        quantile_levels=(0.1, 0.5, 0.9),
        season_length=24,
        reports=4,
        threads=1,
    )


def _share(trials: int) -> dict[str, Any]:
    """Run a sweep over a large frame, and say what it takes of memory."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(BIG_ROWS, BIG_COLUMNS))
    data = pd.DataFrame(values, columns=[f"c{number}" for number in range(BIG_COLUMNS)])
    forecaster = MLRForecaster(
        HORIZON,
        context_length=96,
        width=8,
        num_heads=2,
        num_layers=1,
        hidden_width=8,
        max_steps=4,
        accelerator="cpu",
        progress=False,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        connected(None, num_cpus=2),
        _watched() as (store, workers),
    ):
        begin = time.perf_counter()
        result = tune(
            forecaster,
            data,
            {"dropout": {"grid_search": np.linspace(0, 0.4, trials).tolist()}},
            num_samples=1,
            folds=1,
            windows=1,
            reports=1,
            storage_path=Path(folder) / "sweep",
            refit=False,
            progress=False,
        )
        wall = time.perf_counter() - begin
        in_ray = result.result_grid.get_dataframe().set_index("trial_id")["time_total_s"]
    assert (result.trials["status"] == "finished").all()
    in_fits = result.trials.set_index("trial")["seconds"]
    starts = [seconds - in_fits[int(trial)] for trial, seconds in in_ray.items()]
    return {
        "frame_mb": round(values.nbytes / 1e6),
        "trials": trials,
        "workers": 2,
        "store_mb": round(max(store)),
        "start_seconds_median": round(statistics.median(starts), 3),
        "start_seconds_most": round(max(starts), 3),
        "worker_mb_median": round(statistics.median(workers.values())),
        "worker_mb_most": round(max(workers.values())),
        "wall_seconds": round(wall, 1),
    }


@contextlib.contextmanager
def _watched() -> Iterator[tuple[list[float], dict[int, float]]]:
    """Note the bytes in the object store, and the most that each worker holds, in MB."""
    import ray
    from ray._private.internal_api import node_stats

    node = ray.nodes()[0]
    address = node["NodeManagerAddress"], node["NodeManagerPort"]
    store, workers = [0.0], {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            store.append(node_stats(*address).store_stats.object_store_bytes_used / 1e6)
            for process in psutil.process_iter(["pid", "cmdline"]):
                title = " ".join(process.info["cmdline"] or [])
                if "ray::" in title and "IDLE" not in title:
                    with contextlib.suppress(OSError, StopIteration):
                        number = process.info["pid"]
                        workers[number] = max(workers.get(number, 0.0), _anonymous(number))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield store, workers
    finally:
        ended.set()
        thread.join()


def _anonymous(process: int) -> float:
    """Return the memory of a process that no file and no other process backs, in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("RssAnon"))


if __name__ == "__main__":
    main()
