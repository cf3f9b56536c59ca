"""Committed results say how they were made, repeat no run, and hold the known floors."""

import csv
import json
import re
from pathlib import Path

import pytest

from mlrforecast.benchmark import _results
from mlrforecast.benchmark._results import RESULTS
from tests.benchmark.test_floors import HORIZONS, KNOWN

FOLDER = Path(__file__).parents[2] / "benchmarks" / "results" / "ett"
FILES = sorted(FOLDER.rglob("*_*_f*.csv"))
# Rows that are scored, where they are not the four months of hours of ETTh1 and ETTh2.
SCORED = {
    ("exchange_rate", "final"): 1517,
    ("exchange_rate", "folds"): 760,
    **{(f"ETTm{number}", kind): 11520 for number in (1, 2) for kind in ("final", "folds")},
}


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_row_is_complete_and_no_run_stands_twice(path):
    rows = RESULTS.read(path)
    assert rows
    keys = [RESULTS.key_of(row) for row in rows]
    assert len(set(keys)) == len(keys)
    for row in rows:
        empty = {name for name, value in row.items() if value == ""}
        assert empty in (set(), {"attention", "seed"}), row
        assert not re.search(r"(^|[\s=])[/~]", str(row["command"])), "a folder of some machine"
        assert str(row["command"]).startswith("mlrforecast benchmark ett --")
        assert float(str(row["validation_mse"])) > 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_windows_are_full_and_the_files_names_are_kept(path):
    dataset, target, kind = path.stem.rsplit("_", 2)
    for row in read(path):
        assert (row["dataset"], row["target"]) == (dataset, target)
        assert row["split"] == "test" if kind == "final" else row["split"].startswith("fold")
        assert int(row["windows"]) == SCORED.get((dataset, kind), 2880) - int(row["horizon"]) + 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_errors_of_the_steps_average_to_the_error_of_all(path):
    for row in read(path):
        by_step = [float(word) for word in row["mse_by_step"].split(" ")]
        assert len(by_step) == int(row["horizon"])
        assert sum(by_step) / len(by_step) == pytest.approx(float(row["mse"]), rel=1e-3)


def test_all_fits_have_the_same_settings_the_defaults():
    """Attention, seed and horizon are columns; whatever else differed would have another hash."""
    fits = [row for path in FILES for row in read(path) if row["model"] == "MLRForecaster"]
    assert len({row["config_hash"] for row in fits}) == 1
    assert not any("--set" in row["command"] for row in fits)


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.stem.endswith("final")], ids=lambda path: path.name
)
def test_final_files_hold_the_known_floors_and_are_logged(path):
    rows = read(path)
    for row in rows:
        known = KNOWN.get((row["dataset"], row["target"], row["model"]))
        if known:
            pair = known.split()[HORIZONS.index(int(row["horizon"]))]
            found = tuple(round(float(row[name]), 4) for name in ("mse", "mae"))
            assert found == tuple(map(float, pair.split("/")))
    log = (path.parent / _results.LOG_NAME).read_text(encoding="utf-8").splitlines()
    logged = {json.loads(line)["config_hash"] for line in log}
    assert {row["config_hash"] for row in rows if row["model"] == "MLRForecaster"} <= logged
