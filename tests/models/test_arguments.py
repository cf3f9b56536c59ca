"""Arguments that meant something else than they said are refused, with what was meant."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mlrforecast.models import (
    CausalLM,
    CausalLMConfig,
    EncoderConfig,
    EncoderForecaster,
    Regressor,
    RegressorConfig,
)
from mlrforecast.nn import EncoderBlock, LayerCache, Score, StructuredAttention, attentions
from mlrforecast.ops import ParameterSpec, StructuredMatrix
from mlrforecast.ops.matrices import matrices

pytestmark = pytest.mark.usefixtures("seeded")


def forecaster(**fields: Any) -> EncoderForecaster:
    """336 steps in 21 tokens, as the estimator has it by default."""
    return EncoderForecaster(EncoderConfig(context_length=336, prediction_length=24, **fields))


def language_model(**fields: Any) -> CausalLM:
    sizes = {"vocabulary_size": 5, "context_length": 21, "width": 16, "num_heads": 2}
    return CausalLM(CausalLMConfig(**{**sizes, "num_layers": 2, **fields}))


def regressor(**fields: Any) -> Regressor:
    """Ten points of two tokens each."""
    sizes = {"num_dims": 2, "num_points": 10, "width": 16, "num_heads": 2, "num_layers": 2}
    return Regressor(RegressorConfig(**{**sizes, **fields}))


MODELS = {forecaster: 21, language_model: 21, regressor: 20}


# Blocks and windows are counted in tokens.


@pytest.mark.parametrize(("build", "tokens"), MODELS.items())
def test_blocks_longer_than_all_tokens_are_refused(build: Callable[..., Any], tokens: int) -> None:
    ranks = (4, 2, 2)
    build(ranks=ranks, block_sizes=(tokens, tokens, 3))
    words = (
        rf"`block_sizes\[1\]` must be at most the {tokens} tokens of a sequence, got {tokens + 1}"
    )
    with pytest.raises(ValueError, match=words):
        build(ranks=ranks, block_sizes=(None, tokens + 1, 3))


def test_hours_for_tokens_are_refused_with_what_a_token_is() -> None:
    words = "21 tokens of a sequence, got 168: .* is a patch of `patch_length` steps"
    with pytest.raises(ValueError, match=words):
        forecaster(ranks=(4, 2, 2), block_sizes=(None, 168, 24))
    points = {"patch_length": 1, "patch_stride": 1}
    forecaster(ranks=(4, 2, 2), block_sizes=(None, 168, 24), **points)


@pytest.mark.parametrize("attention", ["sliding_window", "global_window", "mlr_window"])
@pytest.mark.parametrize(("build", "tokens"), MODELS.items())
def test_windows_that_leave_nothing_out_are_refused(
    build: Callable[..., Any], tokens: int, attention: str
) -> None:
    build(attention=attention, attention_options={"window": tokens - 1})
    words = f"`window` must be less than the {tokens} tokens of a sequence, got {tokens}"
    with pytest.raises(ValueError, match=words):
        build(attention=("standard", attention), attention_options={"window": tokens})


# The norm of queries and keys.


@pytest.mark.parametrize("attention", ["bilinear", "bilinear_btt", ("bilinear", "bilinear_btt")])
def test_a_norm_that_no_layer_has_is_refused(attention: Any) -> None:
    words = r"no option `qk_norm`; its keys are normalised by `key_norm`"
    for build in (language_model, regressor):
        with pytest.raises(ValueError, match=words):
            build(attention=attention, qk_norm=True)
        for norm in (None, False):
            assert build(attention=attention, qk_norm=norm).config.qk_norm is None
    with pytest.raises(ValueError, match=words):
        forecaster(attention=attention, attention_options={"qk_norm": True})


@pytest.mark.parametrize("attention", ["mlr", ("bilinear", "mlr")])
def test_a_norm_left_open_is_there_where_a_layer_has_it(attention: Any) -> None:
    for build in (language_model, regressor):
        assert build(attention=attention).config.qk_norm is True
        assert build(attention=attention, qk_norm=False).config.qk_norm is False
        layers = [block.attention for block in build(attention=attention).encoder.blocks]
        has = [layer.attention == "mlr" for layer in layers]
        assert [layer.score.heads.qk_norm for layer in layers] == has


def test_a_configuration_with_an_open_norm_survives() -> None:
    for attention in ("mlr", "bilinear"):
        config = language_model(attention=attention).config
        assert CausalLMConfig.from_dict(config.to_dict()) == config


# Things of another kind.


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize("cache", [True, "yes", {}])
def test_a_cache_that_is_none_is_named(cache: Any) -> None:
    model, tokens = language_model(), torch.zeros(1, 3, dtype=torch.int64)
    with pytest.raises(TypeError, match=r"`cache` must be a ModelCache, got .*: .* new_cache\(\)"):
        model(tokens, cache=cache)
    layer = StructuredAttention(16, 2, causal=True)
    with pytest.raises(TypeError, match=r"`cache` must be a LayerCache, got .* LayerCache\(layer"):
        layer(torch.zeros(1, 3, 16), cache=cache)


@pytest.mark.usefixtures("own_errors")
def test_caches_of_a_model_and_of_a_layer_are_told_apart() -> None:
    model, tokens = language_model(), torch.zeros(1, 3, dtype=torch.int64)
    block = model.encoder.blocks[0]
    assert isinstance(block, EncoderBlock)
    with pytest.raises(TypeError, match="must be a ModelCache, got a LayerCache"):
        model(tokens, cache=LayerCache(block.attention.score))
    with pytest.raises(TypeError, match="must be a LayerCache, got a ModelCache"):
        block(torch.zeros(1, 3, 16), cache=model.new_cache())
    for cache in (True, model.new_cache()):
        with pytest.raises(TypeError, match=r"`cache` must be .* one LayerCache for each block"):
            model.encoder(torch.zeros(1, 3, 16), cache=cache)


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize("generator", [0, 7, "seed"])
def test_a_seed_for_a_generator_is_refused_with_the_way_to_make_one(generator: Any) -> None:
    tokens = torch.zeros(1, 3, dtype=torch.int64)
    for temperature in (0.0, 1.0):
        with pytest.raises(TypeError, match=r"`generator` must be .*manual_seed\(seed\)"):
            language_model().generate(tokens, 2, temperature=temperature, generator=generator)


@pytest.mark.usefixtures("own_errors")
def test_a_mapping_for_a_configuration_is_refused_with_the_way_to_make_one() -> None:
    fields = {"vocabulary_size": 5, "context_length": 8}
    with pytest.raises(TypeError, match=r"`config` must be a CausalLMConfig, got a dict. .*from_d"):
        CausalLM(fields)
    with pytest.raises(TypeError, match=r"`config` must be a RegressorConfig, got a dict. .*from_"):
        Regressor({"num_dims": 2})
    with pytest.raises(TypeError, match="`config` must be a RegressorConfig, got a CausalLMConf"):
        Regressor(CausalLMConfig(**fields))


# Scores and structures of one's own.


def test_what_is_no_score_or_structure_is_not_registered() -> None:
    with pytest.raises(TypeError, match="`entry` of the attention 'foo' must be a subclass of Sco"):
        attentions.register("foo", dict)
    with pytest.raises(
        TypeError, match=r"'foo' must be a subclass of StructuredMatrix, got .*Score"
    ):
        matrices.register("foo", Score)
    assert "foo" not in attentions
    assert "foo" not in matrices


def test_an_unknown_name_says_that_ones_own_come_first() -> None:
    hint = "Register your own before a model of it is built or loaded: {}.register"
    with pytest.raises(ValueError, match=hint.format("attentions")):
        language_model(attention="mine")
    with pytest.raises(ValueError, match=hint.format("attentions")):
        StructuredAttention(16, 2, attention="mine")
    with pytest.raises(ValueError, match=hint.format("matrices")):
        language_model(attention="bilinear", attention_options={"structure": "mine"})


class Scaled(StructuredMatrix):
    """A diagonal with a factor: an option that no shape tells."""

    def __init__(self, entries: Tensor, factor: float = 1.0) -> None:
        self.entries, self.factor = entries, factor
        super().__init__((entries.shape[-1],) * 2, entries.shape[:-1])

    def parameters(self) -> dict[str, Tensor]:
        return {"entries": self.entries}

    def apply(self, x: Tensor) -> Tensor:
        return self.factor * self.entries[..., None, :] * x

    apply_transposed = apply

    def rank(self) -> int:
        return self.shape[0]

    def flops(self) -> int:
        return self.shape[0]

    @classmethod
    def parameter_specs(
        cls, d_out: int, d_in: int, *, factor: float = 1.0
    ) -> dict[str, ParameterSpec]:
        return {"entries": ParameterSpec((d_in,), 1, 1, reads_input=True)}


def test_an_option_reaches_the_structure_of_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices, "_entries", {**matrices._entries, "scaled": Scaled})
    options = {"structure": "scaled", "structure_options": {"factor": 3.0}}
    layer = StructuredAttention(8, 2, attention="bilinear", clamp=False, **options)
    entries = layer.score.weights["entries"]
    torch.testing.assert_close(layer.score.matrix().dense(), 3 * torch.diag_embed(entries))
