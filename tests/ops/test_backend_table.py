"""The choice of a backend on the CPU follows the measured times that are kept as a file."""

import csv
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from mlrforecast.ops import explain_backend

FILE = Path(__file__).parents[2] / "benchmarks" / "results" / "kernels" / "attention_cpu.csv"


def trained_times() -> dict[tuple[int, bool], dict[str, float]]:
    """Sum forward and backward over the rank lists and switches: (length, causal) -> backend."""
    times: dict[tuple[int, bool], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    with FILE.open() as file:
        for row in csv.DictReader(file):
            if row["pass"] == "forward+backward":
                key = int(row["length"]), row["causal"] == "True"
                times[key][row["backend"]] += float(row["median_ms"])
    return times


@pytest.mark.parametrize(("length", "causal"), trained_times())
def test_the_faster_backend_is_taken(length: int, causal: bool) -> None:
    x = torch.empty(1, 1, length, 64)
    choice = explain_backend(x, x, x, ranks=(32, 16, 16), causal=causal)
    times = trained_times()[length, causal]
    rivals = {name: times[name] for name in ("reference", "hierarchical") if name in times}
    assert choice.name == min(rivals, key=rivals.__getitem__)


def test_each_time_says_what_made_it() -> None:
    with FILE.open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        for column in ("hardware", "torch", "python", "command", "repeats", "dtype", "clock"):
            assert row[column]
        assert float(row["min_ms"]) <= float(row["median_ms"]) <= float(row["max_ms"])
