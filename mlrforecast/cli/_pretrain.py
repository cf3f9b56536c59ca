"""What ``mlrforecast pretrain`` does."""

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
    PretrainedModel,
    PretrainOptions,
    pretrain,
)

_NAMES = {"compiled": "compile"}
_OF_COMMAND = ("weights", "settings", "checkpoint_dir", "losses")


def run_pretrain(
    files: Sequence[Path], *, out: Path, console: Console, options: Mapping[str, Any]
) -> None:
    """Train, and write the model and its losses."""
    _check_outputs(files, out, options)
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


def _check_outputs(files: Sequence[Path], out: Path, options: Mapping[str, Any]) -> None:
    """Refuse, before any training, what could not be written after it, or would be written over."""
    check_writable(out, "--out")
    try:
        PretrainedModel.check_folder(out)
    except FileExistsError as error:
        raise ValueError(f"`--out` cannot be {str(out)!r}: {error}") from error
    kept, losses = options["checkpoint_dir"], options["losses"]
    if kept is not None and kept.resolve() == out.resolve():
        raise ValueError(
            f"`--checkpoint-dir` cannot be {str(kept)!r}, which is the folder of the model. Name "
            "another one."
        )
    if losses is not None:
        check_writable(losses, "--losses")
        check_apart(losses, "--losses", *map(str, files))


def _taken(kind: type, given: dict[str, Any]) -> dict[str, Any]:
    """Take the fields of a dataclass out of what was given."""
    names = {field.name for field in fields(kind)} - {"progress"}
    return {name: given.pop(name) for name in sorted(names & set(given))}
