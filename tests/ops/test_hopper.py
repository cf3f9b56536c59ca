"""The kernel for a Hopper GPU, where there is none; `test_compile` compiles it."""

from typing import Any
from unittest import mock

import pytest
import torch

from mlrforecast.ops import mlr_attention
from mlrforecast.ops.attention import _hopper
from tests.ops.interpreter import run_alone

pytest.importorskip("triton")

CASES = (
    "two-levels",
    "one-level",
    "inside-a-tile",
    "odd-length",
    "short",
    "all-options",
    "bidirectional",
    "offset",
    "strided",
)


@pytest.fixture(scope="module")
def on_cpu() -> dict[str, Any]:
    return run_alone("tests.ops.hopper_cases")


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_equals_float64(name: str, on_cpu: dict[str, Any]) -> None:
    assert max(on_cpu[name]) < 1e-13


def test_all_cases_are_named(on_cpu: dict[str, Any]) -> None:
    assert tuple(on_cpu) == CASES


@pytest.mark.parametrize(
    ("sizes", "offset", "length", "coarse"),
    [
        ((0, 256, 128), 0, 1024, 3),
        ((0, 256, 64, 16), 0, 1024, 2),
        ((0,), 0, 1000, 1),
        ((2000, 256), 0, 1000, 2),  # longer than the sequence
        ((256, 128), 128, 1024, 2),
        ((256, 128), 64, 1024, None),  # blocks begin inside tiles
        ((0, 192, 64), 0, 1024, None),
        ((0, 128, 48), 0, 1024, None),
        ((64, 32), 0, 1024, None),  # nothing is shared outside of the diagonal
    ],
)
def test_blocks_fit_the_tiles_or_lie_inside_one(
    sizes: tuple[int, ...], offset: int, length: int, coarse: int | None
) -> None:
    assert _hopper._num_coarse(sizes, offset, length) == coarse


def test_a_cpu_is_not_served() -> None:
    q, k, v = torch.zeros(3, 1, 1, 32768, 64, dtype=torch.bfloat16)
    levels = _hopper.Levels((32, 32), (0.1, 0.1), (0, 16384), 0, True, False)
    assert not _hopper.serves(q, k, v, levels)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("length", "ranks", "sizes", "options"),
    [
        (1024, (16,) * 4, (None, 512, 256, 128), {}),
        (4097, (16,) * 8, (None, 2048, 1024, 512, 256, 128, 64, 32), {}),
        (1000, (8, 24, 32), (512, 256, 64), {"divide_by_shared_levels": True}),
        (2048, (32, 32, 64), (None, 512, 128), {"level_scale": (0.1, 0.05, 0.02)}),
        (640, (4, 12, 48), (None, 128, 16), {"causal": False}),
        (1152, (8, 8), (384, 128), {"groups": 2}),
        (2048, (8,) * 8, (None, 1024, 512, 256, 128, 64, 32, 16), {}),
    ],
)
def test_on_a_gpu(
    length: int,
    ranks: tuple[int, ...],
    sizes: tuple[int | None, ...],
    options: dict[str, Any],
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a Hopper GPU")
    monkeypatch.setattr(_hopper, "_SHORTEST", 1)
    monkeypatch.setattr(_hopper, "_SHORTEST_NARROW", 1)
    served = mock.Mock(wraps=_hopper.attend)
    monkeypatch.setattr(_hopper, "attend", served)
    generator = torch.Generator("cuda").manual_seed(0)
    options = {"causal": True} | options
    groups = options.pop("groups", 4)
    width = sum(ranks)
    shapes = (2, 4, length, width), (2, groups, length, width), (2, groups, length, width)
    q, k, v = (
        torch.randn(shape, generator=generator, device="cuda", dtype=dtype).requires_grad_()
        for shape in shapes
    )
    grad = torch.randn(q.shape, generator=generator, device="cuda", dtype=dtype)

    def attend(backend: str, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = mlr_attention(*inputs, ranks=ranks, block_sizes=sizes, backend=backend, **options)
        return out, *torch.autograd.grad(out, inputs, grad.to(out.dtype))

    found = attend("triton", q, k, v)
    assert served.called
    exact = attend("reference", *(x.detach().double().requires_grad_() for x in (q, k, v)))
    for x, y in zip(found, exact, strict=True):
        assert (x.double() - y).norm() / y.norm() < (4e-3 if dtype == torch.bfloat16 else 5e-4)
