"""The command that searches parameters; what it runs is imported when it runs."""

from pathlib import Path
from typing import Any

import click

from mlrforecast.cli._console import Console
from mlrforecast.cli._options import (
    FILE,
    FOLDER,
    data_options,
    examples,
    format_option,
    model_options,
    with_console,
)
from mlrforecast.cli._paths import check_writable

COMMAND = "command.json"
"""File, in the folder of a sweep, of the options that it was begun with."""


@click.command(
    epilog=examples(
        "mlrforecast tune load.csv --prediction-length 24 --num-samples 50 --out sweep",
        "mlrforecast tune load.csv --prediction-length 24 --out sweep \\",
        "  --space 'learning_rate=loguniform(1e-4,1e-2)' --space 'width=choice(16,32,64)'",
        "mlrforecast tune --resume sweep",
        "mlrforecast tune --preset etth1 --scheduler asha --out etth1",
    )
)
@click.argument("data", type=click.Path(allow_dash=True), required=False)
@click.option("--prediction-length", type=click.IntRange(1), help="Steps to forecast.")
@click.option("--out", type=FOLDER, help="Folder of the sweep: a new or an empty one.")
@click.option(
    "--resume",
    type=FOLDER,
    metavar="DIRECTORY",
    help="Go on with the sweep in this folder, in place of --out. All other options are those that "
    "it was begun with, unless they are given.",
)
@click.option(
    "--space",
    multiple=True,
    metavar="NAME=SPACE",
    help="Search a parameter in loguniform(LOW,HIGH), uniform(LOW,HIGH), randint(LOW,BEYOND), "
    "choice(VALUE,...) or grid(VALUE,...). May be repeated. Default: a space of what matters most.",
)
@click.option(
    "--space-file",
    type=FILE,
    metavar="FILE",
    help="A .toml or .json file of names and spaces, in place of --space.",
)
@click.option(
    "--preset",
    metavar="NAME",
    help="etth1 or paper-etth1: a space, and with it what is tuned, and the data if DATA is left "
    "out.",
)
@click.option("--num-samples", type=click.IntRange(1), help="Trials. Default: 20.")
@click.option(
    "--metric",
    metavar="NAME",
    help="MASE (the default), MAE, MSE, RMSE, sMAPE, CRPS or WQL.",
)
@click.option("--folds", type=click.IntRange(1), help="Each trial is trained so often. Default: 3.")
@click.option("--windows", type=click.IntRange(1), help="Forecasts of a series in a fold.")
@click.option("--step", type=click.IntRange(1), help="Rows from one of them to the next.")
@click.option(
    "--reports", type=click.IntRange(1), help="Scores of a fold that a scheduler sees. Default: 4."
)
@click.option(
    "--scheduler",
    metavar="NAME",
    help="Stops bad trials early: fifo (the default, stops none), asha, hyperband, pbt or median.",
)
@click.option(
    "--searcher",
    metavar="NAME",
    help="random (the default); or optuna, hyperopt or another one of Ray, which learns.",
)
@click.option(
    "--executor",
    type=click.Choice(["ray", "local"]),
    help="Ray Tune (the default), or the same trials without Ray.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Of the draws. Default: 0.")
@click.option(
    "--cpus", type=click.FloatRange(0, min_open=True), help="Cores that a trial takes. Default: 1."
)
@click.option("--gpus", type=click.FloatRange(0), help="GPUs that a trial takes, such as 0.25.")
@click.option("--max-concurrent", type=click.IntRange(1), help="Most trials at a time.")
@click.option(
    "--max-failures",
    type=click.IntRange(0),
    help="Most new starts of a trial whose process or node died. Default: 2.",
)
@click.option(
    "--max-time", type=click.FloatRange(0, min_open=True), help="Of the sweep, in seconds."
)
@click.option(
    "--address",
    metavar="ADDRESS",
    help="A Ray cluster: auto, host:port or ray://host:10001. Default: this machine.",
)
@click.option(
    "--storage",
    metavar="FOLDER|URI",
    help="Where the trials are kept if nodes of the cluster do not reach --out, such as "
    "s3://bucket/sweep.",
)
@click.option(
    "--runtime-env", type=FILE, metavar="FILE", help="A .json file of Ray's runtime environment."
)
@data_options
@model_options
@format_option
@with_console
def tune(
    data: str | None, out: Path | None, resume: Path | None, console: Console, **options: Any
) -> None:
    """Search the parameters that forecast DATA best, and fit them.

    A trial is a model with some parameters changed. It is trained and scored on several folds in
    the newest rows, each time on the rows before the fold alone. The folder of --out then holds
    the best model, trained on all rows (model), a table of the trials (trials.csv) and of their
    scores in the course of the training (curves.csv), a picture (report.png), and what --resume
    needs (sweep, command.json).
    """
    if (out is None) == (resume is None):
        raise click.UsageError("One of --out and --resume is needed.")
    if resume is not None:
        # torch and pandas take seconds to import; help must not wait for them.
        from mlrforecast.cli._tune_files import read_command

        data, options = read_command(resume, click.get_current_context())
    _check(data, options)
    folder = resume or out
    assert folder is not None
    if resume is None:
        _check_new(folder)
    from mlrforecast.cli._tune import run_tune

    run_tune(data, folder=folder, resume=resume is not None, options=options, console=console)


def _check(data: str | None, options: dict[str, Any]) -> None:
    """Refuse options that do not go together."""
    spaces = [name for name in ("space", "space_file", "preset") if options[name]]
    if len(spaces) > 1:
        first, second = (f"--{name.replace('_', '-')}" for name in spaces[:2])
        raise click.UsageError(f"{first} and {second} do not go together.")
    if options["preset"] is None:
        if data is None:
            raise click.UsageError("DATA is needed without --preset.")
        if options["prediction_length"] is None:
            raise click.UsageError("--prediction-length is needed without --preset.")


def _check_new(folder: Path) -> None:
    """Refuse a folder that holds anything, before any work is done."""
    check_writable(folder, "--out")
    if folder.exists() and any(path.name != COMMAND for path in folder.iterdir()):
        raise ValueError(
            f"`--out` cannot be {str(folder)!r}: it is not empty. Name a new folder, or go on with "
            "the sweep in it by --resume."
        )
