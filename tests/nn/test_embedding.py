"""Patches against slices, padding and missing values."""

import pytest
import torch
from torch import Tensor

from mlrforecast.nn import LearnedPositions, PatchEmbedding

pytestmark = pytest.mark.usefixtures("seeded")

SIZES = [(12, 4, 4), (10, 4, 4), (10, 4, 2), (11, 5, 3), (7, 1, 1), (3, 5, 5), (9, 9, 9), (6, 4, 3)]


def slices(x: Tensor, patch: int, stride: int) -> list[Tensor]:
    """Patches from the newest back, oldest first; what is missing on the old side is 0."""
    steps, end, parts = x.shape[1], x.shape[1], []
    while True:
        start = end - patch
        part = x[:, max(start, 0) : end]
        parts.append(torch.cat([x.new_zeros(len(x), max(-start, 0)), part], dim=1))
        if start <= 0:
            return parts[::-1]
        end -= stride
        assert end > 0, (steps, patch, stride)


def embedding(context: int, patch: int, stride: int) -> PatchEmbedding:
    return PatchEmbedding(context, patch_length=patch, patch_stride=stride, width=8).eval()


@pytest.mark.parametrize(("context", "patch", "stride"), SIZES)
def test_tokens_are_linear_in_the_slices(context: int, patch: int, stride: int) -> None:
    embed = embedding(context, patch, stride)
    x = torch.randn(3, context)
    tokens, key_mask = embed(x)
    parts = slices(x, patch, stride)
    assert key_mask is None
    assert embed.num_tokens == len(parts)
    weight, bias = embed.values.weight, embed.values.bias
    expected = torch.stack(
        [part @ weight.T + bias + embed.positions.weight[n] for n, part in enumerate(parts)], dim=1
    )
    torch.testing.assert_close(tokens, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("context", "patch", "stride"), SIZES)
def test_missing_steps_are_told_and_empty_patches_masked(
    context: int, patch: int, stride: int
) -> None:
    embed = embedding(context, patch, stride)
    observed = torch.rand(6, context) > 0.6
    observed[0] = False
    observed[1] = True
    x = torch.randn(6, context) * observed
    tokens, key_mask = embed(x, observed)
    there = slices(observed.float(), patch, stride)
    assert key_mask is not None
    assert torch.equal(key_mask, torch.stack([part.sum(dim=1) > 0 for part in there], dim=1))
    gone = slices((~observed).float(), patch, stride)
    plain, _ = embed(x)
    marks = torch.stack([part @ embed.gaps.weight.T for part in gone], dim=1)
    torch.testing.assert_close(tokens, plain + marks, atol=1e-6, rtol=1e-5)


def test_padding_is_no_observation() -> None:
    """The oldest patch: three steps of padding and one that is missing."""
    embed = embedding(9, 4, 4)
    observed = torch.ones(1, 9, dtype=torch.bool)
    observed[0, 0] = False
    _, key_mask = embed(torch.zeros(1, 9), observed)
    assert key_mask is not None
    assert key_mask.tolist() == [[False, True, True]]


@pytest.mark.parametrize(("context", "patch", "stride"), SIZES)
def test_a_complete_window_gives_the_same_tokens_in_any_company(
    context: int, patch: int, stride: int
) -> None:
    embed = embedding(context, patch, stride)
    x = torch.randn(3, context)
    alone, _ = embed(x)
    observed = torch.ones(3, context, dtype=torch.bool)
    told, key_mask = embed(x, observed)
    torch.testing.assert_close(told, alone, atol=1e-6, rtol=0)
    assert key_mask is not None
    assert key_mask.all()
    observed[0, : context // 2] = False
    mixed, _ = embed(x * observed, observed)
    torch.testing.assert_close(mixed[1:], alone[1:], atol=1e-6, rtol=0)


def test_the_newest_step_is_the_last_of_the_newest_token() -> None:
    embed = embedding(10, 4, 3)
    x = torch.zeros(1, 10)
    before, _ = embed(x)
    x[0, -1] = 1.0
    after, _ = embed(x)
    changed = (after - before)[0]
    torch.testing.assert_close(changed[-1], embed.values.weight[:, -1])
    assert (changed[:-1] == 0).all()


def test_dropout_acts_in_training_only() -> None:
    embed = PatchEmbedding(12, patch_length=4, patch_stride=4, width=64, dropout=0.5)
    x = torch.randn(2, 12)
    assert (embed(x)[0] == 0).any()
    assert (embed(x, torch.ones(2, 12, dtype=torch.bool))[0] == 0).any()
    assert not (embed.eval()(x)[0] == 0).any()


def test_learned_positions_start_where_told_and_end() -> None:
    positions = LearnedPositions(6, 4)
    tokens = torch.randn(2, 3, 4)
    torch.testing.assert_close(positions(tokens, start=2), tokens + positions.weight[2:5])
    assert positions(tokens, start=3).shape == (2, 3, 4)
    with pytest.raises(ValueError, match="Learned positions end at 6 tokens, got 7"):
        positions(tokens, start=4)


def test_tokens_without_positions_do_not_know_their_place() -> None:
    embed = PatchEmbedding(12, patch_length=4, patch_stride=4, width=8, positions=False)
    tokens, _ = embed(torch.ones(1, 12))
    torch.testing.assert_close(tokens, tokens[:, :1].expand_as(tokens))
    assert "positions.weight" not in embed.state_dict()


# Covariates.


@pytest.mark.parametrize(("context", "patch", "stride"), SIZES)
def test_covariates_are_cut_like_the_values_and_shared_by_channels(
    context: int, patch: int, stride: int
) -> None:
    channels, features = 3, 2
    sizes = {"patch_length": patch, "patch_stride": stride, "width": 8}
    embed = PatchEmbedding(context, **sizes, num_covariates=features, num_static=4).eval()
    plain = embedding(context, patch, stride)
    plain.load_state_dict(embed.state_dict(), strict=False)
    x, observed = torch.randn(2 * channels, context), torch.rand(2 * channels, context) > 0.3
    covariates, static = torch.randn(2, context, features), torch.randn(2, 4)
    assert embed.covariates is not None
    assert embed.static is not None
    # Weights of one feature after the other, each over the steps of a patch.
    weights = embed.covariates.weight.unflatten(1, (features, patch))
    cut = [slices(covariates[..., feature], patch, stride) for feature in range(features)]
    for mask in (None, observed):
        tokens, key_mask = embed(x, mask, covariates=covariates, static=static)
        without, expected_mask = plain(x, mask)
        assert (key_mask is None) == (expected_mask is None)
        for row in range(2 * channels):
            window = row // channels
            for n in range(embed.num_tokens):
                added = static[window] @ embed.static.weight.T
                for feature in range(features):
                    added = added + weights[:, feature] @ cut[feature][n][window]
                torch.testing.assert_close(
                    tokens[row, n], without[row, n] + added, atol=1e-5, rtol=1e-5
                )


def test_covariates_are_given_just_where_they_are_expected() -> None:
    sizes = {"patch_length": 4, "patch_stride": 4, "width": 8}
    x, covariates, static = torch.zeros(2, 12), torch.zeros(2, 12, 1), torch.zeros(2, 3)
    plain = PatchEmbedding(12, **sizes)
    with pytest.raises(ValueError, match=r"`covariates` must be None: .* num_covariates=0"):
        plain(x, covariates=covariates)
    with pytest.raises(ValueError, match=r"`static` must be None: .* num_static=0"):
        plain(x, static=static)
    with pytest.raises(ValueError, match="`covariates` must be given"):
        PatchEmbedding(12, **sizes, num_covariates=1)(x)
    with pytest.raises(ValueError, match="`static` must be given"):
        PatchEmbedding(12, **sizes, num_static=3)(x)


def test_no_windows_give_no_tokens() -> None:
    embed = PatchEmbedding(12, patch_length=4, patch_stride=4, width=8, num_covariates=2)
    assert embed(torch.zeros(0, 12), covariates=torch.zeros(0, 12, 2))[0].shape == (0, 3, 8)
