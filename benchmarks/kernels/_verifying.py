"""How far results lie from those in float64, beside those of PyTorch's own attention."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.kernels._cases import Case, equal
from benchmarks.kernels._computing import attention
from mlrforecast.ops import explain_backend, mlr_attention

__all__ = ["LIMIT", "Check", "check", "checks", "error_of"]

LENGTHS = (1, 7, 63, 64, 65, 127, 129, 1000, 4097)
LIMIT = 1.2
"""The error may be so many times that of PyTorch's attention in the same precision."""

Check = tuple[str, str, str, int, tuple[int, ...], bool]


def checks(device: str, quick: bool) -> Iterator[Check]:
    """Yield (device, backend, dtype, length, ranks, causal)."""
    backends = ("triton", "expanded", "hierarchical") if device == "cuda" else (
        "expanded", "hierarchical"
    )  # fmt: skip
    dtypes = ("bfloat16", "float16", "float32") if device == "cuda" else ("float32", "bfloat16")
    rank_lists = (equal(64, 8), (32, 16, 16), (20, 7, 5))
    lengths = LENGTHS[1::3] if quick else LENGTHS
    if device == "cuda" and not quick:
        # Such as the kernel for Hopper takes.
        for dtype, causal in itertools.product(dtypes[:2], (True, False)):
            yield device, "triton", dtype, 8192, equal(128, 8), causal
        yield device, "triton", dtypes[0], 16384, equal(64, 8), True
    # The kernels of many levels take longest to compile, and come first.
    for found in itertools.product(rank_lists, dtypes, backends, reversed(lengths), (True, False)):
        ranks, dtype, backend, length, causal = found
        main = dtype == dtypes[0]
        if length > 1000 and (not main or ranks == (20, 7, 5) or backend == "expanded"):
            continue
        if device == "cuda" and not main and length not in (1, 65, 129, 1000):
            continue
        yield (device, backend, dtype, length, ranks, causal)


def check(what: Check) -> list[dict[str, Any]]:
    """Return a row for the output and for each gradient; none where the backend refuses."""
    device, backend, dtype, length, ranks, causal = what
    # As many numbers at every length: few make the ratio of two errors a matter of chance.
    heads = max(2, min(64, 4096 // length))
    generator = torch.Generator(device).manual_seed(length)
    shape = (1, heads, length, sum(ranks))
    kind = getattr(torch, dtype)
    rough = [
        torch.randn(shape, device=device, generator=generator).to(kind).requires_grad_()
        for _ in range(3)
    ]
    options: dict[str, Any] = {
        "ranks": ranks,
        "causal": causal,
        "level_scale": "inverse_sqrt_width",
    }
    if backend in explain_backend(*rough, **options).refused:
        return []
    exact = [x.detach().double().requires_grad_() for x in rough]
    mine = _with_gradients(mlr_attention(*rough, backend=backend, **options), rough)
    truth = _with_gradients(mlr_attention(*exact, backend="reference", **options), exact)
    plain = scaled_dot_product_attention(*rough, is_causal=causal)
    other = _with_gradients(plain, rough)
    one_level = options | {"ranks": (sum(ranks),)}
    other_truth = _with_gradients(mlr_attention(*exact, backend="reference", **one_level), exact)
    rows = []
    for name, a, b, c, d in zip(
        ("out", "dq", "dk", "dv"), mine, truth, other, other_truth, strict=True
    ):
        # At one step the slopes are 0 by their nature, and what is left is rounding.
        if b.norm() < 1e-6 * truth[0].norm():
            continue
        # Where PyTorch's result is exact by chance, as at one step, rounding is no error.
        error, usual = _error(a, b), max(_error(c, d), torch.finfo(kind).eps / 4)
        rows.append(
            {
                "backend": backend,
                "dtype": dtype,
                "T": length,
                "ranks": "|".join(map(str, ranks)),
                "causal": causal,
                "tensor": name,
                "error": f"{error:.3e}",
                "sdpa_error": f"{usual:.3e}",
                "ratio": f"{error / usual:.3f}",
            }
        )
    return rows


def error_of(case: Case, backend: str) -> float:
    """Return the error of the last queries of one sequence of a case, against float64."""
    if case.passes == ("decode",):
        return float("nan")
    few = min(case.length, 256)
    kind = getattr(torch, case.dtype)
    shape = (1, 2, case.length, case.head_dim)
    q, k, v = (torch.randn(shape, device=case.device).to(kind) for _ in range(3))
    mine = attention(case, backend)(q, k, v)[:, :, -few:]
    truth = mlr_attention(
        q[:, :, -few:].double(),
        k.double(),
        v.double(),
        ranks=case.ranks,
        causal=case.causal,
        level_scale="inverse_sqrt_width",
        backend="reference",
    )
    return _error(mine, truth)


def _with_gradients(out: Tensor, of: list[Tensor]) -> list[Tensor]:
    """Return the output and the gradients of a sum that weights it unevenly."""
    steps = torch.arange(out.numel(), device=out.device)
    weights = torch.cos(steps.double()).view(out.shape).to(out.dtype)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), of)]


def _error(x: Tensor, truth: Tensor) -> float:
    """Return the norm of the difference over the norm."""
    return float((x.double() - truth).norm() / truth.norm().clamp_min(1e-30))
