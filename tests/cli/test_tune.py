"""``tune``: from a table to the best model, with all that is told of the trials."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from mlrforecast import MLRForecaster
from mlrforecast.cli import _tune, main
from mlrforecast.cli._tune_files import read_space
from mlrforecast.tuning import presets, tune
from tests.cli.conftest import wide_table

NETWORK = (
    *("--max-steps", "2", "--context-length", "24", "--set", "num_heads=2"),
    *("--set", "num_layers=1", "--set", "hidden_width=8", "--set", "batch_size=4"),
)
SPACE = ("--space", "width=choice(8,16)", "--space", "learning_rate=loguniform(1e-4,1e-2)")
LOCAL = ("--executor", "local", "--folds", "2", "--reports", "2")
SWEEP = ("--prediction-length", "6", *NETWORK, *SPACE, *LOCAL)
FILES = {"command.json", "curves.csv", "model", "report.png", "sweep", "trials.csv"}


class CaughtError(Exception):
    """Raised in place of a sweep."""


@pytest.fixture
def caught(monkeypatch):
    """What ``tune`` is called with; it is not run."""
    calls = []

    def catch(*arguments, **options):
        calls.append((*arguments, options))
        raise CaughtError

    monkeypatch.setattr(_tune, "tune", catch)
    return calls


@pytest.fixture(scope="module")
def swept(tables, tmp_path_factory):
    """A sweep of three trials, and what was told of it."""
    folder = tmp_path_factory.mktemp("swept")
    words = ["tune", tables / "wide.csv", *SWEEP, "--num-samples", 3, "--out", folder / "s"]
    result = CliRunner().invoke(main, [*map(str, words)], prog_name="mlrforecast")
    assert result.exit_code == 0, result.output
    return folder / "s", result


def test_the_folder_holds_what_the_help_says(swept, tables):
    folder, result = swept
    assert {path.name for path in folder.iterdir()} == FILES
    trials = pd.read_csv(folder / "trials.csv")
    assert trials["status"].tolist() == ["finished"] * 3
    assert {"trial", "score", "fold_1", "fold_2", "seconds", "error", "width"} <= {*trials}
    curves = pd.read_csv(folder / "curves.csv")
    assert list(curves) == ["trial", "iteration", "fold", "score"]
    assert len(curves) == 3 * 2 * 2
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG")
    shown = result.stdout.splitlines()
    assert shown[0] == "3 trials: 3 finished. The best:"
    assert shown[1].split() == [
        *("trial", "status", "MASE", "width", "learning_rate", "seconds"),
    ]
    assert [int(line.split()[0]) for line in shown[2:]] == trials["trial"].tolist()
    table = tables / "wide.csv"
    assert result.stderr.endswith(f"Next: mlrforecast predict {folder / 'model'} {table}\n")


def test_the_trials_and_the_model_are_those_of_the_library(swept):
    folder, _ = swept
    best = pd.read_csv(folder / "trials.csv").iloc[0]
    forecaster = MLRForecaster(
        6,
        context_length=24,
        max_steps=2,
        num_heads=2,
        num_layers=1,
        hidden_width=8,
        batch_size=4,
        progress=False,
    )
    space = read_space([SPACE[1], SPACE[3]], None)
    frame = wide_table()
    options = {"folds": 2, "reports": 2, "executor": "local", "progress": False}
    same = tune(forecaster, frame, space, num_samples=3, **options)
    np.testing.assert_allclose(same.best_score, best["score"], rtol=1e-6)
    loaded = MLRForecaster.load(folder / "model")
    assert loaded.progress
    assert loaded.learning_rate == same.best_config["learning_rate"]
    pd.testing.assert_frame_equal(loaded.predict(frame), same.best_estimator.predict(frame))


def test_what_is_done_is_not_done_again(swept, run):
    folder, _ = swept
    files = sorted((folder / "sweep" / "trials").iterdir())
    times = [path.stat().st_mtime_ns for path in files]
    result = run("tune", "--resume", folder, "--json", "--quiet")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert [path.stat().st_mtime_ns for path in files] == times
    told = json.loads(result.stdout)
    trials = pd.read_csv(folder / "trials.csv")
    assert [*told] == ["out", "metric", "trials", "status", "best", "failed"]
    assert told["status"] == {"finished": 3}
    (best,) = told["best"]
    assert best["trial"] == trials["trial"][0]
    assert best["score"] == pytest.approx(trials["score"][0])
    assert best["config"].keys() == {"width", "learning_rate"}
    assert best["model"] == str(folder / "model")
    assert told["failed"] == []


def test_what_is_left_is_done(swept, run):
    folder, _ = swept
    before = pd.read_csv(folder / "trials.csv").set_index("trial")["score"]
    (folder / "sweep" / "trials" / "00001.json").unlink()
    assert run("tune", "--resume", folder, "--quiet").exit_code == 0
    after = pd.read_csv(folder / "trials.csv").set_index("trial")["score"]
    pd.testing.assert_series_equal(after.sort_index(), before.sort_index())


def test_a_sweep_that_is_resumed_must_be_the_same(swept, run):
    folder, _ = swept
    before = (folder / "command.json").read_bytes()
    result = run("tune", "--resume", folder, "--seed", 3)
    assert result.exit_code == 2
    assert "settings.seed was 0 and is 3" in result.stderr
    assert (folder / "command.json").read_bytes() == before


def test_several_horizons_have_a_model_each(run, tables, tmp_path):
    words = ("--prediction-length", "6", *NETWORK, *LOCAL, "--set", "width=8")
    grid = ("--space", "prediction_length=grid(4,6)", "--num-samples", 1)
    result = run("tune", tables / "wide.csv", *words, *grid, "--out", "s", "--json")
    assert result.exit_code == 0, result.output
    best = json.loads(result.stdout)["best"]
    assert [entry["config"] for entry in best] == [
        {"prediction_length": 4},
        {"prediction_length": 6},
    ]
    for entry, length in zip(best, (4, 6), strict=True):
        assert MLRForecaster.load(tmp_path / entry["model"]).prediction_length == length
    assert {path.name for path in (tmp_path / "s").iterdir()} == (
        FILES - {"model"} | {"model-4", "model-6"}
    )


def test_failed_trials_are_told_with_their_reason(run, tables, tmp_path):
    # A rate of that size is no error until the training diverges.
    words = ("--prediction-length", "6", *NETWORK, *LOCAL, "--set", "gradient_clip=None")
    space = ("--space", "learning_rate=grid(1e-3,1e30)", "--num-samples", 1)
    result = run("tune", tables / "wide.csv", *words, *space, "--out", "s")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("2 trials: 1 finished, 1 failed.")
    assert "Trial 1: FloatingPointError: " in result.stderr
    assert (tmp_path / "s" / "report.png").exists()


def test_every_option_reaches_the_sweep(run, caught, tables, tmp_path):
    (tmp_path / "env.json").write_text('{"pip": ["a.whl"]}')
    words = (
        "--prediction-length 6 --out s --target north --num-samples 7 --metric CRPS --folds 4 "
        "--windows 5 --step 2 --reports 3 --scheduler asha --searcher optuna --executor ray "
        "--seed 9 --cpus 2 --gpus 0.5 --max-concurrent 8 --max-failures 1 --max-time 60 "
        "--address auto --storage s3://bucket/sweep --runtime-env env.json --loss student_t "
        "--set width=16 --early-stopping --space dropout=uniform(0,0.4)"
    )
    result = run("tune", tables / "wide.csv", *words.split())
    assert isinstance(result.exception, CaughtError)
    ((forecaster, frame, space, options),) = caught
    assert frame.columns.tolist() == ["time", "north", "south"]
    assert space["dropout"].support() == (0, 0.4)
    assert (forecaster.target, forecaster.loss, forecaster.width) == ("north", "student_t", 16)
    assert forecaster.early_stopping
    assert options == {
        "num_samples": 7,
        "metric": "CRPS",
        "folds": 4,
        "windows": 5,
        "step": 2,
        "reports": 3,
        "scheduler": "asha",
        "searcher": "optuna",
        "executor": "ray",
        "seed": 9,
        "resources": {"cpu": 2.0, "gpu": 0.5},
        "max_concurrent": 8,
        "max_failures": 1,
        "max_time": 60.0,
        "address": "auto",
        "storage_path": "s3://bucket/sweep",
        "runtime_env": {"pip": ["a.whl"]},
        "resume": False,
        "progress": False,
    }
    assert list(tmp_path.iterdir()) == [tmp_path / "env.json"]


def test_defaults_are_those_of_the_library(run, caught, tables):
    run("tune", tables / "wide.csv", "--prediction-length", 6, "--out", "s")
    ((forecaster, _, space, options),) = caught
    assert space is None
    assert forecaster.get_params() == MLRForecaster(6, progress=False).get_params()
    assert options == {
        "resources": {"cpu": 1},
        "storage_path": "s/sweep",
        "resume": False,
        "progress": False,
    }


def test_a_preset_says_what_is_not_said(run, caught, tables):
    words = ("--preset", "paper-etth1", "--set", "width=64", "--folds", 2, "--out", "s")
    run("tune", tables / "wide.csv", "--target", "north", *words)
    ((forecaster, frame, space, options),) = caught
    preset = presets["paper-etth1"]
    expected = preset.forecaster(width=64, target="north", progress=False)
    assert forecaster.get_params() == expected.get_params()
    assert len(frame) == 192
    assert space is preset.space
    assert {name: options[name] for name in preset.options} == {**preset.options, "folds": 2}


def test_a_preset_brings_its_data(run, caught, monkeypatch):
    frame = wide_table()
    monkeypatch.setattr(type(presets["etth1"]), "load", lambda self: frame)
    run("tune", "--preset", "etth1", "--out", "s")
    ((forecaster, found, _, _),) = caught
    assert found is frame
    assert forecaster.prediction_length == 96
    assert forecaster.target is None


@pytest.fixture
def stopped(monkeypatch):
    """What ``tune`` is called with; it is stopped by Ctrl-C when it has begun."""
    calls = []

    def begin(*arguments, storage_path, **options):
        calls.append((*arguments, options | {"storage_path": storage_path}))
        Path(storage_path).mkdir(parents=True, exist_ok=True)
        (Path(storage_path) / "sweep.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(_tune, "tune", begin)
    return calls


def test_a_resumed_sweep_has_the_options_that_it_was_begun_with(run, stopped, tables, tmp_path):
    (tmp_path / "space.json").write_text('{"width": [8, 16]}')
    words = ("--target", "north", "--set", "ranks=(4,4)", "--space-file", "space.json")
    run("tune", tables / "wide.csv", "--prediction-length", 6, "--out", "s", *words)
    run("tune", "--resume", "s", "--max-concurrent", 2)
    first, last = stopped
    assert first[0].get_params() == last[0].get_params()
    assert last[0].ranks == (4, 4)
    pd.testing.assert_frame_equal(first[1], last[1])
    assert first[2] == last[2] == {"width": [8, 16]}
    assert last[3] == first[3] | {"max_concurrent": 2, "resume": True}


def test_data_from_stdin_are_to_be_given_again(run, stopped, tables):
    text = (tables / "wide.csv").read_text()
    run("tune", "-", "--prediction-length", 6, "--out", "s", stdin=text)
    result = run("tune", "--resume", "s")
    assert result.exit_code == 2
    assert "DATA came from stdin: give it again." in result.stderr
    run("tune", "-", "--resume", "s", stdin=text)
    pd.testing.assert_frame_equal(stopped[0][1], stopped[1][1])


def test_ctrl_c_says_how_to_go_on(run, stopped, tables, tmp_path):
    result = run("tune", tables / "wide.csv", *SWEEP, "--out", "s")
    assert result.exit_code == 130
    assert "To go on with the sweep: mlrforecast tune --resume s" in result.stderr
    assert {path.name for path in (tmp_path / "s").iterdir()} == {"command.json", "sweep"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "s"], "DATA is needed without --preset."),
        (["DATA", "--out", "s"], "--prediction-length is needed without --preset."),
        (["DATA", *SWEEP], "One of --out and --resume is needed."),
        (["DATA", *SWEEP, "--out", "s", "--resume", "t"], "One of --out and --resume is needed."),
        (["DATA", *SWEEP, "--out", "s", "--preset", "etth1"], "--space and --preset do not go"),
        (["DATA", *SWEEP, "--out", "s", "--space-file", "x.json"], "do not go together"),
        (["--preset", "etth2", "--out", "s"], "must be one of etth1, paper-etth1, got 'etth2'"),
        (["--resume", "nowhere"], "'nowhere' has no command.json"),
        (["DATA", *SWEEP, "--out", "s", "--space", "width"], "must be NAME=SPACE, got 'width'"),
        (["DATA", *SWEEP, "--out", "s", "--space", "width=[8]"], "names 'width' twice"),
        (["DATA", *SWEEP, "--out", "s", "--space", "dropout=8"], "must be loguniform(LOW,HIGH)"),
        (["DATA", *SWEEP, "--out", "s", "--space", "widht=[8]"], "Did you mean 'width'?"),
        (["DATA", *SWEEP, "--out", "s", "--space", "target=[8]"], "must not name 'target'"),
        (["DATA", *SWEEP, "--out", "s", "--metric", "mase"], "`metric` must be one of MASE"),
        (["DATA", *SWEEP, "--out", "s", "--scheduler", "asha"], "needs executor='ray'"),
        (["DATA", *SWEEP, "--out", "s", "--set", "width=3"], "`num_heads` must divide"),
        (["DATA", *SWEEP, "--out", "s", "--space", "num_layers=[0]"], "'num_layers': 0"),
        (["DATA", *SWEEP, "--out", "s", "--target", "nort"], "wide.csv' has no column 'nort'"),
        (["DATA", *SWEEP, "--out", "s", "--folds", "999"], "wide.csv"),
        (["DATA", *SWEEP, "--out", "s", "--runtime-env", "none.json"], "none.json"),
    ],
)
def test_what_is_refused_is_told_in_a_line_and_leaves_nothing(
    run, tables, tmp_path, words, message
):
    words = [tables / "wide.csv" if word == "DATA" else word for word in words]
    result = run("tune", *words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert message in " ".join(result.stderr.split())
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_empty_is_refused(run, tables, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "notes.txt").write_text("mine")
    result = run("tune", tables / "wide.csv", *SWEEP, "--out", "s")
    assert result.exit_code == 2
    assert "`--out` cannot be 's': it is not empty." in result.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=choice(8,16)", [8, 16]),
        ("a=[8, 16]", [8, 16]),
        ("a=choice(mlr, standard)", ["mlr", "standard"]),
        ("a=choice((2,1,1),None)", [(2, 1, 1), None]),
        ("a=grid(1e-5,2e-4)", {"grid_search": [1e-5, 2e-4]}),
        ("a=choice(-1, 1.5, True)", [-1, 1.5, True]),
    ],
)
def test_spaces_are_read(text, expected):
    assert read_space([text], None) == {"a": expected}


def test_distributions_are_read():
    space = read_space(["a=loguniform(1e-4,1e-2)", "b=uniform(0.1,0.5)", "c=randint(2,5)"], None)
    assert [space[name].dist.name for name in "abc"] == ["loguniform", "uniform", "randint"]
    for name, support in zip("abc", [(1e-4, 1e-2), (0.1, 0.5), (2, 4)], strict=True):
        np.testing.assert_allclose(space[name].support(), support)


@pytest.mark.parametrize(
    "text",
    [
        *("a=8", "a=mlr", "a=loguniform", "a=normal(0,1)", "a=loguniform(1)", "a=uniform(1,0)"),
        *("a=loguniform(0,1)", "a=randint(0,1.5)", "a=uniform(a,b)", "a=choice(x=1)", "a=(1,2)"),
        *("a=choice(open('x'))", "a=__import__('os')", "a=choice(1,", "a=[x for x in y]", "=[1]"),
    ],
)
def test_what_is_no_space_is_refused(text):
    with pytest.raises(ValueError, match="--space"):
        read_space([text], None)


def test_spaces_are_read_from_files(tmp_path):
    (tmp_path / "s.toml").write_text('width = [8, 16]\nlearning_rate = "loguniform(1e-4, 1e-2)"\n')
    (tmp_path / "s.json").write_text('{"width": {"grid_search": [8, 16]}, "seed": "grid(0, 1)"}')
    space = read_space([], tmp_path / "s.toml")
    assert space["width"] == [8, 16]
    assert space["learning_rate"].support() == (1e-4, 1e-2)
    assert read_space([], tmp_path / "s.json") == {
        "width": {"grid_search": [8, 16]},
        "seed": {"grid_search": [0, 1]},
    }


@pytest.mark.parametrize("content", ["[1]", "{", '{"width": "8"}'])
def test_a_file_that_holds_no_space_is_refused(tmp_path, content):
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(ValueError, match=r"s\.json"):
        read_space([], tmp_path / "s.json")
