"""Arguments and defaults of the attention module; what scores compute is in ``test_scores``."""

from typing import Any

import pytest
import torch

from mlrforecast.nn import (
    Heads,
    LayerCache,
    Score,
    StructuredAttention,
    attentions,
    default_ranks,
    option_names,
)

pytestmark = pytest.mark.usefixtures("seeded")

WIDTH, HEADS, STEPS = 16, 2, 10


def layer_of(attention: str, **options: Any) -> StructuredAttention:
    return StructuredAttention(WIDTH, HEADS, attention=attention, **options).eval()


def test_one_level_is_standard_attention_and_more_are_not() -> None:
    x = torch.randn(2, STEPS, WIDTH)
    standard, one = layer_of("standard"), layer_of("mlr", ranks=(8,))
    one.load_state_dict(standard.state_dict())
    torch.testing.assert_close(one(x), standard(x), atol=1e-6, rtol=1e-5)
    three = layer_of("mlr")
    three.load_state_dict(standard.state_dict())
    assert (three(x) - standard(x)).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("causal", "newest_whole", "edges"),
    [
        (False, None, [1, 4, 7]),
        (True, None, [3, 6, 9]),
        (True, True, [1, 4, 7]),
        (False, False, [3, 6, 9]),
    ],
)
def test_blocks_end_at_the_newest_step_unless_causal(
    causal: bool, newest_whole: bool | None, edges: list[int]
) -> None:
    """Ten steps in blocks of three: where the output turns when only a fine column differs."""
    options = {"ranks": (4, 4), "block_sizes": (None, 3), "causal": causal}
    layer = layer_of("mlr", **options, newest_whole=newest_whole)
    seen: dict[str, Any] = {}

    def record(*args: Any, **kwargs: Any) -> torch.Tensor:
        seen.update(kwargs)
        return args[2]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlrforecast.nn.attention.mlr.mlr_attention", record)
        layer(torch.zeros(1, STEPS, WIDTH))
    blocks = [(step + seen["offset"]) // 3 for step in range(STEPS)]
    assert [step for step in range(1, STEPS) if blocks[step] != blocks[step - 1]] == edges


def test_gradients_reach_all_maps() -> None:
    layer = layer_of("mlr")
    layer(torch.randn(2, STEPS, WIDTH)).square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(
    ("head_width", "ranks"),
    [(1, (1,)), (2, (1, 1)), (3, (1, 1, 1)), (4, (2, 1, 1)), (7, (5, 1, 1)), (16, (8, 4, 4))],
)
def test_default_ranks(head_width: int, ranks: tuple[int, ...]) -> None:
    assert default_ranks(head_width) == ranks


@pytest.mark.parametrize("head_width", range(1, 70))
def test_default_ranks_use_every_column(head_width: int) -> None:
    ranks = default_ranks(head_width)
    assert sum(ranks) == head_width
    assert min(ranks) >= 1
    assert len(ranks) <= 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_heads": 3}, "`num_heads` must divide the width 16, got 3"),
        ({"num_heads": 0}, "`num_heads` must divide the width 16, got 0"),
        ({"num_kv_heads": 3}, r"`num_kv_heads` must divide `num_heads` \(2\), got 3"),
        ({"head_width": 0}, "`head_width` must be at least 1, got 0"),
        ({"qk_width": 0}, "`qk_width` must be at least 1, got 0"),
        ({"attention_dropout": 1.0}, r"`attention_dropout` must lie in \[0, 1\), got 1.0"),
        ({"context_length": 0}, "`context_length` must be at least 1, got 0"),
        ({"ranks": (4, 2)}, r"`ranks` must sum to the head width 8, got \(4, 2\) \(sum 6\)"),
        ({"block_sizes": (None, 4)}, "one entry for each of the 3 ranks"),
        ({"block_sizes": (2, 4, 8)}, "coarse to fine"),
        ({"level_scale": "rank"}, "`level_scale` must be one number per level or one of"),
        ({"unshared": "drop"}, "`unshared` must be one of mask, zero; got 'drop'"),
        ({"attention": "mrl"}, "Unknown attention 'mrl'. Available: bilinear, bilinear_btt"),
        (
            {"attention": "standard", "ranks": (4, 4)},
            r"attention='standard' has no option `ranks`; attention='bilinear_mlr' or .*'mlr'",
        ),
        ({"attention": "standard", "logit_scale": "big"}, "`logit_scale` must be one of"),
        ({"attention": "sliding_window", "window": -1}, "`window` must be at least 0, got -1"),
        ({"attention": "global_window", "ranks": (8,)}, "`ranks` .* must be two integers"),
        ({"attention": "global_window", "combine": "max"}, "`combine` must be one of mean, sum"),
        ({"attention": "bilinear_mlr", "num_blocks": (1, 3, 9)}, "`num_blocks` must divide"),
        ({"attention": "bilinear_mlr", "num_blocks": (1, 2)}, "`num_blocks` must have one entry"),
        ({"attention": "bilinear_btt", "tensor_rank": 0}, "at least 1, got 0"),
    ],
)
@pytest.mark.usefixtures("own_errors")
def test_wrong_arguments_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        StructuredAttention(**{"width": WIDTH, "num_heads": HEADS, **options})


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize(
    "options",
    [
        {"causal": "no"},
        {"bias": 1},
        {"newest_whole": "no"},
        {"attention_dropout": "much"},
        {"attention_dropout": True},
        {"ranks": 4},
        {"attention": "bilinear_mlr", "ranks": 4},
        {"attention": "global_window", "ranks": 3},
        {"attention": "global_window", "ranks": (1.5, 2)},
        {"ranks": ("a", 4)},
    ],
)
def test_wrong_types_are_named(options: dict[str, Any]) -> None:
    name = next(key for key in options if key != "attention")
    with pytest.raises(TypeError, match=f"`{name}"):
        StructuredAttention(WIDTH, HEADS, **options)


@pytest.mark.parametrize(
    ("built", "called", "words"),
    [
        ({"attention": "standard"}, {"block_ids": None}, "`block_ids` belong to attention='mlr'"),
        ({}, {"query_block_ids": None}, "`query_block_ids` belong to a `context`"),
        ({"attention": "standard", "causal": True}, {"context": None}, "must be built with"),
        ({"attention": "standard", "rotary": True}, {"context": None}, "must be built with"),
        ({"attention": "mlr"}, {"context": None}, "give `block_ids` and `query_block_ids`"),
    ],
)
def test_wrong_calls_are_refused(built: dict[str, Any], called: dict[str, Any], words: str) -> None:
    values = {
        "block_ids": torch.zeros(3, STEPS, dtype=torch.int64),
        "query_block_ids": torch.zeros(3, STEPS, dtype=torch.int64),
        "context": torch.zeros(1, STEPS, WIDTH),
    }
    layer = StructuredAttention(WIDTH, HEADS, **built)
    with pytest.raises(ValueError, match=words):
        layer(torch.zeros(1, STEPS, WIDTH), **{name: values[name] for name in called})


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize("attention", ["bilinear", "mlr", "standard"])
def test_inputs_of_another_shape_are_refused(attention: str) -> None:
    layer = layer_of(attention)
    for x in (torch.zeros(STEPS, WIDTH), torch.zeros(1, STEPS, WIDTH + 1)):
        with pytest.raises(ValueError, match=r"`x` must have the shape \(B, T, D\) with .* D=16"):
            layer(x)
    with pytest.raises(ValueError, match=r"`context` must have the shape .* the batch B=1 of `x`"):
        layer_of("standard")(torch.zeros(1, STEPS, WIDTH), context=torch.zeros(2, STEPS, WIDTH))


def test_block_ids_and_a_cache_do_not_go_together() -> None:
    layer = layer_of("mlr", causal=True, context_length=STEPS)
    ids = torch.zeros(3, STEPS, dtype=torch.int64)
    with pytest.raises(ValueError, match="`cache` is for causal self-attention"):
        layer(torch.zeros(1, STEPS, WIDTH), block_ids=ids, cache=LayerCache(layer.score))


def test_a_score_of_ones_own_is_one_class() -> None:
    """What docs tell a user to write: features, an op, a name."""

    class Plain(Score):
        """Compare the raw columns of each head."""

        positional = False

        def __init__(self, heads: Heads, *, factor: float = 1.0) -> None:
            super().__init__(heads)
            self.factor = factor

        def queries(self, x: torch.Tensor) -> torch.Tensor:
            return x.unflatten(-1, (self.heads.num_heads, -1)).transpose(1, 2)

        keys = queries

        def attend(self, q, k, v, *, causal, key_mask, dropout_p):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=causal, scale=self.factor
            )

    assert option_names(Plain) == ("factor",)
    assert "plain" not in attentions
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(attentions._entries, "plain", Plain)
        layer = layer_of("plain", factor=0.5, causal=True)
        cache = LayerCache(layer.score)
        x = torch.randn(1, STEPS, WIDTH)
        parts = [layer(x[:, :1], cache=cache), layer(x, cache=None)[:, :1]]
    torch.testing.assert_close(*parts)
