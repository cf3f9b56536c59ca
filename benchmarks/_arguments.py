"""Arguments that several scripts take on the command line."""

import argparse
import json
from typing import Any


def numbers(text: str) -> tuple[int, ...]:
    """Read numbers with commas between them."""
    return tuple(int(word) for word in text.split(","))


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Take arguments of the forecaster, ``--set NAME=VALUE`` each."""
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="options",
        help="an argument of MLRForecaster, its value as JSON",
    )  # fmt: skip


def read_settings(texts: list[str]) -> dict[str, Any]:
    """Return these arguments by name."""
    return {name: json.loads(value) for name, value in (text.split("=", 1) for text in texts)}
