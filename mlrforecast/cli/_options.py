"""Kinds of values on the command line, and options that several commands share."""

import ast
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from mlrforecast.cli._console import Console, plain_warnings

Command = TypeVar("Command", bound=Callable[..., None])
Entry = TypeVar("Entry")

FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
ACCELERATOR = click.Choice(["auto", "cpu", "gpu", "mps"])
TASK_ACCELERATOR = click.Choice(["auto", "cpu", "gpu"])


def examples(*lines: str) -> str:
    """Return lines of examples for the end of a help, which click is to leave as they are."""
    return "\n".join(["\b", f"Example{'s' if len(lines) > 1 else ''}:", *(f"  {x}" for x in lines)])


def words(text: str) -> tuple[str, ...]:
    """Read names with commas between them."""
    return _entries(text, str, "names")


def whole_numbers(text: str) -> tuple[int, ...]:
    """Read whole numbers with commas between them."""
    return _entries(text, int, "whole numbers")


def numbers(text: str) -> tuple[float, ...]:
    """Read numbers with commas between them."""
    return _entries(text, float, "numbers")


def _entries(text: str, entry: Callable[[str], Entry], what: str) -> tuple[Entry, ...]:
    parts = [part.strip() for part in text.split(",")]
    try:
        if all(parts):
            return tuple(entry(part) for part in parts)
    except ValueError:
        pass
    raise click.BadParameter(f"{text!r} is not a list of {what} with commas.")


def setting(text: str) -> tuple[str, object]:
    """Read NAME=VALUE; a value that is no Python literal is a word."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"must be NAME=VALUE, got {text!r}.")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def json_option(command: Command) -> Command:
    """Add the option that asks for JSON."""
    return click.option("--json", "as_json", is_flag=True, help="Write one JSON object to stdout.")(
        command
    )


def with_console(command: Command) -> Callable[..., None]:
    """Add the options that say what is told, and where; the command gets a ``console``."""

    @json_option
    @click.option("-q", "--quiet", is_flag=True, help="No messages and no progress bars.")
    @click.option("--no-progress", is_flag=True, help="No progress bars.")
    @functools.wraps(command)
    def run(*, as_json: bool, quiet: bool, no_progress: bool, **options: object) -> None:
        console = Console(as_json=as_json, quiet=quiet, bars=not no_progress)
        with plain_warnings():
            command(console=console, **options)

    return run


def format_option(command: Command) -> Command:
    """Add the option that says in which format tables are."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["csv", "parquet"]),
        help="Format of '-' and of files whose name does not say it. Default: csv for '-'.",
    )(command)


def accelerator_option(command: Command) -> Command:
    """Add the option that says where a loaded model runs."""
    return click.option(
        "--accelerator", type=ACCELERATOR, help="Where to compute. Default: as in fit."
    )(command)


def _together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return what adds several options, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


data_options = _together(
    click.option(
        "--target",
        type=words,
        metavar="COLUMN,...",
        help="What to forecast: one column of a long table, one or more of a wide one. Default: "
        "target or y of a long table, all numeric columns of a wide one.",
    ),
    click.option(
        "--id-column",
        metavar="COLUMN",
        help="Names the series of each row of a long table. Default: item_id or unique_id.",
    ),
    click.option(
        "--timestamp-column",
        metavar="COLUMN",
        help="The time stamps. Default: timestamp or ds, else the one column that holds time.",
    ),
    click.option(
        "--past-covariates",
        type=words,
        metavar="COLUMN,...",
        help="Known up to the present, such as a measured temperature.",
    ),
    click.option(
        "--known-covariates",
        type=words,
        metavar="COLUMN,...",
        help="Known over the steps to forecast too, such as prices; predict takes them by "
        "--future.",
    ),
    click.option(
        "--static-covariates",
        type=words,
        metavar="COLUMN,...",
        help="One value for each series of a long table.",
    ),
    click.option(
        "--freq",
        metavar="ALIAS|STEP",
        help="Step of the rows, such as 15min, D or W-WED; a whole number for integer time. "
        "Default: read off the stamps.",
    ),
    click.option(
        "--season-length",
        type=click.IntRange(1),
        help="Steps of a season, for scaled errors and the simple forecasts of backtest. Default: "
        "24 for hours, 12 for months, 1 for days and weeks.",
    ),
    click.option(
        "--fill",
        type=click.Choice(["missing", "zero"]),
        help="What absent rows hold. Default: a gap is an error.",
    ),
    click.option(
        "--resample",
        type=click.Choice(["mean", "sum", "median", "min", "max", "first", "last"]),
        help="What becomes of the rows of one step. Default: irregular stamps are an error.",
    ),
)
"""Options that say how a table is read."""

model_options = _together(
    click.option(
        "--loss",
        metavar="NAME",
        help="quantile (the default), mae, mse, normal, student_t or negative_binomial.",
    ),
    click.option("--context-length", type=click.IntRange(1), help="Steps that a forecast reads."),
    click.option("--max-steps", type=click.IntRange(1), help="Optimiser steps."),
    click.option(
        "--early-stopping",
        is_flag=True,
        help="Hold back the newest tenth of each series, and stop when its loss no longer falls.",
    ),
    click.option("--accelerator", type=ACCELERATOR, help="Where to compute. Default: auto."),
    click.option(
        "--set",
        "settings",
        type=setting,
        multiple=True,
        metavar="NAME=VALUE",
        help="Another argument of MLRForecaster, e.g. --set width=64. May be repeated.",
    ),
)
"""Options that say what is trained, and where."""
