"""The commands that make series and pretrain on them; what they do is imported when they run."""

from pathlib import Path
from typing import Any

import click

from mlrforecast.cli._console import Console
from mlrforecast.cli._options import (
    ACCELERATOR,
    FILE,
    FOLDER,
    examples,
    numbers,
    setting,
    whole_numbers,
    with_console,
)

_SEED = click.option("--seed", type=click.IntRange(0), default=0, help="Of the draws. Default: 0.")
_JOBS = click.option(
    "--jobs", type=int, default=1, help="Processes that draw; -1 for all cores. Default: 1."
)
_OUT = click.option("--out", type=FILE, required=True, help="The .arrow file to write.")
_COUNT = click.option("--num-series", type=click.IntRange(1), required=True, help="Series to make.")


@click.group(
    epilog=examples(
        "mlrforecast synthesize kernels --num-series 1000 --out kernels.arrow",
        "mlrforecast synthesize mixtures sales.arrow load.arrow --num-series 9000 --out mix.arrow",
    )
)
def synthesize() -> None:
    """Make series to pretrain on, as Arrow files."""


@synthesize.command(
    epilog=examples("mlrforecast synthesize kernels --num-series 1000 --out kernels.arrow")
)
@_COUNT
@click.option("--length", type=click.IntRange(2), default=1024, help="Steps. Default: 1024.")
@_SEED
@_JOBS
@_OUT
@with_console
def kernels(
    num_series: int, length: int, seed: int, jobs: int, out: Path, console: Console
) -> None:
    """Draw series from Gaussian processes with random kernels (KernelSynth)."""
    from mlrforecast.cli._synthesize import run_kernels

    run_kernels(num_series, length=length, seed=seed, jobs=jobs, out=out, console=console)


@synthesize.command(
    epilog=examples(
        "mlrforecast synthesize mixtures sales.arrow load.arrow --num-series 9000 --out mix.arrow"
    )
)
@click.argument("files", nargs=-1, required=True, type=FILE)
@_COUNT
@click.option(
    "--min-length", type=click.IntRange(1), default=128, help="Least steps. Default: 128."
)
@click.option("--max-length", type=click.IntRange(1), default=2048, help="Most. Default: 2048.")
@_SEED
@_JOBS
@_OUT
@with_console
def mixtures(
    files: tuple[Path, ...],
    num_series: int,
    min_length: int,
    max_length: int,
    seed: int,
    jobs: int,
    out: Path,
    console: Console,
) -> None:
    """Mix pieces of series (TSMixup).

    FILES are Arrow files with a series in each row, under target; each is a data set.
    """
    from mlrforecast.cli._synthesize import run_mixtures

    lengths = {"min_length": min_length, "max_length": max_length}
    run_mixtures(files, num_series, seed=seed, jobs=jobs, out=out, console=console, **lengths)


@click.command(
    epilog=examples(
        "mlrforecast pretrain mixed.arrow kernels.arrow --weights 0.9,0.1 --out model",
        "mlrforecast pretrain kernels.arrow --head quantiles --attention standard --out bolt",
        "mlrforecast pretrain mixed.arrow --context-length 127 --prediction-length 127 \\",
        "  --ranks 32,10,8,4,4,4,2 --precision bf16-mixed --compile --out paper",
    )
)
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--out", type=FOLDER, required=True, help="Folder of the model.")
@click.option(
    "--weights",
    type=numbers,
    metavar="NUMBER,...",
    help="How often each file is drawn from, relative to the others. Default: equally often.",
)
@click.option(
    "--head",
    type=click.Choice(["tokens", "quantiles"]),
    help="Tokens one by one as Chronos-T5 (the default), or a patch as Chronos-Bolt.",
)
@click.option(
    "--attention",
    type=click.Choice(["mlr", "standard"]),
    help="Self-attention. Default: mlr.",
)
@click.option(
    "--ranks",
    type=whole_numbers,
    metavar="NUMBER,...",
    help="Columns of each level, coarse to fine. Default: half of a head, a quarter, a quarter.",
)
@click.option("--context-length", type=click.IntRange(1), help="Steps read. Default: 512.")
@click.option("--prediction-length", type=click.IntRange(1), help="Forecast. Default: 64.")
@click.option(
    "--set",
    "settings",
    type=setting,
    multiple=True,
    metavar="NAME=VALUE",
    help="Another field of PretrainConfig or PretrainOptions, e.g. --set width=512. May be "
    "repeated.",
)
@click.option("--max-steps", type=click.IntRange(1), help="Optimiser steps. Default: 2000.")
@click.option("--batch-size", type=click.IntRange(1), help="Windows a step. Default: 32.")
@click.option(
    "--learning-rate", type=click.FloatRange(0), help="Of AdamW, falling to 0. Default: 0.001."
)
@click.option(
    "--precision",
    type=click.Choice(["32-true", "bf16-mixed", "16-mixed"]),
    help="Numbers that are computed with. Default: 32-true.",
)
@click.option("--compile", "compiled", is_flag=True, help="Compile the blocks of the model.")
@click.option("--seed", type=click.IntRange(0), help="Of weights, windows, dropout. Default: 0.")
@click.option("--accelerator", type=ACCELERATOR, help="Where to train. Default: auto.")
@click.option("--devices", type=click.IntRange(1), help="Devices that share a step. Default: 1.")
@click.option(
    "--checkpoint-dir",
    type=FOLDER,
    help="Folder from which the same command, interrupted, goes on.",
)
@click.option("--losses", type=FILE, metavar="FILE", help="A .csv file of the loss of each step.")
@with_console
def pretrain(files: tuple[Path, ...], out: Path, console: Console, **options: Any) -> None:
    """Pretrain a model of the Chronos family on Arrow files.

    FILES hold a series in each row, under target, such as those of mlrforecast synthesize. The
    model loads in pipelines of Chronos.
    """
    from mlrforecast.cli._pretrain import run_pretrain

    run_pretrain(files, out=out, console=console, options=options)
