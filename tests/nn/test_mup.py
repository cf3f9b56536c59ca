"""muP: the table against the published one, the drawn weights, and what it refuses."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mlrforecast.models import (
    CausalLM,
    CausalLMConfig,
    EncoderConfig,
    EncoderForecaster,
    Regressor,
    RegressorConfig,
)
from mlrforecast.nn import (
    BilinearScore,
    EncoderBlock,
    Heads,
    MupRow,
    MupRule,
    StructuredAttention,
    attentions,
    initialise_mup,
    mup_table,
)
from mlrforecast.ops.matrices import matrices

pytestmark = pytest.mark.usefixtures("seeded")

RATE, DECAY = 1e-3, 0.1

# Our name of a parameter -> its name in the published table.
NAMES = {
    r"embedding\.weight": "token_embedding",
    r"positions\.weight": "position_embedding",
    r"read_in\.weight": "icl_read_in",
    r"read_out\.weight": "icl_read_out",
    r"head\.weight": "lm_head",
    r"encoder\.norm\.weight": "ln_final",
    r"encoder\.blocks\.(\d+)\.attention_norm\.weight": r"layer\1.ln_pre_attn",
    r"encoder\.blocks\.(\d+)\.network_norm\.weight": r"layer\1.ln_pre_mlp",
    r"encoder\.blocks\.(\d+)\.network\.0\.weight": r"layer\1.mlp.W_up",
    r"encoder\.blocks\.(\d+)\.network\.3\.weight": r"layer\1.mlp.W_down",
    r"encoder\.blocks\.(\d+)\.attention\.value\.weight": r"layer\1.attn.W_v",
    r"encoder\.blocks\.(\d+)\.attention\.output\.weight": r"layer\1.attn.W_o",
    r"encoder\.blocks\.(\d+)\.attention\.score\.(q|k)\w+_norm\.weight": r"layer\1.attn.ln_\2",
    r"encoder\.blocks\.(\d+)\.attention\.score\.(q|k)\w+\.weight": r"layer\1.attn.W_\2",
    r"encoder\.blocks\.(\d+)\.attention\.score\.(q|k)\w+_weights\.(\d+)": (
        r"layer\1.attn.bmlr_W_\2.level\3"
    ),
    r"encoder\.blocks\.(\d+)\.attention\.score\.(q|k)\w+_norms\.(\d+)\.weight": (
        r"layer\1.attn.bmlr_ln_\2.level\3"
    ),
    r"encoder\.blocks\.(\d+)\.attention\.score\.weights\.left": r"layer\1.attn.btt_W_q",
    r"encoder\.blocks\.(\d+)\.attention\.score\.weights\.right": r"layer\1.attn.btt_W_k",
    r"encoder\.blocks\.(\d+)\.attention\.score\.input_norm\.weight": r"layer\1.attn.btt_ln_x",
}
BTT_NAMES = {
    r"encoder\.blocks\.(\d+)\.attention\.score\.key_norm\.weight": r"layer\1.attn.btt_ln_z"
}


def published_name(name: str, names: dict[str, str]) -> str:
    for pattern, published in names.items():
        if re.fullmatch(pattern, name):
            return re.sub(pattern, published, name)
    raise KeyError(name)


def language_model(**options: Any) -> CausalLM:
    sizes = {"vocabulary_size": 96, "context_length": 32, "width": 32, "num_heads": 2}
    return CausalLM(CausalLMConfig(**{**sizes, "num_layers": 1, **options}))


def regressor() -> Regressor:
    options = {"tensor_rank": 2, "input_norm": True}
    config = RegressorConfig(
        num_dims=8,
        width=32,
        num_heads=2,
        num_layers=1,
        attention="bilinear_btt",
        attention_options=options,
    )
    return Regressor(config)


PUBLISHED: dict[str, tuple[Callable[[], nn.Module], dict[str, str]]] = {
    "lm_mha": (lambda: language_model(attention="standard"), NAMES),
    "lm_mlr": (lambda: language_model(attention="mlr", ranks=(8, 4, 2, 2)), NAMES),
    "lm_bilinear_mlr": (
        lambda: language_model(attention="bilinear_mlr", ranks=(8, 4, 2, 2)),
        NAMES,
    ),
    "icl_bilinear_btt": (regressor, {**BTT_NAMES, **NAMES}),
}


@pytest.mark.shared
@pytest.mark.parametrize("table", PUBLISHED)
def test_every_row_is_that_of_the_published_table(
    table: str, shared_file: Callable[[str], Path]
) -> None:
    published = json.loads(shared_file("muP.json").read_text())
    assert set(published["tables"]) == set(PUBLISHED)
    build, names = PUBLISHED[table]
    rows = mup_table(
        build(),
        learning_rate=published["global_lr"],
        weight_decay=published["global_weight_decay_used_for_table"],
    )
    ours = {published_name(row.name, names): row for row in rows}
    theirs = {row["parameter"]: row for row in published["tables"][table]}
    assert len(ours) == len(rows)
    assert set(ours) == set(theirs)
    for name, row in ours.items():
        other = theirs[name]
        assert row.fan_in == other["fan_in"], name
        assert row.base_width_factor == other["base_width_factor"], name
        assert row.init == other["init"], name
        assert row.init_std == other["init_std"], name
        assert row.learning_rate == other["lr"], name
        assert row.learning_rate_multiplier == other["lr_multiplier"], name
        assert row.decays == other["weight_decay_applied"], name
        assert row.weight_decay == (DECAY if other["weight_decay_applied"] else 0.0), name
        assert math.prod(row.shape) == math.prod(other["shape"]), name
        if "btt_W" not in name:  # ours have an axis for the heads
            assert list(row.shape) == other["shape"], name


# Parameter of a layer of width 24, 2 heads -> n in rate 768 / n, and its first spread.
BY_HAND = {
    "standard": {"query.weight": (24, 24**-0.5), "key.bias": (1, 0.0)},
    "mlr": {"key.weight": (24, 24**-0.5), "key_norm.weight": (1, 0.0)},
    "bilinear_mlr": {
        "query_weights.0": (24, 24**-0.5),
        "query_weights.1": (12, 12**-0.5),
        "key_weights.2": (6, 6**-0.5),
        "key_norms.1.weight": (1, 0.0),
    },
    # 24 = 4 * 6: the right factor has 4 blocks of 6 columns; the left reads 4 pieces of rank 3.
    "bilinear_btt": {"weights.right": (6, 6**-0.5), "weights.left": (12, 12**-0.5)},
    "bilinear": {"weights.right": (24, 24**-0.5), "weights.left": (5, 5**-0.5)},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "bilinear_btt": {"tensor_rank": 3},
    "bilinear": {"structure_options": {"rank": 5}},
}


@pytest.mark.parametrize("attention", BY_HAND)
def test_the_rows_of_a_score_are_those_worked_out_by_hand(attention: str) -> None:
    options = {"attention": attention, "qk_norm": True, **OPTIONS.get(attention, {})}
    if attention in OPTIONS:
        del options["qk_norm"]
    rows = rows_of(StructuredAttention(24, 2, **options))
    for name, (fan_in, std) in BY_HAND[attention].items():
        row = rows[f"score.{name}"]
        factor = 768 if fan_in > 1 else 1
        assert (row.fan_in, row.base_width_factor) == (fan_in, factor), name
        assert row.init_std == pytest.approx(std), name
        assert row.learning_rate == pytest.approx(RATE * factor / fan_in), name


def test_what_reads_data_starts_small_and_norms_start_at_one() -> None:
    rows = rows_of(language_model())
    for name in ("embedding.weight", "positions.weight"):
        assert (rows[name].init, rows[name].init_std, rows[name].fan_in) == ("normal", 0.02, 1)
    assert rows["encoder.norm.weight"].init == "ones"


def rows_of(model: nn.Module) -> dict[str, MupRow]:
    return {row.name: row for row in mup_table(model, learning_rate=RATE, weight_decay=DECAY)}


def test_rows_stand_in_the_order_of_the_parameters_and_each_once() -> None:
    model = language_model(num_layers=2, attention=("mlr", "bilinear_btt"), bias=True)
    rows = mup_table(model, learning_rate=RATE, weight_decay=DECAY)
    named = list(model.named_parameters())
    assert [(row.name, row.shape) for row in rows] == [(n, tuple(p.shape)) for n, p in named]


def test_biases_start_at_zero_with_the_rate_as_it_is_and_never_decay() -> None:
    rows = rows_of(language_model(attention="standard", bias=True))
    biases = [row for name, row in rows.items() if name.endswith("bias")]
    assert len(biases) == 11  # q, k, v, o, up, down, and of five norms
    for row in biases:
        assert (row.kind, row.init, row.fan_in, row.base_width_factor) == ("bias", "zeros", 1, 1)
        assert (row.learning_rate, row.weight_decay, row.decays) == (RATE, 0.0, False)


def test_the_rate_follows_what_is_summed_over_not_the_model_width() -> None:
    options = {"attention": "standard", "num_heads": 4, "hidden_width": 80}
    rows = rows_of(
        language_model(**options, attention_options={"head_width": 5, "num_kv_heads": 2})
    )
    fans = {
        "encoder.blocks.0.attention.score.key.weight": 32,
        "encoder.blocks.0.attention.output.weight": 20,
        "encoder.blocks.0.network.3.weight": 80,
    }
    for name, fan_in in fans.items():
        assert rows[name].fan_in == fan_in
        assert rows[name].learning_rate == pytest.approx(RATE * 768 / fan_in)


def test_the_forecaster_is_known_whole_and_keeps_the_first_width_of_its_quantiles() -> None:
    model = EncoderForecaster(EncoderConfig(context_length=32, prediction_length=8))
    rows = rows_of(model)
    before = model.head.spread.bias.detach().clone()
    initialise_mup(model)
    assert rows["head.spread.bias"].init == "kept"
    assert rows["head.point.weight"].init == "zeros"
    assert rows["head.point.weight"].fan_in == model.embedding.num_tokens * model.config.width
    assert rows["embedding.values.weight"].kind == "input"
    torch.testing.assert_close(model.head.spread.bias, before, rtol=0, atol=0)
    x = torch.randn(2, 32, 3)
    point, quantiles = model(x)
    torch.testing.assert_close(point, x.mean(1, keepdim=True).expand(-1, 8, -1))
    assert (quantiles.diff(dim=-1) > 0).all()


def with_covariates() -> EncoderForecaster:
    config = EncoderConfig(
        context_length=32,
        prediction_length=8,
        past_cardinalities=(0,),
        known_cardinalities=(0, 5),
        static_cardinalities=(3,),
        num_calendar_features=4,
    )
    return EncoderForecaster(config)


def test_what_reads_covariates_has_the_rates_of_what_reads_data() -> None:
    """Their number does not grow with the width; what weighs them is an output of the width."""
    model = with_covariates()
    rows = rows_of(model)
    inputs = [
        "known_columns.categories.0.weight",
        "static_columns.categories.0.weight",
        "embedding.covariates.weight",
        "embedding.static.weight",
        "known_effect.curves.weight",
        "calendar_effect.step.weight",
    ]
    for name in inputs:
        assert (rows[name].kind, rows[name].learning_rate) == ("input", RATE), name
    for name in ("known_effect.curves", "known_effect.weights", "calendar_effect.step"):
        assert rows[f"{name}.bias"].kind == "bias", name
    for name in ("known_effect.weights.weight", "calendar_effect.window.weight"):
        assert (rows[name].kind, rows[name].fan_in) == ("output", model.config.width)
        assert rows[name].learning_rate == pytest.approx(RATE * 768 / model.config.width)
    for name in ("direct.weight", "out.weight", "out.bias"):
        row = rows[f"calendar_effect.{name}"]
        assert (row.kind, row.learning_rate) == ("kept", RATE)


def test_an_unknown_category_stays_zeros() -> None:
    model = with_covariates()
    initialise_mup(model)
    for columns in (model.known_columns, model.static_columns):
        weight = columns.categories[0].weight
        assert (weight[0] == 0).all()
        assert (weight[1:] != 0).all()
    for part in (model.known_effect.weights, model.calendar_effect.out):
        assert (part.weight == 0).all()
        assert (part.bias == 0).all()
    assert (model.calendar_effect.direct.weight == 0).all()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("attention", list(attentions))
def test_the_first_logits_are_zero_and_the_first_loss_that_of_a_guess(
    attention: str, bias: bool
) -> None:
    model = language_model(attention=attention, bias=bias, num_layers=2)
    assert not (model(torch.arange(10).reshape(2, 5)) == 0).any()
    initialise_mup(model)
    text = torch.arange(34).reshape(2, 17)
    assert (model(text) == 0).all()
    assert model.loss(text[:, :-1], text[:, 1:]).item() == pytest.approx(math.log(96), rel=1e-6)


@pytest.mark.parametrize("attention", list(attentions))
def test_branches_may_start_as_what_is_inside_them(attention: str) -> None:
    """The head still starts at 0, and so the first logits are."""
    model = language_model(attention=attention, width=64, num_heads=4, num_layers=2)
    initialise_mup(model, zero_branches=False)
    ends = [row for row in rows_of(model).values() if row.kind == "output"]
    assert len(ends) == 2 * 2 + 1
    parameters = dict(model.named_parameters())
    for row in ends:
        spread = parameters[row.name].std().item()
        if "blocks" in row.name:
            assert spread == pytest.approx(row.fan_in**-0.5, rel=0.05), row.name
        else:
            assert spread == 0, row.name
    assert (model(torch.arange(10).reshape(2, 5)) == 0).all()


@pytest.mark.parametrize("attention", list(attentions))
def test_the_drawn_weights_have_the_spread_of_their_row(attention: str) -> None:
    model = language_model(attention=attention, width=64, num_heads=4, bias=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    initialise_mup(model, generator=torch.Generator().manual_seed(1))
    rows = rows_of(model)
    for name, parameter in model.named_parameters():
        match rows[name].init:
            case "normal":
                check_normal(parameter.detach(), rows[name].init_std)
            case "zeros":
                assert (parameter == 0).all(), name
            case "ones":
                assert (parameter == 1).all(), name


def check_normal(draw: Tensor, std: float) -> None:
    """Mean and spread within five standard errors, and the share within one deviation as well."""
    count = draw.numel()
    assert abs(draw.mean().item()) < 5 * std / math.sqrt(count)
    assert abs(draw.std().item() / std - 1) < 5 / math.sqrt(2 * count)
    share, expected = (draw.abs() < std).double().mean().item(), math.erf(1 / math.sqrt(2))
    assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / count)


@pytest.mark.parametrize("structure", list(matrices))
def test_unit_inputs_give_features_of_one_size_whatever_the_structure(structure: str) -> None:
    """The product of all factors keeps the mean square: no table is read here."""
    squares = []
    for width in (64, 256):
        heads = Heads(width=width, num_heads=width // 16, num_kv_heads=width // 16, head_width=16)
        score = BilinearScore(heads, structure=structure, key_norm=False, clamp=False)
        initialise_mup(score, generator=torch.Generator().manual_seed(2))
        squares.append(score.keys(torch.randn(4, 16, width)).square().mean().item())
    levels = 3 if structure == "mlr" else 1
    assert squares == pytest.approx([levels, levels], rel=0.25)


def test_the_generator_decides_and_the_global_one_is_not_touched() -> None:
    def weights(generator: torch.Generator | None, dtype: torch.dtype = torch.float32) -> Tensor:
        model = language_model().to(dtype)
        state = torch.get_rng_state()
        initialise_mup(model, generator=generator)
        assert torch.equal(torch.get_rng_state(), state)
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    first = weights(torch.Generator().manual_seed(3))
    assert torch.equal(first, weights(torch.Generator().manual_seed(3)))
    assert not torch.equal(first, weights(torch.Generator().manual_seed(4)))
    assert torch.equal(weights(None), weights(None))
    double = weights(torch.Generator().manual_seed(3), torch.float64)
    torch.testing.assert_close(first, double.float(), rtol=1e-6, atol=0)
    generator = torch.Generator().manual_seed(3)
    assert not torch.equal(weights(generator), weights(generator))


class Mixer(nn.Module):
    """A module of a user, with a raw parameter and a linear map."""

    def __init__(self, rules: dict[str, MupRule] | None = None) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.full((8, 8), 3.0))
        self.linear = nn.Linear(8, 8)
        if rules is not None:
            self.mup_rules = rules


def test_an_unknown_parameter_is_named_and_nothing_is_changed() -> None:
    model = nn.Sequential(nn.Linear(8, 8), Mixer())
    before = model[0].weight.detach().clone()
    for call in (initialise_mup, rows_of):
        with pytest.raises(
            ValueError, match=r"the parameter `1\.mix` of shape \(8, 8\).*mup_rules"
        ):
            call(model)
    assert torch.equal(model[0].weight, before)


def test_a_module_declares_its_own_parameters_and_those_of_its_children() -> None:
    mixer = Mixer({"mix": MupRule("hidden", fan_in=4), "linear.weight": MupRule("output", 8)})
    model = nn.Sequential(mixer)
    rows = rows_of(model)
    assert (rows["0.mix"].init_std, rows["0.mix"].learning_rate_multiplier) == (0.5, 192.0)
    assert rows["0.linear.weight"].kind == "output"
    assert rows["0.linear.bias"].kind == "bias"
    initialise_mup(model)
    assert (mixer.linear.weight == 0).all()
    assert not (mixer.mix == 3).any()


def test_what_is_kept_is_not_touched() -> None:
    mixer = Mixer({"mix": MupRule("kept")})
    initialise_mup(mixer)
    assert (mixer.mix == 3).all()
    assert rows_of(mixer)["mix"].learning_rate == RATE


def test_a_declared_name_that_is_no_parameter_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`mup_rules` of Mixer .* none called 'mixx'"):
        rows_of(Mixer({"mix": MupRule("kept"), "mixx": MupRule("kept")}))


def test_a_parameter_with_two_parts_to_play_is_refused() -> None:
    model = language_model(vocabulary_size=32)
    model.head.weight = model.embedding.weight
    with pytest.raises(ValueError, match=r"`embedding.weight` and `head.weight` are one parameter"):
        initialise_mup(model)


def test_a_shared_module_has_one_row() -> None:
    block = EncoderBlock(16, 2, hidden_width=32)
    assert len(rows_of(nn.Sequential(block, block))) == len(rows_of(nn.Sequential(block)))


@pytest.mark.parametrize(
    ("kind", "fan_in", "message"),
    [
        ("hiden", 1, "`kind` must be one of input, hidden, .*'hiden'"),
        ("hidden", 0, "`fan_in` must be an integer of at least 1, got 0"),
        ("hidden", 2.0, "`fan_in` must be an integer"),
        ("hidden", True, "`fan_in` must be an integer"),
    ],
)
@pytest.mark.usefixtures("own_errors")
def test_a_wrong_rule_is_told(kind: Any, fan_in: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MupRule(kind, fan_in)
