"""Verify the backends of multi-level attention, then time them against PyTorch's own attention.

Run it from the root of the repository::

    python -m benchmarks.kernels --device cuda
    python -m benchmarks.kernels --device cpu

It writes ``errors_<device>.csv`` and ``<device>.csv``, of which ``docs/figure_kernels.py`` draws
the pictures of the docs. No time is printed where a result is wrong.
"""

import argparse
import csv
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.kernels import _work
from benchmarks.kernels._cases import cases
from benchmarks.kernels._timing import ceilings
from benchmarks.kernels._verifying import LIMIT, checks
from mlrforecast.benchmark import cpu_model

ERROR_COLUMNS = (
    "device", "versions", "backend", "dtype", "T", "ranks", "causal", "tensor", "error",
    "sdpa_error", "ratio", "command",
)  # fmt: skip
COLUMNS = (
    "device", "versions", "dtype", "T", "head_dim", "ranks", "causal", "batch_heads", "pass",
    "backend", "ms", "spread", "baseline", "baseline_ms", "ratio", "peak_mb", "error", "command",
)  # fmt: skip
RESULTS = Path("benchmarks/results/kernels")
TRIALS = Path("benchmark-output/kernels")
"""Where a few cases go: the docs quote the results of all."""
WRONG = 2.0
"""Beyond so many times the error of PyTorch's attention a result is wrong."""


def main() -> None:
    """Verify, time, and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--quick", action="store_true", help="a few cases")
    parser.add_argument("--only", choices=("verify", "time"), help="one half of it")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU, where it computes")
    parser.add_argument("--jobs", type=int, help="processes that compile; they take turns to time")
    parser.add_argument("--seconds", type=float, default=1e9, help="start nothing after so long")
    parser.add_argument("--out", type=Path, help="folder; of --quick another than the results")
    arguments = parser.parse_args()
    arguments.out = arguments.out or (TRIALS if arguments.quick else RESULTS)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("There is no CUDA device.")
    arguments.out.mkdir(parents=True, exist_ok=True)
    jobs = arguments.jobs or (min(15, os.cpu_count() or 1) if arguments.device == "cuda" else 1)
    where = _where(arguments.device, arguments.threads)
    deadline = time.monotonic() + arguments.seconds
    wrong: set[tuple[str, str]] = set()
    if arguments.only != "time":
        todo = list(checks(arguments.device, arguments.quick))
        rows = [
            row | where
            for row in _spread(_work.verify, todo, jobs, arguments.threads, deadline, "verify")
        ]
        _write(arguments.out / f"errors_{arguments.device}.csv", ERROR_COLUMNS, rows)
        over = [row for row in rows if float(row["ratio"]) > LIMIT]
        print(
            f"{len(rows)} results; {len(over)} err more than {LIMIT} times as PyTorch's attention."
        )
        for row in sorted(over, key=lambda row: -float(row["ratio"]))[:12]:
            print(*(row[name] for name in ERROR_COLUMNS[2:-1]))
        wrong = {(r["backend"], r["dtype"]) for r in over if float(r["ratio"]) > WRONG}
    if arguments.only == "verify":
        sys.exit(bool(wrong))
    todo = [
        case
        for case in cases(arguments.device, arguments.quick)
        if not wrong & {(backend, case.dtype) for backend in case.backends}
    ]
    found = list(_spread(_work.time_one, todo, jobs, arguments.threads, deadline, "time"))
    failed = [row["failed"] for row in found if "failed" in row]
    rows = [row | where for row in found if "failed" not in row]
    if arguments.device == "cuda":
        rows += [row | where for row in ceilings()]
    rows.sort(
        key=lambda r: (
            [str(r[name]) for name in ("pass", "head_dim", "backend", "ranks")] + [f"{r['T']:10}"]
        )
    )
    _write(arguments.out / f"{arguments.device}.csv", COLUMNS, rows)
    for row in rows:
        print(*(str(row[name]) for name in COLUMNS[3:-1]))
    if failed:
        sys.exit("\n".join(failed))
    if wrong:
        sys.exit(f"Wrong, and so not timed: {sorted(wrong)}.")


def _where(device: str, threads: int) -> dict[str, str]:
    """Return what ran it, and how."""
    gpu = device == "cuda"
    versions = f"python {platform.python_version()}, torch {torch.__version__}"
    if gpu:
        from triton import __version__ as triton

        versions += f", triton {triton}"
    return {
        "device": torch.cuda.get_device_name() if gpu else f"{cpu_model()}, {threads} threads",
        "versions": versions,
        "command": f"python -m benchmarks.kernels {' '.join(_told())}",
    }


def _told() -> list[str]:
    """Return the arguments that change what is measured, not where it goes."""
    told = sys.argv[1:]
    if "--out" in told:
        place = told.index("--out")
        del told[place : place + 2]
    return told


def _spread(
    work: Any, todo: list[Any], jobs: int, threads: int, deadline: float, name: str
) -> Iterator[dict[str, Any]]:
    """Yield the rows of all pieces of work, from several processes that take turns to time."""
    context = multiprocessing.get_context("spawn")
    state = (context.Lock(), threads)
    found: Iterable[list[dict[str, Any]]]
    if jobs == 1:
        torch.set_num_threads(threads)
        found = map(work, todo)
        yield from _until(found, len(todo), deadline, name)
        return
    with context.Pool(jobs, _work.begin, state) as pool:
        yield from _until(pool.imap_unordered(work, todo), len(todo), deadline, name)


def _until(
    found: Iterable[list[dict[str, Any]]], count: int, deadline: float, name: str
) -> Iterator[dict[str, Any]]:
    """Yield rows until there is no time left."""
    for rows in tqdm(found, total=count, desc=name, disable=None):
        yield from rows
        if time.monotonic() > deadline:
            print(f"{name}: no time is left, and some cases are not in the file.")
            return


def _write(path: Path, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Write a table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: row[name] for name in columns} for row in rows)


if __name__ == "__main__":
    main()
