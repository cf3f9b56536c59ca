"""Results of jobs are joined in the order and with the names of the file of runs."""

import runpy
from pathlib import Path

import pandas as pd
import pytest

from mlrforecast.tasks import Execution, read_runs
from mlrforecast.tasks.in_context_regression import RegressionRun, train

FILE = Path(__file__).parents[2] / "benchmarks" / "collect_runs.py"
RUNS = """
[common]
name = "{attention}-{learning_rate}"
num_dims = 2
num_points = 2
width = 8
num_heads = 1
num_layers = 1
max_steps = 2
warmup_steps = 1
curriculum_interval = 0
evaluation_episodes = 4

[[runs]]
attention = "standard"
each = { learning_rate = [1e-3, 2e-3, 3e-3] }
"""


def test_results_of_jobs_become_those_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    join = runpy.run_path(str(FILE))["join"]
    file = tmp_path / "tiny.toml"
    # As a job has them: other names, the last run first, one of them twice.
    file.write_text(RUNS.replace("{attention}-", "old-"), encoding="utf-8")
    first, second, _ = read_runs(file, RegressionRun)
    on_cpu = Execution(accelerator="cpu", progress=False)
    train([second], out=tmp_path / "a", execution=on_cpu)
    train([first, second], out=tmp_path / "b", execution=on_cpu)
    file.write_text(RUNS, encoding="utf-8")
    folders = [tmp_path / name for name in ("icl", "a", "b")]
    join("icl", file, folders, tmp_path / "results")
    out = tmp_path / "results" / "icl" / "tiny"
    runs, curves = (pd.read_csv(out / name) for name in ("runs.csv", "curves.csv"))
    assert runs["name"].tolist() == ["standard-0.001", "standard-0.002"]
    assert curves["hash"].unique().tolist() == runs["hash"].tolist()
    assert not curves.duplicated(["hash", "step"]).any()
    assert "missing ['standard-0.003']" in capsys.readouterr().out
