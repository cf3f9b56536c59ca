"""Training of many runs: together on one GPU, or one after the other on one or several devices."""

import dataclasses
import functools
import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from lightning.fabric import Fabric
from tqdm.auto import tqdm  # type: ignore[import-untyped]  # no types for tqdm

from mlrforecast.tasks._records import Records, TaskResult
from mlrforecast.tasks._settings import TaskRun
from mlrforecast.tasks._trainee import Trainee
from mlrforecast.tasks._training import Training
from mlrforecast.training import Checkpoint, isolated_seed, surroundings

__all__ = ["Execution", "train_runs"]

_CHUNK = 16
"""Steps of a run that are sent to a GPU before those of the next one, or before a look around."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """How runs are computed, which changes their results by rounding at most.

    Parameters
    ----------
    accelerator : str
        ``"auto"``, ``"cpu"``, ``"gpu"`` or ``"cuda"``, as Lightning has it.
    devices : int
        Devices that share the batches of each run, in a process each.
    together : int
        Runs in training at the same time on one GPU: small ones leave most of it idle.
    compile : bool
        Whether ``torch.compile`` makes the blocks of the model.
    graphs : bool, optional
        Whether steps are replayed as CUDA graphs, without Python between them. Default: on a
        single GPU.
    max_time : float, optional
        Seconds after which training stops; started again, it goes on from there.
    checkpoint_every : float
        Seconds between two checkpoints of a run.
    progress : bool
        Whether to show a progress bar.

    Raises
    ------
    ValueError
        If a field is out of its range.
    """

    accelerator: str = "auto"
    devices: int = 1
    together: int = 1
    compile: bool = False
    graphs: bool | None = None
    max_time: float | None = None
    checkpoint_every: float = 60.0
    progress: bool = True

    def __post_init__(self) -> None:
        for name in ("devices", "together"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"`{name}` must be an integer of at least 1, got {value!r}.")
        if self.devices > 1 and self.together > 1:
            raise ValueError("`together` must be 1 where several `devices` share each run.")
        for name in ("max_time", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"`{name}` must be above 0 seconds, got {value!r}.")

    def fabric(self) -> Fabric:
        """Return what places models on devices."""
        strategy = "auto" if self.devices == 1 else "ddp_spawn"
        accelerator = "cuda" if self.accelerator == "gpu" else self.accelerator
        if accelerator == "cuda" and torch.cuda.device_count() < self.devices:
            raise ValueError(
                f"`accelerator`='gpu' with `devices`={self.devices} needs as many GPUs, and there "
                f"are {torch.cuda.device_count()}."
            )
        return Fabric(accelerator=accelerator, devices=self.devices, strategy=strategy)


def train_runs(
    runs: Sequence[TaskRun],
    build: Callable[[TaskRun], Trainee],
    *,
    out: str | Path | None = None,
    resume: bool = False,
    execution: Execution | None = None,
    command: str = "",
) -> list[TaskResult]:
    """Train runs and note what came of them.

    Parameters
    ----------
    runs : sequence of TaskRun
        What to train; no two the same.
    build : callable
        Makes the model and the data of a run, inside a seeded block; a function of a module.
    out : str or Path, optional
        Folder of the results. Default: nothing is written.
    resume : bool
        Whether runs whose results are in ``out`` are skipped, and unfinished ones go on.
    execution : Execution, optional
        How to compute.
    command : str
        What the results say that they were made by.

    Returns
    -------
    list of TaskResult
        One for each run that has ended, in the order of ``runs``; the others were stopped by
        ``max_time``.

    Raises
    ------
    ValueError
        If ``out`` holds a result of a run and ``resume`` is False, one run is there twice, or a
        batch cannot be shared out.
    KeyboardInterrupt
        If the user stopped it; with ``out`` it can go on from there.
    """
    execution = execution or Execution()
    hashes = [run.hash for run in runs]
    if len(set(hashes)) < len(hashes):
        raise ValueError("`runs` must differ in their settings, and two of them are the same.")
    for run in runs:
        if run.batch_size % (run.micro_batches * execution.devices):
            raise ValueError(
                f"`devices` times `micro_batches` must divide the `batch_size` of {run.name!r}, "
                f"got {execution.devices} times {run.micro_batches}, and {run.batch_size}."
            )
    records = None if out is None else Records(Path(out), command, execution.devices)
    if records is not None:
        records.prepare(runs, resume=resume)
    pending = [run for run in runs if records is None or not records.has(run)]
    fresh: Sequence[TaskResult] = ()
    if pending:
        with surroundings(execution.devices):
            fabric = execution.fabric()
            train_all = functools.partial(
                _train_all, runs=pending, build=build, records=records, execution=execution
            )
            whole = train_all(fabric) if execution.devices == 1 else fabric.launch(train_all)
            fresh = whole.results
    known = {result.run.hash: result for result in fresh}
    if records is not None:
        for run in runs:
            if run.hash not in known and records.has(run):
                known[run.hash] = records.result(run)
    return [known[name] for name in hashes if name in known]


def _train_all(
    fabric: Fabric,
    runs: Sequence[TaskRun],
    build: Callable[[TaskRun], Trainee],
    records: Records | None,
    execution: Execution,
) -> "_Results":
    """Train runs in this process, as many at a time as was asked for."""
    on_gpu = fabric.device.type == "cuda"
    graphs = on_gpu and execution.devices == 1 if execution.graphs is None else execution.graphs
    if graphs and not (on_gpu and execution.devices == 1):
        raise ValueError("`graphs` needs a single GPU, and training is elsewhere.")
    waiting = iter(runs)
    active: list[_Entry] = []
    results: list[TaskResult] = []
    begin = time.monotonic()
    steps = sum(run.max_steps for run in runs)
    with tqdm(
        total=steps, unit="step", file=sys.stderr, smoothing=0.05,
        disable=not execution.progress or fabric.global_rank > 0,
    ) as bar:  # fmt: skip
        try:
            while True:
                room = (execution.together if on_gpu else 1) - len(active)
                for run in _take(waiting, room):
                    active.append(_begin(run, build, fabric, records, execution, graphs))
                    bar.update(active[-1].training.step)
                    bar.set_description(_described(active))
                if not active:
                    return _Results(results)
                for entry in list(active):
                    entry.together = max(entry.together, len(active))
                    bar.update(entry.go_on())
                    if entry.training.ended:
                        active.remove(entry)
                        bar.update(entry.run.max_steps - entry.training.step)
                        results.append(entry.conclude())
                if _is_over(execution, begin, fabric):
                    for entry in active:
                        entry.save()
                    return _Results(results)
        except KeyboardInterrupt:
            for entry in active:
                entry.save()
            raise


class _Results:
    """What a process hands back: as bytes, for memory that it shares ends with it."""

    def __init__(self, results: Sequence[TaskResult]) -> None:
        self.results = results

    def __getstate__(self) -> bytes:
        buffer = io.BytesIO()
        torch.save(self.results, buffer)
        return buffer.getvalue()

    def __setstate__(self, state: bytes) -> None:
        self.results = torch.load(io.BytesIO(state), weights_only=False)


def _take(waiting: Iterator[TaskRun], count: int) -> Iterator[TaskRun]:
    """Return the next runs, at most ``count``."""
    for _ in range(count):
        run = next(waiting, None)
        if run is None:
            return
        yield run


def _described(active: Sequence["_Entry"]) -> str:
    """Say which runs are in training."""
    first = active[0].run.name
    return first if len(active) == 1 else f"{first} and {len(active) - 1} more"


def _is_over(execution: Execution, begin: float, fabric: Fabric) -> bool:
    """Tell whether the time is over, in all processes or in none."""
    if execution.max_time is None:
        return False
    over = time.monotonic() - begin > execution.max_time
    if fabric.world_size == 1:
        return over
    return bool(fabric.broadcast(over))


@dataclasses.dataclass
class _Entry:
    """A run in training and where it is noted."""

    run: TaskRun
    training: Training
    records: Records | None
    """Nothing in all processes of a run but the first."""
    checkpoint: Checkpoint | None
    checkpoint_every: float
    saved: float
    together: int = 1
    """Most runs that were in training at the same time."""

    def go_on(self) -> int:
        """Make some steps, and evaluate where that is due; return how many were made."""
        training = self.training
        before, pause = training.step, training.next_pause
        training.advance(min(pause, before + _CHUNK))
        if training.step == pause:
            training.evaluate()
        if not training.ended and time.monotonic() - self.saved > self.checkpoint_every:
            self.save()
        return training.step - before

    def save(self) -> None:
        """Write a checkpoint."""
        if self.checkpoint is not None and self.training.step > 0:
            self.checkpoint.write(self.training.progress())
        self.saved = time.monotonic()

    def conclude(self) -> TaskResult:
        """Note what came of the run; its checkpoint goes last."""
        result = TaskResult.of(self.training, self.together)
        if self.records is not None:
            self.records.note(result)
        if self.checkpoint is not None:
            self.checkpoint.remove()
        return result


def _begin(
    run: TaskRun,
    build: Callable[[TaskRun], Trainee],
    fabric: Fabric,
    records: Records | None,
    execution: Execution,
    graphs: bool,
) -> _Entry:
    """Start a run, or go on with it."""
    with isolated_seed(run.seed % 2**32):
        trainee = build(run)
    training = Training(trainee, fabric, compile=execution.compile, graphs=graphs)
    checkpoint = None if records is None else records.checkpoint(run)
    progress = None if checkpoint is None else checkpoint.read()
    if progress is not None:
        training.resume(progress)
    if not fabric.is_global_zero:
        records = checkpoint = None
    return _Entry(run, training, records, checkpoint, execution.checkpoint_every, time.monotonic())
