"""Generation: steps equal the whole text, for every score, and keep no more than they read."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mlrforecast.models import CausalLM, CausalLMConfig, ModelCache
from mlrforecast.nn import Score
from tests.models.scores_by_name import FIELDS, NAMES

pytestmark = pytest.mark.usefixtures("seeded")

CONTEXT, VOCABULARY, WIDTH, NUM_HEADS, NUM_LAYERS = 16, 11, 16, 4, 2
PAST = 41
"""Tokens past the trained length, and past several blocks and windows."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, FIELDS[name]) for name in NAMES},
    "mlr-plain": ("mlr", {}),
    "mlr-ragged": ("mlr", {"ranks": (1, 1, 2), "block_sizes": (None, 7, 3)}),
    "mlr-no-whole-level": ("mlr", {"ranks": (2, 2), "block_sizes": (8, 5)}),
    "mlr-unshared-attend": (
        "mlr",
        {
            "ranks": (2, 2),
            "block_sizes": (6, 3),
            "attention_options": {"unshared": "zero", "divide_by_num_levels": True},
        },
    ),
    "mlr-counted": ("mlr", {"ranks": (2, 1, 1), "attention_options": {"num_blocks": (1, 2, 6)}}),
    "mlr-window-narrow": (
        "mlr_window",
        {
            "ranks": (2, 2),
            "block_sizes": (None, 8),
            "attention_options": {"window": 2, "divide_by_shared_levels": True},
        },
    ),
    "window-itself": ("sliding_window", {"attention_options": {"window": 0}}),
    "mix": (
        ("standard", "mlr", "sliding_window"),
        {"num_layers": 3, "attention_options": {"window": 3}},
    ),
}
GROUPED = {"num_kv_heads": 2}


def model_of(variant: str, *, grouped: bool = False, **fields: Any) -> CausalLM:
    """A model in float64 whose tokens differ enough to be told apart."""
    attention, own = VARIANTS[variant]
    fields = {"num_layers": NUM_LAYERS, "positions": "rotary", **own, **fields}
    if grouped:
        fields["attention_options"] = {**(fields.get("attention_options") or {}), **GROUPED}
    config = CausalLMConfig(
        vocabulary_size=VOCABULARY,
        context_length=CONTEXT,
        width=WIDTH,
        num_heads=NUM_HEADS,
        attention=attention,
        **fields,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = CausalLM(config).double().eval()
        torch.nn.init.normal_(model.embedding.weight)
        torch.nn.init.normal_(model.head.weight, std=0.5)
    return model


def text(batch: int = 2, length: int = PAST, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (batch, length), generator=generator)


def padding(length: int) -> Tensor:
    """No padding before the first text, much before the second."""
    return torch.arange(length) >= torch.tensor([[0], [min(9, length - 1)]])


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


# What is kept.


def kept(variant: str, length: int) -> tuple[int, int]:
    """Return key numbers of a key head and steps whose values are kept, after ``length`` tokens.

    The closed forms, written out for each variant; those of a bilinear score are of a query head.
    """
    t = length
    window = {"mlr_window": 5, "sliding_window": 4, "global_window": 3}
    match variant:
        case "standard":
            return 4 * t, t
        case "bilinear" | "bilinear_btt":
            return WIDTH * t, t
        case "bilinear_mlr":
            return (2 * 1 + 1 * 2 + 1 * 4) * t, t
        case "sliding_window":
            near = min(t, window[variant])
            return 4 * near, near
        case "global_window":
            return 3 * t + 1 * min(t, window[variant]), t
        case "mlr" | "mlr-plain":
            return 2 * t + 1 * (t % 8) + 1 * (t % 4), t
        case "mlr-ragged":
            return 1 * t + 1 * (t % 7) + 2 * (t % 3), t
        case "mlr-no-whole-level":
            return 2 * (t % 8) + 2 * (t % 5), max(t % 8, t % 5)
        case "mlr-unshared-attend":
            return 2 * (t % 6) + 2 * (t % 3), t
        case "mlr_window":
            near = min(t, window[variant])
            return 2 * near + 1 * (t % 8) + 1 * (t % 4), max(near, t % 8)
        case "mlr-window-narrow":
            return 2 * min(t, 2) + 2 * (t % 8), max(min(t, 2), t % 8)
        case "mlr-counted":
            return 2 * t + 1 * (t % 9) + 1 * (t % 3), t
        case _:
            return 0, 0


MEASURED = [variant for variant in VARIANTS if variant not in ("mix", "window-itself")]


@pytest.mark.parametrize("variant", MEASURED)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@torch.no_grad()
def test_bytes_are_the_closed_form_at_every_length(
    variant: str, grouped: bool, padded: bool
) -> None:
    model, tokens = model_of(variant, grouped=grouped).float(), text()
    heads = 2 if grouped else NUM_HEADS
    key_heads = NUM_HEADS if variant in ("bilinear", "bilinear_btt") else heads
    cache = model.new_cache()
    for t in range(1, PAST + 1):
        mask = padding(PAST)[:, t - 1 : t] if padded else None
        model(tokens[:, t - 1 : t], mask, cache=cache)
        keys, steps = kept(variant, t)
        numbers = key_heads * keys + heads * (WIDTH // NUM_HEADS) * steps
        expected = NUM_LAYERS * 2 * (4 * numbers + (steps if padded else 0))
        assert cache.num_bytes == expected, t


@pytest.mark.parametrize("num_levels", [1, 2, 3, 5])
@torch.no_grad()
def test_keys_take_the_published_closed_form_at_block_boundaries_and_never_more(
    num_levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``T * sum(r_l / 2 ** (l - 1))``: reached inside the step that completes every block."""
    ranks, context = (8, 4, 2, 1, 1)[: num_levels - 1], 32
    ranks = (*ranks, 16 - sum(ranks))
    config = CausalLMConfig(
        vocabulary_size=VOCABULARY,
        context_length=context,
        width=16,
        num_heads=1,
        num_layers=1,
        ranks=ranks,
        positions="none",
    )
    model = CausalLM(config)
    score, seen = model.encoder.blocks[0].attention.score, []
    attend_step = type(score).attend_step

    def watched(self: Score, step: Any) -> Tensor:
        seen.append(sum(keys.numel() for keys in step.keys))
        return attend_step(self, step)

    monkeypatch.setattr(type(score), "attend_step", watched)
    cache = model.new_cache()
    for t in range(1, context + 1):
        model(text(1, 1), cache=cache)
        sizes = [context / 2**lvl for lvl in range(num_levels)]
        bound = sum(
            rank * (t if lvl == 0 else min(t, size))
            for lvl, (rank, size) in enumerate(zip(ranks, sizes, strict=True))
        )
        between = sum(keys.numel() for keys in cache.layers[0].keys)
        assert between <= seen[-1] <= bound
        assert cache.num_bytes == 4 * (between + 16 * t)
    closed_form = context * sum(rank / 2**lvl for lvl, rank in enumerate(ranks))
    assert seen[-1] == closed_form
    assert max(seen) == closed_form


@pytest.mark.parametrize("variant", ["sliding_window", "mlr_window", "mlr-no-whole-level"])
@torch.no_grad()
def test_windows_and_blocks_bound_the_cache_however_long_the_text(variant: str) -> None:
    model, sizes = model_of(variant), []
    cache = model.new_cache()
    for start in range(40):
        model(text(1, 17, seed=start), cache=cache)
        sizes.append(cache.num_bytes)
    assert cache.length == 680
    assert max(sizes[20:]) <= max(sizes[:20])
    keys, values = (max(x) for x in zip(*(kept(variant, t) for t in range(200)), strict=True))
    assert max(sizes) <= NUM_LAYERS * NUM_HEADS * 8 * (keys + 4 * values)


def test_an_empty_cache() -> None:
    cache = model_of("mlr").new_cache()
    assert (cache.length, cache.num_bytes, len(cache.layers)) == (0, 0, NUM_LAYERS)


def test_the_table_of_the_page_is_what_its_code_computes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "generation.md").read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    namespace: dict[str, Any] = {}
    exec(code[0].splitlines()[0] + "\nfrom mlrforecast.models import *\n" + code[-1], namespace)
    table = re.findall(r'^\| `"(\w+)"` \| (.*) \|$', page, re.MULTILINE)
    assert {name: row.split(" | ") for name, row in table} == namespace["rows"]
    assert sorted(namespace["rows"]) == NAMES


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


@pytest.fixture
def unchecked(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--jaxtyping-packages", default=None):
        pytest.skip("the shape checker refuses wrong types before the code under test does")


@pytest.mark.usefixtures("unchecked")
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
