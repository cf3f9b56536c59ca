"""Settings of runs: what is refused, what determines a run, and files of them."""

import dataclasses

import pytest

from mlrforecast.tasks import read_runs
from mlrforecast.tasks.in_context_regression import RegressionRun
from mlrforecast.tasks.language_model import LanguageRun


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_steps": 0}, "`max_steps` must be an integer of at least 1, got 0"),
        ({"batch_size": 2.0}, "`batch_size` must be an integer of at least 1, got 2.0"),
        ({"seed": -1}, "`seed` must be an integer of at least 0, got -1"),
        ({"evaluate_every": 0}, "`evaluate_every` must be an integer of at least 1, got 0"),
        ({"learning_rate": float("inf")}, "`learning_rate` must be a finite number of at least 0"),
        ({"weight_decay": True}, "`weight_decay` must be a finite number of at least 0"),
        ({"gradient_clip": -1}, "`gradient_clip` must be a finite number of at least 0"),
        ({"gradient_clip": 0}, "`gradient_clip` must be above 0, or nothing is learnt, got 0"),
        ({"schedule": "step"}, "`schedule` must be one of cosine, linear, constant, got 'step'"),
        ({"precision": "16"}, "`precision` must be one of 32-true, tf32, bf16-mixed, got '16'"),
        ({"parametrization": "ntk"}, "`parametrization` must be one of standard, mup"),
        (
            {"zero_branches": False, "parametrization": "standard"},
            "`zero_branches`=False needs parametrization='mup'",
        ),
        ({"micro_batches": 3}, "`micro_batches` must divide the `batch_size` of 64, got 3"),
        ({"name": "{depth}"}, "`name` must be a text with fields of a run in braces"),
        ({"name": "a/b"}, "`name` must be a name of a file, got 'a/b'"),
        ({"name": "{attention_options[a]}"}, "`name` must be a text with fields of a run in"),
        ({"name": "\u00e9" * 101}, "`name` must have at most 200 bytes, .* got 202 in"),
        ({"attention": "mlp"}, "`attention` must be one of"),
        ({"attention": "standard", "ranks": (1, 1)}, "has no option `ranks`"),
        ({"depth": 3}, "Unknown settings of a run: depth. Available: attention,"),
    ],
)
@pytest.mark.parametrize("kind", [RegressionRun, LanguageRun])
def test_what_is_refused_of_every_task(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind.from_dict({"batch_size": 64} | settings)


def test_a_switch_is_no_number():
    with pytest.raises(TypeError, match="`zero_branches` must be True or False"):
        RegressionRun(zero_branches=0)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (RegressionRun, {"num_dims": 0}, "`num_dims` must be an integer of at least 1"),
        (RegressionRun, {"num_points": 0}, "`num_points` must be an integer of at least 1"),
        (RegressionRun, {"curriculum_interval": -1}, "`curriculum_interval` must be an integer"),
        (RegressionRun, {"evaluation_episodes": 1}, "`evaluation_episodes` must be an integer"),
        (RegressionRun, {"function": "sine"}, "Unknown function class 'sine'"),
        (RegressionRun, {"function_options": {"depth": 2}}, "has no option `depth`"),
        (LanguageRun, {"context_length": 0}, "`context_length` must be an integer of at least 1"),
        (LanguageRun, {"evaluation_tokens": 8}, "`evaluation_tokens` must be an integer of at"),
        (LanguageRun, {"vocabulary": "words"}, "Unknown vocabulary 'words'"),
        (LanguageRun, {"documents": True, "attention": "standard"}, "needs attention='mlr'"),
    ],
)
def test_what_is_refused_of_one_task(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind.from_dict(settings)


def test_any_setting_but_the_name_makes_another_run(run):
    assert dataclasses.replace(run, name="other").hash == run.hash
    changes = {"seed": 1, "width": 16, "learning_rate": 2e-3, "num_points": 10, "ranks": (8,)}
    hashes = {dataclasses.replace(run, **{name: value}).hash for name, value in changes.items()}
    assert len(hashes | {run.hash}) == 1 + len(changes)


@pytest.mark.parametrize("value", [3, "depth", ["depth"], {1: 2}])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (LanguageRun, "attention_options"),
        (RegressionRun, "attention_options"),
        (RegressionRun, "function_options"),
    ],
)
def test_options_that_are_no_table_are_refused(kind, name, value):
    with pytest.raises(TypeError, match=f"`{name}` must be a table of options by name, got"):
        kind(**{name: value})


def test_a_run_survives_json(run):
    changed = dataclasses.replace(
        run, ranks=(4, 4), attention_options={"level_scale": "inverse_rank"}
    )
    assert RegressionRun.from_dict(changed.to_dict()) == changed
    assert RegressionRun.from_dict(changed.to_dict()).hash == changed.hash


FILE = """
[common]
num_dims = 4
num_heads = 2

[[runs]]
attention = "standard"
width = 16

[[runs]]
attention = "bilinear_mlr"
ranks = [2, 2]
each = { width = [8, 16], seed = [0, 1] }
"""


def test_a_file_of_runs(tmp_path):
    path = tmp_path / "runs.toml"
    path.write_text(FILE)
    runs = read_runs(path, RegressionRun, {"max_steps": 7})
    assert [(run.width, run.seed) for run in runs] == [(16, 0), (8, 0), (8, 1), (16, 0), (16, 1)]
    assert {(run.num_dims, run.num_heads, run.max_steps) for run in runs} == {(4, 2, 7)}
    assert [run.ranks for run in runs] == [None, *[(2, 2)] * 4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("runs = 3", "must hold a table `common` and at least one"),
        ("", "at least one of `[[runs]]`"),
        ("[[runs]\n", "is no TOML file"),
        ("[[run]]\nwidth = 8", "must hold `common` and `runs` only, got ['run']"),
        ("[[runs]]\nwidth = 0", "runs[0] of runs.toml: `width` must be"),
        ("[[runs]]\nname = 'a'\n[[runs]]\nname = 'a'\nseed = 1", "the same `name`: a, a"),
        ("[[runs]]\nname = 'a'\n[[runs]]\nname = 'b'", "the same settings: a, b"),
        ("[[runs]]\neach = { width = 8 }", "`each` must hold lists of values"),
        ("[[runs]]\neach = { width = [] }", "`each` must hold lists of values, none empty, got"),
        ("[[runs]]\nwidth = 8\neach = { width = [8] }", "and the run itself both set width"),
    ],
)
def test_what_is_refused_of_a_file(tmp_path, content, message):
    path = tmp_path / "runs.toml"
    path.write_text(content)
    with pytest.raises(ValueError) as found:  # noqa: PT011  # the message is compared below
        read_runs(path, RegressionRun)
    assert message in str(found.value)


def test_a_file_of_runs_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_runs(tmp_path / "runs.toml", RegressionRun)
