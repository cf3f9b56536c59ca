"""Multi-level attention inside Chronos-T5, Chronos-Bolt and Chronos-2."""

import copy

import pytest
import torch

from tests.integrations.transformers_case import close, differ, hf, shaken  # noqa: F401

chronos = pytest.importorskip("chronos")

# Here, for its import draws random numbers.
from mlrforecast.integrations.chronos import convert  # noqa: E402

pytestmark = pytest.mark.usefixtures("hf", "seeded")

DUMMIES = {
    "dummy-chronos-model": {"ranks": (8, 4, 4), "block_sizes": (None, 32, 16)},
    "dummy-chronos-bolt-model": {"ranks": (2, 1, 1), "block_sizes": (None, 8, 4)},
    "dummy-chronos2-model": {"ranks": (2, 2), "block_sizes": (None, 4)},
}
CLASSES = {
    "dummy-chronos-model": "MLRChronosPipeline",
    "dummy-chronos-bolt-model": "MLRChronosBoltPipeline",
    "dummy-chronos2-model": "MLRChronos2Pipeline",
}


def contexts():
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(n, generator=generator).cumsum(0) for n in (40, 200, 515)]


@pytest.fixture(params=DUMMIES)
def name(request):
    return request.param


@pytest.fixture
def dummy(name, shared_file):
    """A small random model of Chronos' own tests."""
    folder = next(p for p in shared_file("adapter_model.safetensors").parents[1].iterdir())
    folder = folder.parent / name
    return chronos.BaseChronosPipeline.from_pretrained(folder, dtype="float32")


def hidden(pipeline):
    """What a pipeline makes of contexts before anything is drawn."""
    if isinstance(pipeline, chronos.Chronos2Pipeline):
        return torch.cat([found.flatten() for found in pipeline.predict(contexts())])
    return torch.cat([part.flatten() for part in (pipeline.embed(contexts())[0], tail(pipeline))])


def tail(pipeline):
    """What its decoder makes of them."""
    if isinstance(pipeline, chronos.ChronosBoltPipeline):
        return pipeline.predict(contexts())
    given = pipeline.tokenizer.context_input_transform(
        pipeline._prepare_and_validate_context(contexts())
    )
    decoded = torch.arange(3 * 30).reshape(3, 30) % 30 + 2
    with torch.no_grad():
        return pipeline.inner_model(
            input_ids=given[0], attention_mask=given[1], decoder_input_ids=decoded
        ).logits


@pytest.mark.shared
class TestDummies:
    def test_one_level_is_the_model_as_it_was_and_more_are_not(self, dummy, name):
        shaken(dummy.inner_model)
        before = hidden(dummy)
        one = convert(dummy, ranks=(sum(DUMMIES[name]["ranks"]),))
        assert type(one).__name__ == CLASSES[name]
        assert isinstance(one, type(dummy))
        torch.testing.assert_close(hidden(one), before, rtol=1e-4, atol=1e-4)
        assert differ(hidden(convert(dummy, **DUMMIES[name])), before)
        torch.testing.assert_close(hidden(dummy), before, rtol=0, atol=0)

    def test_it_is_saved_and_loaded_any_number_of_times(self, dummy, name, tmp_path):
        shaken(dummy.inner_model)
        made = convert(dummy, **DUMMIES[name])
        expected = hidden(made)
        for number in range(2):
            folder = tmp_path / str(number)
            made.inner_model.save_pretrained(folder)
            made = chronos.BaseChronosPipeline.from_pretrained(folder)
            assert type(made).__name__ == CLASSES[name]
            close(hidden(made), expected)
        close(hidden(copy.deepcopy(made)), expected)

    def test_every_weight_learns(self, dummy, name):
        shaken(dummy.inner_model)
        model = convert(dummy, **DUMMIES[name]).inner_model.train()
        context, future = torch.rand(3, 200), torch.rand(3, 16)
        if name == "dummy-chronos-model":
            ids = torch.randint(2, 32, (3, 40))
            loss = model(input_ids=ids, labels=ids[:, :12].contiguous()).loss
        elif name == "dummy-chronos-bolt-model":
            loss = model(context=context, target=future).loss
        else:
            together = torch.zeros(3, dtype=torch.long)
            loss = model(context=context, future_target=future, group_ids=together).loss
        loss.backward()
        still = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
        # A decoder of one token has nothing to choose between; padding is a token never read.
        alone = ("decoder.block", "decoder.embed")
        assert [n for n in still if not n.startswith(alone)] == []
        assert all(".SelfAttention." in n for n in still)

    def test_batches_and_padding_change_nothing(self, dummy, name):
        shaken(dummy.inner_model)
        made = convert(dummy, **DUMMIES[name])
        if name == "dummy-chronos-model":
            pytest.skip("draws samples")
        quantiles, _ = made.predict_quantiles(contexts(), 24, [0.1, 0.5, 0.9])
        for number, context in enumerate(contexts()):
            alone, _ = made.predict_quantiles([context], 24, [0.1, 0.5, 0.9])
            torch.testing.assert_close(alone[0], quantiles[number], rtol=1e-3, atol=1e-3)


def real_t5():
    from transformers import T5Config, T5ForConditionalGeneration

    # The size of Chronos-T5-tiny.
    tokens = {"n_tokens": 4096, "n_special_tokens": 2, "pad_token_id": 0, "eos_token_id": 1}
    draws = {"num_samples": 2, "temperature": 1.0, "top_k": 50, "top_p": 1.0}
    own = chronos.ChronosConfig(
        tokenizer_class="MeanScaleUniformBins",
        tokenizer_kwargs={"low_limit": -15.0, "high_limit": 15.0},
        context_length=512,
        prediction_length=64,
        use_eos_token=True,
        model_type="seq2seq",
        **tokens,
        **draws,
    )
    config = T5Config(
        d_model=256,
        d_ff=1024,
        d_kv=64,
        num_layers=4,
        num_heads=4,
        vocab_size=4096,
        decoder_start_token_id=0,
        chronos_config=vars(own),
    )
    model = chronos.ChronosModel(config=own, model=T5ForConditionalGeneration(config).eval())
    return chronos.ChronosPipeline(tokenizer=own.create_tokenizer(), model=model)


class TestRealSizes:
    def test_t5(self):
        pipeline = real_t5()
        one, several = (convert(pipeline, ranks=r) for r in ((64,), (32, 16, 16)))
        found = [hidden(each) for each in (pipeline, one, several)]
        torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)
        assert differ(found[2], found[0])
        assert several.inner_model.config.block_sizes == {
            "encoder": [None, 258, 129],
            "decoder": [None, 34, 17],
        }
        drawn = several.predict(contexts()[:1], 5, num_samples=3)
        assert drawn.shape == (1, 3, 5)

    def test_stacks_can_be_chosen(self):
        pipeline = real_t5()
        ranks = (32, 16, 16)
        before = pipeline.embed(contexts())[0]
        encoder = convert(pipeline, ranks={"encoder": ranks}).embed(contexts())[0]
        decoder = convert(pipeline, ranks={"decoder": ranks})
        assert differ(encoder, before)
        close(decoder.embed(contexts())[0], before)
        assert differ(tail(decoder), tail(pipeline))

    def test_bolt(self):
        from chronos.chronos_bolt import ChronosBoltModelForForecasting
        from transformers import T5Config

        # The size of Chronos-Bolt-tiny.
        own = {
            "context_length": 2048,
            "prediction_length": 64,
            "input_patch_size": 16,
            "input_patch_stride": 16,
            "quantiles": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9],
            "use_reg_token": True,
        }
        config = T5Config(
            d_model=256,
            d_ff=1024,
            d_kv=64,
            num_layers=4,
            num_heads=4,
            decoder_start_token_id=0,
            chronos_config=own,
        )
        model = ChronosBoltModelForForecasting(config).eval()
        pipeline = chronos.ChronosBoltPipeline(model)
        one, several = (convert(pipeline, ranks=r) for r in ((64,), (32, 16, 16)))
        found = [hidden(each) for each in (pipeline, one, several)]
        size = found[0].abs().max().item()
        torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-5 * size)
        assert differ(found[2], found[0])
        assert several.model.config.block_sizes["encoder"] == [None, 66, 33]


@pytest.mark.shared
@pytest.mark.parametrize("name", ["dummy-chronos2-model"])
def test_only_time_attention_of_chronos_2_is_changed(dummy):
    made = convert(dummy, ranks=(2, 2))
    for block in made.model.encoder.block:
        kinds = [type(layer.self_attention).__name__ for layer in block.layer[:2]]
        assert kinds == ["MLRTimeAttention", "MHA"]
    with pytest.raises(ValueError, match="Chronos-2 has one stack"):
        convert(dummy, ranks={"encoder": (2, 2)})


@pytest.mark.shared
@pytest.mark.parametrize("name", ["dummy-chronos-bolt-model"])
def test_what_cannot_be_converted_is_told(dummy):
    with pytest.raises(ValueError, match=r"`ranks` must sum to the head width 4, got \(2, 1\)"):
        convert(dummy, ranks=(2, 1))
    with pytest.raises(TypeError, match=r"`pipeline` must be a ChronosPipeline, .* got a str"):
        convert("amazon/chronos-t5-tiny", ranks=(2, 2))
    for ranks in (4, {"encoder": 4}):
        with pytest.raises(TypeError, match="`ranks` must be a sequence with one entry for each"):
            convert(dummy, ranks=ranks)


@pytest.mark.shared
def test_another_attention_than_the_saved_one_is_refused(dummy, name, tmp_path):
    convert(dummy, **DUMMIES[name]).inner_model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="`attn_implementation` must be 'mlr' or left out"):
        chronos.BaseChronosPipeline.from_pretrained(tmp_path, attn_implementation="sdpa")
