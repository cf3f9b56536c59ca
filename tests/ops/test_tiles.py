"""Tiles of multi-level attention on a CPU, and the pieces that they are cut from."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mlrforecast.ops import Levels, mlr_attention
from mlrforecast.ops.attention import _merged, _piece_kernels, _tiles
from mlrforecast.ops.attention._pieces import Pieces, cut_into_pieces
from tests.contracts.attention_cases import ragged_ids

SMALL = {"LEAF": 4, "ROWS": 5, "KEYS": 7, "PART": 60, "LEAVES": 40, "STEPS": 50}


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make tiles so small that short sequences are cut in every way."""
    for name, value in SMALL.items():
        monkeypatch.setattr(_tiles, name, value)


def tensors(length: int, heads: int = 3, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Return queries, keys and values of two sequences, laid out as a layer makes them."""
    generator = torch.Generator().manual_seed(length)
    return [
        torch.randn(2, length, heads, width, generator=generator, dtype=dtype)
        .transpose(1, 2)
        .requires_grad_()
        for width in (9, 9, 5)
    ]


def mask(length: int) -> Tensor:
    """Return which keys of two sequences may be attended."""
    return torch.rand(2, length, generator=torch.Generator().manual_seed(1)) < 0.6


def with_gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), inputs)]


def check(inputs: list[Tensor], **options: Any) -> None:
    """Compare output and gradients with those of the dense matrix."""
    results = [
        with_gradients(mlr_attention(*inputs, backend=name, **options), inputs)
        for name in ("hierarchical", "reference")
    ]
    for found, exact in zip(*results, strict=True):
        torch.testing.assert_close(found, exact, rtol=0, atol=1e-11)


LEVELS = {
    "one": {"ranks": (9,)},
    "halves": {"ranks": (2, 3, 1, 3)},
    "odd": {"ranks": (4, 3, 2), "block_sizes": (None, 21, 3), "offset": 8},
    "no-whole": {"ranks": (4, 5), "block_sizes": (24, 6), "offset": 3},
    "tiny": {"ranks": (3, 3, 3), "block_sizes": (None, 2, 1)},
    "equal": {"ranks": (3, 3, 3), "block_sizes": (None, 13, 13), "level_scale": (3.0, 1.0, 0.2)},
    "ids": {"ranks": (4, 3, 2), "block_ids": "nested"},
    "parted-ids": {"ranks": (4, 3, 2), "block_ids": "parted"},
}


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("size", [1.0, 40.0], ids=["safe", "large"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 5, 53, 64])
@pytest.mark.parametrize("name", LEVELS)
def test_equals_the_dense_matrix(name: str, length: int, causal: bool, size: float) -> None:
    """In every partition, mask and division, for scores within the safe range and beyond it."""
    options = dict(LEVELS[name])
    if "block_ids" in options:
        options["block_ids"] = ragged_ids(length, options["block_ids"])
    q, k, v = tensors(length)
    inputs = [(size * q).detach().requires_grad_(), k, v]
    for divide, key_mask in itertools.product((False, True), (None, mask(length))):
        check(inputs, causal=causal, key_mask=key_mask, divide_by_shared_levels=divide, **options)


@pytest.mark.parametrize("length", [255, 700])
def test_equals_the_dense_matrix_in_tiles_as_they_are(length: int) -> None:
    inputs = tensors(length)
    check(inputs, ranks=(4, 2, 2, 1), causal=True)
    check(inputs, ranks=(4, 5), block_sizes=(None, 30), key_mask=mask(length))


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_single_precision_keeps_scores_of_any_size(size: float) -> None:
    """Rows of equal scores are means; those of one large score are its value."""
    q, k, v = (x.detach() for x in tensors(70, dtype=torch.float32))
    out = mlr_attention(size * q, k, v, ranks=(5, 4), causal=True, backend="hierarchical")
    exact = mlr_attention(size * q.double(), k.double(), v.double(), ranks=(5, 4), causal=True)
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=2e-3 if size > 1 else 1e-6)


def test_small_gradients_survive() -> None:
    """Gradients are scaled by sums of weights on the way; far below 1 they must not vanish."""
    inputs = tensors(70, dtype=torch.float32)
    out = mlr_attention(*inputs, ranks=(5, 4), causal=True, backend="hierarchical")
    grad = torch.ones_like(out).cumsum(-1)
    plain = torch.autograd.grad(out, inputs, grad, retain_graph=True)
    small = torch.autograd.grad(out, inputs, grad * 2.0**-60)
    for a, b in zip(plain, small, strict=True):
        torch.testing.assert_close(a, b * 2.0**60, rtol=1e-5, atol=1e-6)


class Sizes(TorchDispatchMode):
    """Keeps the number of elements that the memory of each tensor made has room for."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else [result]:
            if isinstance(x, Tensor):
                room = x.untyped_storage().nbytes() // x.element_size()
                self.largest = max(self.largest, x.numel(), room)
        return result


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_no_matrix_of_all_scores_is_made(size: float) -> None:
    length, width = 4096, 4
    problem = _tiles.Problem(Levels(length, (2, 2), (None, 512)).starts(), (2, 2), 1.0, True, False)
    generator = torch.Generator().manual_seed(0)
    q, k, v, grad = torch.randn(4, 1, 2, length, width, generator=generator)
    with Sizes() as sizes:
        out, lse = _tiles.attend_tiles(size * q, k, v, None, problem)
        _tiles.attend_tiles_backward(grad, size * q, k, v, out, lse, None, problem)
    most = max(_tiles.PART * torch.get_num_threads(), 4 * length * 2 * width)
    assert 2 * length * width <= sizes.largest <= most < length**2 / 8


def pairs(pieces: Pieces) -> Iterator[tuple[int, int, int]]:
    """Yield each query and key with the number of levels that the pieces say they share."""
    for window in range(pieces.count):
        rows = pieces.q_start + window * pieces.stride
        keys = pieces.k_start + window * pieces.stride
        for i, j in itertools.product(range(pieces.q_length), range(pieces.k_length)):
            finer = sum(
                sum(start <= i for start in row) == sum(start <= j for start in row)
                for row in pieces.inner
            )
            yield rows + i, keys + j, pieces.shared + finer


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 6), st.booleans(), st.data())
def test_pieces_cover_every_pair_once(
    length: int, ratio: int, finest: int, causal: bool, data: st.DataObject
) -> None:
    leaf = data.draw(st.sampled_from([0, 1, 4, 7]))
    coarsest = data.draw(st.sampled_from([None, 3 * ratio * finest]))
    levels = Levels(length, (1, 1, 1), (coarsest, ratio * finest, finest), offset=length % 5)
    shared = levels.shared()
    seen = torch.zeros(length, length, dtype=torch.long)
    for pieces in cut_into_pieces(length, levels.starts(), causal, leaf):
        assert not pieces.inner or pieces.diagonal
        for i, j, number in pairs(pieces):
            assert shared[i, j] == number
            seen[i, j] += 1
        if pieces.diagonal and causal and leaf:
            assert pieces.q_length <= leaf
    if causal:
        seen, shared = seen.tril(), shared.tril()
    assert torch.equal(seen, (shared > 0).long())


def plain_piece(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    scores = scale * q @ k.mT + (0 if bias is None else bias)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def plain_piece_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    bias: Tensor | None,
    *,
    causal: bool,
    scale: float,
) -> _piece_kernels.Gradients:
    scores = scale * q @ k.mT + (0 if bias is None else bias)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf)
    weights = (scores - lse[..., None]).exp()
    slopes = scale * weights * (grad @ v.mT - (grad * out).sum(-1, keepdim=True))
    return slopes @ k, slopes.mT @ q, weights.mT @ grad


@pytest.mark.parametrize("divide", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_the_merge_for_a_gpu_equals_the_tiles(
    masked: bool, causal: bool, divide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With formulas in place of the kernels, which a CPU does not have."""
    monkeypatch.setattr(_merged, "attend_piece", plain_piece)
    monkeypatch.setattr(_merged, "attend_piece_backward", plain_piece_backward)
    length, ranks = 37, (4, 3, 2)
    starts = Levels(length, ranks, (None, 12, 4), offset=5).starts()
    problem = _tiles.Problem(starts, ranks, 0.3, causal, divide)
    q, k, v, grad = (x.detach() for x in (*tensors(length), tensors(length)[2]))
    key_mask = mask(length) if masked else None
    merged, merged_lse = _merged.attend_merged(q, k, v, key_mask, problem)
    tiled, tiled_lse = _tiles.attend_tiles(q, k, v, key_mask, problem)
    torch.testing.assert_close(merged, tiled, rtol=0, atol=1e-12)
    found = _merged.attend_merged_backward(grad, q, k, v, merged, merged_lse, key_mask, problem)
    exact = _tiles.attend_tiles_backward(grad, q, k, v, tiled, tiled_lse, key_mask, problem)
    for a, b in zip(found, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
