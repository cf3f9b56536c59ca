"""The language model: exact, causal, and the same configuration for every score."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mlrforecast.models import CausalLM, CausalLMConfig
from mlrforecast.nn import attentions
from tests.models import oracle
from tests.models.golden import make
from tests.models.scores_by_name import FIELDS, NAMES

pytestmark = pytest.mark.usefixtures("seeded")

CONTEXT, VOCABULARY = 12, 7


def config_of(attention: Any = "mlr", **fields: Any) -> CausalLMConfig:
    sizes = {"vocabulary_size": VOCABULARY, "context_length": CONTEXT, "width": 12, "num_heads": 3}
    if isinstance(attention, str):
        fields = {**FIELDS.get(attention, {}), **fields}
    return CausalLMConfig(**{**sizes, "num_layers": 2, "attention": attention, **fields})


def model_of(attention: Any = "mlr", **fields: Any) -> CausalLM:
    """A model in float64 whose tokens differ enough to be told apart."""
    model = CausalLM(config_of(attention, **fields)).double().eval()
    torch.nn.init.normal_(model.embedding.weight)
    return model


def text(batch: int = 2, length: int = CONTEXT, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (batch, length), generator=generator)


def close(value: Tensor, exact: Tensor, atol: float = 1e-10) -> None:
    torch.testing.assert_close(value, exact, rtol=0, atol=atol)


# Exact.


@pytest.mark.shared
def test_the_published_model(shared_file: Callable[[str], Path]) -> None:
    with np.load(shared_file("lm_tiny_mlr.npz"), allow_pickle=False) as file:
        meta = json.loads(str(file["meta"]))
        tensors = {name: torch.from_numpy(file[name]) for name in file.files if name != "meta"}
    config = CausalLMConfig(
        vocabulary_size=meta["vocab"],
        context_length=meta["T"],
        width=meta["D"],
        num_heads=meta["H"],
        num_layers=meta["n_layer"],
        ranks=tuple(meta["ranks"]),
        block_sizes=tuple(meta["block_sizes"]),
        attention_options={"level_scale": "inverse_rank", "divide_by_shared_levels": True},
        qk_norm=meta["qk_layernorm"],
        bias=meta["bias"],
    )
    model = CausalLM(config).double()
    state = {
        "embedding.weight": tensors["wte"],
        "positions.weight": tensors["wpe"],
        "encoder.norm.weight": tensors["ln_final_w"],
        "head.weight": tensors["W_head"],
    }
    for block in range(meta["n_layer"]):
        for ours, theirs in PUBLISHED.items():
            state[f"encoder.blocks.{block}.{ours}.weight"] = tensors[f"h{block}_{theirs}"]
    model.load_state_dict(state)
    close(model(tensors["idx"]), tensors["logits"])
    close(model.loss(tensors["idx"], tensors["targets"]), tensors["loss"])


PUBLISHED = {
    "attention_norm": "ln_attn_w",
    "attention.score.query_norm": "ln_q_w",
    "attention.score.key_norm": "ln_k_w",
    "attention.score.query": "W_q",
    "attention.score.key": "W_k",
    "attention.value": "W_v",
    "attention.output": "W_o",
    "network_norm": "ln_mlp_w",
    "network.0": "W_up",
    "network.3": "W_down",
}


def test_the_committed_vectors() -> None:
    expected = json.loads(make.FILE.read_text())["lm"]
    model, tokens, targets = make.language_case()
    loss = model.loss(tokens, targets)
    close(model(tokens), torch.tensor(expected["outputs"], dtype=torch.float64))
    assert loss.item() == pytest.approx(expected["loss"], abs=1e-12)
    gradients = make.checksums(loss, dict(model.named_parameters()))
    assert gradients == pytest.approx(expected["gradients"], abs=1e-11)


@pytest.mark.parametrize("length", [1, 2, 5, 8])
@pytest.mark.parametrize("fields", [{}, {"bias": True, "positions": "none", "qk_norm": False}])
def test_shorter_texts_keep_the_blocks_of_the_context(fields: dict[str, Any], length: int) -> None:
    """Quirk 1: block sizes are those of the configured length, and a shorter text is cropped."""
    config = dataclasses.replace(make.LM, **fields)
    model = make.filled(CausalLM(config))
    tokens, targets = text(length=length, seed=1) % 5, text(length=length, seed=2) % 5
    weights = make.leaves(model)
    logits = oracle.language_model(tokens, weights, make.LM_ATTEND)
    close(model(tokens), logits)
    loss, exact = model.loss(tokens, targets), oracle.cross_entropy(logits, targets)
    close(loss, exact)
    found, wanted = (
        torch.autograd.grad(value, list(of), materialize_grads=True)
        for value, of in ((loss, model.parameters()), (exact, weights.values()))
    )
    for gradient, wanted_gradient in zip(found, wanted, strict=True):
        close(gradient, wanted_gradient)


# The same for every score.


def test_every_score_is_listed() -> None:
    assert sorted(attentions) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_one_configuration_serves_every_score(name: str) -> None:
    """Quirk 11: the published one had no fields for some scores."""
    config = config_of(name)
    assert CausalLMConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    model = model_of(name).train()
    model.loss(text(), text(seed=1)).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@pytest.mark.parametrize("positions", ["learned", "rotary", "none"])
@pytest.mark.parametrize("name", NAMES)
def test_the_future_changes_nothing_in_the_past(name: str, positions: str) -> None:
    model, tokens = model_of(name, positions=positions), text()
    changed = tokens.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % VOCABULARY
    before, after = model(tokens), model(changed)
    close(after[:, :7], before[:, :7])
    assert ((after[:, 7:] - before[:, 7:]).abs().amax(-1) > 1e-6).all()


@pytest.mark.parametrize("name", NAMES)
def test_what_stands_at_padding_changes_nothing(name: str) -> None:
    model, tokens = model_of(name), text()
    key_mask = torch.arange(CONTEXT) >= torch.tensor([[0], [5]])
    moved = torch.where(key_mask, tokens, (tokens + 3) % VOCABULARY)
    close(model(moved, key_mask)[key_mask], model(tokens, key_mask)[key_mask])
    close(model(tokens, key_mask)[0], model(tokens)[0])
    loss = model.loss(tokens, text(seed=1), key_mask)
    log_p = model(tokens, key_mask).log_softmax(-1).gather(-1, text(seed=1)[..., None])[..., 0]
    close(loss, -log_p[key_mask].mean())


def test_a_pattern_of_scores_is_repeated_over_the_blocks() -> None:
    mix = ("standard", "mlr", "sliding_window")
    model = model_of(mix, num_layers=4, attention_options={"window": 2})
    assert [b.attention.attention for b in model.encoder.blocks] == [*mix, "standard"]
    assert model.encoder.blocks[2].attention.score.window == 2


def test_documents_of_a_packed_text_do_not_see_each_other() -> None:
    model = model_of(positions="none", ranks=(3, 1), attention_options=None)
    first, second = text(1, 4, seed=1), text(1, 6, seed=2)
    packed = torch.cat([first, second], 1)
    whole = torch.tensor([0] * 4 + [1] * 6)
    alone = torch.zeros(2, 6, dtype=torch.long)
    out = model(packed, block_ids=torch.stack([whole, whole]))
    close(out[:, :4], model(first, block_ids=alone[:, :4]))
    close(out[:, 4:], model(second, block_ids=alone))
    targets = text(1, 10, seed=3)
    parts = [model.loss(first, targets[:, :4], block_ids=alone[:, :4]) * 4]
    parts.append(model.loss(second, targets[:, 4:], block_ids=alone) * 6)
    close(model.loss(packed, targets, block_ids=torch.stack([whole, whole])), sum(parts) / 10)


# Parts.


def test_parts() -> None:
    model = CausalLM(config_of(bias=True))
    assert model.head.bias is None
    assert model.head.weight is not model.embedding.weight
    assert model.encoder.blocks[0].network[0].weight.shape == (48, 12)
    assert model.embedding.weight.std().item() == pytest.approx(0.02, rel=0.3)
    assert model.positions.weight.shape == (CONTEXT, 12)
    assert model.encoder.blocks[0].attention.score.heads.context_length == CONTEXT
    small = CausalLM(config_of(hidden_width=5, positions="rotary", qk_norm=False))
    assert small.encoder.blocks[1].network[3].weight.shape == (12, 5)
    assert small.positions is None
    assert small.encoder.blocks[1].attention.rotary
    assert isinstance(small.encoder.blocks[1].attention.score.query_norm, torch.nn.Identity)


def test_positions_differ() -> None:
    tokens = torch.full((1, 6), 3)
    learned, none, rotary = (
        model_of("standard", positions=kind, num_layers=1) for kind in ("learned", "none", "rotary")
    )
    close(none(tokens)[:, 5], none(tokens)[:, 0])  # the same token everywhere
    assert (learned(tokens)[:, 5] - learned(tokens)[:, 0]).abs().max() > 1e-4
    tokens = text(1, 6)
    rotary.load_state_dict(none.state_dict())
    assert (rotary(tokens) - none(tokens)).abs().max() > 1e-4
    shuffled = tokens[:, [3, 1, 4, 0, 2, 5]]
    close(none(shuffled)[:, 5], none(tokens)[:, 5])
    assert (rotary(shuffled)[:, 5] - rotary(tokens)[:, 5]).abs().max() > 1e-4


@pytest.mark.parametrize("positions", ["rotary", "none"])
@pytest.mark.parametrize("name", NAMES)
def test_a_text_may_be_longer_than_the_context(name: str, positions: str) -> None:
    model, tokens = model_of(name, positions=positions), text(length=3 * CONTEXT)
    close(model(tokens)[:, :CONTEXT], model(tokens[:, :CONTEXT]))


def test_learned_positions_end() -> None:
    with pytest.raises(ValueError, match="Learned positions end at 12 tokens, got 13"):
        model_of()(text(length=13))


def test_dropout_is_for_training() -> None:
    model = model_of(dropout=0.5)
    close(model(text()), model(text()))
    model.train()
    assert (model(text()) - model(text())).abs().max() > 1e-3
    assert model.encoder.blocks[0].network[2].p == model.dropout.p == 0.5


def test_tokens_may_be_bytes() -> None:
    model = model_of()
    close(model(text().to(torch.uint8)), model(text()), 0)
    close(model.loss(text().to(torch.uint8), text().to(torch.uint8)), model.loss(text(), text()))


def test_the_loss_of_a_low_precision_model_is_in_float32() -> None:
    assert model_of().bfloat16().loss(text(), text()).dtype == torch.float32


# Bad input.


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((text().float(),), TypeError, "`tokens` must be a tensor of integers, got torch.float32"),
        ((text() > 3,), TypeError, "`tokens` must be a tensor of integers, got torch.bool"),
        (([[1, 2]],), TypeError, "`tokens` must be a tensor of integers, got list"),
        ((text()[0],), ValueError, r"`tokens` must have a shape \(B, T\).* got \(12,\)"),
        ((text()[:, :0],), ValueError, r"at least one token, got \(2, 0\)"),
        ((text() + 1,), ValueError, "`tokens` must lie in 0 to 6, got 7"),
        ((text() - 1,), ValueError, "`tokens` must lie in 0 to 6, got -1"),
        ((text(), text()), TypeError, "`key_mask` must be a tensor of bool, got torch.int64"),
        (
            (text(), (text() > 1)[:1]),
            ValueError,
            r"`key_mask` must .* got \(1, 12\)",
        ),
    ],
)
def test_wrong_calls(arguments: tuple[Any, ...], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        model_of()(*arguments)


@pytest.mark.usefixtures("own_errors")
def test_wrong_targets() -> None:
    model = model_of()
    with pytest.raises(ValueError, match="`targets` must lie in 0 to 6, got 7"):
        model.loss(text(), text() + 1)
    with pytest.raises(ValueError, match=r"`targets` must have the shape of `tokens`, \(2, 12\)"):
        model.loss(text(), text()[:, 1:])


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"vocabulary_size": 0}, ValueError, "`vocabulary_size` must be an integer of at least 1"),
        ({"context_length": 2.5}, ValueError, "`context_length` must be an integer .* got 2.5"),
        ({"width": True}, ValueError, "`width` must be an integer of at least 1, got True"),
        ({"num_heads": 0}, ValueError, "`num_heads` must be an integer of at least 1"),
        ({"num_layers": -1}, ValueError, "`num_layers` must be an integer of at least 1"),
        ({"hidden_width": 0}, ValueError, "`hidden_width` must be an integer of at least 1"),
        ({"attention": "mrl"}, ValueError, "`attention` must be one of .*mlr.*, got 'mrl'"),
        ({"attention": ("mlr", "x")}, ValueError, "`attention` must be one of .*, got 'x'"),
        ({"attention": ()}, ValueError, "`attention` must name at least one score"),
        (
            {"ranks": (4, 0)},
            ValueError,
            "`ranks` must be an integer of at least 1, got 0 at index 1",
        ),
        ({"ranks": (4, None)}, ValueError, "`ranks` must be an integer of at least 1, got None"),
        ({"positions": "sine"}, ValueError, "`positions` must be one of learned, rotary, none"),
        ({"qk_norm": 1}, TypeError, "`qk_norm` must be True or False, got 1"),
        ({"bias": None}, TypeError, "`bias` must be True or False, got None"),
        ({"dropout": 1.0}, ValueError, r"`dropout` must be in \[0, 1\), got 1.0"),
        ({"attention_options": {"colour": 1}}, ValueError, "no option `colour`"),
        ({"attention_options": {"ranks": (4,)}}, ValueError, "holds 'ranks', set by `ranks`"),
        ({"attention_options": {"rotary": True}}, ValueError, "'rotary', set by `positions`"),
        ({"attention_options": {"window": {1}}}, TypeError, r"\['window'\]` must be made of"),
        ({"attention_options": [("window", 1)]}, TypeError, "must map names .* got a list"),
    ],
)
def test_wrong_fields(fields: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        config_of(**{"attention_options": None, **fields})


@pytest.mark.usefixtures("own_errors")
def test_options_become_plain() -> None:
    options = {
        "ranks": [np.int64(2), 2],
        "level_scale": np.array([0.5, 0.25]),
        "divide_by_shared_levels": np.bool_(True),
    }
    ranks = options.pop("ranks")
    config = config_of(ranks=ranks, attention_options=options, dropout=np.float32(0.5))
    assert config.ranks == (2, 2)
    assert config.attention_options == {
        "level_scale": (0.5, 0.25),
        "divide_by_shared_levels": True,
    }
    assert CausalLMConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert options["divide_by_shared_levels"] is np.bool_(True), "the caller's mapping is kept"
    with pytest.raises(ValueError, match="Unknown configuration fields: depth, widht"):
        CausalLMConfig.from_dict({**config.to_dict(), "widht": 1, "depth": 2})


def test_levels_and_heads_are_checked_with_the_model() -> None:
    with pytest.raises(ValueError, match="`num_heads` must divide the width 12, got 5"):
        model_of(num_heads=5)
    with pytest.raises(ValueError, match="`ranks` must sum to the head width 4"):
        model_of(ranks=(4, 2))
