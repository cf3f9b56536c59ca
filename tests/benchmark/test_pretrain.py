"""The benchmark of pretraining: its data sets and scores are those of Chronos' evaluation."""

import csv
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "pretrain"

PROGRAM = """
import sys
sys.path.insert(0, "benchmarks")
from _pretrain_data import DATASETS, read_datasets, seasonal_naive_scores
for data in read_datasets(list(DATASETS)):
    print(data.name, *seasonal_naive_scores(data, [n / 10 for n in range(1, 10)]))
"""


def program(*words):
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.shared
def test_seasonal_naive_has_its_published_scores(shared_file):
    published = {}
    for name in ("in-domain", "zero-shot"):
        with shared_file(f"seasonal-naive-{name}.csv").open(encoding="utf-8") as file:
            published |= {row["dataset"]: row for row in csv.DictReader(file)}
    lines = [line.split() for line in program("-c", PROGRAM).splitlines()]
    assert len(lines) == 7
    for name, mase, wql in lines:
        row = published[name]
        assert float(mase) == pytest.approx(float(row["MASE"]), abs=5e-4), name
        assert float(wql) == pytest.approx(float(row["WQL"]), abs=5e-4), name


@pytest.mark.shared
@pytest.mark.slow
def test_a_trial_writes_a_row_for_each_model(tmp_path):
    out = tmp_path / "results"
    words = ("--quick", "--heads", "quantiles", "--datasets", "ETTh")
    program("benchmarks/pretrain.py", str(out), *words)
    tables = {}
    for name in ("runs", "losses", "scores"):
        with (out / f"{name}.csv").open(encoding="utf-8") as file:
            tables[name] = list(csv.DictReader(file))
    assert [row["attention"] for row in tables["runs"]] == ["mlr", "standard"]
    assert len(tables["losses"]) == 2 * 2
    models = {(row["head"], row["attention"]) for row in tables["scores"]}
    assert models == {("quantiles", "mlr"), ("quantiles", "standard"), ("seasonal_naive", "")}
    assert all(str(tmp_path) not in row["command"] for row in tables["runs"])


@pytest.mark.usefixtures("seeded")
def test_what_is_refused_is_refused_before_series_are_made(tmp_path, monkeypatch):
    script = ROOT / "benchmarks" / "pretrain.py"
    monkeypatch.syspath_prepend(str(script.parent))
    monkeypatch.setattr(sys, "argv", ["pretrain.py", str(tmp_path / "out"), "--heads", "points"])
    with pytest.raises(ValueError, match="`head` must be one of tokens, quantiles; got 'points'"):
        runpy.run_path(str(script), run_name="__main__")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not RESULTS.exists(), reason="no run of it is committed")
def test_committed_runs_are_whole():
    with (RESULTS / "runs.csv").open(encoding="utf-8") as file:
        runs = list(csv.DictReader(file))
    with (RESULTS / "scores.csv").open(encoding="utf-8") as file:
        scored = {(row["head"], row["attention"]) for row in csv.DictReader(file)}
    assert {(row["head"], row["attention"]) for row in runs} <= scored
    for row in runs:
        assert row["command"].startswith("python benchmarks/pretrain.py benchmarks/results/")
        assert row["hardware"]
        assert float(row["last_loss"]) < float(row["first_loss"])
