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
