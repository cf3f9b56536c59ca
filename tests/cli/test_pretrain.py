"""``mlrforecast synthesize`` and ``mlrforecast pretrain``: files in, a model of Chronos out."""

import json

import numpy as np
import pandas as pd
import pytest

from mlrforecast.pretraining import PretrainedModel, kernel_synth, read_arrow, tsmixup

TINY = (
    *("--context-length", "32", "--prediction-length", "8", "--max-steps", "3"),
    *("--batch-size", "4", "--accelerator", "cpu"),
    *("--set", "width=16", "--set", "num_layers=1", "--set", "num_decoder_layers=1"),
    *("--set", "num_tokens=64", "--set", "min_past=20"),
)


@pytest.fixture
def series(run):
    """A file of kernels in the empty folder."""
    assert run("synthesize", "kernels", "--num-series", 4, "--length", 80, "--out", "k.arrow")
    return "k.arrow"


def test_series_are_those_of_the_functions(run, series, tmp_path):
    found = read_arrow(tmp_path / series)
    np.testing.assert_array_equal(found, kernel_synth(4, length=80))
    options = ("--num-series", 3, "--min-length", 20, "--max-length", 60, "--seed", 2)
    done = run("synthesize", "mixtures", series, *options, "--out", "new/m.arrow", "--json")
    assert done.exit_code == 0, done.output
    expected = tsmixup([found], 3, min_length=20, max_length=60, seed=2)
    for one, other in zip(read_arrow(tmp_path / "new" / "m.arrow"), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    steps = sum(map(len, expected))
    assert json.loads(done.stdout) == {"out": "new/m.arrow", "series": 3, "steps": steps}


def test_a_model_is_trained_and_told(run, series, tmp_path):
    words = ("--head", "quantiles", "--ranks", "32,32", "--set", "patch_length=4")
    done = run("pretrain", series, *TINY, *words, "--out", "model", "--losses", "l.csv", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    model = PretrainedModel.load(tmp_path / "model")
    assert (model.config.head, model.config.ranks) == ("quantiles", (32, 32))
    assert model.config.patch_length == 4
    losses = pd.read_csv(tmp_path / "l.csv")
    assert losses["step"].tolist() == [1, 2, 3]
    assert told["loss"] == pytest.approx(losses["loss"].mean(), rel=1e-5)
    assert told["parameters"] == sum(p.numel() for p in model.network.parameters())


def test_a_rate_of_zero_is_one_that_was_given(run, series, tmp_path):
    words = ("pretrain", series, *TINY, "--set", "initial_factor=0.05")
    for name, rate in (("still", "0"), ("moved", "0.1")):
        assert run(*words, "--learning-rate", rate, "--out", name).exit_code == 0
    first, other = (PretrainedModel.load(tmp_path / name) for name in ("still", "moved"))
    weights = [each.network.shared.weight for each in (first, other)]
    assert weights[0].std() < 0.06 < weights[1].std()


def test_the_same_command_goes_on(run, series, tmp_path):
    words = ("pretrain", series, *TINY, "--checkpoint-dir", "kept", "--out")
    assert run(*words, "one").exit_code == 0
    (file,) = (tmp_path / "kept").iterdir()
    before = file.stat().st_mtime_ns
    assert run(*words, "two").exit_code == 0
    assert file.stat().st_mtime_ns == before
    one, two = ((tmp_path / n / "model.safetensors").read_bytes() for n in ("one", "two"))
    assert one == two


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("k.arrow", "--set", "size=3"), "`--set` must name a field of PretrainConfig or"),
        (("k.arrow", "--ranks", "8,8"), "`ranks` must sum to `head_width`=64"),
        (("k.arrow", "--weights", "1,2"), "`weights` must be a positive number for each of the 1"),
        (("none.arrow",), "There is no file 'none.arrow'"),
        (("k.arrow", "--context-length", "0"), "0 is not in the range x>=1"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_line(run, series, tmp_path, words, message):
    done = run("pretrain", *TINY, *words, "--out", "model")
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "model").exists()


def test_outputs_are_checked_before_anything_is_trained(run, series, tmp_path, monkeypatch):
    """The series were written over by losses, and models of hours refused by their folders."""
    monkeypatch.setattr("mlrforecast.cli._pretrain.pretrain", None)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes").write_text("mine")
    before = (tmp_path / series).read_bytes()
    for words, message in (
        (("--out", "taken"), "`--out` cannot be 'taken': 'taken' holds something else"),
        (("--out", "m", "--checkpoint-dir", "./m"), "`--checkpoint-dir` cannot be 'm', which is"),
        (("--out", "m", "--losses", series), "`--losses` cannot be 'k.arrow', which is read"),
    ):
        done = run("pretrain", series, *TINY, *words)
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert (tmp_path / series).read_bytes() == before
    done = run("synthesize", "kernels", "--num-series", 1, "--jobs", 0, "--out", "j.arrow")
    assert "`--jobs` must be at least 1, or -1 for all cores; got 0" in done.stderr
