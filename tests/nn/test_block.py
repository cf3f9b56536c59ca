"""Blocks and the encoder against their formula."""

import pytest
import torch
from torch.nn import functional

from mlrforecast.nn import Encoder, EncoderBlock, attention_of_layers

pytestmark = pytest.mark.usefixtures("seeded")


def test_a_block_adds_attention_and_network_to_its_input() -> None:
    block = EncoderBlock(16, 2, hidden_width=24, dropout=0.3).eval()
    x = torch.randn(2, 9, 16)
    key_mask = torch.rand(2, 9) > 0.3
    first, last = block.network[0], block.network[-1]
    middle = x + block.attention(functional.layer_norm(x, (16,)), key_mask)
    hidden = functional.gelu(functional.layer_norm(middle, (16,)) @ first.weight.T + first.bias)
    expected = middle + hidden @ last.weight.T + last.bias
    torch.testing.assert_close(block(x, key_mask), expected, atol=1e-5, rtol=1e-5)


def test_an_encoder_is_its_blocks_and_a_norm() -> None:
    encoder = Encoder(
        16, 2, num_layers=3, hidden_width=24, attention_options={"ranks": (6, 2)}
    ).eval()
    x = torch.randn(2, 9, 16)
    key_mask = torch.rand(2, 9) > 0.3
    expected = x
    assert len(encoder.blocks) == 3
    for block in encoder.blocks:
        expected = block(expected, key_mask)
    expected = functional.layer_norm(expected, (16,))
    torch.testing.assert_close(encoder(x, key_mask), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", ["mlr", "standard"])
def test_masked_tokens_do_not_reach_the_others(attention: str) -> None:
    encoder = Encoder(16, 2, num_layers=2, hidden_width=24, attention=attention).eval()
    key_mask = torch.tensor([[False, False, True, True, True, True]])
    x = torch.randn(1, 6, 16)
    other = torch.where(key_mask.unsqueeze(-1), x, torch.randn(1, 6, 16))
    torch.testing.assert_close(encoder(x, key_mask)[:, 2:], encoder(other, key_mask)[:, 2:])


def test_dropout_acts_in_training_only() -> None:
    block = EncoderBlock(16, 2, hidden_width=24, dropout=0.5)
    x = torch.randn(2, 9, 16)
    assert not torch.equal(block(x), block(x))
    block.eval()
    assert torch.equal(block(x), block(x))


def test_a_pattern_of_scores_is_repeated_over_the_blocks() -> None:
    pattern = ("standard", "sliding_window", "mlr")
    options = {"window": 3, "ranks": (4, 4), "qk_norm": True}
    encoder = Encoder(
        16, 2, num_layers=5, hidden_width=24, attention=pattern, attention_options=options
    )
    layers = [block.attention for block in encoder.blocks]
    assert [layer.attention for layer in layers] == [*pattern, *pattern[:2]]
    assert [layer.score.window for layer in layers[1::3]] == [3, 3]
    assert layers[2].score.ranks == (4, 4)
    assert all(layer.score.heads.qk_norm for layer in layers)


@pytest.mark.parametrize(
    ("attention", "options", "words"),
    [
        ((), {}, "`attention` must name at least one score"),
        (("mlr", "strandard"), {}, "Unknown attention 'strandard'"),
        (("mlr", "standard"), {"window": 3}, "has no option `window`; .* Its options are .*ranks"),
        ("standard", {"attention": "mlr"}, "has no option `attention`"),
        # The third score is one that two layers never reach.
        (("standard", "mlr", "sliding_window"), {"window": 3}, "has no option `window`"),
    ],
)
def test_options_that_no_layer_takes_are_refused(
    attention: str | tuple[str, ...], options: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        attention_of_layers(attention, options, 2)


def test_each_block_has_a_cache_of_its_own() -> None:
    options = {"context_length": 9}
    encoder = Encoder(
        16, 2, num_layers=2, hidden_width=24, causal=True, attention_options=options
    ).eval()
    x = torch.randn(1, 3, 16)
    with pytest.raises(ValueError, match="one LayerCache for each of the 2 blocks, got 1"):
        encoder(x, cache=encoder.new_cache()[:1])
    with pytest.raises(ValueError, match="`cache` was made for another layer"):
        encoder(x, cache=encoder.new_cache()[::-1])


def test_attention_dropout_reaches_the_layers() -> None:
    options = {"attention_dropout": 0.5}
    encoder = Encoder(16, 2, num_layers=1, hidden_width=24, attention_options=options)
    x = torch.randn(1, 9, 16)
    assert not torch.equal(encoder(x), encoder(x))
    encoder.eval()
    assert torch.equal(encoder(x), encoder(x))


def test_without_bias_no_map_and_no_norm_has_one() -> None:
    encoder = Encoder(16, 2, num_layers=1, hidden_width=24, bias=False)
    assert not [name for name, _ in encoder.named_parameters() if "bias" in name]


def test_a_causal_encoder_may_be_run_step_by_step() -> None:
    options = {"context_length": 9}
    encoder = Encoder(
        16, 2, num_layers=2, hidden_width=24, causal=True, attention_options=options
    ).eval()
    x = torch.randn(2, 9, 16)
    cache = encoder.new_cache()
    parts = [encoder(x[:, at : at + 3], cache=cache) for at in range(0, 9, 3)]
    torch.testing.assert_close(torch.cat(parts, 1), encoder(x), atol=1e-6, rtol=1e-5)
