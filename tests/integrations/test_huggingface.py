"""Multi-level attention inside T5, GPT-2, Llama and ViT of transformers, by its name."""

import copy
import json

import pytest
import torch

from mlrforecast.ops import mlr_attention
from tests.integrations.transformers_case import close, differ, hf, shaken  # noqa: F401

pytestmark = pytest.mark.usefixtures("hf", "seeded")

LEVELS = {
    "ranks": (4, 2, 2),
    "block_sizes": {"encoder": (None, 8, 4), "decoder": (None, 6, 3)},
}


def t5(*, size=0.3, **options):
    from transformers import T5Config, T5ForConditionalGeneration

    small = {"vocab_size": 48, "d_model": 24, "d_kv": 8, "d_ff": 32, "num_layers": 2}
    small |= {"num_heads": 3, "decoder_start_token_id": 0, "pad_token_id": 0}
    return shaken(T5ForConditionalGeneration(T5Config(**small | options)), size)


def batch():
    ids = torch.randint(2, 48, (3, 20))
    mask = torch.ones_like(ids)
    mask[0, :5] = mask[1, :11] = 0
    return {"input_ids": ids, "attention_mask": mask}


def test_one_level_is_the_model_as_it_was(hf):  # noqa: F811
    model, given, labels = t5(), batch(), torch.randint(2, 48, (3, 9))
    one = hf.convert(model, ranks=(8,))
    assert model.config._attn_implementation == "sdpa"
    close(one(**given, labels=labels).logits, model(**given, labels=labels).logits)
    several = hf.convert(model, **LEVELS)
    assert differ(several(**given, labels=labels).logits, model(**given, labels=labels).logits)
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    close(one(**given, labels=labels).logits, eager(**given, labels=labels).logits)


def test_one_level_at_the_size_of_chronos_t5_small(hf):  # noqa: F811
    real = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
    model = t5(**real, vocab_size=4096, size=0)
    one = hf.convert(model, ranks=(64,))
    given = {"input_ids": torch.randint(2, 4096, (1, 65))}
    given["decoder_input_ids"] = torch.randint(2, 4096, (1, 9))
    with torch.no_grad():
        expected = model(**given).logits
        found = one(**given).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_stacks_are_chosen_one_by_one(hf, stack):  # noqa: F811
    model, given = t5(), batch()
    sizes = {stack: LEVELS["block_sizes"][stack]}
    one = hf.convert(model, ranks={stack: LEVELS["ranks"]}, block_sizes=sizes)
    encoded = [m.encoder(**given).last_hidden_state for m in (model, one)]
    assert differ(*encoded) == (stack == "encoder")
    decoder = {"input_ids": given["input_ids"][:, :9], "encoder_hidden_states": encoded[0]}
    decoded = [m.decoder(**decoder).last_hidden_state for m in (model, one)]
    assert differ(*decoded) == (stack == "decoder")


def test_cross_attention_stays_standard(hf, monkeypatch):  # noqa: F811
    lengths = []

    def noted(q, k, v, bias, **options):
        lengths.append((q.shape[2], k.shape[2]))
        return hf_biased(q, k, v, bias, **options)

    hf_biased = hf.biased_mlr_attention
    monkeypatch.setattr(hf, "biased_mlr_attention", noted)
    model = hf.convert(t5(), **LEVELS)
    model(**batch(), decoder_input_ids=torch.randint(2, 48, (3, 9)))
    assert lengths == [(20, 20)] * 2 + [(9, 9)] * 2


def test_padding_on_either_side_changes_nothing(hf):  # noqa: F811
    model = hf.convert(t5(), **LEVELS)
    ids, decoded = torch.randint(2, 48, (1, 12)), torch.randint(2, 48, (1, 5))
    alone = model(input_ids=ids, decoder_input_ids=decoded).logits
    padded = torch.cat([torch.zeros(1, 7, dtype=torch.long), ids], 1)
    mask = (torch.arange(19) >= 7).long()[None]
    found = model(input_ids=padded, attention_mask=mask, decoder_input_ids=decoded).logits
    close(found, alone)
    after = model(input_ids=ids, decoder_input_ids=torch.cat([decoded, decoded], 1)).logits
    close(after[:, :5], alone)


def test_a_generation_with_a_cache_is_the_one_without(hf):  # noqa: F811
    model, given = hf.convert(t5(), **LEVELS), batch()
    asked = {"max_new_tokens": 20, "min_new_tokens": 20, "do_sample": False}
    found, plain = (model.generate(**given, **asked, use_cache=flag) for flag in (True, False))
    assert torch.equal(found, plain)
    assert len(found.unique()) > 2
    with pytest.raises(ValueError, match="needs a cache that grows"):
        model.generate(**given, max_new_tokens=3, cache_implementation="static")


def test_every_weight_gets_the_gradient_of_finite_differences(hf):  # noqa: F811
    model = hf.convert(t5(num_layers=1, dropout_rate=0.0), **LEVELS).double()
    given, labels, step = batch(), torch.randint(2, 48, (3, 9)), 1e-4
    model(**given, labels=labels).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        direction = torch.randn_like(parameter)
        slope = (parameter.grad * direction).sum()
        losses = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * step * direction
                losses.append(model(**given, labels=labels).loss)
                parameter -= sign * step * direction
        # Its norms are computed in float32.
        found = (losses[0] - losses[1]) / (2 * step)
        torch.testing.assert_close(found, slope, rtol=0.02, atol=2e-3)


def test_it_is_saved_and_loaded_with_its_name(hf, tmp_path):  # noqa: F811
    from transformers import AutoModelForSeq2SeqLM, T5ForConditionalGeneration

    model, given = hf.convert(t5(), **LEVELS), batch()
    given["decoder_input_ids"] = given["input_ids"][:, :6]
    model.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["attn_implementation"] == "mlr"
    assert written["ranks"] == [4, 2, 2]
    for kind in (T5ForConditionalGeneration, AutoModelForSeq2SeqLM):
        close(kind.from_pretrained(tmp_path)(**given).logits, model(**given).logits)
    plain = T5ForConditionalGeneration.from_pretrained(tmp_path, attn_implementation="sdpa")
    assert differ(plain(**given).logits, model(**given).logits)


def test_a_plain_model_takes_it_by_name_with_levels_in_its_configuration(hf, tmp_path):  # noqa: F811
    from transformers import T5Config, T5ForConditionalGeneration

    model, given = t5(), batch()
    given["decoder_input_ids"] = given["input_ids"][:, :6]
    model.save_pretrained(tmp_path)
    config = T5Config.from_pretrained(tmp_path)
    config.ranks, config.block_sizes = LEVELS["ranks"], LEVELS["block_sizes"]
    loaded = T5ForConditionalGeneration.from_pretrained(
        tmp_path, config=config, attn_implementation="mlr"
    )
    close(loaded(**given).logits, hf.convert(model, **LEVELS)(**given).logits)
    config = hf.with_mlr(T5Config.from_pretrained(tmp_path), **LEVELS)
    made = T5ForConditionalGeneration.from_pretrained(tmp_path, config=config)
    close(made(**given).logits, loaded(**given).logits)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=48, n_positions=32, n_embd=24, n_layer=2, n_head=3)
    )


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    return LlamaForCausalLM(
        LlamaConfig(
            **sizes,
            vocab_size=48,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
        )
    )


@pytest.mark.parametrize("make", [gpt2, llama])
class TestCausalModels:
    def test_one_level_is_the_model_as_it_was(self, hf, make):  # noqa: F811
        model, given = shaken(make()), batch()
        given["attention_mask"] = given["attention_mask"].flip(1)
        seen = given["attention_mask"].bool()
        one, several = (hf.convert(model, ranks=r) for r in ((8,), (4, 2, 2)))
        close(one(**given).logits[seen], model(**given).logits[seen])
        assert differ(several(**given).logits[seen], model(**given).logits[seen])
        close(one(given["input_ids"]).logits, model(given["input_ids"]).logits)

    def test_a_mask_of_ones_is_no_mask_and_what_comes_is_not_seen(self, hf, make):  # noqa: F811
        model = hf.convert(shaken(make()), ranks=(4, 2, 2))
        ids = torch.randint(2, 48, (2, 20))
        whole = model(ids).logits
        causal = torch.ones(20, 20, dtype=torch.bool).tril()[None, None].expand(2, 1, 20, 20)
        close(model(ids, attention_mask=causal).logits, whole)
        close(model(ids[:, :13]).logits, whole[:, :13])

    def test_a_generation_with_a_cache_is_the_one_without(self, hf, make):  # noqa: F811
        model = hf.convert(shaken(make()), ranks=(4, 2, 2))
        ids = torch.randint(2, 48, (2, 5))
        asked = {"max_new_tokens": 20, "min_new_tokens": 20, "do_sample": False}
        asked |= {"pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
        found, plain = (model.generate(ids, **asked, use_cache=flag) for flag in (True, False))
        assert torch.equal(found, plain)

    def test_it_learns(self, hf, make):  # noqa: F811
        model = hf.convert(shaken(make()), ranks=(4, 2, 2)).train()
        ids = torch.randint(2, 48, (2, 12))
        model(ids, labels=ids).loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_vit(hf):  # noqa: F811
    from transformers import ViTConfig, ViTModel

    sizes = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2}
    config = ViTConfig(**sizes, num_attention_heads=3, image_size=24, patch_size=4)
    model, images = shaken(ViTModel(config)), torch.randn(2, 3, 24, 24)
    found = [
        hf.convert(model, ranks=ranks)(images).last_hidden_state for ranks in ((8,), (4, 2, 2))
    ]
    close(found[0], model(images).last_hidden_state)
    assert differ(found[1], found[0])


def test_it_is_the_function_of_the_op(hf):  # noqa: F811
    model = hf.convert(llama(), ranks=(4, 4), block_sizes=(None, 8))
    module = model.model.layers[0].self_attn
    q, k, v = torch.randn(2, 4, 20, 8), torch.randn(2, 2, 20, 8), torch.randn(2, 2, 20, 8)
    found, weights = hf._attend(module, q, k, v, None, scaling=0.25)
    # Pairs of columns that turn together, the slowest first.
    order = [3, 7, 2, 6, 1, 5, 0, 4]
    q, k = q[..., order], k[..., order]
    expected = mlr_attention(
        q, k, v, ranks=(4, 4), block_sizes=(None, 8), causal=True, level_scale=(0.25, 0.25)
    )
    assert weights is None
    close(found, expected.transpose(1, 2))
    with pytest.raises(ValueError, match=r"`ranks` must be even in a model with rotary"):
        hf.convert(llama(), ranks=(5, 3))
    with pytest.raises(ValueError, match=r"MLR attention has no `softcap`, got 5\.0"):
        hf._attend(module, q, k, v, None, softcap=5.0)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ({"ranks": (4, 2)}, r"`ranks` must sum to the head width 8, got \(4, 2\) \(sum 6\)"),
        ({"ranks": (4, 4), "block_sizes": (None, 4, 2)}, "block_sizes"),
        ({"ranks": {"middle": (8,)}}, r"`ranks` must be given for encoder and decoder, got"),
        ({"ranks": (4, 4), "level_scale": "loud"}, "`level_scale` must be"),
    ],
)
def test_bad_levels_are_refused_before_anything_is_made(hf, levels, message):  # noqa: F811
    with pytest.raises(ValueError, match=message):
        hf.convert(t5(), **levels)


def test_a_causal_model_of_no_length_needs_sizes(hf):  # noqa: F811
    with pytest.raises(ValueError, match="`block_sizes` must stand in the configuration"):
        hf.convert(t5(), ranks={"decoder": (4, 4)})


def test_cross_attention_of_a_class_of_its_own_stays_standard(hf):  # noqa: F811
    """That of BERT says neither that it crosses nor that it is part of a decoder."""
    from transformers import BertConfig, BertLMHeadModel

    sizes = {"hidden_size": 24, "intermediate_size": 24, "num_hidden_layers": 1}
    decodes = {"is_decoder": True, "add_cross_attention": True}
    model = shaken(
        BertLMHeadModel(BertConfig(**sizes, **decodes, num_attention_heads=3, vocab_size=48))
    )
    changed = hf.convert(model, ranks=(4, 4), block_sizes=(None, 2))
    ids, read = torch.randint(2, 48, (2, 1)), torch.randn(2, 9, 24)
    # One token has but itself to attend to, and nine to cross to.
    close(*(each(ids, encoder_hidden_states=read).logits for each in (changed, model)))
    module = changed.bert.encoder.layer[0].crossattention.self
    q, k, v = torch.randn(3, 2, 3, 9, 8)
    unnamed = torch.nn.Module()
    unnamed.config, unnamed.is_causal = changed.config, False
    for each, count in ((module, 9), (unnamed, 4)):
        found, _ = hf._attend(each, q[:, :, :count], k, v, None)
        expected = torch.nn.functional.scaled_dot_product_attention(q[:, :, :count], k, v)
        close(found, expected.transpose(1, 2))


ONE_STACK = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 48}


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("GPTNeoX", {"intermediate_size": 32}, "`partial_rotary_factor` is 0.25"),
        ("GPTJ", {"rotary_dim": 4}, "`rotary_dim` is 4"),
        ("Cohere", {"intermediate_size": 32}, "CohereAttention turns neighbouring columns"),
    ],
)
def test_levels_are_refused_where_rotary_positions_would_cross_them(hf, kind, options, reason):  # noqa: F811
    import transformers

    config = getattr(transformers, f"{kind}Config")(**ONE_STACK, **options)
    model = shaken(getattr(transformers, f"{kind}ForCausalLM")(config), size=0.1)
    ids = torch.randint(2, 48, (1, 6))
    close(hf.convert(model, ranks=(8,))(ids).logits, model(ids).logits)
    with pytest.raises(ValueError, match=f"`ranks` must be one level .* {reason}"):
        hf.convert(model, ranks=(4, 4))
    model.config.ranks = (4, 4)
    model.set_attn_implementation("mlr")
    with pytest.raises(ValueError, match=f"`ranks` must be one level .* {reason}"):
        model(ids)


def test_models_that_would_stay_what_they_are_are_refused(hf):  # noqa: F811
    from transformers import BloomConfig, BloomForCausalLM, CLIPConfig

    bloom = BloomForCausalLM(BloomConfig(hidden_size=32, n_head=4, n_layer=1, vocab_size=48))
    with pytest.raises(TypeError, match=r"`model` must ask for .* BloomForCausalLM does not"):
        hf.convert(bloom, ranks=(8,))
    with pytest.raises(TypeError, match=r"`model` must be a PreTrainedModel .* got a Linear"):
        hf.convert(torch.nn.Linear(2, 2))
    for config in (CLIPConfig(), "gpt2"):
        with pytest.raises(TypeError, match="`config` must be the configuration of one model"):
            hf.with_mlr(config)
    for name in ("ranks", "block_sizes"):
        with pytest.raises(ValueError, match=f"`{name}` must be a sequence in a model of one"):
            hf.convert(llama(), **{"ranks": (4, 4)} | {name: {"decoder": (4, 4)}})
    with pytest.raises(ValueError, match="`ranks` must name the levels of at least one stack"):
        hf.convert(t5(), ranks={"encoder": None})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("ranks", (5, 3), "`ranks` must be even in a model with rotary positions"),
        ("ranks", {"enc": (4, 4)}, "`ranks` must be given for encoder and decoder, got"),
        ("ranks", 8, "`ranks` must be a sequence with one entry for each level, got 8"),
        ("divide_by_shared_levels", "no", "`divide_by_shared_levels` must be True or False"),
    ],
)
def test_a_configuration_that_nobody_checked_is_refused(hf, field, value, message):  # noqa: F811
    model = llama()
    setattr(model.config, field, value)
    model.set_attn_implementation("mlr")
    with pytest.raises((TypeError, ValueError), match=message):
        model(torch.randint(2, 48, (1, 5)))


def test_sinks_of_attention_are_not_left_out(hf):  # noqa: F811
    module = hf.convert(llama(), ranks=(8,)).model.layers[0].self_attn
    q = torch.randn(1, 4, 3, 8)
    with pytest.raises(ValueError, match="MLR attention has no `s_aux`"):
        hf._attend(module, q, q, q, None, s_aux=torch.zeros(4))


def test_a_release_without_the_interface_is_refused(hf, monkeypatch):  # noqa: F811
    import transformers

    monkeypatch.setattr(transformers, "__version__", "4.57.3")
    with pytest.raises(ImportError, match=r"needs transformers>=5\.16, and 4\.57\.3 is installed"):
        hf.register()
