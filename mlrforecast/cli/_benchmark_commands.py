"""The demonstration and the benchmarks; what they run is imported when they run."""

from collections.abc import Sequence
from pathlib import Path

import click

from mlrforecast.cli._options import FILE, FOLDER, examples, setting, whole_numbers, words
from mlrforecast.cli._paths import check_writable


@click.command(
    epilog=examples(
        "mlrforecast demo --out demo.png",
    )
)
@click.option(
    "--data",
    default="synthetic",
    show_default=True,
    metavar="synthetic|download|FOLDER",
    help="The embedded series; or ETTh1, fetched, or sought in a folder.",
)
@click.option(
    "--out",
    type=FILE,
    default=Path("demo.png"),
    show_default=True,
    help="Where to write the picture.",
)
@click.option(
    "--max-steps",
    type=click.IntRange(1),
    help="Optimiser steps; those of MLRForecaster by default.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
def demo(data: str, out: Path, max_steps: int | None, seed: int) -> None:
    """Fit, forecast, score and draw the embedded series."""
    check_writable(out, "--out")
    # torch and pandas take seconds to import; help must not wait for them.
    from mlrforecast.cli._demo import run_demo

    for line in run_demo(data, out=out, max_steps=max_steps, seed=seed):
        click.echo(line)


@click.group(
    epilog=examples(
        "mlrforecast benchmark ett --dataset ETTh1 --horizons 96 --out results",
    )
)
def benchmark() -> None:
    """Measure forecasts beside their floors; results are files."""


@benchmark.command(
    epilog=examples(
        "mlrforecast benchmark ett --dataset ETTh1 --horizons 96 --out results",
    )
)
@click.option("--dataset", default="ETTh1", show_default=True, help="A data set by name.")
@click.option(
    "--horizons",
    type=whole_numbers,
    metavar="STEPS,...",
    default="96,192,336,720",
    show_default=True,
    help="In steps.",
)
@click.option(
    "--attention",
    type=words,
    metavar="NAME,...",
    default="mlr,standard",
    show_default=True,
    help="To compare: bilinear, bilinear_btt, bilinear_mlr, global_window, mlr, mlr_window, "
    "sliding_window, standard; or a mix of layers, e.g. standard+sliding_window.",
)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Fits of each.")
@click.option("--target", metavar="COLUMN", help="Forecast this column alone.")
@click.option("--final", is_flag=True, help="Score the test windows, and log that it was done.")
@click.option("--root", type=FOLDER, help="Folder to look for the data file in.")
@click.option("--max-steps", type=click.IntRange(1), help="Optimiser steps of a fit.")
@click.option("--context-length", type=click.IntRange(1), help="Steps that a forecast reads.")
@click.option(
    "--set",
    "settings",
    type=setting,
    multiple=True,
    metavar="NAME=VALUE",
    help="Another argument of MLRForecaster, e.g. --set learning_rate=5e-4. May be repeated.",
)
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Runs at a time."
)
@click.option("--out", type=FOLDER, required=True, help="Folder of the result file and the log.")
def ett(
    dataset: str,
    horizons: tuple[int, ...],
    attention: tuple[str, ...],
    seeds: int,
    target: str | None,
    final: bool,
    root: Path | None,
    max_steps: int | None,
    context_length: int | None,
    settings: Sequence[tuple[str, object]],
    jobs: int,
    out: Path,
) -> None:
    """Score every horizon on validation folds, or with --final on the test windows.

    Each run is appended to the result file as it ends; started again, the command does what is
    left.
    """
    check_writable(out, "--out")
    # torch and pandas take seconds to import; help must not wait for them.
    from mlrforecast.benchmark import EttConfig
    from mlrforecast.cli._benchmark import run_and_report

    named = {"max_steps": max_steps, "context_length": context_length}
    options = {name: value for name, value in named.items() if value is not None}
    config = EttConfig(
        dataset=dataset,
        horizons=horizons,
        attention=attention,
        seeds=seeds,
        target=target,
        final=final,
        root=root,
        options=options | dict(settings),
    )
    for line in run_and_report(config, out=out, jobs=jobs):
        click.echo(line)
