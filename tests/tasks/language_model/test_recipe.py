"""Training of language models: batches, scores, documents, and what is refused."""

import dataclasses
import math

import pytest
import torch
from torch.nn import functional

from mlrforecast.tasks import Execution
from mlrforecast.tasks._training import Training
from mlrforecast.tasks.language_model import (
    LanguageRun,
    continue_text,
    evaluate_language_model,
    get_vocabulary,
    load_language_model,
    prepare_corpus,
    train,
)
from mlrforecast.tasks.language_model.recipe import LanguageTrainee
from mlrforecast.training import isolated_seed

SIZES = {
    "width": 16,
    "num_heads": 2,
    "num_layers": 1,
    "context_length": 12,
    "batch_size": 4,
    "max_steps": 8,
    "warmup_steps": 2,
    "evaluate_every": 4,
    "evaluation_tokens": 60,
}
SENTENCES = [f"The number after {n} is {n + 1}, and before it is {n - 1}." for n in range(60)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return prepare_corpus(iter(SENTENCES), folder, validation_share=0.2, progress=False)


@pytest.fixture
def run():
    return LanguageRun(**SIZES)


@pytest.fixture
def cpu():
    return Execution(accelerator="cpu", progress=False)


def trainee_of(run, corpus):
    with isolated_seed(0):
        return LanguageTrainee(run, corpus)


def test_a_run_knows_its_corpus(run, cpu, corpus, tmp_path):
    [result] = train(run, corpus, out=tmp_path, execution=cpu)
    assert result.run.corpus
    assert result.run.vocabulary == "characters"
    [again] = train(run, str(corpus.folder), out=tmp_path, execution=cpu, resume=True)
    assert again.run == result.run
    assert again.score == result.score
    model, found = load_language_model(tmp_path / "models" / f"{result.run.name}-{result.run.hash}")
    assert found == result.run
    assert all(
        torch.equal(value, result.model.state_dict()[name])
        for name, value in model.state_dict().items()
    )
    other = prepare_corpus(
        (f"Another text, the number {n}." for n in range(60)), tmp_path / "other", progress=False
    )
    [elsewhere] = train(run, other, execution=cpu)
    assert elsewhere.run.hash != result.run.hash


def test_a_step_counts_its_tokens_and_the_flops_of_the_paper(run, corpus):
    trainee = trainee_of(run, corpus)
    cost = trainee.cost(None)
    assert cost.tokens == 12
    width, length = 16, 12
    # Four square maps and two of 4 D, an attention of T rows, three norms and that of q and k.
    blocks = 12 * width**2 + 2 * length * width
    mlr_saves = cost.paper_flops < length * (blocks + 5 * (3 * width + 2 * width))
    assert mlr_saves
    standard = LanguageRun(**SIZES | {"attention": "standard"})
    assert trainee_of(standard, corpus).cost(None).paper_flops == length * (
        blocks + 5 * (3 * width + 2 * width)
    )


def test_the_score_is_the_loss_of_all_windows(run, corpus):
    """A new model has the loss of a guess among 96; after a step it is computed by hand."""
    trainee = trainee_of(run, corpus)
    with torch.no_grad():
        assert trainee.evaluate()["score"] == pytest.approx(math.log(96), rel=1e-6)
    training = Training(trainee, Execution(accelerator="cpu").fabric())
    training.advance(3)
    with torch.no_grad():
        scores = trainee.evaluate()
    tokens = corpus.validation.tensor().long()
    windows = (len(tokens) - 1) // 12
    count = min(60 // 12, windows)
    total = 0.0
    with torch.no_grad():
        for n in range(count):
            start = n * windows // count * 12
            logits = trainee.model(tokens[None, start : start + 12])[0]
            total += float(functional.cross_entropy(logits, tokens[start + 1 : start + 13]))
    assert scores["score"] == pytest.approx(total / count, rel=1e-5)
    assert scores["bits"] == pytest.approx(scores["score"] / math.log(2))


def test_training_lowers_the_loss(run, cpu, corpus):
    longer = dataclasses.replace(run, max_steps=60, evaluate_every=20, learning_rate=3e-3)
    [result] = train(longer, corpus, execution=cpu)
    assert result.score < 0.85 * math.log(96)
    assert result.curve["train_loss"].is_monotonic_decreasing


def test_tokens_of_another_document_change_nothing(corpus):
    run = LanguageRun(**SIZES | {"documents": True, "context_length": 64, "evaluation_tokens": 64})
    trainee = trainee_of(run, corpus)
    trainee.place(torch.device("cpu"))
    Training(trainee, Execution(accelerator="cpu").fabric()).advance(2)
    generator = torch.Generator().manual_seed(0)
    tokens, _, blocks = trainee.draw(None, 4, generator)
    assert blocks.shape == (4, len(trainee.model.config.ranks or (0, 0, 0)), 64)
    border = int((blocks[0, 0].diff() != 0).nonzero()[0]) + 1
    changed = tokens.clone()
    changed[0, :border] = (changed[0, :border] + 1) % 96
    with torch.no_grad():
        before, after = (trainee.model(t, block_ids=blocks)[0] for t in (tokens, changed))
    assert not torch.equal(before[:border], after[:border])
    torch.testing.assert_close(before[border:], after[border:], atol=0, rtol=0)
    assert not trainee.capturable


def test_half_precision_trains(run, cpu, corpus):
    half = dataclasses.replace(run, precision="bf16-mixed", learning_rate=1e-3)
    whole = dataclasses.replace(run, learning_rate=1e-3)
    [one], [other] = (train(each, corpus, execution=cpu) for each in (half, whole))
    assert one.score == pytest.approx(other.score, rel=0.02)
    assert one.score != other.score


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocabulary": "bytes"}, "`vocabulary` of 'mlr-16-0' must be .* 'characters', or be left"),
        ({"corpus": "other"}, "`corpus` of 'mlr-16-0' must be that of the corpus, .* got 'other'"),
    ],
)
def test_a_run_of_another_corpus_is_refused(run, cpu, corpus, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        train(dataclasses.replace(run, **settings), corpus, out=tmp_path / "out", execution=cpu)
    assert not (tmp_path / "out").exists()


def test_a_corpus_shorter_than_a_sequence_is_refused(run, corpus):
    long = dataclasses.replace(run, context_length=4096, evaluation_tokens=4096)
    with pytest.raises(ValueError, match=r"`context_length` must be below the \d+ tokens of the"):
        train(long, corpus)


@pytest.mark.parametrize("attention", ["mlr", "standard", "sliding_window", "global_window"])
def test_a_model_goes_on_with_a_text(run, cpu, corpus, attention):
    sizes = SIZES | {"context_length": 64, "evaluation_tokens": 64}
    [result] = train(LanguageRun(**sizes, attention=attention), corpus, execution=cpu)
    vocabulary = get_vocabulary("characters")
    one, same = (continue_text(result.model, vocabulary, "The", 40, seed=3) for _ in range(2))
    assert one.text == same.text
    assert len(one.text) == 40
    assert one.prompt == "The"
    # Two of 16 columns, 4 bytes each, of the 42 tokens that were read.
    assert one.full_cache_bytes == 2 * 16 * 4 * 42
    if attention == "standard":
        assert one.cache_bytes == one.full_cache_bytes
    else:
        assert one.cache_bytes < one.full_cache_bytes


def test_a_prompt_without_a_token_is_refused(run, cpu, corpus):
    [result] = train(run, corpus, execution=cpu)
    with pytest.raises(ValueError, match="`prompt` must have a character of the vocabulary"):
        continue_text(result.model, get_vocabulary("characters"), "\u00e9", 4)


def test_a_model_is_scored_on_either_side(run, cpu, corpus):
    [result] = train(run, corpus, execution=cpu)
    scores = evaluate_language_model(result.model, corpus.validation, max_tokens=60)
    assert scores["nats"] == pytest.approx(result.score, rel=1e-5)
    assert scores["perplexity"] == pytest.approx(math.exp(scores["nats"]))
    assert scores["tokens"] == 60
    every = evaluate_language_model(result.model, corpus.train)
    assert every["tokens"] == (corpus.train.num_tokens - 1) // 12 * 12


def test_a_vocabulary_of_another_size_is_refused(run, cpu, corpus, tmp_path):
    [result] = train(run, corpus, execution=cpu)
    other = prepare_corpus(iter(SENTENCES), tmp_path, vocabulary="bytes", progress=False)
    with pytest.raises(ValueError, match="`split` must have the model's 96 tokens"):
        evaluate_language_model(result.model, other.validation)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("attention", ["mlr", "standard", "sliding_window", "global_window"])
@pytest.mark.parametrize("compiled", [False, True])
def test_graphs_make_the_steps_that_python_makes(run, corpus, attention, compiled):
    calm = dataclasses.replace(
        run, attention=attention, parametrization="standard", precision="bf16-mixed"
    )
    eager, graphs = (
        train(
            calm,
            corpus,
            execution=Execution(graphs=graphs, compile=compiled and graphs, progress=False),
        )[0]
        for graphs in (False, True)
    )
    assert graphs.curve["score"].tolist() == pytest.approx(eager.curve["score"].tolist(), rel=5e-3)
