"""The benchmark of electricity prices: its years are those of the published forecasts."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def rows_of(out, root, *words):
    done = subprocess.run(
        [sys.executable, "benchmarks/epf.py", str(out), *words],
        cwd=ROOT,
        env=os.environ | {"MLRFORECAST_DATA": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with (out / "epf.csv").open(encoding="utf-8") as file:
        return {row["model"]: row for row in csv.DictReader(file)}


@pytest.mark.shared
def test_naive_forecasts_have_their_published_errors(shared_file, tmp_path):
    """Over the two test years, and over the two before, which are not those of the test."""
    root = shared_file("epf_NP.csv.xz").parent
    final = rows_of(tmp_path / "final", root, "--final", "--seeds", "0")
    assert float(final["same hour of the day before"]["mae"]) == pytest.approx(2.886, abs=6e-4)
    assert float(final["same hour of the week before"]["mae"]) == pytest.approx(4.125, abs=6e-4)
    assert all(row["hours"] == "17472" for row in final.values())
    [noted] = (tmp_path / "final" / "final_runs.log").read_text(encoding="utf-8").splitlines()
    assert "--final" in json.loads(noted)["command"]
    chosen = rows_of(tmp_path / "chosen", root, "--seeds", "0")
    assert float(chosen["same hour of the day before"]["mae"]) < 2.5
    assert not (tmp_path / "chosen" / "final_runs.log").exists()


@pytest.mark.shared
@pytest.mark.slow
def test_a_trial_forecasts_each_day_from_a_fit_of_its_own(shared_file, tmp_path):
    root = shared_file("epf_NP.csv.xz").parent
    words = ("--days", "3", "--refit", "2", "--set", "max_steps=20", "--set", "context_length=48")
    row = rows_of(tmp_path / "out", root, *words)["MLRForecaster"]
    assert (row["hours"], row["fits"], row["context_length"]) == ("72", "2", "48")
    assert 0 < float(row["mae"]) < float(row["rmse"]) < 50
