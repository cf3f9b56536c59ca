"""Training of many runs: together on one GPU, or one after the other on one or several devices."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from lightning.fabric import Fabric

from mlrforecast.tasks._checks import count
from mlrforecast.tasks._loop import train_all
from mlrforecast.tasks._records import Records, TaskResult
from mlrforecast.tasks._settings import TaskRun
from mlrforecast.tasks._trainee import Trainee
from mlrforecast.training import Silence, surroundings

__all__ = ["Execution", "train_runs"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """How runs are computed, which changes their results by rounding at most.

    Parameters
    ----------
    accelerator : str
        ``"cpu"``, ``"gpu"`` (or ``"cuda"``), or ``"auto"`` for a GPU where there is one.
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
        if self.accelerator not in (accelerators := ("auto", "cpu", "cuda", "gpu")):
            raise ValueError(
                f"`accelerator` must be one of {', '.join(accelerators)}, got {self.accelerator!r}."
            )
        for name in ("devices", "together"):
            count(name, getattr(self, name))
        if self.devices > 1 and self.together > 1:
            raise ValueError("`together` must be 1 where several `devices` share each run.")
        for name in ("max_time", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"`{name}` must be above 0 seconds, got {value!r}.")

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU computes."""
        if self.accelerator == "auto":
            return torch.cuda.is_available()
        return self.accelerator != "cpu"

    def check_devices(self) -> None:
        """Raise a ValueError if there are fewer GPUs than are asked for."""
        if self.on_gpu and torch.cuda.device_count() < self.devices:
            raise ValueError(
                f"`accelerator`={self.accelerator!r} with `devices`={self.devices} needs as many "
                f"GPUs, and there are {torch.cuda.device_count()}."
            )

    def fabric(self) -> Fabric:
        """Return what places models on devices."""
        strategy = "auto" if self.devices == 1 else "ddp_spawn"
        accelerator = "cuda" if self.on_gpu else "cpu"
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
        If ``out`` holds a result of a run and ``resume`` is False, one run is there twice, a batch
        cannot be shared out, or there are not so many GPUs.
    KeyboardInterrupt
        If the user stopped it; with ``out`` it can go on from there.
    """
    execution = execution or Execution()
    execution.check_devices()
    if execution.together > 1 and not execution.on_gpu:
        warnings.warn(
            f"`together`={execution.together} is for a GPU: on a CPU runs are trained one after "
            "the other.",
            stacklevel=3,
        )
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
            work = functools.partial(
                train_all,
                runs=pending,
                build=build,
                records=records,
                execution=execution,
                # Unpickled where a process begins, which it silences.
                silence=Silence() if execution.devices > 1 else None,
            )
            fresh = (work(fabric) if execution.devices == 1 else fabric.launch(work)).results
    known = {result.run.hash: result for result in fresh}
    if records is not None:
        for run in runs:
            if run.hash not in known and records.has(run):
                known[run.hash] = records.result(run)
    return [known[name] for name in hashes if name in known]
