"""What a command tells: results on stdout, all else on stderr."""

import json
import math
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True, kw_only=True)
class Console:
    """Where results and messages go.

    Parameters
    ----------
    as_json : bool
        Whether the result is one JSON object on stdout.
    quiet : bool
        Whether messages are left out.
    bars : bool
        Whether progress bars may be shown; they are only where stderr is a terminal.
    """

    as_json: bool = False
    quiet: bool = False
    bars: bool = True

    @property
    def progress(self) -> bool:
        """Whether to show progress bars."""
        return self.bars and not self.quiet and sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Tell something that is no result."""
        if not self.quiet:
            click.echo(text, err=True)

    def finish(self, fields: Mapping[str, Any], text: str | None = None) -> None:
        """Write the result: as JSON if that was asked for, else as text, if there is any."""
        if self.as_json:
            click.echo(json.dumps(_plain(fields), ensure_ascii=False, allow_nan=False))
        elif text is not None:
            click.echo(text)


def _plain(value: Any) -> Any:
    """Return what JSON can hold: numbers that are none become null, stamps ISO 8601."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "item"):
        # A number of numpy.
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings as one line each, without the lines of code that raised them."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        click.echo(f"Warning: {' '.join(str(message).split())}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
