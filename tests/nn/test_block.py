"""Blocks and the encoder against their formula."""

import pytest
import torch
from torch.nn import functional

from mlrforecast.nn import Encoder, EncoderBlock

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
    encoder = Encoder(16, 2, num_layers=3, hidden_width=24, ranks=(6, 2)).eval()
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
