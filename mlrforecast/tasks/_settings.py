"""What determines a run of a task, as a record that survives JSON and a file of runs."""

import dataclasses
import itertools
import math
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

from torch import nn

from mlrforecast._core.arguments import check_switch
from mlrforecast._core.provenance import config_hash
from mlrforecast.tasks._checks import count
from mlrforecast.training import Parametrization, Schedule

__all__ = ["TaskRun", "read_runs"]

RunPrecision: TypeAlias = Literal["32-true", "tf32", "bf16-mixed"]
"""Numbers that a model computes with in training, by Lightning's names where it has one."""

# Not typing.Self, which the run-time shape checker of the tests cannot read on a method.
_Run = TypeVar("_Run", bound="TaskRun")

_LONGEST_NAME = 200
"""Bytes of a name; with the hash behind it, file systems take 255."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskRun(ABC):
    """One model and how it is trained; a subclass adds what its task needs.

    Parameters
    ----------
    name : str
        What the run is called in results. Fields in braces are filled in.
    width, num_heads, num_layers : int
        Model width ``D``, heads and blocks.
    attention : str or tuple of str
        Score of every block, or a pattern over the blocks.
    ranks, block_sizes : tuple of int, optional
        Levels of MLR attention, coarse to fine.
    attention_options : mapping of str to object, optional
        Further options of the score.
    positions : {"learned", "rotary", "none"}
        How a token knows its place.
    qk_norm : bool, optional
        Whether queries and keys are normalised. Default: where the score can.
    max_steps, batch_size : int
        Optimiser steps, and sequences of each over all devices.
    learning_rate, weight_decay : float
        Of AdamW; under muP the rate of a model of width 768.
    parametrization : {"mup", "standard"}
        See :func:`mlrforecast.training.build_optimizer`.
    zero_branches : bool
        Whether residual branches start at 0 under muP, as in the paper; see
        :func:`mlrforecast.nn.initialise_mup`.
    warmup_steps : int
        Steps in which the learning rate rises from 0.
    schedule : {"constant", "cosine", "linear"}
        What it does then.
    gradient_clip : float, optional
        Largest norm of the gradient.
    micro_batches : int
        Parts in which the sequences of a step go through the model, for want of memory.
    precision : {"32-true", "tf32", "bf16-mixed"}
        Numbers that the model computes with; weights are float32 always. ``"tf32"`` has matrix
        products round what they multiply to 10 bits on a GPU; a CPU does not.
    evaluate_every : int, optional
        Steps from one evaluation to the next. Default: a twentieth of all.
    seed : int
        Of the weights and of the training data.

    Raises
    ------
    ValueError
        If a field is out of its range.
    TypeError
        If a field is of the wrong kind.
    """

    name: str = "{attention}-{width}-{seed}"
    width: int = 256
    num_heads: int = 8
    num_layers: int = 6
    attention: str | tuple[str, ...] = "mlr"
    ranks: tuple[int, ...] | None = None
    block_sizes: tuple[int | None, ...] | None = None
    attention_options: Mapping[str, Any] | None = None
    positions: str = "learned"
    qk_norm: bool | None = None
    max_steps: int = 1000
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    parametrization: Parametrization = "mup"
    zero_branches: bool = True
    warmup_steps: int = 100
    schedule: Schedule = "constant"
    gradient_clip: float | None = None
    micro_batches: int = 1
    precision: RunPrecision = "32-true"
    evaluate_every: int | None = None
    seed: int = 0

    task: ClassVar[str]
    """Name of the task in results."""

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size", "micro_batches"):
            self.check_count(name, 1)
        self.check_count("warmup_steps", 0)
        self.check_count("seed", 0)
        if self.evaluate_every is not None:
            self.check_count("evaluate_every", 1)
        for name in ("learning_rate", "weight_decay"):
            self.check_number(name, 0.0)
        if self.gradient_clip is not None:
            self.check_number("gradient_clip", 0.0)
            if self.gradient_clip == 0:
                raise ValueError("`gradient_clip` must be above 0, or nothing is learnt, got 0.")
        self.check_choice("parametrization", get_args(Parametrization))
        check_switch("zero_branches", self.zero_branches)
        if not self.zero_branches and self.parametrization != "mup":
            raise ValueError(
                "`zero_branches`=False needs parametrization='mup': under "
                f"{self.parametrization!r} no branch starts at 0."
            )
        self.check_choice("schedule", get_args(Schedule))
        self.check_choice("precision", get_args(RunPrecision))
        if self.batch_size % self.micro_batches:
            raise ValueError(
                f"`micro_batches` must divide the `batch_size` of {self.batch_size}, got "
                f"{self.micro_batches}."
            )
        self.check_options("attention_options")
        if "attention_dropout" in (self.attention_options or {}):
            raise ValueError(
                "`attention_options` must not hold 'attention_dropout': runs are trained without "
                "dropout, whose masks do not depend on the seed alone."
            )
        try:
            named = self.name.format(**dataclasses.asdict(self))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"`name` must be a text with fields of a run in braces, got {self.name!r}."
            ) from error
        if not named or any(letter in named for letter in "/\\\0\n"):
            raise ValueError(f"`name` must be a name of a file, got {named!r}.")
        if len(named.encode(errors="replace")) > _LONGEST_NAME:
            raise ValueError(
                f"`name` must have at most {_LONGEST_NAME} bytes, as it is part of a name of a "
                f"folder, got {len(named.encode(errors='replace'))} in {named[:40]!r}..."
            )
        object.__setattr__(self, "name", named)

    def check_count(self, name: str, least: int) -> None:
        """Check that the field ``name`` is an integer of at least ``least``."""
        count(name, getattr(self, name), least=least)

    def check_number(self, name: str, least: float) -> None:
        """Check that the field ``name`` is a finite number of at least ``least``."""
        value = getattr(self, name)
        known = isinstance(value, int | float) and not isinstance(value, bool)
        if not known or not least <= value < math.inf:
            raise ValueError(
                f"`{name}` must be a finite number of at least {least}, got {value!r}."
            )

    def check_options(self, name: str) -> None:
        """Check that the field ``name`` is a mapping of options by name, or None."""
        value = getattr(self, name)
        if value is None:
            return
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise TypeError(f"`{name}` must be a table of options by name, got {value!r}.")

    def check_choice(self, name: str, choices: Iterable[str]) -> None:
        """Check that the field ``name`` is one of some words, ``choices``."""
        value = getattr(self, name)
        if value not in (words := tuple(choices)):
            raise ValueError(f"`{name}` must be one of {', '.join(words)}, got {value!r}.")

    @property
    def interval(self) -> int:
        """Steps from one evaluation to the next."""
        return self.evaluate_every or max(1, self.max_steps // 20)

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that change with any setting but the name."""
        fields = self.to_dict()
        del fields["name"]
        return config_hash({"task": self.task, **fields})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls: type[_Run], fields: Mapping[str, Any]) -> _Run:
        """Build a run.

        Parameters
        ----------
        fields : mapping of str to object
            Fields by name; lists, as JSON and TOML have them, become tuples.

        Returns
        -------
        TaskRun

        Raises
        ------
        ValueError
            If a field is unknown or out of its range.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(fields) - known):
            raise ValueError(
                f"Unknown settings of a run: {', '.join(unknown)}. Available: "
                f"{', '.join(sorted(known))}."
            )
        return cls(**{name: _plain(value) for name, value in fields.items()})

    @abstractmethod
    def load_model(self, folder: Path) -> nn.Module:
        """Return the trained model in a ``folder``."""

    def model_options(self) -> dict[str, Any]:
        """Return the fields that the configurations of all models share."""
        names = (
            "width", "num_heads", "num_layers", "attention", "ranks", "block_sizes",
            "attention_options", "positions", "qk_norm",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


def _plain(value: Any) -> Any:
    """Return a value with tuples for its lists."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return tuple(_plain(entry) for entry in value) if isinstance(value, list | tuple) else value


def read_runs(
    path: str | Path, kind: type[_Run], settings: Mapping[str, Any] | None = None
) -> list[_Run]:
    """Read a file of runs.

    ::

        [common]            # settings of all runs
        max_steps = 20000

        [[runs]]            # a run ...
        attention = "bilinear_btt"
        width = 64

        [[runs]]            # ... or all combinations of some values
        attention = "standard"
        each = { width = [64, 128], seed = [0, 1, 2] }

    Parameters
    ----------
    path : str or Path
        A TOML file.
    kind : type
        The class of its runs.
    settings : mapping of str to object, optional
        Settings that replace those of the file.

    Returns
    -------
    list of TaskRun
        In the order of the file, the last name in ``each`` changing fastest.

    Raises
    ------
    ValueError
        If the file is no such list, a setting is wrong, or two runs are the same.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from mlrforecast.tasks.in_context_regression import RegressionRun
    >>> path = Path(tempfile.mkdtemp()) / "runs.toml"
    >>> _ = path.write_text('''
    ... common = { num_dims = 4, num_heads = 2 }
    ... [[runs]]
    ... attention = "standard"
    ... each = { width = [16, 32], seed = [0, 1] }
    ... ''')
    >>> [run.name for run in read_runs(path, RegressionRun)]
    ['standard-16-0', 'standard-16-1', 'standard-32-0', 'standard-32-1']
    """
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is no TOML file: {error}.") from error
    if unknown := sorted(set(content) - {"common", "runs"}):
        raise ValueError(f"{path.name} must hold `common` and `runs` only, got {unknown}.")
    common, listed = content.get("common", {}), content.get("runs", [])
    if not isinstance(common, dict) or not isinstance(listed, list) or not listed:
        raise ValueError(f"{path.name} must hold a table `common` and at least one of `[[runs]]`.")
    runs: list[_Run] = []
    for at, entry in enumerate(listed):
        try:
            runs += [
                kind.from_dict({**common, **fields, **(settings or {})})
                for fields in _combinations(entry)
            ]
        except (TypeError, ValueError) as error:
            raise ValueError(f"runs[{at}] of {path.name}: {error}") from error
    for what, found in (("name", [run.name for run in runs]), ("hash", [run.hash for run in runs])):
        if twice := sorted({one for one in found if found.count(one) > 1}):
            names = ", ".join(run.name for run in runs if getattr(run, what) in twice)
            reason = "the same `name`" if what == "name" else "the same settings"
            raise ValueError(f"{path.name} must hold different runs, and has {reason}: {names}.")
    return runs


def _combinations(entry: Any) -> Iterator[dict[str, Any]]:
    """Return the settings of every run of an entry."""
    if not isinstance(entry, dict):
        raise TypeError(f"a run must be a table, got {entry!r}.")
    each = entry.get("each", {})
    if not isinstance(each, dict) or not all(
        isinstance(values, list) and values for values in each.values()
    ):
        raise ValueError(f"`each` must hold lists of values, none empty, got {each!r}.")
    fixed = {name: value for name, value in entry.items() if name != "each"}
    if both := sorted(set(fixed) & set(each)):
        raise ValueError(f"`each` and the run itself both set {', '.join(both)}.")
    for values in itertools.product(*each.values()):
        yield {**fixed, **dict(zip(each, values, strict=True))}
