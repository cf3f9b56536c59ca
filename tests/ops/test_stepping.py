"""One step of a generation against the whole attention, from all keys and from those kept."""

from typing import Any

import pytest
import torch
from torch import Tensor

from mlrforecast.ops import mlr_attention, mlr_step_attention
from tests.ops.oracle import loop_attention

RANKS = (3, 2, 1)
CASES: dict[str, dict[str, Any]] = {
    "plain": {"block_sizes": (None, 8, 2)},
    "shared": {"block_sizes": (None, 8, 2), "divide_by_shared_levels": True},
    "scales": {"block_sizes": (None, 6, 3), "level_scale": (0.5, 1.0, 2.0)},
    "by-number": {"block_sizes": (None, 6, 3), "divide_by_num_levels": True},
    "no-whole-level": {"block_sizes": (16, 8, 2)},
    "unshared-zero": {"block_sizes": (16, 8, 2), "unshared": "zero"},
    "not-nested": {"block_sizes": (None, 7, 3)},
}


def draw(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def first_needed(size: int | None, step: int) -> int:
    return 0 if size is None else step // size * size


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("num_queries", [1, 3])
@pytest.mark.parametrize("length", [3, 19, 33])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_whole(case: str, length: int, num_queries: int, masked: bool) -> None:
    options = CASES[case]
    q, k = draw(2, 4, length, 6, seed=0), draw(2, 2, length, 6, seed=1)
    v = draw(2, 2, length, 5, seed=2)
    key_mask = None
    if masked:
        key_mask = torch.arange(length).expand(2, -1) >= torch.tensor([[length // 2], [length]])
    exact = loop_attention(
        q,
        k.repeat_interleave(2, 1),
        v.repeat_interleave(2, 1),
        ranks=RANKS,
        causal=True,
        key_mask=key_mask,
        **options,
    )[:, :, -num_queries:]
    oldest = length - num_queries
    firsts = [first_needed(size, oldest) for size in options["block_sizes"]]
    keys = [x[:, :, f:] for x, f in zip(k.split(RANKS, -1), firsts, strict=True)]
    kept = 0 if "unshared" in options else min(firsts)
    out = mlr_step_attention(
        q[:, :, -num_queries:],
        keys,
        v[:, :, kept:],
        length=length,
        key_mask=None if key_mask is None else key_mask[:, kept:],
        **options,
    )
    torch.testing.assert_close(out, exact, rtol=0, atol=1e-12)
    weights = draw(*out.shape, seed=3).detach()
    got, wanted = (torch.autograd.grad((y * weights).sum(), (q, k, v)) for y in (out, exact))
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_low_precision_is_computed_in_float32() -> None:
    q, k, v = (draw(1, 2, 40, 6, seed=seed).detach().bfloat16() for seed in range(3))
    options: dict[str, Any] = {"block_sizes": (None, 8, 2)}
    out = mlr_step_attention(q[:, :, -1:], k.split(RANKS, -1), v, length=40, **options)
    whole = mlr_attention(
        *(x.double() for x in (q, k, v)), ranks=RANKS, causal=True, backend="reference", **options
    )
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), whole[:, :, -1:], rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 5}, "`length` must be at least the 6 steps of `v`, got 5"),
        ({"block_sizes": (None, 2)}, "`block_sizes` must have one entry for each of the 3 ranks"),
        ({"keys": [torch.zeros(1, 2, 7, r) for r in RANKS]}, r"`keys\[0\]` must have the heads"),
        ({"keys": [torch.zeros(1, 2, 1, r) for r in RANKS]}, r"`keys\[0\]` .* from 2 to 6"),
        ({"keys": [torch.zeros(1, 1, 6, r) for r in RANKS]}, r"`keys\[0\]` must have the heads"),
        ({"keys": [torch.zeros(1, 2, 6, 2)] * 2}, "`keys` must sum to the 6 columns"),
        ({"q": torch.zeros(4, 2, 6)}, r"`q` must have the shape \(B, H, T, R\) .* got \(4, 2, 6\)"),
        ({"q": torch.zeros(1, 4, 0, 6)}, "with a step at least"),
        ({"window": -1}, "`window` must be at least 0, got -1"),
    ],
)
def test_bad_arguments(changes: dict[str, Any], message: str, own_errors: None) -> None:
    arguments: dict[str, Any] = {
        "keys": [torch.zeros(1, 2, 6, r) for r in RANKS],
        "length": 6,
        "block_sizes": (None, 4, 2),
    } | changes
    keys, q = arguments.pop("keys"), arguments.pop("q", torch.zeros(1, 4, 2, 6))
    with pytest.raises(ValueError, match=message):
        mlr_step_attention(q, keys, torch.zeros(1, 2, 6, 3), **arguments)


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": 1.5},
        {"window": "2"},
        {"divide_by_shared_levels": "no"},
        {"divide_by_num_levels": "no"},
        {"level_scale": 0.5},
        {"block_sizes": 4},
        {"keys": None},
    ],
)
def test_wrong_types_are_named(wrong: dict[str, Any], own_errors: None) -> None:
    keys = [torch.zeros(1, 2, 6, r) for r in RANKS]
    arguments: dict[str, Any] = {"keys": keys, "length": 6, "block_sizes": (None, 4, 2)} | wrong
    with pytest.raises(TypeError, match=f"^`{next(iter(wrong))}` must be "):
        mlr_step_attention(torch.zeros(1, 4, 2, 6), v=torch.zeros(1, 2, 6, 3), **arguments)


def test_a_window_may_be_wider_than_any_sequence() -> None:
    q, v = draw(1, 4, 2, 6, seed=1), draw(1, 2, 6, 3, seed=2)
    keys = [draw(1, 2, 6, r, seed=r) for r in RANKS]
    found = [
        mlr_step_attention(q, keys, v, length=6, block_sizes=(None, 4, 2), window=window)
        for window in (6, 10**30)
    ]
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("level", "steps", "options", "needed"),
    [
        (1, 3, {}, 4),  # step 19 is the fourth of a block of 8
        (2, 1, {}, 2),
        (0, 19, {}, 20),
        (0, 5, {"window": 5}, 6),
    ],
)
def test_too_few_keys_are_told(
    level: int, steps: int, options: dict[str, Any], needed: int
) -> None:
    q, v = draw(1, 1, 1, 6, seed=0), draw(1, 1, 20, 5, seed=1)
    keys = [draw(1, 1, 20, rank, seed=2) for rank in RANKS]

    def attend(kept: int) -> Tensor:
        fewer = [k[:, :, -kept:] if lvl == level else k for lvl, k in enumerate(keys)]
        return mlr_step_attention(
            q, fewer, v, length=20, block_sizes=(None, 8, 2), backend="reference", **options
        )

    assert torch.allclose(attend(needed), attend(20), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=rf"`keys\[{level}\]` must have the newest {needed} steps"):
        attend(steps)
