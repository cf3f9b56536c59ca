"""What ``mlrforecast synthesize`` does; nothing of it needs torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlrforecast.cli._console import Console
from mlrforecast.cli._paths import check_apart, check_writable
from mlrforecast.pretraining import kernel_synth, read_arrow, tsmixup, write_arrow


def run_kernels(
    num_series: int, *, length: int, seed: int, jobs: int, out: Path, console: Console
) -> None:
    """Write series of random kernels."""
    check_writable(out, "--out")
    _check_jobs(jobs)
    series = kernel_synth(num_series, length=length, seed=seed, num_workers=jobs)
    _write(out, list(series), console)


def run_mixtures(
    files: Sequence[Path],
    num_series: int,
    *,
    min_length: int,
    max_length: int,
    seed: int,
    jobs: int,
    out: Path,
    console: Console,
) -> None:
    """Write mixtures of the series of some files."""
    check_writable(out, "--out")
    _check_jobs(jobs)
    check_apart(out, "--out", *map(str, files))
    series = tsmixup(
        [read_arrow(file) for file in files],
        num_series,
        min_length=min_length,
        max_length=max_length,
        seed=seed,
        num_workers=jobs,
    )
    _write(out, series, console)


def _check_jobs(jobs: int) -> None:
    if jobs == 0:
        raise ValueError("`--jobs` must be at least 1, or -1 for all cores; got 0.")


def _write(out: Path, series: Sequence[Any], console: Console) -> None:
    """Write series, and tell what was written."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write_arrow(out, series)
    steps = sum(map(len, series))
    console.finish(
        {"out": str(out), "series": len(series), "steps": steps},
        f"{len(series)} series with {steps:,} steps in all are in {out}.",
    )
