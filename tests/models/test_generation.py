"""Generation: steps equal the whole text for every score, and draws follow the logits."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mlrforecast.models import CausalLM, CausalLMConfig, ModelCache
from tests.models.generation_cases import (
    CONTEXT,
    PAST,
    VARIANTS,
    VOCABULARY,
    model_of,
    padding,
    text,
)

pytestmark = pytest.mark.usefixtures("seeded")


def in_chunks(
    model: CausalLM, tokens: Tensor, sizes: list[int], key_mask: Tensor | None = None
) -> tuple[Tensor, ModelCache]:
    """Return the logits of tokens given piece by piece."""
    cache, pieces, start = model.new_cache(), [], 0
    assert sum(sizes) == tokens.shape[1]
    for size in sizes:
        now = slice(start, start + size)
        mask = None if key_mask is None else key_mask[:, now]
        pieces.append(model(tokens[:, now], mask, cache=cache))
        start += size
    return torch.cat(pieces, 1), cache


def close(value: Tensor, exact: Tensor, atol: float = 1e-11) -> None:
    torch.testing.assert_close(value, exact, rtol=0, atol=atol)


# Steps equal the whole.


@pytest.mark.parametrize("positions", ["rotary", "none"])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_prefill_and_steps_in_float32(variant: str, grouped: bool, positions: str) -> None:
    """At every position, past the trained length too, with and without padding."""
    model = model_of(variant, grouped=grouped, positions=positions).float()
    tokens = text()
    for key_mask in (None, padding(PAST)):
        whole = model(tokens, key_mask)
        # As trained, the logits of a text are of the order of 1.
        unit = whole.abs().max().clamp(min=1)
        for sizes in ([5] + [1] * 36, [17, 1, 1, 13, 9]):
            out, _ = in_chunks(model, tokens, sizes, key_mask)
            close(out / unit, whole / unit, 1e-6)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
@settings(
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=10),
    positions=st.sampled_from(["learned", "rotary", "none"]),
    padded=st.booleans(),
)
@torch.no_grad()
def test_any_chunks(
    variant: str, grouped: bool, sizes: list[int], positions: str, padded: bool
) -> None:
    length = sum(sizes)
    if positions == "learned" and length > CONTEXT:
        positions = "rotary"
    model = model_of(variant, grouped=grouped, positions=positions)
    tokens, key_mask = text(length=length), padding(length) if padded else None
    out, cache = in_chunks(model, tokens, sizes, key_mask)
    close(out, model(tokens, key_mask))
    assert cache.length == length


@torch.no_grad()
def test_padding_may_begin_after_the_first_chunk_was_given_without() -> None:
    model, tokens = model_of("mlr"), text(length=9)
    key_mask = torch.ones(2, 9, dtype=torch.bool)
    key_mask[1, 5] = False
    cache = model.new_cache()
    out = torch.cat(
        [model(tokens[:, :4], cache=cache), model(tokens[:, 4:], key_mask[:, 4:], cache=cache)], 1
    )
    close(out, model(tokens, key_mask))


# What is drawn.


def by_hand(model: CausalLM, tokens: Tensor, count: int, key_mask: Tensor | None = None) -> Tensor:
    """Take the likeliest token, each time from the whole text."""
    for _ in range(count):
        logits = model(tokens, key_mask)[:, -1]
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
        if key_mask is not None:
            key_mask = torch.cat([key_mask, torch.ones(len(tokens), 1, dtype=torch.bool)], 1)
    return tokens


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_the_likeliest_text_past_the_trained_length(variant: str) -> None:
    model, start = model_of(variant, grouped=True), text(length=11)
    for key_mask in (None, padding(11)):
        found = model.generate(start, 24, temperature=0.0, key_mask=key_mask)
        assert torch.equal(found, by_hand(model, start, 24, key_mask))


@torch.no_grad()
def test_drawn_tokens_follow_the_tempered_logits_of_the_top_k() -> None:
    model, temperature, top_k = model_of("mlr"), 0.7, 4
    start = text(1, 6).expand(20_000, -1)
    drawn = model.generate(
        start, 1, temperature=temperature, top_k=top_k, generator=torch.Generator().manual_seed(3)
    )[:, -1]
    logits = model(start[:1])[0, -1]
    likeliest = logits.sort(descending=True).indices[:top_k]
    expected = torch.zeros(VOCABULARY, dtype=torch.float64)
    expected[likeliest] = (logits[likeliest] / temperature).exp()
    expected /= expected.sum()
    found = drawn.bincount(minlength=VOCABULARY) / len(drawn)
    assert (found[expected == 0] == 0).all()
    assert (found - expected).abs().max() < 0.012, "more than three standard deviations"


def test_a_seed_gives_the_text_again_and_the_global_state_is_left_alone() -> None:
    model, start, state = model_of("standard"), text(3, 5), torch.get_rng_state()

    def drawn(generator: torch.Generator | None) -> Tensor:
        return model.generate(start, 30, temperature=2.0, generator=generator)

    first, again, other = (drawn(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(drawn(None), drawn(None))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_start_is_returned_with_the_text_in_its_dtype() -> None:
    model, start = model_of("mlr"), text(length=5).to(torch.uint8)
    found = model.generate(start, 3, temperature=0.0)
    assert found.dtype == torch.uint8
    assert torch.equal(found[:, :5], start)
    assert not found.requires_grad


def test_there_is_no_dropout_and_each_part_is_put_back_into_training() -> None:
    model = model_of("mlr", dropout=0.5).train()
    model.encoder.blocks[0].eval()
    modes = [part.training for part in model.modules()]
    start = text(length=5)
    found = model.generate(start, 9, temperature=0.0)
    assert [part.training for part in model.modules()] == modes
    assert torch.equal(found, by_hand(model.eval(), start, 9))


def test_training_goes_on_after_a_failure() -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    model = model_of("mlr").train()
    model.head.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        model.generate(text(), 2)
    assert model.training


# Bad input.


@torch.no_grad()
def test_learned_positions_end_before_anything_is_done() -> None:
    model = model_of("mlr", positions="learned")
    start = text(length=10)
    assert model.generate(start, 7, temperature=0.0).shape == (2, 17)
    with pytest.raises(ValueError, match=r"the text would take 17 learned positions.* end at 16"):
        model.generate(start, 8)
    cache = model.new_cache()
    model(text(length=15), cache=cache)
    before = cache.num_bytes
    with pytest.raises(ValueError, match="Learned positions end at 16 tokens, got 17"):
        model(text(length=2), cache=cache)
    assert (cache.length, cache.num_bytes) == (15, before)
    model(text(length=1), cache=cache)


@torch.no_grad()
def test_a_cache_of_another_batch_or_model() -> None:
    model, other = model_of("mlr"), model_of("mlr")
    cache = model.new_cache()
    model(text(2, 3), cache=cache)
    with pytest.raises(ValueError, match="`cache` holds 2 sequences, and `tokens` has 3"):
        model(text(3, 1), cache=cache)
    with pytest.raises(ValueError, match="`cache` was made by another model"):
        other(text(2, 1), cache=cache)
    with pytest.raises(ValueError, match=r"`cache` is for causal .* block ids"):
        model(text(2, 1), block_ids=torch.zeros(3, 1, dtype=torch.long), cache=cache)
    assert cache.length == 3


def test_blocks_that_move_have_no_cache() -> None:
    model = model_of("mlr", attention_options={"newest_whole": True})
    with pytest.raises(ValueError, match="`cache` needs blocks that stay in place"):
        model.new_cache()


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"max_new_tokens": 0}, ValueError, "`max_new_tokens` must be an integer of at least 1"),
        ({"max_new_tokens": 2.5}, ValueError, "`max_new_tokens` must be an integer .* got 2.5"),
        ({"temperature": -1}, ValueError, "`temperature` must be a finite .* at least 0, got -1"),
        ({"temperature": float("nan")}, ValueError, "`temperature` must be .* got nan"),
        ({"temperature": "hot"}, ValueError, "`temperature` must be .* got 'hot'"),
        ({"top_k": 0}, ValueError, "`top_k` must be an integer of at least 1, got 0"),
        ({"top_k": 12}, ValueError, "`top_k` must be at most the vocabulary of 11 .* got 12"),
        ({"tokens": text()[:, :0]}, ValueError, "`tokens` must have .* at least one token"),
        ({"tokens": text().float()}, TypeError, "`tokens` must be a tensor of integers"),
        ({"tokens": text() + 1}, ValueError, "`tokens` must lie in 0 to 10, got 11"),
        ({"key_mask": padding(PAST)[:1]}, ValueError, "`key_mask` must have the shape"),
        ({"key_mask": padding(PAST).flip(1)}, ValueError, "pad on the left"),
    ],
)
def test_wrong_calls(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        model_of("mlr").generate(**{"tokens": text(), "max_new_tokens": 2, **arguments})


def test_a_cache_may_branch() -> None:
    """Two texts that begin alike go on from copies of one cache, as a beam search does."""
    model = model_of("mlr")
    start = torch.tensor([[1, 2, 3, 4, 5]])
    cache = model.new_cache()
    model(start, cache=cache)
    for branch in (torch.tensor([[6, 7]]), torch.tensor([[8, 9]])):
        logits = model(branch, cache=copy.deepcopy(cache))
        whole = model(torch.cat([start, branch], 1))[:, 5:]
        torch.testing.assert_close(logits, whole, rtol=0, atol=1e-5)
    assert cache.length == 5


def test_tokens_of_a_type_too_small_are_refused() -> None:
    model = CausalLM(
        CausalLMConfig(
            vocabulary_size=300, context_length=8, width=8, num_heads=1, positions="none"
        )
    )
    with pytest.raises(ValueError, match=r"holds every token up to 299, got torch.uint8"):
        model.generate(torch.zeros(1, 2, dtype=torch.uint8), 2)


@pytest.mark.usefixtures("own_errors")
def test_a_tiny_temperature_takes_the_likeliest_token() -> None:
    model = model_of("standard")
    start = torch.tensor([[1, 2, 3]])
    generator = torch.Generator().manual_seed(0)
    cold = model.generate(start, 4, temperature=1e-40, generator=generator)
    assert torch.equal(cold, model.generate(start, 4, temperature=0.0))
    warm = model.generate(start, 2, temperature=np.float32(0.5), generator=generator)
    assert warm.shape == (1, 5)


def test_logits_that_are_no_numbers_are_an_error() -> None:
    model = model_of("standard")
    with torch.no_grad():
        model.head.weight[3] = torch.nan
    with pytest.raises(FloatingPointError, match="logits are not finite"):
        model.generate(torch.tensor([[1, 2]]), 2, temperature=0.0)
