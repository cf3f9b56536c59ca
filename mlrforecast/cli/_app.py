"""Commands and their options; what they run is imported when they run."""

import ast
import os
from collections.abc import Sequence
from pathlib import Path

import click

from mlrforecast._core.errors import MLRForecastError
from mlrforecast._version import __version__
from mlrforecast.cli._paths import check_writable

_FOLDER = click.Path(file_okay=False, path_type=Path)


class _Group(click.Group):
    """Commands whose expected errors end as one line and exit code 2."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (MLRForecastError, ValueError, OSError) as error:
            # A reader of the output that has gone is no error; click ends quietly.
            if ctx.params["traceback"] or isinstance(error, BrokenPipeError):
                raise
            raise _Failure(" ".join(str(error).split())) from error


class _Failure(click.ClickException):
    """An expected error, told in one line."""

    exit_code = 2


class _Words(click.ParamType[tuple[object, ...]]):
    """Entries with commas between them, e.g. ``96,192``."""

    def __init__(self, entry: type[int] | type[str]) -> None:
        self.entry = entry
        self.name = "number,..." if entry is int else "name,..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[object, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(self.entry(word.strip()) for word in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers with commas.", param, ctx)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option(
    "--traceback",
    is_flag=True,
    envvar="MLRFORECAST_TRACEBACK",
    help="Show where an error was raised, not only what it says.",
)
def main(traceback: bool) -> None:
    """Forecast time series with multi-level low-rank (MLR) attention."""
    # Read when torch is loaded: threads that wait actively for each other make small fits many
    # times slower where other programs use the cores too.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@main.command()
@click.option(
    "--data",
    default="synthetic",
    show_default=True,
    metavar="synthetic|download|FOLDER",
    help="The embedded series; or ETTh1, fetched, or sought in a folder.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
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
    """Fit, forecast with quantiles, score beside naive forecasts, and draw one picture."""
    check_writable(out, "--out")
    # torch and pandas take seconds to import; help must not wait for them.
    from mlrforecast.cli._demo import run_demo

    for line in run_demo(data, out=out, max_steps=max_steps, seed=seed):
        click.echo(line)


@main.group()
def benchmark() -> None:
    """Measure forecasts beside their floors; results are files."""


@benchmark.command()
@click.option("--dataset", default="ETTh1", show_default=True, help="A data set by name.")
@click.option(
    "--horizons", type=_Words(int), default="96,192,336,720", show_default=True, help="In steps."
)
@click.option(
    "--attention",
    type=_Words(str),
    default="mlr,standard",
    show_default=True,
    help="To compare: bilinear, bilinear_btt, bilinear_mlr, global_window, mlr, mlr_window, "
    "sliding_window, standard; or a mix of layers, e.g. standard+sliding_window.",
)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Fits of each.")
@click.option("--target", metavar="COLUMN", help="Forecast this column alone.")
@click.option("--final", is_flag=True, help="Score the test windows, and log that it was done.")
@click.option("--root", type=_FOLDER, help="Folder to look for the data file in.")
@click.option("--max-steps", type=click.IntRange(1), help="Optimiser steps of a fit.")
@click.option("--context-length", type=click.IntRange(1), help="Steps that a forecast reads.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another argument of MLRForecaster, e.g. --set learning_rate=5e-4. May be repeated.",
)
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Runs at a time."
)
@click.option("--out", type=_FOLDER, required=True, help="Folder of the result file and the log.")
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
    settings: Sequence[str],
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
        options=options | dict(_setting(text) for text in settings),
    )
    for line in run_and_report(config, out=out, jobs=jobs):
        click.echo(line)


def _setting(text: str) -> tuple[str, object]:
    """Read NAME=VALUE; a value that is no Python literal is a word."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"must be NAME=VALUE, got {text!r}.", param_hint="--set")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value
