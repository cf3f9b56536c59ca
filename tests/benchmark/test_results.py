"""Result files: header, whole lines, resuming, damage; provenance without secrets."""

import csv
import json
from pathlib import Path

import pytest

from mlrforecast.benchmark import _provenance, _results, count_final_runs


def row(**changes):
    values = dict.fromkeys(_results.COLUMNS, "x")
    values |= {"horizon": 96, "seed": 0, "context_length": 24, "windows": 10, "parameters": 5}
    values |= {"mse": 0.1234567890123, "mae": 0.2, "validation_mse": 0.3, "train_seconds": 1.5}
    return values | changes


def test_columns_are_those_promised():
    assert ",".join(_results.COLUMNS) == (
        "dataset,target,split,horizon,model,attention,seed,context_length,mse,mae,validation_mse,"
        "windows,parameters,train_seconds,config_hash,hardware,versions,command"
    )


def test_rows_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "deeper" / "r.csv"
    rows = [row(), row(seed="", hardware='AMD "EPYC", 2 cores')]
    for each in rows:
        _results.append_row(path, each)
    read = _results.read_rows(path)
    assert [_results.row_key(each) for each in read] == [_results.row_key(each) for each in rows]
    assert read[1]["hardware"] == 'AMD "EPYC", 2 cores'
    frame = _results.as_frame(read)
    assert frame["mse"].tolist() == [0.1234567890123] * 2
    assert frame["seed"].tolist() == ["0", ""]
    with path.open(newline="") as file:
        assert len(list(csv.reader(file))) == 3


def test_no_file_is_no_rows(tmp_path):
    assert _results.read_rows(tmp_path / "r.csv") == []
    assert list(_results.as_frame([]).columns) == list(_results.COLUMNS)


def test_a_foreign_file_is_refused(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"r\.csv is not a result file"):
        _results.read_rows(path)


def test_a_torn_line_is_named(tmp_path):
    path = tmp_path / "r.csv"
    _results.append_row(path, row())
    with path.open("a") as file:
        file.write("ETTh1,M,te")
    with pytest.raises(ValueError, match=r"Line 3 of r\.csv must hold 18 fields"):
        _results.read_rows(path)


def test_the_log_counts_its_lines(tmp_path):
    assert count_final_runs(tmp_path) == 0
    _results.append_log(tmp_path / "new", {"time": "now"})
    _results.append_log(tmp_path / "new", {"time": "later"})
    assert count_final_runs(tmp_path / "new") == 2
    lines = (tmp_path / "new" / "final_runs.log").read_text().splitlines()
    assert [json.loads(line)["time"] for line in lines] == ["now", "later"]


def test_the_hash_follows_every_setting_but_not_their_order():
    known = _provenance.config_hash({"a": 1, "b": None})
    assert len(known) == 12
    assert known == _provenance.config_hash({"b": None, "a": 1})
    others = [{"a": 2, "b": None}, {"a": 1, "b": 0}, {"a": 1, "c": None}, {"a": "1", "b": None}]
    assert len({known, *map(_provenance.config_hash, others)}) == 5


def test_a_command_tells_no_folder():
    options = {
        "dataset": "ETTh1",
        "target": None,
        "final": True,
        "quiet": False,
        "set": ("width=8", "dropout=0.1"),
        "root": Path("/home/someone/secret/data"),
        "out": Path("../results"),
    }
    assert _provenance.command_line(("benchmark", "ett"), options) == (
        "mlrforecast benchmark ett --dataset ETTh1 --final --set width=8 --set dropout=0.1 "
        "--root data --out results"
    )


def test_hardware_and_versions_say_something():
    assert _provenance.cpu_name().endswith("cores")
    assert _provenance.device_name("cpu") == _provenance.cpu_name()
    assert _provenance.versions().split("; ")[0].startswith("python 3.")
    assert "; torch " in _provenance.versions()
