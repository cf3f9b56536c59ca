"""Time the attention backends on one CPU thread, in processor time.

Processor time does not count waiting, so that other work on the machine disturbs it little. Run it
from the root of the repository::

    python benchmarks/attention_cpu.py benchmarks/results/kernels/attention_cpu.csv

It writes one row for each case, backend and pass, next to what ran it. The table of choices in
``mlrforecast/ops/attention/dispatch.py`` is read off that file.
"""

import argparse
import csv
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from mlrforecast.benchmark import cpu_model
from mlrforecast.ops import explain_backend, mlr_attention, standard_attention

HEADS, VALUE_WIDTH = 8, 64
RANKS = {
    "2 levels": (48, 16),
    "3 levels": (32, 16, 16),
    "8 levels": (32, 8, 6, 4, 4, 4, 4, 2),
}
BACKENDS = ("standard", "expanded", "hierarchical", "reference")
COLUMNS = (
    "backend",
    "ranks",
    "length",
    "batch",
    "heads",
    "value_width",
    "causal",
    "divide_by_shared_levels",
    "dtype",
    "pass",
    "median_ms",
    "min_ms",
    "max_ms",
    "repeats",
    "threads",
    "clock",
    "hardware",
    "torch",
    "python",
    "command",
)
# Beyond it the dense matrix takes seconds a call.
LONGEST_REFERENCE = 720


def main() -> None:
    """Time every case and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="CSV file to write")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[48, 64, 128, 192, 336, 720, 2048]
    )
    parser.add_argument("--seconds", type=float, default=0.1, help="time given to each row")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    context = {
        "threads": 1,
        "clock": "process time",
        "hardware": cpu_model(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "command": f"python benchmarks/attention_cpu.py {arguments.output}",
    }
    with arguments.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for length in arguments.lengths:
            for row in _time_length(length, arguments.seconds):
                writer.writerow(row | context)
                file.flush()


def _time_length(length: int, seconds: float) -> Iterator[dict[str, object]]:
    """Time all rank lists, switches and backends at one length."""
    generator = torch.Generator().manual_seed(0)
    batch = max(1, 1024 // length)
    shape = (batch, HEADS, length, VALUE_WIDTH)
    q, k, v = (torch.randn(shape, generator=generator).requires_grad_() for _ in range(3))
    for causal in (False, True):
        for divide in (False, True):
            for ranks in RANKS.values():
                options = {"ranks": ranks, "causal": causal, "divide_by_shared_levels": divide}
                case = {
                    "ranks": "|".join(map(str, ranks)),
                    "length": length,
                    "batch": batch,
                    "heads": HEADS,
                    "value_width": VALUE_WIDTH,
                    "causal": causal,
                    "divide_by_shared_levels": divide,
                    "dtype": "float32",
                }
                refused = explain_backend(q, k, v, **options).refused
                for backend in BACKENDS:
                    if backend in refused or (
                        backend == "reference" and length > LONGEST_REFERENCE
                    ):
                        continue
                    call = _call(backend, q, k, v, options)
                    for name, run in {"forward": call, "forward+backward": _trained(call)}.items():
                        yield case | {"backend": backend, "pass": name} | _measure(run, seconds)


def _call(
    backend: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    options: dict[str, object],
) -> Callable[[], torch.Tensor]:
    """Return a call of one backend on fixed inputs."""
    if backend == "standard":
        return lambda: standard_attention(q, k, v, causal=bool(options["causal"]))
    return lambda: mlr_attention(q, k, v, backend=backend, **options)


def _trained(call: Callable[[], torch.Tensor]) -> Callable[[], object]:
    """Add the backward pass to a call."""
    return lambda: call().sum().backward()


def _measure(run: Callable[[], object], seconds: float) -> dict[str, object]:
    """Repeat a call for about ``seconds`` and return its processor times."""
    run()
    times = []
    while len(times) < 3 or sum(times) < seconds:
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return {
        "median_ms": f"{statistics.median(times) * 1e3:.3f}",
        "min_ms": f"{min(times) * 1e3:.3f}",
        "max_ms": f"{max(times) * 1e3:.3f}",
        "repeats": len(times),
    }


if __name__ == "__main__":
    main()
