"""Counting: the published numbers, torch's own counter, and plain loops."""

import ast
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mlrforecast.models import (
    CausalLM,
    CausalLMConfig,
    EncoderConfig,
    EncoderForecaster,
    Regressor,
    RegressorConfig,
    count_flops,
    count_parameters,
)
from mlrforecast.nn import Cost, Encoder, StandardScore, StructuredAttention, attentions
from mlrforecast.ops.matrices import matrices
from tests.models.scores_by_name import FIELDS, NAMES

pytestmark = pytest.mark.usefixtures("seeded")

PAGE = Path(__file__).parents[2] / "docs" / "counting.md"

# case -> FLOPs of linear maps, of other products, of LayerNorms; parameters, those of the encoder.
PUBLISHED = {
    "D256_T256_mha_64": (1214251008, 201326592, 8192000, 4837376, 4722688),
    "D256_T1024_mlr_32|8|6|4|4|4|4|2": (4857004032, 2578317312, 32768000, 5033984, 4722688),
    "D768_T1024_mlr_16|16|16|16": (43562041344, 7096762368, 98304000, 43411968, 42478080),
    "D256_T1024_swa_w128": (4857004032, 1988100096, 32768000, 5033984, 4722688),
    "D256_T1024_gswa_32|32_w512": (4857004032, 3019898880, 32768000, 5033984, 4722688),
    "icl_n64_D256_low_rank_": (1212219392, 201326592, 8192000, None, None),
    "icl_n64_D256_bilinear_MLR_8|4|4|16": (1010892800, 805306368, 23920640, None, None),
    "icl_n64_D256_bilinear_BTT_": (1010892800, 1031798784, 19988480, None, None),
}


def examples(count: int) -> settings:
    checks = [HealthCheck.function_scoped_fixture]
    return settings(max_examples=count, suppress_health_check=checks)


def published_model(case: str) -> CausalLM | Regressor:
    """Build what a published row describes, without weights."""
    found = re.findall(r"\d+\|[\d|]+", case)
    ranks = tuple(map(int, found[0].split("|"))) if found else None
    with torch.device("meta"):
        if case.startswith("icl"):
            n, width = map(int, re.findall(r"_n(\d+)_D(\d+)", case)[0])
            name = {"l": "standard", "M": "bilinear_mlr", "B": "bilinear_btt"}[
                re.findall("low|MLR|BTT", case)[0][0]
            ]
            return Regressor(RegressorConfig(num_dims=n, width=width, attention=name, ranks=ranks))
        width, length, kind = re.findall(r"D(\d+)_T(\d+)_([a-z]+)", case)[0]
        names = {
            "mha": "standard",
            "mlr": "mlr",
            "swa": "sliding_window",
            "gswa": "global_window",
        }
        window = re.findall(r"_w(\d+)", case)
        config = CausalLMConfig(
            vocabulary_size=96,
            context_length=int(length),
            width=int(width),
            num_heads=int(width) // 64,
            attention=names[kind],
            ranks=ranks,
            attention_options={"window": int(window[0])} if window else None,
        )
        return CausalLM(config)


def tiny(attention: Any, width: int = 12, *, causal: bool = True, **options: Any) -> Encoder:
    """A small encoder, with the options that make the score do something."""
    if isinstance(attention, str):
        given = FIELDS[attention]
        options = {**given.get("attention_options", {}), **options}
        options |= {"ranks": given["ranks"]} if "ranks" in given else {}
    names = [attention] if isinstance(attention, str) else attention
    if any(attentions[name].takes_qk_norm for name in names):
        options = {"qk_norm": True, **options}
    return Encoder(
        width,
        3,
        num_layers=2 if isinstance(attention, str) else len(attention),
        hidden_width=20,
        attention=attention,
        attention_options=options,
        causal=causal,
    )


def seen_by_torch(run: Callable[[], Tensor], *, backward: bool = False) -> int:
    """What torch counts of a call; the fused kernels of a CPU would be invisible."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        out = run()
        if backward:
            out.sum().backward()
    return int(counter.get_total_flops())


def assert_as_torch(model: nn.Module, run: Callable[[], Tensor], length: int | None = None) -> None:
    """Compare with torch's count of a batch of two."""
    counted = count_flops(model, length, convention="matmul")
    assert 2 * counted.total == seen_by_torch(run)
    assert 2 * counted.training() == seen_by_torch(run, backward=True)


# The published numbers.


@pytest.mark.parametrize("case", PUBLISHED)
def test_published_counts(case: str) -> None:
    model = published_model(case)
    counted = count_flops(model)
    linear, matmul, layer_norm, parameters, non_embedding = PUBLISHED[case]
    assert (counted.linear, counted.matmul, counted.layer_norm) == (linear, matmul, layer_norm)
    assert counted.total == linear + matmul + layer_norm
    if isinstance(model, CausalLM):
        assert counted.per_token_without_head == counted.per_token - 96 * model.config.width
        size = count_parameters(model)
        assert (size.total, size.non_embedding) == (parameters, non_embedding)


@pytest.mark.shared
def test_every_published_row(shared_file: Callable[[str], Path]) -> None:
    rows = json.loads(shared_file("flops.json").read_text())["rows"]
    assert len(rows) == 20
    assert {row["case"] for row in rows} >= set(PUBLISHED)
    for row in rows:
        model = published_model(row["case"])
        counted, operators = count_flops(model), row["by_operator"]
        assert counted.total == row["flops_per_sequence"]
        assert counted.per_token == row["flops_per_token"]
        assert counted.linear == operators["linear"]
        assert counted.layer_norm == operators["layer_norm"]
        assert counted.matmul == operators["matmul"] + operators.get("bmm", 0)
        if isinstance(model, CausalLM):
            size = count_parameters(model)
            assert counted.per_token_without_head == row["non_emb_flops_per_token"]
            assert (size.total, size.non_embedding) == (
                row["params_total"],
                row["params_non_emb"],
            )


# The paper's convention, by plain loops.


def scores_by_loops(name: str, length: int, ranks: tuple[int, ...], window: int) -> int:
    """Multiply-adds of one head's scores, pair by pair."""
    every = length * length
    near = 0
    for i in range(length):
        for j in range(i - window, i + window):
            near += 0 <= j < length
    if name == "sliding_window":
        return sum(ranks) * near
    if name == "global_window":
        return ranks[0] * every + sum(ranks[1:]) * near
    total = 0
    for lvl, rank in enumerate(ranks):
        size = length // 2**lvl
        same = sum(i // size == j // size for i in range(length) for j in range(length))
        total += rank * (near if lvl == 0 and name == "mlr_window" else same)
    return total


@examples(40)
@given(
    name=st.sampled_from(["global_window", "mlr", "mlr_window", "sliding_window"]),
    eighth=st.integers(1, 5),
    ranks=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    window=st.integers(0, 50),
    groups=st.sampled_from([1, 2, 4]),
)
def test_structured_scores_equal_loops(
    name: str, eighth: int, ranks: list[int], window: int, groups: int
) -> None:
    options: dict[str, Any] = {"window": window} if name != "mlr" else {}
    if name == "global_window":
        ranks = ranks[:2]
    else:
        options["qk_width"] = sum(ranks)
    if name != "sliding_window":
        options["ranks"] = ranks
    with torch.device("meta"):
        layer = StructuredAttention(
            8, 4, attention=name, num_kv_heads=groups, head_width=3, qk_norm=True, **options
        )
    length = 8 * eighth
    counted = count_flops(layer, length)
    width = sum(ranks)
    assert counted.scores == 4 * scores_by_loops(name, length, tuple(ranks), window)
    assert counted.values == 4 * length * length * 3
    assert counted.linear == length * 8 * (4 * width + groups * width + groups * 3 + 4 * 3)
    assert counted.layer_norm == 5 * length * (4 + groups) * width
    dense = count_flops(layer, length, convention="matmul")
    assert dense.sparse_scores == 2 * counted.scores
    assert dense.scores == 2 * 4 * length * length * width
    assert dense.layer_norm == 0


def test_ragged_blocks_count_at_their_full_size_or_the_sequence() -> None:
    layer = StructuredAttention(8, 2, ranks=(2, 1, 1), block_sizes=(None, 64, 4))
    assert count_flops(layer, 10).scores == 2 * 10 * (2 * 10 + 1 * 10 + 1 * 4)
    sizes = {"ranks": (2, 1, 1), "block_sizes": (None, 64, 4), "window": 3}
    layer = StructuredAttention(8, 2, attention="mlr_window", **sizes)
    assert count_flops(layer, 10).scores == 2 * (2 * 51 + 10 * (1 * 10 + 1 * 4))


@examples(40)
@given(
    factors=st.tuples(st.integers(2, 5), st.integers(2, 5)),
    heads=st.sampled_from([1, 2, 3]),
    rank=st.integers(1, 4),
    norms=st.tuples(st.booleans(), st.booleans()),
    length=st.integers(1, 50),
)
def test_bilinear_scores_equal_the_closed_form(
    factors: tuple[int, int], heads: int, rank: int, norms: tuple[bool, bool], length: int
) -> None:
    width = factors[0] * factors[1]
    larger = next(b for b in range(1, width + 1) if width % b == 0 and b * b > width)
    options = {"tensor_rank": rank, "key_norm": norms[0], "input_norm": norms[1]}
    with torch.device("meta"):
        layer = StructuredAttention(width, heads, attention="bilinear_btt", head_width=5, **options)
    counted = count_flops(layer, length)
    assert counted.structured == length * heads * width * rank * (larger + width // larger)
    assert counted.scores == counted.sparse_scores == heads * length**2 * width
    assert counted.layer_norm == 5 * length * width * (heads * norms[0] + norms[1])
    with torch.device("meta"):
        layer = StructuredAttention(
            width,
            heads,
            attention="bilinear_mlr",
            head_width=5,
            ranks=(3, rank),
            num_blocks=(1, factors[0]),
            qk_norm=norms[0],
        )
    counted, columns = count_flops(layer, length), 3 + rank * factors[0]
    assert counted.structured == length * 2 * heads * width * (3 + rank)
    assert counted.scores == heads * length**2 * columns
    assert counted.layer_norm == 5 * length * 2 * heads * columns * norms[0]


# torch's counter.


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("groups", [3, 1])
@pytest.mark.parametrize("name", NAMES)
def test_torch_counts_the_same_for_every_score(name: str, groups: int, causal: bool) -> None:
    model = tiny(name, causal=causal, num_kv_heads=groups)
    x = torch.zeros(2, 13, 12)
    assert_as_torch(model, lambda: model(x), 13)


def test_every_score_was_compared() -> None:
    assert set(NAMES) == set(attentions)


@examples(15)
@given(
    name=st.sampled_from(NAMES),
    length=st.integers(1, 40),
    head_width=st.integers(4, 9),
    mask=st.booleans(),
)
def test_torch_counts_the_same_for_any_size(
    name: str, length: int, head_width: int, mask: bool
) -> None:
    options = {"window": 5} if "window" in name else {}
    model = Encoder(
        24,
        4,
        num_layers=1,
        hidden_width=7,
        attention=name,
        attention_options={"head_width": head_width, **options},
        causal=True,
    )
    x, key_mask = torch.zeros(2, length, 24), torch.ones(2, length, dtype=torch.bool)
    assert_as_torch(model, lambda: model(x, key_mask if mask else None), length)


@pytest.mark.parametrize("structure", list(matrices))
def test_torch_counts_the_same_for_every_structure(structure: str) -> None:
    model = tiny("bilinear", 24, structure=structure)
    x = torch.zeros(2, 6, 24)
    assert_as_torch(model, lambda: model(x), 6)


def test_torch_is_blind_to_structured_products_over_one_column() -> None:
    """It multiplies them element by element, which the counter does not see."""
    options = {"structure": "low_rank", "structure_options": {"rank": 1}}
    layer = StructuredAttention(12, 3, attention="bilinear", **options)
    missed = 2 * 6 * 3 * 12
    counted = count_flops(layer, 6, convention="matmul")
    assert counted.total - missed == seen_by_torch(lambda: layer(torch.zeros(1, 6, 12)))


def test_torch_counts_the_same_for_a_pattern_of_layers() -> None:
    model = tiny(("standard", "mlr", "global_window", "bilinear_btt"), window=3)
    x = torch.zeros(2, 9, 12)
    assert_as_torch(model, lambda: model(x), 9)


@pytest.mark.parametrize("name", NAMES)
def test_torch_counts_the_same_for_a_language_model(name: str) -> None:
    sizes = {"vocabulary_size": 7, "context_length": 14, "width": 12, "num_heads": 3}
    model = CausalLM(CausalLMConfig(**sizes, num_layers=2, attention=name, **FIELDS[name]))
    assert_as_torch(model, lambda: model(torch.zeros(2, 14, dtype=torch.int64)))
    assert_as_torch(model, lambda: model(torch.zeros(2, 5, dtype=torch.int64)), 5)


@pytest.mark.parametrize("name", NAMES)
def test_torch_counts_the_same_for_a_regressor(name: str) -> None:
    sizes = {"num_dims": 5, "width": 12, "num_heads": 3, "num_layers": 2}
    model = Regressor(RegressorConfig(**sizes, attention=name, **FIELDS[name]))
    assert_as_torch(model, lambda: model(torch.zeros(2, 10, 5), torch.zeros(2, 10)))
    assert_as_torch(model, lambda: model(torch.zeros(2, 3, 5), torch.zeros(2, 3)), 6)


@pytest.mark.parametrize("loss", ["quantile", "mae"])
@pytest.mark.parametrize("name", NAMES)
def test_torch_counts_the_same_for_a_forecaster(name: str, loss: str) -> None:
    sizes = {"context_length": 30, "prediction_length": 4, "patch_length": 4, "patch_stride": 3}
    config = EncoderConfig(
        **sizes, width=12, num_heads=3, attention=name, loss=loss, **FIELDS[name]
    )
    model = EncoderForecaster(config)

    def forecast() -> Tensor:
        point, quantiles = model(torch.randn(1, 30, 2))
        return point if quantiles is None else quantiles

    # Two channels cost as much as two sequences.
    assert_as_torch(model, forecast)
    counted = count_flops(model, convention="matmul")
    assert counted.tokens == model.embedding.num_tokens == 10
    spread = 12 * 4 * 8 if loss == "quantile" else 0
    assert counted.head == 2 * (10 * 12 * 4 + spread)


@pytest.mark.parametrize("future", [3, 40])
@pytest.mark.parametrize(
    "columns",
    [
        {"num_calendar_features": 4},
        {"past_cardinalities": (0, 0)},
        {"past_cardinalities": (0, 3)},
        {"static_cardinalities": (0,)},
        {"static_cardinalities": (7, 0)},
        {"known_cardinalities": (0,)},
        {"known_cardinalities": (3,), "num_calendar_features": 4},
        {
            "past_cardinalities": (0,),
            "known_cardinalities": (0, 9),
            "static_cardinalities": (2,),
            "num_calendar_features": 12,
        },
    ],
)
def test_torch_counts_the_same_with_covariates(columns: dict[str, Any], future: int) -> None:
    sizes = {"context_length": 30, "patch_length": 4, "patch_stride": 3}
    config = EncoderConfig(**sizes, prediction_length=future, width=12, num_heads=3, **columns)
    model = EncoderForecaster(config)

    def rows(name: str) -> int:
        return len(getattr(config, f"{name}_cardinalities"))

    def forecast() -> Tensor:
        _, quantiles = model(
            torch.randn(2, 30, 1),
            past_covariates=torch.ones(2, 30, rows("past")) if rows("past") else None,
            known_covariates=torch.ones(2, 30 + future, rows("known")) if rows("known") else None,
            static_covariates=torch.ones(2, rows("static")) if rows("static") else None,
            calendar=(
                torch.ones(2, future, config.num_calendar_features)
                if config.num_calendar_features
                else None
            ),
        )
        return quantiles

    assert_as_torch(model, forecast)
    paper, matmul = count_flops(model), count_flops(model, convention="matmul")
    assert 2 * (paper.linear + paper.structured) == matmul.linear + matmul.structured
    assert 2 * paper.head == matmul.head
    plain = count_flops(
        EncoderForecaster(EncoderConfig(**sizes, prediction_length=future, width=12, num_heads=3))
    )
    effect = 0
    if model.known_effect is not None:
        read = model.known_effect.num_features
        effect += 12 * (read + 2 * 16) + future * (read * 16 + read + 16)
    if model.calendar_effect is not None:
        read = model.config.num_calendar_features
        effect += 12 * 8 + future * (read * 8 + read + 8)
    assert paper.head - plain.head == effect
    tokens = sum(
        10 * 4 * part.num_features * 12
        for part in (model.past_columns, model.known_columns)
        if part is not None
    )
    static = 0 if model.static_columns is None else model.static_columns.num_features * 12
    assert paper.total - plain.total == effect + tokens + static


def test_torch_is_blind_to_the_fused_kernels_of_a_cpu() -> None:
    """Why the comparisons above switch them off."""
    model = tiny("standard")
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 9, 12))
    counted = count_flops(model, 9, convention="matmul")
    assert counter.get_total_flops() == counted.linear


# Parameters.


@pytest.mark.parametrize("name", NAMES)
def test_parameters_by_part(name: str) -> None:
    sizes = {"vocabulary_size": 7, "context_length": 14, "width": 12, "num_heads": 3}
    model = CausalLM(CausalLMConfig(**sizes, num_layers=2, attention=name, **FIELDS[name]))
    size, named = count_parameters(model), dict(model.named_parameters())

    def numbers(pattern: str) -> int:
        return sum(p.numel() for n, p in named.items() if re.search(pattern, n))

    assert size.total == numbers("")
    assert size.embedding == numbers("^embedding|^positions") == (7 + 14) * 12
    assert size.head == numbers("^head") == 7 * 12
    assert size.attention == numbers(r"\.attention\.")
    assert size.non_embedding == numbers("^encoder")


def test_parameters_of_a_regressor_and_a_forecaster() -> None:
    config = RegressorConfig(num_dims=5, width=12, num_heads=3, num_layers=2)
    size = count_parameters(Regressor(config))
    assert (size.embedding, size.head) == (5 * 12 + 20 * 12, 12)
    config = EncoderConfig(
        context_length=12, prediction_length=4, patch_length=4, patch_stride=4, loss="mse"
    )
    model = EncoderForecaster(config)
    size, width = count_parameters(model), config.width
    assert size.embedding == 4 * width + width + 4 * width + 3 * width
    assert size.head == 3 * width * 4 + 4
    assert size.non_embedding == sum(p.numel() for p in model.backbone.parameters())
    columns = {
        "known_cardinalities": (0, 5),
        "static_cardinalities": (3,),
        "num_calendar_features": 4,
    }
    more = count_parameters(EncoderForecaster(dataclasses.replace(config, **columns)))
    read = 9 * 6
    tokens = 6 * 5 + 4 * 3 + 6 * 4 * width + 3 * width
    calendar = 8 * width + 8 + 1 + 4
    assert more.embedding - size.embedding == tokens + read * 16 + 16 + 4 * 8 + 8
    assert more.head - size.head == (width + 1) * (read + 2 * 16) + calendar
    assert more.non_embedding == size.non_embedding


def test_a_linear_member_counts_as_part_of_the_head() -> None:
    config = EncoderConfig(context_length=48, prediction_length=12)
    plain, averaged = (
        EncoderForecaster(dataclasses.replace(config, linear_share=share)) for share in (0.0, 0.5)
    )
    parameters = count_parameters(averaged).head - count_parameters(plain).head
    flops = count_flops(averaged).head - count_flops(plain).head
    assert (parameters, flops) == (12 * 48, 12 * 48)


def test_shared_parameters_count_once() -> None:
    layer = nn.Linear(3, 5)
    assert count_parameters(nn.ModuleList([layer, layer])).total == 20
    twins = nn.ModuleList([nn.Embedding(7, 2), nn.Embedding(7, 2)])
    twins[1].weight = twins[0].weight
    assert count_parameters(twins).embedding == count_parameters(twins).total == 14
    model = CausalLM(CausalLMConfig(vocabulary_size=7, context_length=8, width=12, num_heads=3))
    apart = count_parameters(model)
    model.head.weight = model.embedding.weight
    tied = count_parameters(model)
    assert (tied.head, tied.embedding) == (0, apart.embedding)
    assert tied.non_embedding == apart.non_embedding == tied.total - tied.embedding


# Modules of one's own, and errors.


class Mixer(nn.Module):
    """A backbone of somebody else."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width)

    def forward(self, tokens: Tensor, key_mask: Tensor | None) -> Tensor:
        del key_mask
        return self.map(tokens)


class CountedMixer(Mixer):
    """The same, which says what it costs."""

    def cost(self, length: int, convention: str) -> Cost:
        assert convention in ("paper", "matmul")
        return Cost(linear=length * self.map.weight.numel())


def forecaster(backbone: nn.Module) -> EncoderForecaster:
    config = EncoderConfig(context_length=12, prediction_length=4, patch_length=4, patch_stride=4)
    return EncoderForecaster(config, backbone)


def test_a_backbone_of_ones_own_is_asked_or_refused() -> None:
    model = forecaster(CountedMixer(32))
    assert count_flops(model).linear == 3 * (4 * 32 + 32 * 32) + (3 * 32 * 4 + 32 * 4 * 8)
    assert_as_torch(model, lambda: model(torch.randn(2, 12, 1))[1])
    with pytest.raises(TypeError, match="contains a Mixer, whose cost is unknown"):
        count_flops(forecaster(Mixer(32)))
    assert count_parameters(forecaster(Mixer(32))).attention == 0


def test_a_cost_that_is_none_is_refused() -> None:
    mixer = Mixer(8)
    mixer.cost = lambda length, convention: length
    with pytest.raises(TypeError, match=r"`cost` of Mixer must return .*Cost, got a int"):
        count_flops(mixer, 4)


def test_a_new_score_says_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("mlrforecast.nn.attention.dot.DotScore.cost")
    layer = StructuredAttention(8, 2, attention="standard")
    with pytest.raises(NotImplementedError, match="StandardScore does not say what it costs"):
        count_flops(layer, 4)


def test_a_new_score_inherits_or_overrides() -> None:
    class Half(StandardScore):
        def paper_scores(self, length: int) -> int:
            return super().paper_scores(length) // 2

    layer = StructuredAttention(8, 2, attention="standard")
    whole = count_flops(layer, 6)
    layer.score.__class__ = Half
    assert count_flops(layer, 6).scores == whole.scores // 2


def test_bad_arguments_are_named() -> None:
    model = CausalLM(CausalLMConfig(vocabulary_size=7, context_length=8, width=12, num_heads=3))
    for call, error, message in (
        (lambda: count_flops(model, 9), ValueError, "`length` must be at most 8"),
        (lambda: count_flops(model, 0), ValueError, "`length` must be an integer of at least 1"),
        (
            lambda: count_flops(model.encoder),
            ValueError,
            "`length` must be given: Encoder has none",
        ),
        (lambda: count_flops(model).training(), ValueError, "forward passes only"),
        (lambda: count_flops(forecaster(Mixer(32)), 3), ValueError, "the context of the model, 12"),
    ):
        with pytest.raises(error, match=message):
            call()
    regressor = Regressor(RegressorConfig(num_dims=2, width=12, num_heads=3))
    with pytest.raises(ValueError, match="two tokens for each point, got 3"):
        count_flops(regressor, 3)


@pytest.mark.usefixtures("own_errors")
def test_wrong_types_are_named() -> None:
    for call, error, message in (
        (lambda: count_flops(nn.ReLU(), 3, convention="dense"), ValueError, "`convention` must be"),
        (lambda: count_flops("model", 9), TypeError, "`model` must be a torch.nn.Module"),
        (lambda: count_parameters(3), TypeError, "`model` must be a torch.nn.Module"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_positions_that_never_end_let_a_model_be_counted_further() -> None:
    sizes = {"vocabulary_size": 7, "context_length": 8, "width": 12, "num_heads": 3}
    model = CausalLM(CausalLMConfig(**sizes, positions="rotary"))
    assert count_flops(model, 100).tokens == 100


def test_weights_do_not_matter_and_stay() -> None:
    model = tiny("bilinear_btt")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    counted = count_flops(model, 7)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert count_flops(model.to("meta"), 7) == counted
    assert dataclasses.asdict(counted)["tokens"] == 7


# The table of the page.


def test_the_table_of_the_page_is_what_is_counted() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rows = [row for row in rows if row[0].strip("`") in attentions and len(row) == 9]
    assert [row[0].strip("`") for row in rows] == sorted(attentions)
    for name, options, *cells in rows:
        given = ast.literal_eval(options.strip("`")) if options else {}
        with torch.device("meta"):
            config = CausalLMConfig(
                vocabulary_size=96,
                context_length=1024,
                attention=name.strip("`"),
                ranks=given.pop("ranks", None),
                attention_options=given,
            )
            model = CausalLM(config)
        counted = count_flops(model)
        numbers = [counted.linear, counted.structured, counted.scores, counted.values]
        numbers += [counted.layer_norm, counted.total]
        expected = [f"{n // 1024:,}" for n in numbers]
        assert all(n % 1024 == 0 for n in numbers)
        assert cells == [*expected, f"{count_parameters(model).non_embedding:,}"]
