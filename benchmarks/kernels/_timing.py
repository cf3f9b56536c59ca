"""Medians and spreads of times, and peaks of memory, one case side by side with its baseline."""

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from benchmarks.kernels._cases import Case
from benchmarks.kernels._computing import attention, baselines, inputs
from benchmarks.kernels._verifying import error_of

__all__ = ["ceilings", "time_case"]

SECONDS = 0.04
"""Time given to each measurement on a GPU, as if ten of them were a row."""


def time_case(case: Case, turn: AbstractContextManager[Any]) -> list[dict[str, Any]]:
    """Return the rows of a case; ``turn`` is held while the device is timed."""
    rows: list[dict[str, Any]] = []
    computing = {name: attention(case, name) for name in case.backends}
    tensors = inputs(case)
    errors = {}
    for name, attend in computing.items():
        # Compiles what there is to compile, while others may be timed.
        for one_pass in case.passes:
            _run(attend, [x[:1] for x in tensors], one_pass)()
        with turn:
            errors[name] = float("nan") if name == "published" else error_of(case, name)
    for one_pass in case.passes:
        against = tensors
        if one_pass == "decode":
            q, v, *_ = tensors
            against = [q, torch.randn_like(v), v]
        with turn:
            usual = {
                name: _measure(_run(attend, against, one_pass), case.device)
                for name, attend in baselines(case).items()
            }
            baseline = min(usual, key=lambda name: usual[name][0])
            for name, attend in computing.items():
                run = _run(attend, tensors, one_pass)
                median, spread = _measure(run, case.device)
                rows.append(
                    _row(case, one_pass, name)
                    | {
                        "ms": f"{median:.4f}",
                        "spread": f"{spread:.3f}",
                        "baseline": baseline,
                        "baseline_ms": f"{usual[baseline][0]:.4f}",
                        "ratio": f"{usual[baseline][0] / median:.3f}",
                        "peak_mb": f"{_peak(run, case.device):.0f}",
                        "error": f"{errors[name]:.2e}",
                    }
                )
    return rows


def ceilings() -> list[dict[str, Any]]:
    """Return rows of what the card can do: a large matrix product, and a large copy."""
    size = 8192
    x, y = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    many = torch.randn(2**30, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(many)
    rows = []
    for name, run in {"matmul": lambda: x @ y, "copy": lambda: target.copy_(many)}.items():
        median, spread = _measure(run, "cuda")
        blank = dict.fromkeys(
            ("head_dim", "ranks", "causal", "batch_heads", "baseline", "baseline_ms", "ratio"), ""
        )
        rows.append(
            blank
            | {
                "dtype": "bfloat16",
                "T": size if name == "matmul" else many.numel(),
                "pass": name,
                "backend": "torch",
                "ms": f"{median:.4f}",
                "spread": f"{spread:.3f}",
                "peak_mb": "",
                "error": "",
            }
        )
    return rows


def _row(case: Case, one_pass: str, backend: str) -> dict[str, Any]:
    """Return what a row is about."""
    return {
        "dtype": case.dtype,
        "T": case.length,
        "head_dim": case.head_dim,
        "ranks": "|".join(map(str, case.ranks)),
        "causal": case.causal,
        "batch_heads": case.batch_heads,
        "pass": one_pass,
        "backend": backend,
    }


def _run(attend: Callable[..., Tensor], tensors: list[Tensor], one_pass: str) -> Callable[[], Any]:
    """Return one pass as a call."""
    if one_pass != "fwdbwd":
        still = [x.detach() for x in tensors]
        return lambda: attend(*still)
    moved = [x.detach().requires_grad_() for x in tensors]
    slopes = torch.randn_like(moved[0])
    return lambda: torch.autograd.grad(attend(*moved), moved, slopes)


def _measure(run: Callable[[], Any], device: str) -> tuple[float, float]:
    """Return the median in milliseconds and the share of it between the quartiles."""
    times = _gpu_times(run) if device == "cuda" else _cpu_times(run)
    low, middle, high = statistics.quantiles(times, n=4)
    return middle, (high - low) / middle


def _gpu_times(run: Callable[[], Any]) -> list[float]:
    """Return milliseconds of ten replays of a graph of calls: no launch is waited for."""
    run()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        count = max(1, min(100, round(SECONDS * 1e3 / 10 / max(begin.elapsed_time(end), 1e-3)) + 1))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(count):
                run()
        graph.replay()
        times = []
        for _ in range(10):
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) / count)
    return times


def _cpu_times(run: Callable[[], Any]) -> list[float]:
    """Return milliseconds of calls on the clock of the wall, for about two seconds."""
    run()
    times: list[float] = []
    while len(times) < 5 or (sum(times) < 2e3 and len(times) < 200):
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def _peak(run: Callable[[], Any], device: str) -> float:
    """Return the most memory that a call takes beyond what is there, in megabytes; CPU: nan."""
    if device != "cuda":
        return float("nan")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6
