"""The attention module against a loop over pairs of steps."""

import pytest
import torch
from torch import Tensor

from mlrforecast.nn import StructuredAttention, attentions, default_ranks
from mlrforecast.ops import mlr_attention, standard_attention

pytestmark = pytest.mark.usefixtures("seeded")

WIDTH, HEADS, STEPS = 16, 2, 10


def layer_of(attention: str, **options: object) -> StructuredAttention:
    return StructuredAttention(WIDTH, HEADS, attention=attention, **options).eval()


def heads_of(layer: StructuredAttention, x: Tensor) -> list[Tensor]:
    """Queries, keys and values of shape (B, H, T, R), each head a run of columns."""
    width = WIDTH // HEADS
    parts = []
    for linear in (layer.query, layer.key, layer.value):
        projected = x @ linear.weight.T + (0 if linear.bias is None else linear.bias)
        parts.append(
            torch.stack(
                [projected[..., head * width : (head + 1) * width] for head in range(HEADS)], dim=1
            )
        )
    return parts


def finish(layer: StructuredAttention, attended: Tensor) -> Tensor:
    together = torch.cat(list(attended.unbind(1)), dim=-1)
    return together @ layer.output.weight.T + (
        0 if layer.output.bias is None else layer.output.bias
    )


def levels_oracle(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ranks: tuple[int, ...],
    sizes: tuple[int, ...],
    key_mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Attend pair by pair; blocks are counted back from the newest step."""
    steps, width = q.shape[2], q.shape[3]
    out = torch.zeros_like(v)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            scores = torch.full((steps, steps), -torch.inf)
            for i in range(steps):
                for j in range(steps):
                    if (causal and j > i) or (key_mask is not None and not key_mask[b, j]):
                        continue
                    score, first = torch.zeros(()), 0
                    for rank, size in zip(ranks, sizes, strict=True):
                        if (steps - 1 - i) // size == (steps - 1 - j) // size:
                            columns = slice(first, first + rank)
                            score = score + q[b, h, i, columns] @ k[b, h, j, columns]
                        first += rank
                    scores[i, j] = score / width**0.5
            weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)
            out[b, h] = weights @ v[b, h]
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("ranks", "block_sizes", "sizes"),
    [
        (None, None, (STEPS, 6, 3)),  # halves and quarters, rounded up
        ((5, 3), None, (STEPS, 5)),
        ((4, 4), (None, 4), (STEPS, 4)),
        ((8,), None, (STEPS,)),
    ],
)
def test_mlr_is_the_loop(
    ranks: tuple[int, ...] | None,
    block_sizes: tuple[int | None, ...] | None,
    sizes: tuple[int, ...],
    masked: bool,
    causal: bool,
) -> None:
    layer = layer_of("mlr", ranks=ranks, block_sizes=block_sizes, causal=causal)
    x = torch.randn(2, STEPS, WIDTH)
    key_mask = torch.rand(2, STEPS) > 0.4 if masked else None
    out = layer(x, key_mask)
    q, k, v = heads_of(layer, x)
    expected = levels_oracle(q, k, v, ranks or (4, 2, 2), sizes, key_mask, causal)
    torch.testing.assert_close(out, finish(layer, expected), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_each_name_calls_its_operation(bias: bool) -> None:
    x = torch.randn(2, STEPS, WIDTH)
    layer = layer_of("standard", bias=bias)
    assert (layer.query.bias is not None) == bias
    expected = finish(layer, standard_attention(*heads_of(layer, x)))
    torch.testing.assert_close(layer(x), expected, atol=1e-6, rtol=1e-5)
    layer = layer_of("mlr", ranks=(4, 4), block_sizes=(None, 5), bias=bias)
    options = {"ranks": (4, 4), "block_sizes": (None, 5), "level_scale": "inverse_sqrt_width"}
    expected = finish(layer, mlr_attention(*heads_of(layer, x), **options))
    torch.testing.assert_close(layer(x), expected, atol=1e-6, rtol=1e-5)


def test_one_level_is_standard_attention_and_more_are_not() -> None:
    x = torch.randn(2, STEPS, WIDTH)
    standard, one = layer_of("standard"), layer_of("mlr", ranks=(8,))
    one.load_state_dict(standard.state_dict())
    torch.testing.assert_close(one(x), standard(x), atol=1e-6, rtol=1e-5)
    three = layer_of("mlr")
    three.load_state_dict(standard.state_dict())
    assert (three(x) - standard(x)).abs().max() > 1e-3


@pytest.mark.parametrize("attention", ["mlr", "standard"])
def test_masked_keys_do_not_matter(attention: str) -> None:
    layer = layer_of(attention)
    x, other = torch.randn(2, 3, STEPS, WIDTH)
    key_mask = torch.ones(3, STEPS, dtype=torch.bool)
    key_mask[:, 2:5] = False
    key_mask[2] = False
    mixed = torch.where(key_mask.unsqueeze(-1), x, other)
    out, changed = layer(x, key_mask), layer(mixed, key_mask)
    torch.testing.assert_close(out[key_mask], changed[key_mask])
    # Where no key is left, only the bias of the last map is.
    torch.testing.assert_close(out[2], layer.output.bias.expand(STEPS, WIDTH))
    torch.testing.assert_close(layer(x, torch.ones_like(key_mask)), layer(x), atol=1e-6, rtol=1e-5)


def test_dropout_acts_in_training_only() -> None:
    layer = layer_of("mlr", dropout=0.5)
    x = torch.randn(2, STEPS, WIDTH)
    assert torch.equal(layer(x), layer(x))
    layer.train()
    assert not torch.equal(layer(x), layer(x))


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
        ({"ranks": (4, 2)}, r"`ranks` must sum to the head width 8, got \(4, 2\) \(sum 6\)"),
        ({"block_sizes": (None, 4)}, "one entry for each of the 3 ranks"),
        ({"block_sizes": (2, 4, 8)}, "coarse to fine"),
        ({"attention": "mrl"}, "Unknown attention 'mrl'. Available: mlr, standard"),
        ({"attention": "standard", "ranks": (4, 4)}, "belong to attention='mlr'"),
        ({"attention": "standard", "block_sizes": (None, 4)}, "belong to attention='mlr'"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        StructuredAttention(**{"width": WIDTH, "num_heads": HEADS, **options})


def test_the_names_are_those_of_the_registry() -> None:
    assert list(attentions) == ["mlr", "standard"]
