"""Files of a sweep: the options that it was begun with, and spaces as text."""

import ast
import json
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from scipy import stats

from mlrforecast.cli._paths import whole_file
from mlrforecast.cli._tables import STREAM
from mlrforecast.cli._tune_commands import COMMAND

_PATHS = ("space_file", "runtime_env")
_SPACES = ("space", "space_file", "preset")
_FREE = ("out", "resume", "as_json", "quiet", "no_progress")
"""Options that say nothing of the sweep."""


def write_command(folder: Path, data: str | None, options: Mapping[str, Any]) -> None:
    """Note what a sweep is begun with, in a folder that is made for it."""
    whole = {name: _absolute(value) if name in _PATHS else value for name, value in options.items()}
    whole["data"] = data if data == STREAM else _absolute(data)
    folder.mkdir(parents=True, exist_ok=True)
    # As text of Python, in which a tuple stays a tuple.
    text = json.dumps({name: repr(value) for name, value in whole.items()}, indent=1)
    with whole_file(folder / COMMAND) as draft:
        draft.write_text(text, encoding="utf-8")


def _absolute(path: str | Path | None) -> str | None:
    """Return a path that means the same in every folder."""
    return None if path is None else os.path.abspath(path)


def read_command(folder: Path, context: click.Context) -> tuple[str | None, dict[str, Any]]:
    """Return data and options of a sweep, those that were given now in place of the old ones."""
    path = folder / COMMAND
    if not path.is_file():
        raise ValueError(
            f"`--resume` needs the folder of a sweep that `mlrforecast tune` began, but "
            f"{str(folder)!r} has no {COMMAND}."
        )
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        old = {name: ast.literal_eval(text) for name, text in saved.items()}
    except (ValueError, SyntaxError, AttributeError, TypeError) as error:
        raise ValueError(f"{str(path)!r} was altered: {error}") from error
    options = {name: value for name, value in context.params.items() if name not in _FREE}
    for name in options.keys() & old.keys():
        if context.get_parameter_source(name) == ParameterSource.DEFAULT:
            options[name] = old[name]
    # A space that is given now takes the place of the old one, in whatever form that was.
    if now := [name for name in _SPACES if context.params[name]]:
        options |= {name: None for name in _SPACES if name not in now}
    if options["data"] == STREAM and context.params["data"] is None:
        raise click.UsageError("DATA came from stdin: give it again.")
    return options.pop("data"), options


def read_json(path: str | Path, option: str) -> dict[str, Any]:
    """Read a file that holds a JSON object."""
    return _read(path, option, json.loads)


def read_space(texts: Iterable[str], path: str | Path | None) -> dict[str, Any] | None:
    """Read a space from options or from a file, None if there is none."""
    if path is not None:
        form = tomllib.loads if str(path).lower().endswith(".toml") else json.loads
        entries = _read(path, "--space-file", form)
        return {
            name: _parse(value, f"{path}: {name}") if isinstance(value, str) else value
            for name, value in entries.items()
        }
    space: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ValueError(f"`--space` must be NAME=SPACE, got {text!r}.")
        if name in space:
            raise ValueError(f"`--space` names {name!r} twice.")
        space[name] = _parse(value, f"--space {name}")
    return space or None


def _read(path: str | Path, option: str, form: Callable[[str], Any]) -> dict[str, Any]:
    """Read a file that holds names and values."""
    try:
        content = form(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`{option}` {str(path)!r} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"`{option}` {str(path)!r} must hold names and values.")
    return content


def _parse(text: str, where: str) -> Any:
    """Read ``loguniform(1e-4,1e-2)`` and the like."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if isinstance(tree, ast.List):
            return [_literal(entry) for entry in tree.elts]
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.keywords:
            return _KINDS[tree.func.id](*map(_literal, tree.args))
    except (SyntaxError, KeyError):
        pass
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{where}` cannot be {text!r}: {error}") from error
    raise ValueError(
        f"`{where}` must be loguniform(LOW,HIGH), uniform(LOW,HIGH), randint(LOW,BEYOND), "
        f"choice(VALUE,...) or grid(VALUE,...), got {text!r}."
    )


def _literal(node: ast.expr) -> Any:
    """Read a value; what is no Python literal is a word."""
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def _loguniform(low: float, high: float) -> Any:
    """Return what draws a number whose logarithm is uniform."""
    _check_bounds(low, high)
    if low <= 0:
        raise ValueError("its bounds must be positive.")
    return stats.loguniform(low, high)


def _uniform(low: float, high: float) -> Any:
    """Return what draws a number between two others."""
    _check_bounds(low, high)
    return stats.uniform(low, high - low)


def _randint(low: int, beyond: int) -> Any:
    """Return what draws a whole number below another one."""
    _check_bounds(low, beyond)
    if not (isinstance(low, int) and isinstance(beyond, int)):
        raise ValueError("its bounds must be whole numbers.")
    return stats.randint(low, beyond)


def _check_bounds(low: Any, high: Any) -> None:
    """Refuse bounds between which nothing lies."""
    if not all(isinstance(bound, (int, float)) for bound in (low, high)) or not low < high:
        raise ValueError("its bounds must be numbers, the lower one first.")


_KINDS: dict[str, Callable[..., Any]] = {
    "loguniform": _loguniform,
    "uniform": _uniform,
    "randint": _randint,
    "choice": lambda *values: list(values),
    "grid": lambda *values: {"grid_search": list(values)},
}
