"""``fit`` and ``predict``: from a table to a model, and from a model to a table."""

import io
import json
import subprocess
import sys

import click
import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from mlrforecast.cli import _fit, _tables
from mlrforecast.cli._fit import build_forecaster
from tests.cli.conftest import SMALL, long_table, wide_table


def read(result, **options):
    return pd.read_csv(io.StringIO(result.stdout), **options)


def test_fit_saves_what_the_library_would(run, tables, tmp_path):
    result = run("fit", tables / "wide.csv", "--prediction-length", 6, "--out", "m", *SMALL)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert "Fitted 2 series, 192 rows of frequency h: 2 steps in " in result.stderr
    assert result.stderr.endswith(f"Saved m. Next: mlrforecast predict m {tables / 'wide.csv'}\n")
    sizes = {"width": 8, "num_heads": 2, "num_layers": 1, "hidden_width": 8, "batch_size": 4}
    same = MLRForecaster(6, context_length=24, max_steps=2, progress=False, **sizes)
    expected = same.fit(wide_table()).predict(wide_table())
    loaded = MLRForecaster.load(tmp_path / "m")
    pd.testing.assert_frame_equal(loaded.predict(wide_table()), expected)
    assert loaded.context_ is None
    assert loaded.progress


def test_fit_tells_one_json_object(run, tables):
    result = run(
        "fit", tables / "long.csv", "--prediction-length", 7, "--out", "m", *SMALL, "--json",
        *("--id-column", "shop", "--target", "sold", "--timestamp-column", "day"),
        *("--calibrate", "split", "--quiet"),
    )  # fmt: skip
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    told = json.loads(result.stdout)
    assert told.pop("seconds") > 0
    assert told.pop("parameters") > 100
    assert told == {
        "folder": "m",
        "series": 2,
        "rows": 186,
        "freq": "D",
        "prediction_length": 7,
        "context_length": 24,
        "steps": 2,
        "calibration": "split",
        "with_context": False,
    }


def test_every_option_reaches_the_forecaster(run, monkeypatch):
    calls = []

    def caught(data, **given):
        calls.append((data, given))

    monkeypatch.setattr(_fit, "run_fit", caught)
    words = (
        "fit d.csv --prediction-length 3 --out m --target a,b --id-column i --timestamp-column t "
        "--past-covariates p,q --known-covariates k --static-covariates s --freq 5 --fill zero "
        "--resample sum --loss mae --context-length 9 --max-steps 4 --max-time 1.5 "
        "--early-stopping --seed 7 --accelerator cpu --set width=16 --set scaling=robust "
        "--set ranks=(2,2) --calibrate rolling --with-context --format csv"
    )
    assert run(*words.split()).exit_code == 0
    ((data, given),) = calls
    assert (data, given["calibrate"], given["with_context"]) == ("d.csv", "rolling", True)
    parameters = build_forecaster(given["options"], given["settings"]).get_params()
    expected = {
        "target": ("a", "b"),
        "prediction_length": 3,
        "id_column": "i",
        "timestamp_column": "t",
        "past_covariates": ("p", "q"),
        "known_covariates": ("k",),
        "static_covariates": ("s",),
        "freq": 5,
        "fill": "zero",
        "resample": "sum",
        "loss": "mae",
        "context_length": 9,
        "max_steps": 4,
        "max_time": 1.5,
        "early_stopping": True,
        "seed": 7,
        "accelerator": "cpu",
        "width": 16,
        "scaling": "robust",
        "ranks": (2, 2),
    }
    assert {name: parameters[name] for name in expected} == expected


def test_defaults_are_those_of_the_library(run, monkeypatch):
    calls = []
    monkeypatch.setattr(_fit, "run_fit", lambda data, **given: calls.append(given))
    run("fit", "d.csv", "--prediction-length", 3, "--out", "m")
    forecaster = build_forecaster(calls[0]["options"], calls[0]["settings"])
    assert forecaster.get_params() == MLRForecaster(3).get_params()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "widht=3"], "'widht' is none of calendar, "),
        (["--set", "seed=3"], "'seed' has an option: --seed."),
        (["--set", "progress=False"], "'progress' is none of"),
        (["--set", "width"], "must be NAME=VALUE, got 'width'"),
        (["--set", "width=abc"], "The 'width' parameter of MLRForecaster must be an int"),
        (["--set", "width=True"], "`width` must be a number, got True."),
        (["--set", "num_heads=5"], "`num_heads` must divide the width 32, got 5."),
        (["--loss", "mea"], "The 'loss' parameter of MLRForecaster must be a str among"),
        (["--freq", "fortnight"], "'fortnight'"),
        (["--target", "a,,b"], "'a,,b' is not a list of names with commas."),
        (["--max-time", "0"], "0.0 is not in the range x>0"),
        (["--calibrate", "always"], "'always' is not one of"),
        (["--target", "nort"], "wide.csv' has no column 'nort', which `target` names."),
        (["--timestamp-column", "when"], "no column 'when'"),
    ],
)
def test_what_fit_refuses_is_one_line_and_leaves_nothing(run, tables, tmp_path, words, message):
    result = run("fit", tables / "wide.csv", "--prediction-length", 6, "--out", "m", *words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert message in " ".join(result.stderr.split())
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    assert list(tmp_path.iterdir()) == []


def test_a_frame_that_breaks_a_rule_names_file_and_column(run, tmp_path):
    (tmp_path / "d.csv").write_text("time,y,z\n2024-01-01,1,dry\n2024-01-02,2,wet\n")
    result = run("fit", "d.csv", "--prediction-length", 1, "--out", "m")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: Column 'z' of 'd.csv' must be numeric")
    assert "--target" in result.stderr


def test_a_folder_of_something_else_is_refused_before_training(run, tables, tmp_path, monkeypatch):
    monkeypatch.setattr(_fit, "run_fit", lambda *_, **__: pytest.fail("begun"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").touch()
    result = run("fit", tables / "wide.csv", "--prediction-length", 6, "--out", "notes")
    assert result.exit_code == 2
    assert "it holds 'todo.txt', which is no part of a saved model" in result.stderr


def test_a_model_is_replaced(run, tables):
    words = ("fit", tables / "wide.csv", "--prediction-length", 6, "--out", "m", *SMALL)
    # Every kind of file that a model may have.
    assert "Saved m." in run(*words, "--with-context", "--calibrate", "rolling").stderr
    assert "Replaced m." in run(*words).stderr


def test_training_that_diverges_is_one_line(run, tables, tmp_path, monkeypatch):
    def diverge(*args, **kwargs):
        raise FloatingPointError("Training diverged: lower `learning_rate`.")

    monkeypatch.setattr(MLRForecaster, "fit", diverge)
    result = run("fit", tables / "wide.csv", "--prediction-length", 6, "--out", "m")
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert result.stderr == "Error: Training diverged: lower `learning_rate`.\n"


def test_ctrl_c_is_code_130_and_leaves_nothing(run, tables, tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(MLRForecaster, "fit", stop)
    result = run("fit", tables / "wide.csv", "--prediction-length", 6, "--out", "m")
    assert (result.exit_code, list(tmp_path.iterdir())) == (130, [])
    assert result.stderr.strip() == "Stopped."


def test_a_forecast_goes_to_stdout_as_the_library_makes_it(run, tables, wide_model):
    result = run("predict", wide_model, tables / "wide.csv")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    expected = MLRForecaster.load(wide_model).predict(wide_table())
    found = read(result, parse_dates=["time"])
    assert found["time"].tolist() == expected["time"].tolist()
    assert result.stdout.splitlines()[1].startswith("2024-01-09T00:00:00,")
    np.testing.assert_allclose(found[["north", "south"]], expected[["north", "south"]])


def test_a_model_with_its_context_needs_no_data(run, tables, wide_model):
    with_data = run("predict", wide_model, tables / "wide.csv").stdout
    assert run("predict", wide_model).stdout == with_data


def test_a_model_without_its_context_says_what_is_needed(run, long_model):
    result = run("predict", long_model)
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "Error: DATA is needed: the model was saved without its context"
    )
    assert "--with-context" in result.stderr


def test_quantiles_and_a_longer_horizon(run, wide_model):
    result = run("predict", wide_model, "--quantile-levels", "0.1,0.9", "--prediction-length", 8)
    found = read(result)
    assert found.columns.tolist() == [
        "time", "north", "north_0.1", "north_0.9", "south", "south_0.1", "south_0.9",
    ]  # fmt: skip
    assert len(found) == 8
    assert (found["south_0.1"] <= found["south_0.9"]).all()


def test_paths_follow_their_seed(run, wide_model):
    words = ("predict", wide_model, "--num-samples", 3)
    one, same, other = (run(*words, "--seed", seed).stdout for seed in (1, 1, 2))
    assert one == same != other
    assert [name for name in one.splitlines()[0].split(",") if "north" in name] == [
        "north", "north_sample_0", "north_sample_1", "north_sample_2",
    ]  # fmt: skip


def test_known_covariates_come_from_a_second_file(run, tables, long_model):
    result = run("predict", long_model, tables / "long.csv", "--future", tables / "plan.csv")
    assert result.exit_code == 0, result.output
    found = read(result, dtype={"shop": str}, keep_default_na=False)
    assert found.columns.tolist() == ["shop", "day", "sold"]
    assert found["shop"].tolist() == ["007"] * 7 + ["NA"] * 7
    assert found["day"].iloc[0] == "2024-04-03"
    history = long_table().query("day < '2024-04-03'")
    future = long_table().query("day >= '2024-04-03'")[["shop", "day", "promo"]]
    expected = MLRForecaster.load(long_model).predict(history, future=future)
    np.testing.assert_allclose(found["sold"], expected["sold"])


def test_what_is_missing_of_the_future_is_told_by_its_file(run, tables, long_model, tmp_path):
    lines = (tables / "plan.csv").read_text().splitlines(keepends=True)
    (tmp_path / "short.csv").write_text("".join(lines[:-1]))
    result = run("predict", long_model, tables / "long.csv", "--future", "short.csv")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: 'short.csv' lacks 1 of the 14 rows to be forecast")
    result = run("predict", long_model, tables / "long.csv")
    assert result.stderr.startswith(
        "Error: `--future` is needed: a frame with the known covariates"
    )


@pytest.mark.parametrize("name", ["out.csv", "deep/out.csv.gz", "out.parquet"])
def test_a_forecast_goes_to_a_file(run, wide_model, tmp_path, name):
    result = run("predict", wide_model, "--out", name)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert result.stderr == f"Wrote 6 rows to {name}.\n"
    form = _tables.form_of(name, None, "--out")
    table = _tables.read_table(str(tmp_path / name), form=form)
    assert table.columns.tolist() == ["time", "north", "south"]
    assert len(list(tmp_path.iterdir())) == 1


def test_json_holds_the_forecast_or_where_it_is(run, wide_model):
    told = json.loads(run("predict", wide_model, "--json").stdout)
    assert (told["rows"], told["columns"]) == (6, ["time", "north", "south"])
    assert told["forecast"][0]["time"] == "2024-01-09T00:00:00"
    assert told["forecast"][5]["south"] == pytest.approx(
        read(run("predict", wide_model))["south"].iloc[5]
    )
    told = json.loads(run("predict", wide_model, "--json", "--out", "a.csv").stdout)
    assert told == {"out": "a.csv", "rows": 6, "columns": ["time", "north", "south"]}


def test_parquet_keeps_the_zone_and_csv_writes_the_offset(run, tmp_path):
    zone = pd.date_range("2024-03-29", periods=60, freq="h", tz="Europe/Berlin")
    pd.DataFrame({"load": np.arange(60.0) % 24}, index=zone).to_parquet(tmp_path / "d.parquet")
    result = run("fit", "d.parquet", "--prediction-length", 24, "--out", "m", *SMALL)
    assert result.exit_code == 0, result.output
    stamps = read(run("predict", "m", "d.parquet"))["timestamp"]
    # The clocks have moved on since the history began.
    assert stamps.iloc[0] == "2024-03-31T13:00:00+02:00"
    run("predict", "m", "d.parquet", "--out", "f.parquet")
    assert str(pd.read_parquet(tmp_path / "f.parquet")["timestamp"].dt.tz) == "Europe/Berlin"


def test_numbers_stay_integer_time(run, tmp_path):
    table = pd.DataFrame({"ds": np.arange(0, 300, 5), "y": np.arange(60.0) % 7})
    table.to_csv(tmp_path / "d.csv", index=False)
    run("fit", "d.csv", "--prediction-length", 3, "--out", "m", "--freq", 5, *SMALL)
    assert read(run("predict", "m", "d.csv"))["ds"].tolist() == [300, 305, 310]


def test_what_pandas_wrote_with_its_index_is_read(run, tmp_path):
    wide_table().set_index("time").rename_axis(None).to_csv(tmp_path / "d.csv")
    assert run("fit", "d.csv", "--prediction-length", 3, "--out", "m", *SMALL).exit_code == 0
    found = read(run("predict", "m", "d.csv", "--quantile-levels", "0.9"))
    assert found.columns.tolist() == ["timestamp", "north", "north_0.9", "south", "south_0.9"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "There is no folder 'nowhere'"),
        (["{model}", "nowhere.csv"], "There is no file 'nowhere.csv'."),
        (["{model}", "--out", "a.xlsx"], "`--out` must end in .csv, "),
        (["{model}", "--quantile-levels", "0.1,x"], "'0.1,x' is not a list of numbers"),
        (["{model}", "--quantile-levels", "2"], "must be different levels in (0, 1)"),
        (["{model}", "--num-samples", "3", "--quantile-levels", "0.5"], "do not go together"),
        (["{model}", "-", "--future", "-"], "cannot both be '-'"),
        (["{model}", "d.csv", "--out", "d.csv"], "which is read. Name another file."),
        (["{model}", "d.csv"], "Time stamps must be regular, but 'd.csv' has a gap: "),
        (["{model}", "--future", "d.csv"], "'d.csv' was given, but there are no known covariates"),
    ],
)
def test_what_predict_refuses(run, tmp_path, wide_model, words, message):
    (tmp_path / "d.csv").write_text("when,y\n2024-01-01,1\n2024-01-02,2\n")
    result = run("predict", *(word.format(model=wide_model) for word in words))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert message in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["d.csv"]


def test_stdin_to_stdout(run, tables, wide_model):
    text = (tables / "wide.csv").read_text()
    through = run("predict", wide_model, "-", stdin=text)
    assert through.stdout == run("predict", wide_model, tables / "wide.csv").stdout
    fitted = run(
        "fit", "-", "--prediction-length", 6, "--out", "m", "--with-context", *SMALL, stdin=text
    )
    assert fitted.exit_code == 0, fitted.output
    assert run("predict", "m").stdout == through.stdout


def test_an_unexpected_defect_is_no_input_error(run, wide_model, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("a defect")

    monkeypatch.setattr(MLRForecaster, "predict", broken)
    result = run("predict", wide_model)
    assert (result.exit_code, type(result.exception)) == (1, RuntimeError)


def test_one_target_is_a_name():
    forecaster = build_forecaster({"prediction_length": 3, "target": ("a",), "freq": "D"}, [])
    assert (forecaster.target, forecaster.freq) == ("a", "D")


def test_settings_are_checked_by_name():
    with pytest.raises(click.BadParameter, match="has an option: --max-steps"):
        build_forecaster({"prediction_length": 3, "max_steps": None}, [("max_steps", 3)])


def test_a_pipe_of_processes(tables, wide_model, python, tmp_path):
    text = (tables / "wide.csv").read_text()
    result = python("-m", "mlrforecast", "predict", str(wide_model), "-", stdin=text)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("\n") == 7
    assert list(tmp_path.iterdir()) == []


def test_no_bar_is_drawn_where_stderr_is_no_terminal(tables, python):
    result = python(
        "-m", "mlrforecast", "fit", str(tables / "wide.csv"), "--prediction-length", "6",
        "--out", "m", *SMALL,
    )  # fmt: skip
    assert result.returncode == 0
    assert [line.split()[0] for line in result.stderr.splitlines()] == ["Fitted", "Saved"]
    assert result.stdout == ""


def test_ctrl_c_stops_a_process_in_the_middle_of_training(tables, tmp_path):
    code = (
        "import os, signal, threading, time\n"
        "from mlrforecast.cli import main\n"
        "from mlrforecast.training import run\n"
        "step = run.ForecastModule.training_step\n"
        "def training_step(self, batch):\n"
        "    if self.global_step == 3:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0.1)\n"
        "    return step(self, batch)\n"
        "run.ForecastModule.training_step = training_step\n"
        f"main(['fit', {str(tables / 'wide.csv')!r}, '--prediction-length', '6', '--out', 'm',\n"
        "    '--max-steps', '100000', '--quiet'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "Stopped.")
    assert list(tmp_path.iterdir()) == []
