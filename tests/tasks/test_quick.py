"""The quick files of runs of ``make bench-icl`` and ``make bench-lm`` learn, not only run."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlrforecast.tasks import Execution, in_context_regression, language_model, read_runs
from mlrforecast.tasks.language_model import Split

ROOT = Path(__file__).parents[2]
ON_CPU = Execution(accelerator="cpu", progress=False)

# Predicting 0 has the error 1.
MOST_ERROR = 0.5
# Nats by which a loss must be below what the frequencies of characters alone allow.
MARGIN = 0.25


def character_entropy(split: Split) -> float:
    """The loss, in nats, of the best model that knows how often each character comes."""
    counts = np.bincount(split.tokens, minlength=split.vocabulary.size)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


@pytest.mark.slow
def test_regression_is_learnt_far_beyond_predicting_0() -> None:
    kind = in_context_regression.RegressionRun
    short = {"max_steps": 300, "evaluate_every": 150}
    runs = read_runs(ROOT / "benchmarks" / "icl" / "quick.toml", kind, short)
    results = in_context_regression.train(runs, execution=ON_CPU)
    assert [result.run.attention for result in results] == ["standard", "bilinear_btt"]
    for result in results:
        assert result.score + 3 * result.scores["standard_error"] < MOST_ERROR, result.run.name
        # Least squares has 0 at the last point, and nobody is better than it.
        assert result.score > 0


@pytest.mark.slow
@pytest.mark.shared
def test_language_is_learnt_beyond_the_frequencies_of_characters(
    shared_file: Callable[[str], Path], tmp_path: Path
) -> None:
    source = shared_file("gutenberg_austen-emma.txt").parent
    corpus = language_model.prepare_corpus(
        source, tmp_path, patterns=["*.txt"], max_document_chars=8192, progress=False
    )
    kind = language_model.LanguageRun
    short = {"max_steps": 100, "evaluate_every": 50}
    runs = read_runs(ROOT / "benchmarks" / "lm" / "quick.toml", kind, short)
    results = language_model.train(runs, corpus, execution=ON_CPU)
    assert [result.run.attention for result in results] == ["standard", "mlr"]
    entropy = character_entropy(corpus.validation)
    assert entropy < math.log(96)
    for result in results:
        first, last = result.curve["score"]
        assert result.score == last < first, result.run.name
        assert result.score < entropy - MARGIN, result.run.name
