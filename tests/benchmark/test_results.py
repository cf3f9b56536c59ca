"""Result files: header, whole lines, resuming, damage; provenance without secrets."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlrforecast._core import provenance
from mlrforecast.benchmark import _results, count_final_runs
from mlrforecast.benchmark._results import RESULTS


def row(**changes):
    values = dict.fromkeys(RESULTS.columns, "x")
    values |= {"horizon": 96, "seed": 0, "context_length": 24, "windows": 10, "parameters": 5}
    values |= {"mse": 0.1234567890123, "mae": 0.2, "validation_mse": 0.3, "train_seconds": 1.5}
    return values | {"mse_by_step": "0.4 1.25"} | changes


def test_columns_are_those_promised():
    assert ",".join(RESULTS.columns) == (
        "dataset,target,split,horizon,model,attention,seed,context_length,mse,mae,validation_mse,"
        "mse_by_step,windows,parameters,train_seconds,config_hash,hardware,versions,command"
    )


def test_rows_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "deeper" / "r.csv"
    rows = [row(), row(seed="", hardware='AMD "EPYC", 2 cores')]
    for each in rows:
        RESULTS.append(path, each)
    read = RESULTS.read(path)
    assert [RESULTS.key_of(each) for each in read] == [RESULTS.key_of(each) for each in rows]
    assert read[1]["hardware"] == 'AMD "EPYC", 2 cores'
    frame = _results.as_frame(read)
    assert frame["mse"].tolist() == [0.1234567890123] * 2
    assert frame["seed"].tolist() == ["0", ""]
    assert frame["mse_by_step"].tolist() == ["0.4 1.25", "0.4 1.25"]
    with path.open(newline="") as file:
        assert len(list(csv.reader(file))) == 3


def test_no_file_is_no_rows(tmp_path):
    assert RESULTS.read(tmp_path / "r.csv") == []
    assert list(_results.as_frame([]).columns) == list(RESULTS.columns)


def test_a_foreign_file_is_refused(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"r\.csv is not a result file"):
        RESULTS.read(path)


def test_a_line_of_too_few_fields_is_named(tmp_path):
    path = tmp_path / "r.csv"
    RESULTS.append(path, row())
    with path.open("a") as file:
        file.write("ETTh1,M,te\n")
    with pytest.raises(ValueError, match=r"Line 3 of r\.csv must hold 19 fields"):
        RESULTS.read(path)


@pytest.mark.parametrize("cut", [1, 2, 9])
def test_a_torn_line_is_left_out_and_then_written_over(tmp_path, caplog, cut):
    path = tmp_path / "r.csv"
    for seed in (0, 1):
        RESULTS.append(path, row(seed=seed))
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert [each["seed"] for each in RESULTS.read(path)] == ["0"]
    assert "Line 3 of r.csv was cut off" in caplog.text
    RESULTS.append(path, row(seed=1))
    assert path.read_bytes() == whole


@pytest.mark.parametrize("kept", [0, 1, 30, -1])
def test_an_empty_file_and_a_torn_header_are_a_new_file(tmp_path, kept):
    path = tmp_path / "r.csv"
    header = (",".join(RESULTS.columns) + "\n").encode()
    path.write_bytes(header[:kept])
    assert RESULTS.read(path) == []
    RESULTS.append(path, row())
    assert path.read_bytes().startswith(header)
    assert len(RESULTS.read(path)) == 1


def test_a_foreign_file_of_one_open_line_is_kept(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("my notes")
    for call in (lambda: RESULTS.read(path), lambda: RESULTS.append(path, row())):
        with pytest.raises(ValueError, match=r"r\.csv is not a result file"):
            call()
    assert path.read_text() == "my notes"


def test_a_run_that_another_process_wrote_is_not_repeated(tmp_path):
    path = tmp_path / "r.csv"
    RESULTS.append(path, row(mse=1.0))
    RESULTS.append(path, row(mse=2.0))
    assert [each["mse"] for each in RESULTS.read(path)] == ["1.0"]


def test_processes_that_write_at_once_lose_and_repeat_nothing(tmp_path):
    """Each of three writes the same 40 rows, the header among them, as fast as it can."""
    code = (
        "import sys, pathlib\n"
        "from mlrforecast.benchmark._results import RESULTS\n"
        "row = dict.fromkeys(RESULTS.columns, 1)\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for seed in range(40): RESULTS.append(pathlib.Path('r.csv'), row | {'seed': seed})\n"
    )
    root = str(Path(__file__).parents[2])
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": root},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    rows = RESULTS.read(tmp_path / "r.csv")
    assert sorted(int(each["seed"]) for each in rows) == list(range(40))
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


@pytest.mark.parametrize(
    ("column", "value"),
    [("mse", "abc"), ("mae", "nan"), ("validation_mse", "inf"), ("mse", "-1"), ("windows", "1.5"),
     ("train_seconds", ""), ("horizon", "x")],
)  # fmt: skip
def test_a_number_that_is_none_is_named(tmp_path, column, value):
    path = tmp_path / "r.csv"
    for seed in (0, 1):
        RESULTS.append(path, row(seed=seed, **({column: value} if seed else {})))
    with pytest.raises(ValueError, match=rf"Line 3 of r\.csv .* column '{column}', got '{value}'"):
        RESULTS.read(path)


def test_what_is_no_text_is_named(tmp_path):
    path = tmp_path / "r.csv"
    for seed in (0, 1):
        RESULTS.append(path, row(seed=seed, hardware="PLACE, 2 cores"))
    head, found, tail = path.read_bytes().rpartition(b"PLACE")
    path.write_bytes(head + b"\xff" + tail)
    assert found
    with pytest.raises(ValueError, match=r"Line 3 of r\.csv is not UTF-8 .* 'hardware' .* 0xff"):
        RESULTS.read(path)


def test_an_end_of_a_line_inside_a_field_is_not_written(tmp_path):
    path = tmp_path / "r.csv"
    RESULTS.append(path, row(command="mlrforecast\n--set a=b"))
    assert path.read_bytes().count(b"\n") == 2
    assert RESULTS.read(path)[0]["command"] == "mlrforecast --set a=b"


def test_the_log_counts_its_lines(tmp_path):
    assert count_final_runs(tmp_path) == 0
    _results.append_log(tmp_path / "new", {"time": "now"})
    _results.append_log(tmp_path / "new", {"time": "later"})
    assert count_final_runs(tmp_path / "new") == 2
    lines = (tmp_path / "new" / "final_runs.log").read_text().splitlines()
    assert [json.loads(line)["time"] for line in lines] == ["now", "later"]


def test_a_torn_entry_of_the_log_counts_and_swallows_none(tmp_path):
    (tmp_path / "final_runs.log").write_bytes(b'{"time": "no\xff')
    _results.append_log(tmp_path, {"time": "later"})
    assert count_final_runs(tmp_path) == 2


def test_the_hash_follows_every_setting_but_not_their_order():
    known = provenance.config_hash({"a": 1, "b": None})
    assert len(known) == 12
    assert known == provenance.config_hash({"b": None, "a": 1})
    others = [{"a": 2, "b": None}, {"a": 1, "b": 0}, {"a": 1, "c": None}, {"a": "1", "b": None}]
    assert len({known, *map(provenance.config_hash, others)}) == 5


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
    assert provenance.command_line(("benchmark", "ett"), options) == (
        "mlrforecast benchmark ett --dataset ETTh1 --final --set width=8 --set dropout=0.1 "
        "--root data --out results"
    )


def test_hardware_and_versions_say_something():
    assert provenance.cpu_name().endswith("cores")
    assert provenance.device_name("cpu") == provenance.cpu_name()
    assert provenance.versions().split("; ")[0].startswith("python 3.")
    assert "; torch " in provenance.versions()
