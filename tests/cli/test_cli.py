"""The command as a user meets it: help, errors, tables, files."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest

import mlrforecast
from mlrforecast import MLRForecaster
from mlrforecast.cli import _app, _benchmark, _demo
from mlrforecast.data import load_dataset
from mlrforecast.nn import attentions


def commands(group=_app.main, path=()):
    """Every command and group below a group, with the words that call it."""
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


WORDS = [words for words, _ in commands()]


def test_version_and_help(run):
    result = run("--version")
    assert (result.exit_code, result.output) == (0, f"mlrforecast {mlrforecast.__version__}\n")
    assert {" ".join(words) for words in WORDS} == {
        *("backtest", "benchmark", "benchmark ett", "completion", "datasets"),
        *("datasets fetch", "datasets info", "datasets list", "datasets verify"),
        *("demo", "fit", "icl", "icl eval", "icl plot", "icl train", "lm", "lm eval"),
        *("lm generate", "lm plot", "lm prepare", "lm train", "plot", "predict", "pretrain"),
        *("synthesize", "synthesize kernels", "synthesize mixtures", "tune"),
    }
    for words in ((), *WORDS):
        result = run(*words, "--help")
        assert result.exit_code == 0
        assert result.output.startswith(" ".join(["Usage: mlrforecast", *words]))
        assert re.search(r"\n  Examples?:\n    .*mlrforecast ", result.output)


def test_the_list_of_commands_tells_each_in_full(run):
    assert "..." not in run("--help").output.partition("Commands:")[2]


@pytest.mark.parametrize("words", [(), *WORDS], ids=" ".join)
def test_examples_of_the_help_are_commands(run, words):
    examples = run(*words, "--help").output.partition("Example")[2].replace("\\\n", " ")
    lines = [line.split(" > ")[0] for line in examples.splitlines() if "  mlrforecast " in line]
    known = dict(commands())
    for line in lines:
        called = tuple(line.split()[1:])
        words = max((found for found in known if called[: len(found)] == found), key=len)
        context = known[words].make_context(words[-1], [*called[len(words) :]])
        assert not isinstance(context.command, click.Group)
    assert lines or words == ("completion",)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_help_imports_nothing_heavy(python, words):
    code = (
        "import sys; from mlrforecast.cli import main\n"
        f"main([*{words!r}, '--help'], standalone_mode=False)\n"
        "print(sorted({'torch', 'pandas', 'numpy', 'matplotlib', 'sklearn'} & set(sys.modules)))"
    )
    result = python("-c", code)
    assert result.stdout.splitlines()[-1] == "[]", result.stderr


def test_the_module_runs_as_the_command_does(python, tmp_path):
    start = time.perf_counter()
    result = python("-m", "mlrforecast", "--version")
    assert result.stdout == f"mlrforecast {mlrforecast.__version__}\n"
    assert time.perf_counter() - start < 5
    assert list(tmp_path.iterdir()) == []


def test_an_expected_error_is_one_line_and_code_2(run, tmp_path):
    result = run("demo", "--data", "nowhere")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "Error: `--data` must be synthetic, download or an existing folder, got 'nowhere'.\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_the_file_is_named_in_one_line(python, tmp_path):
    (tmp_path / "empty").mkdir()
    elsewhere = {"MLRFORECAST_DATA": "", "XDG_CACHE_HOME": str(tmp_path)}
    words = ("-m", "mlrforecast", "demo", "--data", "empty")
    result = python(*words, **elsewhere)
    assert result.returncode == 2
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert "ETTh1.csv" in result.stderr


@pytest.mark.parametrize("broken_link", [False, True])
def test_a_named_folder_is_the_only_one_looked_through(run, tmp_path, monkeypatch, broken_link):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "ETTh1.csv").write_text("another file of that name")
    (tmp_path / "empty").mkdir()
    if broken_link:
        (tmp_path / "empty" / "ETTh1.csv").symlink_to(tmp_path / "nowhere")
    monkeypatch.setenv("MLRFORECAST_DATA", str(tmp_path / "full"))
    result = run("demo", "--data", "empty")
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: `--data` must be a folder that holds ETTh1.csv or ETTh1.csv.xz, at any depth; "
        "there is none in 'empty'.\n"
    )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["demo", "--out", "f/sub/x.png"], "'f' is no folder"),
        (["demo", "--out", "locked/new/x.png"], "no right to write to 'locked'"),
        (["demo", "--out", "link/x.png"], "'link' is no folder"),
        (["demo", "--out", "sealed.png"], "no right to write to 'sealed.png'"),
        (["benchmark", "ett", "--out", "f/sub"], "'f' is no folder"),
        (["benchmark", "ett", "--out", "locked"], "no right to write to 'locked'"),
    ],
)
def test_where_nothing_can_be_written_nothing_is_begun(run, tmp_path, monkeypatch, words, named):
    (tmp_path / "f").write_text("a file")
    (tmp_path / "locked").mkdir()
    (tmp_path / "sealed.png").write_text("a file")
    (tmp_path / "link").symlink_to("nowhere")
    # The tests may run as a user who may write everywhere.
    sealed = ("locked", "sealed.png")
    monkeypatch.setattr(
        "os.access", lambda path, mode: not mode & os.W_OK or Path(path).name not in sealed
    )
    monkeypatch.setattr(_demo, "run_demo", lambda *_, **__: pytest.fail("begun"))
    monkeypatch.setattr(_benchmark, "run_and_report", lambda *_, **__: pytest.fail("begun"))
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: `--out` cannot be ")
    assert named in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_error_of_the_system_is_one_line(run, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device", "demo.png")

    monkeypatch.setattr(_demo, "run_demo", full)
    result = run("demo")
    assert result.exit_code == 2
    assert result.stderr == "Error: [Errno 28] No space left on device: 'demo.png'\n"


def test_a_reader_that_has_gone_is_no_error(run, monkeypatch):
    def gone(*args, **kwargs):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(_demo, "run_demo", gone)
    result = run("demo")
    assert (result.exit_code, result.stderr) == (1, "")


def test_the_traceback_can_be_asked_for(run, monkeypatch):
    result = run("--traceback", "demo", "--data", "nowhere")
    assert isinstance(result.exception, FileNotFoundError)
    monkeypatch.setenv("MLRFORECAST_TRACEBACK", "1")
    assert isinstance(run("demo", "--data", "nowhere").exception, FileNotFoundError)


def test_an_unexpected_error_keeps_its_traceback(run, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("a defect")

    monkeypatch.setattr(_demo, "run_demo", broken)
    assert isinstance(run("demo").exception, RuntimeError)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--horizons", "96,x"], "'96,x' is not a list of whole numbers"),
        (["--set", "width"], "must be NAME=VALUE, got 'width'"),
        (["--set", "seed=3"], "`options` must not hold ['seed']"),
        (
            ["--dataset", "synthetic", "--horizons", "24", "--set", "widht=3"],
            "`options` must hold arguments of MLRForecaster only",
        ),
        (["--attention", "mrl"], "`attention` must hold names of ['bilinear'"),
        (["--horizons", "96,96"], "`horizons` must hold distinct entries"),
        (["--seeds", "0"], "0 is not in the range"),
        (["--dataset", "synthetic", "--horizons", "24", "--set", "width=abc"], "The 'width' param"),
        (
            ["--dataset", "synthetic", "--horizons", "24", "--context-length", "99999", "--final"],
            "`context_length` must be at most 1008",
        ),
        (["--dataset", "ETTh9"], "Unknown data set 'ETTh9'"),
    ],
)
def test_benchmark_errors(run, tmp_path, words, message):
    result = run("benchmark", "ett", "--out", "results", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_benchmark_options_reach_the_benchmark(run, monkeypatch):
    calls = []

    def caught(config, *, out, jobs):
        calls.append((config, out, jobs))
        yield "the table"

    monkeypatch.setattr(_benchmark, "run_and_report", caught)
    words = "--dataset ETTh2 --horizons 96,192 --attention mlr --seeds 2 --target OT --final"
    more = "--max-steps 50 --context-length 96 --set learning_rate=5e-4 --set ranks=(4,2)"
    result = run(
        "benchmark", "ett", *words.split(), *more.split(), "--set", "loss=mae", "--jobs", "3",
        "--root", "data", "--out", "results",
    )  # fmt: skip
    assert result.output == "the table\n"
    ((config, out, jobs),) = calls
    assert (config.dataset, config.horizons, config.attention) == ("ETTh2", (96, 192), ("mlr",))
    assert (config.seeds, config.target, config.final) == (2, "OT", True)
    assert (config.root, out, jobs) == (Path("data"), Path("results"), 3)
    assert config.options == {
        "max_steps": 50,
        "context_length": 96,
        "learning_rate": 5e-4,
        "ranks": (4, 2),
        "loss": "mae",
    }


def test_defaults_are_those_of_the_python_interface(run, monkeypatch):
    from mlrforecast.benchmark import EttConfig

    calls = []
    monkeypatch.setattr(
        _benchmark, "run_and_report", lambda config, *, out, jobs: calls.append(config) or []
    )
    run("benchmark", "ett", "--out", "results")
    assert calls == [EttConfig()]


def test_a_real_benchmark_from_the_command_line(run, tmp_path):
    words = "benchmark ett --dataset synthetic --horizons 24 --attention mlr --seeds 1 --final"
    result = run(*words.split(), "--max-steps", "1", "--out", "results")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert "synthetic, target M, test windows" in lines[0]
    assert lines[-3].split() == ["windows", "145"]
    assert lines[-2:] == [
        "Full test windows, none dropped: 145",
        "Final runs on record in results: 1",
    ]
    written = pd.read_csv(tmp_path / "results" / "synthetic_M_final.csv", dtype={"seed": "Int64"})
    model = written[written["model"] == "MLRForecaster"].iloc[0]
    assert (model["attention"], model["seed"], model["windows"]) == ("mlr", 0, 145)
    assert model["parameters"] > 100
    assert model["command"].startswith("mlrforecast benchmark ett --dataset synthetic")
    assert str(tmp_path) not in (tmp_path / "results" / "synthetic_M_final.csv").read_text()


@pytest.mark.slow
def test_processes_give_the_rows_of_one_process(run, python, tmp_path):
    words = "benchmark ett --dataset synthetic --horizons 24 --seeds 1 --final --max-steps 1"
    assert run(*words.split(), "--out", "one").exit_code == 0
    result = python("-m", "mlrforecast", *words.split(), "--jobs", "2", "--out", "two")
    assert result.returncode == 0, result.stderr
    one, two = (
        pd.read_csv(tmp_path / name / "synthetic_M_final.csv").sort_values(["model", "attention"])
        for name in ("one", "two")
    )
    assert one["config_hash"].tolist() == two["config_hash"].tolist()
    np.testing.assert_allclose(one["mse"], two["mse"], rtol=1e-4)
    assert one["command"].iloc[0].endswith("--out one")
    assert two["command"].iloc[0].endswith("--jobs 2 --out two")


def test_the_demo_scores_draws_and_says_where(run, tmp_path):
    result = run("demo", "--max-steps", "1", "--out", "pictures/seen.png")
    assert result.exit_code == 0, result.output
    table = [line for line in result.stdout.splitlines() if line.startswith("  ") or "(" in line]
    names = ("MLRForecaster", "repeat last", "seasonal naive", "mean of 7 seasons")
    for name in names:
        assert sum(line.startswith(name) for line in table) == 1
    assert "WQL" in result.stdout
    assert "80 % interval" in result.stdout
    assert result.stdout.endswith(f"{Path('pictures/seen.png')}\n")
    picture = (tmp_path / "pictures" / "seen.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000
    assert [path.name for path in tmp_path.iterdir()] == ["pictures"]


def test_the_demo_refuses_another_kind_of_file(run, tmp_path):
    result = run("demo", "--out", "seen.exe")
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "must name a .png file" in result.stderr


def test_demo_floors_are_scored_on_the_test_windows():
    dataset = load_dataset("synthetic")
    floors = _demo._floors(dataset, 145)
    values = dataset.targets.to_numpy()
    horizon, start = dataset.prediction_length, dataset.splits["test"].start
    for window in (0, 80, 144):
        cut = start + window
        for name, season in (("seasonal naive", 24), ("repeat last", 1)):
            for step in range(horizon):
                rows = values[cut - 168 : cut]
                phase = rows[(len(rows) + step) % season :: season]
                for channel in range(3):
                    seen = phase[:, channel][~np.isnan(phase[:, channel])]
                    assert floors[name][window, step, channel] == seen[-1]


def test_every_option_and_argument_is_told_of():
    for words, command in commands():
        assert command.help
        for parameter in command.params:
            if isinstance(parameter, click.Argument):
                assert parameter.name.upper() in command.help
            else:
                assert parameter.help, f"{words} --{parameter.name}"


def test_choices_are_those_of_the_library(run):
    options = {option.name: option for option in _app.main.commands["fit"].params}
    rules = MLRForecaster._parameter_constraints
    for name in ("fill", "resample", "accelerator"):
        (allowed,) = [rule.options for rule in rules[name] if hasattr(rule, "options")]
        assert set(options[name].type.choices) == allowed
    assert all(name in options["loss"].help for name in rules["loss"][0].options)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_what_the_shell_runs(run, shell):
    result = run("completion", shell)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"_MLRFORECAST_COMPLETE={shell}_complete" in result.stdout
    assert "# To install it, " in result.stdout
    assert f"mlrforecast completion {shell}" in result.stdout
    assert run("completion", "tcsh").exit_code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_takes_the_script(run, tmp_path):
    (tmp_path / "script").write_text(run("completion", "bash").stdout)
    check = subprocess.run(
        ["bash", "-n", str(tmp_path / "script")], capture_output=True, text=True, check=False
    )
    assert (check.returncode, check.stderr) == (0, "")


def test_options_are_completed(python):
    asked = {"_MLRFORECAST_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    result = python("-m", "mlrforecast", COMP_WORDS="mlrforecast fit --calib", **asked)
    assert result.stdout == "plain,--calibrate\n", result.stderr


def test_the_help_names_every_attention(run):
    text = " ".join(run("benchmark", "ett", "--help").output.split())
    listed = text.partition("--attention")[2].partition("--seeds")[0]
    assert all(name in listed for name in attentions)
