"""What ``mlrforecast synthesize`` and ``mlrforecast pretrain`` do."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlrforecast.cli._console import Console
from mlrforecast.cli._paths import check_apart, check_writable, whole_file
from mlrforecast.pretraining import (
    PretrainConfig,
    PretrainOptions,
    kernel_synth,
    pretrain,
    read_arrow,
    tsmixup,
    write_arrow,
)

_NAMES = {"compiled": "compile"}
_OF_COMMAND = ("weights", "settings", "checkpoint_dir", "losses")


def run_kernels(
    num_series: int, *, length: int, seed: int, jobs: int, out: Path, console: Console
) -> None:
    """Write series of random kernels."""
    check_writable(out, "--out")
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


def run_pretrain(
    files: Sequence[Path], *, out: Path, console: Console, options: Mapping[str, Any]
) -> None:
    """Train, and write the model and its losses."""
    check_writable(out, "--out")
    if options["losses"] is not None:
        check_writable(options["losses"], "--losses")
    given = {
        _NAMES.get(name, name): value
        for name, value in options.items()
        if name not in _OF_COMMAND and value is not None and value is not False
    }
    given |= dict(options["settings"])
    try:
        config = PretrainConfig(**_taken(PretrainConfig, given))
        how = PretrainOptions(progress=console.progress, **_taken(PretrainOptions, given))
    except TypeError as error:
        # A value of --set is of whatever kind it looks like: a wrong one is no defect.
        raise ValueError(f"`--set`: {error}") from error
    if given:
        raise ValueError(
            f"`--set` must name a field of PretrainConfig or PretrainOptions, got {min(given)!r}."
        )
    made = pretrain(
        config,
        list(files),
        how,
        weights=options["weights"],
        checkpoint_dir=options["checkpoint_dir"],
    )
    made.model.save(out)
    if options["losses"] is not None:
        table = pd.DataFrame({"step": np.arange(1, len(made.losses) + 1), "loss": made.losses})
        with whole_file(options["losses"]) as file:
            table.to_csv(file, index=False)
    last = float(made.losses[-min(100, len(made.losses)) :].mean())
    parameters = sum(p.numel() for p in made.model.network.parameters())
    told = {
        "out": str(out),
        "head": config.head,
        "attention": config.attention,
        "parameters": parameters,
        "steps": len(made.losses),
        "loss": last,
        "seconds": made.seconds,
    }
    console.finish(
        told,
        f"A model with {parameters:,} parameters, trained for {len(made.losses)} steps in "
        f"{made.seconds:.0f} s, is in {out}. The loss of the last steps is {last:.4g}.",
    )


def _taken(kind: type, given: dict[str, Any]) -> dict[str, Any]:
    """Take the fields of a dataclass out of what was given."""
    names = {field.name for field in fields(kind)} - {"progress"}
    return {name: given.pop(name) for name in sorted(names & set(given))}


def _write(out: Path, series: Sequence[Any], console: Console) -> None:
    """Write series, and tell what was written."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write_arrow(out, series)
    steps = sum(map(len, series))
    console.finish(
        {"out": str(out), "series": len(series), "steps": steps},
        f"{len(series)} series with {steps:,} steps in all are in {out}.",
    )
