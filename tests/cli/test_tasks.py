"""``icl`` and ``lm``: from a file of runs or a folder of text to results, pictures and text."""

import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from mlrforecast.cli import _tasks, main
from mlrforecast.tasks import read_results
from mlrforecast.tasks.in_context_regression import load_regressor
from tests.cli.conftest import ROOT


def settings(**values):
    """Options --set of these settings."""
    return tuple(word for name, value in values.items() for word in ("--set", f"{name}={value}"))


SIZES = {"width": 16, "num_heads": 2, "num_layers": 1, "max_steps": 6, "evaluate_every": 3}
ICL = SIZES | {"num_dims": 2, "num_points": 4, "curriculum_interval": 0, "evaluation_episodes": 8}
LM = SIZES | {"context_length": 32, "batch_size": 2, "evaluation_tokens": 64}
RUNS = """
[common]
name = "{attention}-{seed}"

[[runs]]
attention = "standard"
each = { seed = [0, 1] }

[[runs]]
attention = "bilinear_mlr"
ranks = [4, 4]
"""
CPU = ("--accelerator", "cpu", "--quiet")


def invoke(*words):
    result = CliRunner().invoke(main, [*map(str, words)], prog_name="mlrforecast")
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a file of runs, a corpus, results of both tasks, and what training told."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "runs.toml").write_text(RUNS)
    (folder / "texts").mkdir()
    for n in range(60):
        text = f"The number after {n} is {n + 1}, and the one after that is {n + 2}.\n"
        (folder / "texts" / f"{n}.txt").write_text(text)
    words = ("lm", "prepare", folder / "texts", "--out", folder / "corpus")
    prepared = invoke(*words, "--validation-share", 0.2, "--json")
    icl = ("icl", "train", folder / "runs.toml", *settings(**ICL), "--out", folder / "icl")
    lm = ("lm", "train", *settings(**LM), "--corpus", folder / "corpus", "--out", folder / "lm")
    told = {"prepare": prepared, "icl": invoke(*icl, "--json"), "lm": invoke(*lm, *CPU, "--json")}
    return folder, told


@pytest.fixture
def model(home):
    """Return the folder of the only model of a task whose name begins so."""

    def find(task, name=""):
        (found,) = (home[0] / task / "models").glob(f"{name}*")
        return found

    return find


def listed(command):
    """Fields of JSON that the page on the command line lists."""
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if re.match(rf"\|[^|]*`{command}`", line)]
    return re.search(r"`([a-z_ ]+)`", lines[-1].split("|")[2])[1].split()


def test_training_writes_what_the_library_reads(home):
    folder, _ = home
    for task, count in (("icl", 3), ("lm", 1)):
        runs, curves = read_results(folder / task)
        assert runs["status"].tolist() == ["finished"] * count
        assert len(curves) == 2 * count
        assert len([*(folder / task / "models").iterdir()]) == count
        assert {path.name for path in (folder / task).iterdir()} == {
            *("curves.csv", "models", "runs.csv"),
        } | ({"checkpoints"} & {path.name for path in (folder / task).iterdir()})
        assert runs["command"].str.startswith(f"mlrforecast {task} train").all()
        assert str(folder) not in (folder / task / "runs.csv").read_text()


def test_the_command_of_a_result_repeats_it():
    said = _tasks._said_command(
        ("icl", "train"),
        Path("some/runs.toml"),
        {"ranks": (4, 4)},
        ("mlr-*",),
        {"accelerator": "auto", "devices": 1, "together": 4, "compile": True, "max_time": 1.0},
        out=Path("results"),
    )
    words = shlex.split(said)
    assert words[:4] == ["mlrforecast", "icl", "train", "runs.toml"]
    given = dict(zip(words[4::2], words[5::2], strict=False))
    assert given["--set"] == "ranks=(4, 4)"
    assert given["--only"] == "mlr-*"
    assert given["--together"] == "4"
    assert "--compile" in words
    assert "--devices" not in words


def test_training_tells_the_scores(home):
    folder, told = home
    for task, more in (("icl", {"standard_error", "mean_error"}), ("lm", {"bits"})):
        fields = json.loads(told[task].stdout)
        assert [*fields] == listed(f"{task} train")
        assert fields["unfinished"] == 0
        runs, _ = read_results(folder / task)
        assert [row["name"] for row in fields["runs"]] == runs["name"].tolist()
        for row, score in zip(fields["runs"], runs["score"], strict=True):
            assert {"name", "status", "score"} | more <= {*row}
            assert row["score"] == score
    assert told["lm"].stderr == ""


def test_what_is_done_is_skipped_or_refused(home, run):
    folder, told = home
    words = ("icl", "train", folder / "runs.toml", *settings(**ICL), "--out", folder / "icl")
    before = (folder / "icl" / "runs.csv").read_bytes()
    again = run(*words)
    assert again.exit_code == 2
    assert "`out` holds results of 3 of the runs" in again.stderr
    resumed = run(*words, "--resume", "--json")
    assert json.loads(resumed.stdout) == json.loads(told["icl"].stdout)
    assert (folder / "icl" / "runs.csv").read_bytes() == before
    # Text: a line for each run, with its name and score.
    lines = run(*words, "--resume").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["standard-0", "standard-1", "bilinear_mlr-0"]


def test_runs_of_some_names_alone_are_trained(home, run, tmp_path):
    folder, _ = home
    words = ("icl", "train", folder / "runs.toml", *settings(**ICL), "--out", tmp_path / "some")
    some = run(*words, "--only", "bilinear*", "--only", "standard-1", "--json")
    names = [each["name"] for each in json.loads(some.stdout)["runs"]]
    assert names == ["standard-1", "bilinear_mlr-0"]
    none = run(*words, "--resume", "--only", "mlr")
    assert none.exit_code == 2
    assert none.stderr.strip() == (
        "Error: `--only` must fit the name of a run, such as 'standard-0', got 'mlr'."
    )


def test_training_that_was_stopped_goes_on_to_the_same_weights(home, run, tmp_path):
    steps = settings(**ICL | {"max_steps": 40, "evaluate_every": 20}, attention="standard")
    words = ("icl", "train", *steps, "--accelerator", "cpu")
    stopped = run(*words, "--out", "parts", "--max-time", 1e-9, "--json")
    assert stopped.exit_code == 0, stopped.output
    assert json.loads(stopped.stdout)["unfinished"] == 1
    assert stopped.stderr == "Stopped with 1 of 1 runs unfinished: go on with --resume.\n"
    assert not (tmp_path / "parts" / "runs.csv").exists()
    while json.loads(stopped.stdout)["unfinished"]:
        stopped = run(*words, "--out", "parts", "--resume", "--max-time", 1e-9, "--json")
    assert run(*words, "--out", "whole", "--quiet").exit_code == 0
    models = [next((tmp_path / name / "models").iterdir()) for name in ("parts", "whole")]
    parts, whole = (path / "model.safetensors" for path in models)
    assert parts.read_bytes() == whole.read_bytes()


def test_errors_of_a_regressor_beside_those_of_comparators(home, model, run, tmp_path):
    found = model("icl", "bilinear_mlr")
    words = ("icl", "eval", found, "--episodes", 64)
    result = run(*words, "--out", "errors.csv", "--json")
    fields = json.loads(result.stdout)
    assert [*fields] == listed("icl eval")
    assert fields["model"] == str(found)
    assert fields["episodes"] == 64
    errors = pd.DataFrame(fields["errors"])
    assert [*errors] == ["method", "point", "error", "standard_error"]
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "errors.csv"), errors)
    methods = ["averaging", "k_nearest_neighbours", "least_squares", "ridge", "zero"]
    assert [*errors["method"].unique()] == [*methods, load_regressor(found)[1].name]
    last = errors[errors["point"] == 3].set_index("method")["error"]
    assert last["least_squares"] < 1e-9
    shown = run(*words).stdout.splitlines()
    assert shown[0].split() == ["point", "0", "1", "2", "3"]
    assert [line.split()[0] for line in shown[2:]] == [*errors["method"].unique()]
    # Another seed draws other episodes.
    assert run(*words, "--seed", 1).stdout != run(*words).stdout == run(*words).stdout
    assert run(*words, "--out", "errors.svg", "--quiet").exit_code == 0
    assert "<svg" in (tmp_path / "errors.svg").read_text()


@pytest.mark.parametrize(("task", "hue"), [("icl", "ranks"), ("icl", "seed"), ("lm", "ranks")])
def test_pictures_of_results(home, run, tmp_path, task, hue):
    words = (task, "plot", home[0] / task, "--out", "seen.png", "--x", "width")
    result = run(*words, "--hue", hue, "--json")
    assert result.exit_code == 0, result.output
    assert [*json.loads(result.stdout)] == listed(f"{task} plot")
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["seen.png"]


def test_a_corpus_is_told_of(home):
    folder, told = home
    fields = json.loads(told["prepare"].stdout)
    assert [*fields] == listed("lm prepare")
    assert fields["train_documents"] + fields["validation_documents"] == 60
    assert fields["train_tokens"] + fields["validation_tokens"] == fields["characters"]
    words = ("lm", "prepare", folder / "texts", "--out", folder / "corpus")
    assert "0.00% of the characters were left out." in invoke(
        *words, "--overwrite", "--quiet", "--validation-share", 0.2
    ).stdout  # fmt: skip


def test_the_loss_of_a_language_model(home, model, run):
    words = ("lm", "eval", model("lm"), "--corpus", home[0] / "corpus", "--accelerator", "cpu")
    fields = json.loads(run(*words, "--json").stdout)
    assert [*fields] == listed("lm eval")
    assert (fields["split"], fields["tokens"]) == ("validation", fields["tokens"])
    assert run(*words).stdout == f"{fields['nats']:.4f} nats a token ({fields['bits']:.4f} bits)\n"
    train = json.loads(run(*words, "--split", "train", "--max-tokens", 64, "--json").stdout)
    assert (train["split"], train["tokens"]) == ("train", 64)
    # The whole validation side fits into the tokens of the evaluation of a longer training.
    runs, _ = read_results(home[0] / "lm")
    assert fields["nats"] == pytest.approx(runs["score"][0], rel=0.05)


def test_a_run_that_keeps_documents_apart_is_scored_so(home, run, tmp_path):
    corpus = home[0] / "corpus"
    # All validation tokens: the numbers of the training and of `eval` must agree.
    options = LM | {"documents": True, "evaluation_tokens": 10**6, "learning_rate": 0.03}
    words = ("--corpus", corpus, "--out", "apart", *CPU, "--json")
    trained = json.loads(run("lm", "train", *settings(**options), *words).stdout)
    (found,) = (tmp_path / "apart" / "models").iterdir()
    scored = json.loads(run("lm", "eval", found, "--corpus", corpus, "--json").stdout)
    assert scored["nats"] == pytest.approx(trained["runs"][0]["score"], rel=1e-5)


def test_text_and_what_it_took(model, run):
    words = ("lm", "generate", model("lm"), "--prompt", "The ", "--max-new-tokens", 20, "--seed", 3)
    result = run(*words, "--json")
    fields = json.loads(result.stdout)
    assert [*fields] == listed("lm generate")
    assert fields["prompt"] == "The "
    assert len(fields["text"]) == 20
    assert 0 < fields["cache_bytes"] < fields["full_cache_bytes"]
    assert re.fullmatch(
        r"Kept \d+ KiB of keys and values; attention that keeps all columns would keep \d+ KiB. "
        r"\d+ tokens a second.\n",
        result.stderr,
    )
    quiet = run(*words, "--quiet")
    assert (quiet.stdout, quiet.stderr) == (f"The {fields['text']}\n", "")


SET = settings(**ICL)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("icl", "train"), "`RUNS` or `--set` must be given"),
        (("icl", "train", "gone.toml"), "No such file or directory: 'gone.toml'"),
        (("icl", "train", "bad.toml"), "bad.toml is no TOML file"),
        (("icl", "train", "empty.toml"), "empty.toml must hold a table `common` and at least one"),
        (("icl", "train", "twice.toml"), "twice.toml must hold different runs, and has the same"),
        (("icl", "train", "wrong.toml"), "runs[0] of wrong.toml: `width` must be an integer of"),
        (("icl", "train", *settings(widht=3)), "Unknown settings of a run: widht. Available: "),
        (("icl", "train", *settings(width=2.5)), "`width` must be an integer of at least 1, got"),
        (("icl", "train", *settings(ranks="x")), "`ranks` must be a sequence of integers, got a"),
        (("icl", "train", *settings(function_options=3)), "`--set`: "),
        (("icl", "train", *settings(function="no")), "Unknown function class 'no'. Available: "),
        (("icl", "train", *SET, "--devices", "2", "--together", "2"), "`together` must be 1 where"),
        (("lm", "train", *settings(width=16), "--corpus", "gone"), "'gone' holds no corpus"),
        (
            ("lm", "train", *settings(documents=True, attention="standard"), "--corpus", "gone"),
            "`documents` needs attention='mlr'",
        ),
        (("lm", "prepare"), "`SOURCES` or `--hugging-face` must be given, one of the two"),
        (("lm", "prepare", "few", "--max-documents", "2"), "`--max-documents` must come with"),
        (("lm", "prepare", "few"), "`source` must hold files that match *.md"),
        (("lm", "prepare", "few/a.csv"), "`validation_share` of 0.05 leaves validation without"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_told_in_one_line(run, tmp_path, words, message):
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "a.csv").write_text("one document")
    for name, text in (
        ("bad", "= 3"),
        ("empty", "[common]"),
        ("twice", "[[runs]]\nwidth = 8\n[[runs]]\nwidth = 8"),
        ("wrong", "[[runs]]\nwidth = -8"),
    ):
        (tmp_path / f"{name}.toml").write_text(text)
    before = sorted(tmp_path.rglob("*"))
    result = run(*words, "--out", "new/results", "--quiet")
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert message in result.stderr
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    # A folder may have been made for a corpus that could not be written.
    assert [path for path in sorted(tmp_path.rglob("*")) if path.is_file()] == [
        path for path in before if path.is_file()
    ]


def test_a_context_longer_than_the_corpus_is_refused(home, run, tmp_path):
    options = settings(**LM | {"context_length": 4096, "evaluation_tokens": 4096})
    result = run("lm", "train", *options, "--corpus", home[0] / "corpus", "--out", "new")
    assert result.exit_code == 2
    assert "`context_length` must be below the" in result.stderr
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("icl", "eval", "gone"), "'gone' holds no model of a task that can be read"),
        (("icl", "eval", "{lm_model}"), "is one of 'language_model', not of 'in_context_reg"),
        (("icl", "eval", "{icl_model}", "--out", "a.txt"), "`--out` must end in .csv, .pdf, .png"),
        (("icl", "eval", "{icl_model}", "--out", "file/a.csv"), "'file' is no folder"),
        (("icl", "eval", "{icl_model}", "--episodes", "1"), "1 is not in the range x>=2"),
        (("icl", "plot", "{icl}", "--out", "a.txt"), "`--out` must end in .pdf, .png, .svg, got"),
        (
            ("icl", "plot", "gone", "--out", "a.png"),
            "'gone' holds no results: there is no runs.csv",
        ),
        (("icl", "plot", "{icl}", "--hue", "x", "--out", "a.png"), "`--hue` must be one of name, "),
        (("lm", "eval", "{icl_model}", "--corpus", "{corpus}"), "is one of 'in_context_regress"),
        (("lm", "eval", "{lm_model}", "--corpus", "gone"), "'gone' holds no corpus"),
        (
            ("lm", "eval", "{lm_model}", "--corpus", "{corpus}", "--max-tokens", "3"),
            "`max_tokens` must be at least 32, got 3",
        ),
        (("lm", "generate", "{lm_model}", "--prompt", "\u00e9"), "`prompt` must have a character"),
        (("lm", "generate", "{lm_model}"), "`max_new_tokens`: the text would take"),
        (("lm", "plot", "{icl}", "--out", "a.png"), "a finished run of 'language_model', and has"),
        (("icl", "plot", "{lm}", "--out", "a.png"), "a finished run of 'in_context_regression'"),
        (("lm", "plot", "{lm}", "--out", "a"), "`--out` must end in .pdf, .png, .svg, got 'a'"),
    ],
)
def test_what_cannot_be_scored_is_told_and_nothing_written(
    home, model, run, tmp_path, words, message
):
    (tmp_path / "file").write_text("a file")
    names = {name: home[0] / name for name in ("icl", "lm", "corpus")}
    names |= {"icl_model": model("icl", "standard-0"), "lm_model": model("lm")}
    result = run(*(word.format(**names) for word in words), "--quiet")
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert message in " ".join(result.stderr.split())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_altered_model_is_refused(model, run, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in model("lm").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(bytes(weights))
    result = run("lm", "generate", copy, "--max-new-tokens", 4)
    assert result.exit_code == 2
    assert "was altered" in result.stderr


def test_a_file_of_runs_is_the_one_of_the_benchmarks(run):
    files = sorted((ROOT / "benchmarks").glob("[il]*/*.toml"))
    assert {path.parent.name for path in files} == {"icl", "lm"}
    from mlrforecast.tasks import in_context_regression, language_model, read_runs

    kinds = {"icl": in_context_regression.RegressionRun, "lm": language_model.LanguageRun}
    for path in files:
        assert read_runs(path, kinds[Path(path).parent.name])
