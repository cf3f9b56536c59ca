"""What the commands of both tasks have in common: options, and what they say at the end.

Nothing here imports torch, for which help must not wait.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from mlrforecast.cli._console import Console
from mlrforecast.cli._options import FOLDER, TASK_ACCELERATOR, setting

Command = TypeVar("Command", bound=Callable[..., None])


def training_options(command: Command) -> Callable[..., None]:
    """Add the options of training; the command gets ``settings`` and ``computing`` of it."""

    @click.option("--out", type=FOLDER, required=True, help="Folder of results and models.")
    @click.option(
        "--resume", is_flag=True, help="Skip runs that are done, and go on with unfinished ones."
    )
    @click.option(
        "--set",
        "settings",
        type=setting,
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of every run, e.g. --set width=64. May be repeated.",
    )
    @click.option(
        "--only",
        multiple=True,
        metavar="PATTERN",
        help="Train the runs of such names only, e.g. --only 'mlr-*'. May be repeated.",
    )
    @click.option("--accelerator", type=TASK_ACCELERATOR, default="auto", help="Where to compute.")
    @click.option("--devices", type=click.IntRange(1), default=1, help="GPUs that share each run.")
    @click.option(
        "--together", type=click.IntRange(1), default=1, help="Runs at a time on one GPU."
    )
    @click.option("--compile", "compiled", is_flag=True, help="Compile the model.")
    @click.option(
        "--max-time",
        type=click.FloatRange(0, min_open=True),
        help="Stop after so many seconds; --resume goes on from there.",
    )
    @functools.wraps(command)
    def run(
        *,
        accelerator: str,
        devices: int,
        together: int,
        compiled: bool,
        max_time: float | None,
        settings: Sequence[tuple[str, object]],
        **rest: Any,
    ) -> None:
        computing = {
            "accelerator": accelerator,
            "devices": devices,
            "together": together,
            "compile": compiled,
            "max_time": max_time,
        }
        command(settings=dict(settings), computing=computing, **rest)

    return run


def report(results: Sequence[Any], total: int, out: Path, console: Console) -> None:
    """Say what came of the runs."""
    left = total - len(results)
    rows = [
        {"name": result.run.name, "status": result.row["status"], **result.scores}
        for result in results
    ]
    width = max([len(row["name"]) for row in rows], default=0)
    lines = [
        f"{row['name']:{width}}  {row['score']:.4f}"
        + ("  diverged" if row["status"] == "diverged" else "")
        for row in rows
    ]
    if left:
        console.say(f"Stopped with {left} of {total} runs unfinished: go on with --resume.")
    console.finish({"out": out, "runs": rows, "unfinished": left}, "\n".join(lines))
