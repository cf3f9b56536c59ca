"""Multi-level attention with a bias: the same function, whatever the bias says."""

import pytest
import torch

from mlrforecast.ops import biased_mlr_attention, mlr_attention, standard_attention

LEVELS = {"ranks": (4, 2, 2), "block_sizes": (None, 6, 3)}
HIDDEN = float("-inf")


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("divide", [False, True])
@pytest.mark.parametrize("scale", ["inverse_rank", "inverse_sqrt_width", (0.5, 1.0, 2.0)])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)], ids=["H4", "H4-G2"])
def test_without_a_say_it_is_the_function_of_the_reference(heads, scale, divide):
    num_heads, groups = heads
    q = draw(2, num_heads, 5, 8)
    k, v = draw(2, groups, 13, 8, seed=1), draw(2, groups, 13, 3, seed=2)
    options = LEVELS | {"level_scale": scale, "divide_by_shared_levels": divide, "offset": 2}
    found = biased_mlr_attention(q, k, v, torch.zeros(1, 1, 1, 1, dtype=q.dtype), **options)
    expected = mlr_attention(q, k, v, backend="reference", **options)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_one_level_is_attention_of_pytorch_with_the_same_bias():
    q, k, v = (draw(2, 3, 9, 8, seed=seed) for seed in range(3))
    bias = draw(1, 3, 9, 9, seed=3)
    found = biased_mlr_attention(q, k, v, bias, ranks=(8,), level_scale=(1.0,))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, scale=1.0)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_hidden_pairs_count_for_nothing_and_hidden_rows_are_zero():
    q, k, v = (draw(1, 2, 8, 8, seed=seed).requires_grad_() for seed in range(3))
    bias = torch.zeros(1, 1, 8, 8, dtype=q.dtype)
    bias[..., 5:] = HIDDEN
    bias[..., 2, :] = HIDDEN
    found = biased_mlr_attention(q, k, v, bias, **LEVELS)
    key_mask = torch.arange(8)[None] < 5
    expected = mlr_attention(q, k, v, key_mask=key_mask, backend="reference", **LEVELS)
    rows = [row for row in range(8) if row != 2]
    torch.testing.assert_close(found[:, :, rows], expected[:, :, rows], rtol=1e-12, atol=1e-12)
    assert (found[:, :, 2] == 0).all()
    found.sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    assert (q.grad[:, :, 2] == 0).all()


def test_pairs_of_no_common_block_are_hidden():
    q, k, v = (draw(1, 1, 8, 4, seed=seed) for seed in range(3))
    levels = {"ranks": (4,), "block_sizes": (4,)}
    found = biased_mlr_attention(q, k, v, torch.zeros(1, 1, 1, 1, dtype=q.dtype), **levels)
    expected = standard_attention(q[:, :, :4] / 2, k[:, :, :4], v[:, :, :4])
    torch.testing.assert_close(found[:, :, :4], expected, rtol=1e-12, atol=1e-12)


def test_gradients_of_queries_keys_values_and_bias():
    q, k, v = (draw(1, 2, 6, 8, seed=seed).requires_grad_() for seed in range(3))
    bias = draw(1, 2, 6, 6, seed=3).requires_grad_()

    def attend(*given):
        return biased_mlr_attention(*given, **LEVELS)

    assert torch.autograd.gradcheck(attend, (q, k, v, bias))


def test_it_follows_autocast_and_drops_weights(seeded):
    q, k, v = (draw(1, 2, 6, 8, seed=seed, dtype=torch.float32) for seed in range(3))
    bias = torch.zeros(1, 1, 6, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert biased_mlr_attention(q, k, v, bias, **LEVELS).dtype == torch.bfloat16
    whole = biased_mlr_attention(q, k, v, bias, **LEVELS)
    assert not torch.equal(biased_mlr_attention(q, k, v, bias, dropout_p=0.5, **LEVELS), whole)


@pytest.mark.usefixtures("own_errors")
def test_what_does_not_fit_is_said():
    q = torch.zeros(2, 3, 4, 8)
    for bias in (torch.zeros(4, 4), torch.zeros(1, 1, 4, 5), torch.zeros(1, 1, 4, 4).bool(), None):
        with pytest.raises(ValueError, match=r"`bias` must be .* = \(2, 3, 4, 4\), got"):
            biased_mlr_attention(q, q, q, bias, **LEVELS)
    with pytest.raises(ValueError, match="`ranks` must sum to the head width R=8"):
        biased_mlr_attention(q, q, q, torch.zeros(1, 1, 1, 1), ranks=(4, 2))
