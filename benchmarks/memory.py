"""Compare the estimate of the memory of a training run with what one takes, on a CPU under Linux.

Each setting has a process of its own: it warms up with a tiny fit, estimates, trains for a few
steps, and reads the peak of its resident memory, less what was resident before. The C library
keeps memory that was freed. Half of the rows are measured with a fixed threshold above which it
gives memory back at once (MALLOC_MMAP_THRESHOLD_ of glibc), which shows how much that is.

    python benchmarks/memory.py --out benchmarks/results/memory
"""

import argparse
import csv
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from mlrforecast import MLRForecaster, __version__
from mlrforecast.benchmark import cpu_model

STEPS = 4
SETTINGS: tuple[dict[str, Any], ...] = (
    {"batch_size": 256, "context_length": 336, "width": 32},
    {"batch_size": 1024, "context_length": 512, "width": 32},
    {"batch_size": 256, "context_length": 512, "width": 128, "attention": "standard"},
    {"batch_size": 1024, "context_length": 512, "width": 64, "patch_stride": 8},
    {"batch_size": 512, "context_length": 96, "width": 128, "attention": "standard"},
    {"batch_size": 64, "context_length": 256, "width": 32, "patch_length": 1},
    {
        "batch_size": 128,
        "context_length": 256,
        "width": 16,
        "patch_length": 1,
        "attention": "standard",
    },
    {"batch_size": 256, "context_length": 512, "width": 128, "precision": "bf16-mixed"},
)
FIELDS = (
    "attention",
    "batch_size",
    "context_length",
    "width",
    "patch_length",
    "patch_stride",
    "precision",
    "malloc",
    "estimated_mb",
    "measured_mb",
    "ratio",
    "estimate_s",
    "hardware",
    "torch",
    "version",
    "command",
)


def frame(rows: int) -> pd.DataFrame:
    """Return two random walks."""
    steps = np.random.default_rng(0).normal(size=(rows, 2))
    index = pd.date_range("2024", periods=rows, freq="h")
    return pd.DataFrame(steps.cumsum(axis=0), columns=["a", "b"], index=index)


def resident(name: str) -> int:
    """Return the bytes that this process holds: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


def measure(setting: dict[str, Any]) -> dict[str, float]:
    """Estimate, then train, in a process that has done both before."""
    torch.set_num_threads(1)
    given = {"prediction_length": 96, "max_steps": STEPS, "accelerator": "cpu", "progress": False}
    small = {"prediction_length": 4, "context_length": 24, "width": 8, "max_steps": 2}
    MLRForecaster(**{**given, **small}).fit(frame(300))
    forecaster, rows = MLRForecaster(**{**given, **setting}), frame(6000)
    begin = time.perf_counter()
    estimate = forecaster.estimate_memory(rows)
    seconds = time.perf_counter() - begin
    gc.collect()
    # Writing a 5 there sets the peak to what is resident now.
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    forecaster.fit(rows)
    return {
        "estimated": estimate.total,
        "measured": resident("VmHWM") - before,
        "seconds": seconds,
    }


def in_process(setting: dict[str, Any], fixed_threshold: bool) -> dict[str, float]:
    """Measure a setting in a process of its own."""
    environment = dict(os.environ)
    if fixed_threshold:
        environment["MALLOC_MMAP_THRESHOLD_"] = str(2**18)
    command = [sys.executable, __file__, "--setting", json.dumps(setting)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def row(setting: dict[str, Any], fixed_threshold: bool) -> dict[str, Any]:
    """Return the line of a setting."""
    found = in_process(setting, fixed_threshold)
    default = {"attention": "mlr", "patch_length": 16, "patch_stride": "", "precision": "32-true"}
    return {
        **default,
        **setting,
        "malloc": "fixed threshold" if fixed_threshold else "default",
        "estimated_mb": round(found["estimated"] / 1e6, 1),
        "measured_mb": round(found["measured"] / 1e6, 1),
        "ratio": round(found["estimated"] / found["measured"], 2),
        "estimate_s": round(found["seconds"], 2),
        "hardware": f"{cpu_model()}, 1 thread",
        "torch": torch.__version__,
        "version": __version__,
        "command": "python benchmarks/memory.py --out benchmarks/results/memory",
    }


def main() -> None:
    """Measure all settings, or the one that this process is for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/memory"))
    parser.add_argument("--setting", help="measure this one, as JSON, and print the result")
    given = parser.parse_args()
    if given.setting is not None:
        print(json.dumps(measure(json.loads(given.setting))))
        return
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "memory.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for fixed_threshold in (True, False):
            for setting in SETTINGS:
                found = row(setting, fixed_threshold)
                writer.writerow(found)
                file.flush()
                print({name: found[name] for name in FIELDS[:11]})


if __name__ == "__main__":
    main()
