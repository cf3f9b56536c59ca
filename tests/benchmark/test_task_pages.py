"""The pages on the two tasks quote the committed results; what is not there is left out."""

import importlib.util
import math
import sys
from pathlib import Path

import pandas as pd
import pytest

from mlrforecast.tasks import Execution, in_context_regression, language_model

ROOT = Path(__file__).parents[2]
ON_CPU = Execution(accelerator="cpu", progress=False)
SIZES = {"num_layers": 1, "num_heads": 2, "max_steps": 4, "evaluate_every": 2, "warmup_steps": 1}


def load(path):
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "docs"))
    return module


@pytest.fixture(scope="module")
def script():
    return load(ROOT / "benchmarks" / "task_pages.py")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of tiny runs in the folders of the benchmark."""
    folder = tmp_path_factory.mktemp("results")
    kind = in_context_regression.RegressionRun
    runs = [
        kind(attention=score, width=width, seed=seed, num_dims=2, evaluation_episodes=8, **SIZES)
        for score in ("standard", "bilinear_btt")
        for width in (8, 16)
        for seed in (0, 1)
    ]
    in_context_regression.train(runs, out=folder / "icl" / "bottleneck-16", execution=ON_CPU)
    texts = (f"The number after {n} is {n + 1}.\n" for n in range(200))
    corpus = language_model.prepare_corpus(texts, folder / "corpus", progress=False)

    def train(name, *runs):
        sizes = SIZES | {"batch_size": 2, "evaluation_tokens": 64, "context_length": 32}
        kinds = [language_model.LanguageRun(**sizes | fields) for fields in runs]
        language_model.train(kinds, corpus, out=folder / "lm" / name, execution=ON_CPU)

    scaling = [("standard", 8, 0), ("mlr", 8, 0), ("standard", 16, 0), ("standard", 16, 1)]
    scaling += [("mlr", 16, 0), ("mlr", 16, 1)]
    train("scaling", *({"attention": a, "width": w, "seed": s} for a, w, s in scaling))
    train("levels", *({"width": 16, "ranks": ranks} for ranks in ([8], [4, 4])))
    train("long", *({"width": 8, "context_length": length} for length in (32, 64)))
    rates = [(rule, width, rate) for rule in ("mup", "standard") for width in (8, 16)
             for rate in (1e-3, 1e-2)]  # fmt: skip
    named = ("parametrization", "width", "learning_rate")
    train("mup", *(dict(zip(named, one, strict=True)) for one in rates))
    return folder


def test_the_pages_hold_the_committed_results(script):
    for task, name in script.PAGES.items():
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert script.insert(page, script.section(task)) == page


def test_without_results_there_is_no_section(script, tmp_path):
    assert script.section("icl", tmp_path) == script.section("lm", tmp_path) == ""
    assert load(ROOT / "docs" / "figure_tasks.py").draw(tmp_path, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_each_file_has_its_picture_and_its_table(script, results, tmp_path):
    drawn = load(ROOT / "docs" / "figure_tasks.py").draw(tmp_path, results)
    assert drawn == [
        "icl_bottleneck-16.png",
        *(f"lm_{name}.png" for name in ("scaling", "levels", "mup", "long")),
    ]
    for name in drawn:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    regression = script.section("icl", results, tmp_path)
    assert "| score | width 8 | width 16 | moved in the last quarter, at most |" in regression
    assert "| 2 heads | " in regression
    assert "(img/icl_bottleneck-16.png)" in regression
    language = script.section("lm", results, tmp_path)
    assert language.count("](img/lm_") == 4
    assert "2 seeds)" in language
    assert "(1 seed)" in language


def test_equal_compute_is_read_off_a_line_between_widths(script):
    """Losses that follow a power of the FLOPs are found everywhere, outside the widths too."""
    flops = [1e12, 4e12, 9e12]
    standard = pd.DataFrame(
        {
            "width": [8, 8, 16, 24],
            "paper_flops": [flops[0], *flops],
            "score": [3.0 * (value / 1e12) ** -0.1 for value in [flops[0], *flops]],
        }
    )
    for value in (0.5e12, 1e12, 2e12, 4e12, 8e12, 2e13):
        found = script._loss_at(standard, value)
        assert found == pytest.approx(3.0 * (value / 1e12) ** -0.1)
    assert math.isnan(script._loss_at(standard[standard["width"] == 8], 1e12))
