"""What was decided on the quirks of the published MLR attention, by their number in its notes.

The table in ``docs/published-code.md`` says the same in words.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from mlrforecast.ops import mlr_attention, mlr_scores, mlr_window_attention, standard_attention

BACKENDS = ("reference", "expanded", "hierarchical")


def tensors(length: int, width: int = 8) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, 1, length, width, generator=generator, dtype=torch.float64) for _ in "qkv"
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_1_any_length_on_one_grid_of_blocks(backend: Any) -> None:
    """A shorter causal sequence is the first part of a longer one: the blocks stay in place."""
    options = {"ranks": (4, 2, 2), "block_sizes": (None, 8, 4), "causal": True, "backend": backend}
    whole = mlr_attention(*tensors(30), **options)
    short = mlr_attention(*(x[:, :, :13] for x in tensors(30)), **options)
    torch.testing.assert_close(short, whole[:, :, :13], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("scale", "factor"),
    [("inverse_rank", 1 / 8), ("inverse_sqrt_rank", 8**-0.5), ("inverse_sqrt_width", 8**-0.5)],
)
def test_2_one_level_is_published_without_the_factor_8_of_standard_attention(
    scale: Any, factor: float
) -> None:
    q, k, v = tensors(12)
    out = mlr_attention(q, k, v, ranks=(8,), level_scale=scale)
    torch.testing.assert_close(out, standard_attention(q, k, v, scale=factor))
    published = mlr_attention(q, k, v, ranks=(8,), level_scale=(8 * factor,))
    torch.testing.assert_close(published, standard_attention(q, k, v, scale=8 * factor))


def test_3_a_window_includes_both_ends() -> None:
    """Scores of the coarsest level alone show which keys it counts for."""
    q = k = torch.ones(1, 1, 9, 1, dtype=torch.float64)
    options = {"ranks": (1,), "window": 2}
    assert mlr_scores(q, k, **options)[0, 0, 4].tolist() == [0, 0, 1, 1, 1, 1, 1, 0, 0]
    unit = torch.eye(9, dtype=torch.float64)[None, None]
    weights = mlr_window_attention(q, k, unit, causal=True, **options)
    third = pytest.approx(1 / 3)
    assert weights[0, 0, 4].tolist() == [0, 0, third, third, third, 0, 0, 0, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_6_pairs_without_a_block_are_left_out_by_default(backend: Any) -> None:
    q, k, v = tensors(8)
    options = {"ranks": (4, 4), "block_sizes": (4, 2), "divide_by_shared_levels": True}
    out = mlr_attention(q, k, v, backend=backend, **options)
    alone = mlr_attention(*(x[:, :, 4:] for x in (q, k, v)), **options)
    torch.testing.assert_close(out[:, :, 4:], alone)


def test_6_as_published_they_are_attended_with_score_0_but_never_nan() -> None:
    q, k, _ = tensors(8)
    unit = torch.eye(8, dtype=torch.float64)[None, None]
    options = {"ranks": (4, 4), "block_sizes": (4, 2), "divide_by_shared_levels": True}
    weights = mlr_attention(q, k, unit, unshared="zero", **options)
    scores = mlr_scores(q, k, **options)
    assert (scores[..., :4, 4:] == 0).all()
    torch.testing.assert_close(weights, scores.softmax(-1))


def test_7_a_level_without_columns_is_refused(own_errors: None) -> None:
    with pytest.raises(ValueError, match=r"`ranks\[1\]` must be at least 1, got 0"):
        mlr_attention(*tensors(8), ranks=(8, 0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_8_blocks_may_be_shorter_than_their_rank_and_need_not_divide_the_length(
    backend: Any,
) -> None:
    q, k, v = tensors(7)
    out = mlr_attention(q, k, v, ranks=(4, 4), block_sizes=(None, 3), backend=backend)
    block = torch.arange(7) // 3
    same = block[:, None] == block
    scores = (q[..., :4] @ k[..., :4].mT + q[..., 4:] @ k[..., 4:].mT * same) / 4
    torch.testing.assert_close(out, scores.softmax(-1) @ v)
