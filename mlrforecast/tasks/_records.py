"""What is kept of runs: a table of them, their curves, their models."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import safetensors.torch
from torch import nn

from mlrforecast._core.atomic import write_whole
from mlrforecast._core.errors import ModelFileError
from mlrforecast._core.provenance import device_name, versions
from mlrforecast._core.result_table import ResultTable
from mlrforecast.models import count_parameters
from mlrforecast.tasks._peaks import peak_flops
from mlrforecast.tasks._settings import TaskRun
from mlrforecast.tasks._training import Training
from mlrforecast.training import Checkpoint, isolated_seed

__all__ = ["Records", "TaskResult", "load_model_file", "read_results"]

_Run = TypeVar("_Run", bound=TaskRun)
_Model = TypeVar("_Model", bound=nn.Module)

RUNS = ResultTable(
    columns=(
        "hash", "task", "name", "status", "score", "scores", "train_loss", "steps", "tokens",
        "paper_flops", "training_flops", "parameters", "seconds", "together", "devices",
        "tokens_per_second", "peak_share", "hardware", "versions", "command", "settings",
    ),
    key=("hash",),
    whole=("steps", "tokens", "paper_flops", "training_flops", "parameters", "together"),
    real=("seconds", "tokens_per_second"),
)  # fmt: skip
CURVES = ResultTable(
    columns=(
        "hash", "step", "tokens", "paper_flops", "training_flops", "train_loss", "score", "scores",
        "seconds",
    ),
    key=("hash", "step"),
    whole=("step", "tokens", "paper_flops", "training_flops"),
)  # fmt: skip
RUNS_FILE, CURVES_FILE = "runs.csv", "curves.csv"
MODELS, CHECKPOINTS = "models", "checkpoints"
FORMAT = "mlrforecast task model 1"
_OF_ROW = ("step", "tokens", "paper_flops", "training_flops", "train_loss", "seconds")


@dataclasses.dataclass(frozen=True)
class TaskResult:
    """A run that has ended.

    Parameters
    ----------
    run : TaskRun
        The run.
    row : dict of str to object
        Its line in the table of runs.
    curve : DataFrame
        Scores in the course of training, a row for each evaluation.
    kept : Module or Path
        The trained model, or the folder of its files.
    """

    run: TaskRun
    row: dict[str, Any]
    curve: pd.DataFrame
    kept: nn.Module | Path = dataclasses.field(repr=False)

    @classmethod
    def of(cls, training: Training, together: int) -> "TaskResult":
        """Return what came of a ``training`` that has ended, beside others ``together``."""
        run, model, curve = training.run, training.trainee.model, training.curve
        last = curve[-1]
        names = [name for name in last if name not in _OF_ROW]
        scores = {name: last[name] for name in names}
        if not training.diverged:
            scores |= training.trainee.conclude(
                {name: [row[name] for row in curve] for name in ("step", *names)}
            )
        speed, flops = _steady(curve)
        device = next(model.parameters()).device
        where = device_name("cpu" if device.type == "cpu" else "gpu")
        peak = peak_flops(where) if device.type == "cuda" else None
        devices = training.devices
        row = {
            "hash": run.hash,
            "task": run.task,
            "name": run.name,
            "status": "diverged" if training.diverged else "finished",
            "score": scores["score"],
            "scores": json.dumps(scores),
            "train_loss": last["train_loss"],
            **{name: int(last[name]) for name in ("tokens", "paper_flops", "training_flops")},
            "steps": int(last["step"]),
            "parameters": count_parameters(model).total,
            "seconds": round(training.seconds, 3),
            "together": together,
            "devices": devices,
            "tokens_per_second": round(speed, 1),
            "peak_share": "" if peak is None else round(flops / (peak * devices), 5),
            "hardware": where,
            "versions": versions(),
            "settings": json.dumps(run.to_dict()),
        }
        model.zero_grad(set_to_none=True)
        for module in model.modules():
            # The caller's first forecast is not to wait for a compiler.
            module._compiled_call_impl = None
        return cls(run, row, pd.DataFrame(curve), model.cpu().eval())

    @property
    def diverged(self) -> bool:
        """Whether training came to a loss or a score that is no number."""
        return bool(self.row["status"] == "diverged")

    @property
    def score(self) -> float:
        """The score that counts, at the end; lower is better."""
        return float(self.row["score"])

    @property
    def scores(self) -> dict[str, float]:
        """All scores at the end."""
        return dict(json.loads(self.row["scores"]))

    @property
    def model(self) -> nn.Module:
        """The trained model, on the CPU; read from its file if it was not trained just now."""
        return self.run.load_model(self.kept) if isinstance(self.kept, Path) else self.kept


def _steady(curve: Sequence[dict[str, float]]) -> tuple[float, float]:
    """Return tokens and FLOPs a second, without the first stretch if there is another."""
    first = curve[0] if len(curve) > 1 else dict.fromkeys(curve[0], 0.0)
    last = curve[-1]
    seconds = max(last["seconds"] - first["seconds"], 1e-9)
    return (
        (last["tokens"] - first["tokens"]) / seconds,
        (last["training_flops"] - first["training_flops"]) / seconds,
    )


class Records:
    """A folder of results.

    Parameters
    ----------
    folder : Path
        The folder; made when something is written.
    command : str
        What the results say that they were made by.
    devices : int
        Devices of each run.
    """

    def __init__(self, folder: Path, command: str = "", devices: int = 1) -> None:
        self.folder = folder
        self.command = command
        self.devices = devices

    @functools.cached_property
    def _rows(self) -> dict[str, dict[str, Any]]:
        rows = RUNS.read(self.folder / RUNS_FILE)
        return {str(row["hash"]): dict(row) for row in rows}

    def has(self, run: TaskRun) -> bool:
        """Tell whether a run's result is there."""
        return run.hash in self._rows

    def prepare(self, runs: Iterable[TaskRun], *, resume: bool) -> None:
        """Check the folder before anything is trained, and make it."""
        if not resume and (done := [run.name for run in runs if self.has(run)]):
            raise ValueError(
                f"`out` holds results of {len(done)} of the runs ({done[0]!r} for one). "
                "Resume (resume=True, or --resume) to skip them, or give another folder."
            )
        CURVES.read(self.folder / CURVES_FILE)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not resume:
            for run in runs:
                self.checkpoint(run).remove()

    def checkpoint(self, run: TaskRun) -> Checkpoint:
        """Return the file in which an unfinished run is kept."""
        checkpoint = Checkpoint(self.folder / CHECKPOINTS, run.hash)
        if not checkpoint.path.parent.is_dir():
            checkpoint.prepare()
        return checkpoint

    def model_folder(self, run: TaskRun) -> Path:
        """Return the folder of a trained model."""
        return self.folder / MODELS / f"{run.name}-{run.hash}"

    def note(self, result: TaskResult) -> None:
        """Write a result: the model and the curve first, for the row says that they are there."""
        run = result.run
        if not result.diverged:
            write_model_file(self.model_folder(run), run, result.model)
        fixed = [name for name in CURVES.columns if name in result.curve]
        rows = [
            {name: row[name] for name in fixed}
            | {name: int(row[name]) for name in CURVES.whole}
            | {"hash": run.hash, "scores": json.dumps(_scores_of(row))}
            for row in result.curve.to_dict("records")
        ]
        CURVES.append(self.folder / CURVES_FILE, *rows)
        RUNS.append(self.folder / RUNS_FILE, result.row | {"command": self.command})

    def result(self, run: TaskRun) -> TaskResult:
        """Return the result of a run that was noted."""
        row = self._rows[run.hash]
        curves = CURVES.read(self.folder / CURVES_FILE)
        curve = _curve_frame([line for line in curves if line["hash"] == run.hash])
        return TaskResult(run, row, curve, self.model_folder(run))


def _scores_of(row: dict[Any, Any]) -> dict[str, float]:
    """Return the scores in a row of a curve."""
    return {str(name): value for name, value in row.items() if name not in _OF_ROW}


def _curve_frame(lines: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return lines of the file of curves as a frame of numbers."""
    return pd.DataFrame([_read(_curve_row, line, f"A line of {CURVES_FILE}") for line in lines])


def _curve_row(line: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a line of the file of curves."""
    numbers = {name: float(str(line[name])) for name in _OF_ROW}
    return numbers | dict(json.loads(str(line["scores"])))


def _run_row(line: dict[str, Any]) -> dict[str, Any]:
    """Return the settings, texts and numbers of a line of the file of runs."""
    settings = {name: _cell(v) for name, v in dict(json.loads(str(line["settings"]))).items()}
    texts = ("hash", "task", "status", "hardware", "versions", "command")
    numbers = {name: float(str(line[name])) for name in (*RUNS.whole, *RUNS.real)}
    numbers["peak_share"] = float(str(line["peak_share"]) or "nan")
    scores = dict(json.loads(str(line["scores"])))
    return settings | {name: line[name] for name in texts} | numbers | scores


def _read(
    read: Callable[[dict[str, Any]], dict[str, Any]], line: dict[str, Any], where: str
) -> dict[str, Any]:
    """Read a line, or say which one is damaged."""
    try:
        return read(line)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{where} is damaged ({error}). Remove the line of the hash {line['hash']!r}."
        ) from error


def read_results(folder: str | Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the results of a folder.

    Parameters
    ----------
    folder : str or Path
        What was given as ``out``.

    Returns
    -------
    runs : DataFrame
        A row for each run: its settings, its scores and how it was made, by name.
    curves : DataFrame
        A row for each evaluation, with the ``hash`` and the settings of its run.

    Raises
    ------
    FileNotFoundError
        If there are none.
    ValueError
        If a file is damaged.

    Examples
    --------
    >>> import tempfile
    >>> from mlrforecast.tasks import Execution
    >>> from mlrforecast.tasks.in_context_regression import RegressionRun, train
    >>> run = RegressionRun(num_dims=2, width=8, num_heads=1, num_layers=1, max_steps=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = train(run, out=folder, execution=Execution(accelerator="cpu", progress=False))
    ...     runs, curves = read_results(folder)
    >>> runs.loc[0, "name"], len(curves)
    ('mlr-8-0', 4)
    """
    folder = Path(folder)
    if not (folder / RUNS_FILE).is_file():
        raise FileNotFoundError(f"{str(folder)!r} holds no results: there is no {RUNS_FILE}.")
    runs = pd.DataFrame(
        [
            _read(_run_row, line, f"Line {number} of {RUNS_FILE}")
            for number, line in enumerate(RUNS.read(folder / RUNS_FILE), start=2)
        ]
    )
    lines = CURVES.read(folder / CURVES_FILE)
    curves = _curve_frame(lines)
    curves.insert(0, "hash", [str(line["hash"]) for line in lines])
    known = ["hash", *(name for name in runs.columns if name not in curves.columns)]
    return runs, curves.merge(runs[known], on="hash")


def _cell(value: Any) -> Any:
    """Return a setting as what a cell can hold and be grouped by."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def write_model_file(folder: Path, run: TaskRun, model: nn.Module) -> None:
    """Write the weights of a model and what determines it; the description last."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    weights = safetensors.torch.save(state)
    write_whole(folder / "model.safetensors", weights)
    document = {
        "format": FORMAT,
        "task": run.task,
        "run": run.to_dict(),
        "sha256": hashlib.sha256(weights).hexdigest(),
    }
    write_whole(folder / "config.json", (json.dumps(document, indent=2) + "\n").encode())


def load_model_file(
    folder: str | Path, kind: type[_Run], build: Callable[[_Run], _Model]
) -> tuple[_Model, _Run]:
    """Read a trained model; nothing in its files is executed.

    Parameters
    ----------
    folder : str or Path
        One of the folders in ``models``.
    kind : type
        The class of its run.
    build : callable
        Makes the model of a run, with any weights.

    Returns
    -------
    model : Module
        On the CPU, in evaluation mode.
    run : TaskRun
        How it was trained.

    Raises
    ------
    ModelFileError
        If a file is missing, was altered, or is of another task.
    """
    folder = Path(folder)
    try:
        document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        content = (folder / "model.safetensors").read_bytes()
        state = dict(safetensors.torch.load(content))
        sound = (
            document["format"] == FORMAT
            and document["sha256"] == hashlib.sha256(content).hexdigest()
        )
        fields, found = dict(document["run"]), str(document["task"])
    except (OSError, LookupError, TypeError, ValueError, safetensors.SafetensorError) as error:
        raise ModelFileError(
            f"{str(folder)!r} holds no model of a task that can be read: {error}."
        ) from error
    if not sound:
        raise ModelFileError(f"The model in {str(folder)!r} was altered, or is of another version.")
    if found != kind.task:
        raise ModelFileError(
            f"The model in {str(folder)!r} is one of {found!r}, not of {kind.task!r}."
        )
    try:
        run = kind.from_dict(fields)
        # A new model draws weights, though not to keep them.
        with isolated_seed(0):
            model = build(run)
        model.load_state_dict(state)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ModelFileError(
            f"The settings in {str(folder)!r} are not those of its weights: {error}"
        ) from error
    return model.eval(), run
