"""The commands of in-context regression; what they run is imported when they run."""

from pathlib import Path
from typing import Any

import click

from mlrforecast.cli._console import Console
from mlrforecast.cli._options import FILE, FOLDER, examples, with_console
from mlrforecast.cli._paths import check_writable
from mlrforecast.cli._task_options import training_options


@click.group(
    epilog=examples(
        "mlrforecast icl train runs.toml --out results",
        "mlrforecast icl plot results --out scaling.png",
    )
)
def icl() -> None:
    """Train and score models that learn in context."""


@icl.command(
    "train",
    epilog=examples(
        "mlrforecast icl train --set num_dims=8 --set attention=bilinear_btt --out results",
        "mlrforecast icl train runs.toml --out results --together 16",
        "mlrforecast icl train runs.toml --out results --resume",
    ),
)
@click.argument("runs", type=FILE, required=False)
@training_options
@with_console
def train(
    runs: Path | None,
    out: Path,
    resume: bool,
    settings: dict[str, Any],
    only: tuple[str, ...],
    computing: dict[str, Any],
    console: Console,
) -> None:
    """Train the runs of a file, or one run that --set describes.

    RUNS is a TOML file: a table [common] of settings for all runs, and tables [[runs]], each with
    settings of its own; `each` in one of them holds lists of values, all combinations of which are
    runs. The score is the squared error at the last point; predicting 0 has 1.
    """
    check_writable(out, "--out")
    # torch takes seconds to import; help must not wait for it.
    from mlrforecast.cli._tasks import train_regressors

    train_regressors(
        runs,
        out=out,
        resume=resume,
        settings=settings,
        only=only,
        computing=computing,
        console=console,
    )


@icl.command(
    "eval",
    epilog=examples(
        "mlrforecast icl eval results/models/btt-64-0-5a3c --episodes 6400 --out errors.csv",
    ),
)
@click.argument("model", type=FOLDER)
@click.option(
    "--episodes", type=click.IntRange(2), default=3200, show_default=True, help="Fresh episodes."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the draw.")
@click.option("--out", type=FILE, help="A .csv file for the error at each point, or a picture.")
@with_console
def evaluate(model: Path, episodes: int, seed: int, out: Path | None, console: Console) -> None:
    """Score a trained model beside least squares, ridge, neighbours, averaging and 0.

    MODEL is one of the folders in models of the results. All are given the same fresh episodes.
    """
    if out is not None:
        check_writable(out, "--out")
    # torch takes seconds to import; help must not wait for it.
    from mlrforecast.cli._tasks import evaluate_regressor

    evaluate_regressor(model, episodes=episodes, seed=seed, out=out, console=console)


@icl.command(
    "plot",
    epilog=examples(
        "mlrforecast icl plot results --out scaling.png",
        "mlrforecast icl plot results --x width --out width.svg",
    ),
)
@click.argument("results", type=FOLDER)
@click.option(
    "--x",
    type=click.Choice(["training_flops", "paper_flops", "tokens", "width", "parameters"]),
    default="training_flops",
    show_default=True,
    help="What the error is drawn against.",
)
@click.option(
    "--hue", default="attention", show_default=True, help="Setting that tells lines apart."
)
@click.option("--out", type=FILE, required=True, help="The picture: .png, .svg or .pdf.")
@with_console
def plot(results: Path, x: str, hue: str, out: Path, console: Console) -> None:
    """Draw the error at the last point of all runs of a folder.

    RESULTS is what was given to train as --out.
    """
    check_writable(out, "--out")
    # torch takes seconds to import; help must not wait for it.
    from mlrforecast.cli._tasks import plot_results

    plot_results(
        results,
        task="in_context_regression",
        x=x,
        hue=hue,
        out=out,
        ylabel="Squared error",
        console=console,
    )
