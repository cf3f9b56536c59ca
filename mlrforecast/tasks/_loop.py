"""The loop over runs in training, in one process: steps, evaluations, checkpoints, the end."""

import contextlib
import dataclasses
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from lightning.fabric import Fabric
from tqdm.auto import tqdm  # type: ignore[import-untyped]  # no types for tqdm

from mlrforecast.tasks._clock import Clock
from mlrforecast.tasks._records import Records, TaskResult
from mlrforecast.tasks._settings import TaskRun
from mlrforecast.tasks._trainee import Trainee
from mlrforecast.tasks._training import Training
from mlrforecast.training import Checkpoint, isolated_seed

if TYPE_CHECKING:
    from mlrforecast.tasks._engine import Execution

__all__ = ["Results", "compiling", "train_all"]

_CHUNK = 16
"""Steps of a run that are sent to a GPU before those of the next one, or before a look around."""

_VARIANTS = 512
"""Shapes and models that blocks are compiled for in one process."""


class Results:
    """What a process hands back.

    Parameters
    ----------
    results : sequence of TaskResult
        One for each run that has ended.
    """

    def __init__(self, results: Sequence[TaskResult]) -> None:
        self.results = results

    # Handed over in a file: nobody reads the pipe between processes before this one has ended, and
    # memory that it shares ends with it.
    def __getstate__(self) -> str:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            torch.save(self.results, file)
        return file.name

    def __setstate__(self, name: str) -> None:
        self.results = torch.load(name, weights_only=False)
        os.unlink(name)


def train_all(
    fabric: Fabric,
    runs: Sequence[TaskRun],
    build: Callable[[TaskRun], Trainee],
    records: Records | None,
    execution: "Execution",
    silence: object,
) -> Results:
    """Train runs in this process, as many at a time as was asked for.

    Parameters
    ----------
    fabric : Fabric
        Where.
    runs, build, records, execution
        As in :func:`mlrforecast.tasks._engine.train_runs`.
    silence : object
        What silences a process as it arrives there.

    Returns
    -------
    Results
        The runs that have ended.
    """
    del silence
    loop = _Loop(fabric, build, records, execution)
    with compiling(execution.compile), _deferred_interrupt() as interrupt:
        return loop.train(runs, interrupt)


class _Loop:
    """Runs in training, and what they have in common."""

    def __init__(
        self,
        fabric: Fabric,
        build: Callable[[TaskRun], Trainee],
        records: Records | None,
        execution: "Execution",
    ) -> None:
        on_gpu = fabric.device.type == "cuda"
        alone = on_gpu and execution.devices == 1
        if execution.graphs and not alone:
            raise ValueError("`graphs` needs a single GPU, and training is elsewhere.")
        self.fabric, self.build, self.records, self.execution = fabric, build, records, execution
        self.graphs = alone if execution.graphs is None else execution.graphs
        self.clock = Clock(fabric.device)
        self.active: list[_Entry] = []
        count = execution.together if on_gpu else 1
        # Runs that follow each other share a stream; those at the same time never do.
        self.streams = [
            torch.cuda.Stream(fabric.device) if self.graphs else None for _ in range(count)
        ]

    def train(self, runs: Sequence[TaskRun], interrupt: "_Interrupt") -> Results:
        """Train all, or until the time is over or the user stops it."""
        waiting = iter(runs)
        results: list[TaskResult] = []
        begin = time.monotonic()
        with tqdm(
            total=sum(run.max_steps for run in runs), unit="step", file=sys.stderr, smoothing=0.05,
            disable=not self.execution.progress or self.fabric.global_rank > 0,
        ) as bar:  # fmt: skip
            while True:
                while self.streams and (run := next(waiting, None)) is not None:
                    self.active.append(self._begin(run))
                    bar.update(self.active[-1].training.step)
                    bar.set_description(self._description())
                if not self.active:
                    return Results(results)
                results += self._go_on(interrupt, bar)
                if interrupt.requested or self._is_over(begin):
                    for entry in self.active:
                        entry.save()
                    if interrupt.requested:
                        raise KeyboardInterrupt
                    return Results(results)

    # On its own: a name in the loop would keep the graphs of an ended run while the next begins.
    def _go_on(self, interrupt: "_Interrupt", bar: Any) -> list[TaskResult]:
        """Make some steps of each run in training; return what came of those that have ended."""
        results = []
        for entry in list(self.active):
            entry.together = max(entry.together, len(self.active))
            bar.update(entry.go_on(interrupt))
            if entry.training.ended:
                bar.update(entry.run.max_steps - entry.training.step)
                results.append(entry.conclude())
                self.active.remove(entry)
                self.streams.append(entry.stream)
            if interrupt.requested:
                break
        return results

    def _begin(self, run: TaskRun) -> "_Entry":
        """Start a run, or go on with it."""
        if self.graphs and not self.active:
            # What an ended run kept for its graphs is no other run's.
            torch.cuda.empty_cache()
        with isolated_seed(run.seed % 2**32):
            trainee = self.build(run)
        stream = self.streams.pop()
        training = Training(
            trainee,
            self.fabric,
            compile=self.execution.compile,
            stream=stream,
            clock=self.clock,
        )
        if self.execution.graphs and training.stream is None:
            raise ValueError(
                f"`graphs` cannot hold the steps of {run.name!r}, which wait for the device."
            )
        records = self.records
        checkpoint = None if records is None else records.checkpoint(run)
        progress = None if checkpoint is None else checkpoint.read()
        if progress is not None:
            training.resume(progress)
        if not self.fabric.is_global_zero:
            records = checkpoint = None
        every = self.execution.checkpoint_every
        return _Entry(run, training, stream, records, checkpoint, every, time.monotonic())

    def _description(self) -> str:
        """Say which runs are in training."""
        first, count = self.active[0].run.name, len(self.active)
        return first if count == 1 else f"{first} and {count - 1} more"

    def _is_over(self, begin: float) -> bool:
        """Tell whether the time is over, in all processes or in none."""
        if self.execution.max_time is None:
            return False
        over = time.monotonic() - begin > self.execution.max_time
        return over if self.fabric.world_size == 1 else bool(self.fabric.broadcast(over))


@dataclasses.dataclass
class _Entry:
    """A run in training and where it is noted."""

    run: TaskRun
    training: Training
    stream: torch.cuda.Stream | None
    """Where it would be replayed, to be handed on."""
    records: Records | None
    """Nothing in all processes of a run but the first."""
    checkpoint: Checkpoint | None
    checkpoint_every: float
    saved: float
    together: int = 1
    """Most runs that were in training at the same time."""

    def go_on(self, interrupt: "_Interrupt") -> int:
        """Make some steps, and evaluate where that is due; return how many were made."""
        training = self.training
        before, pause = training.step, training.next_pause
        end = min(pause, before + _CHUNK)
        while training.step < end and not interrupt.requested:
            training.advance(training.step + 1)
        training.wait_for_earlier()
        if training.step == pause:
            training.evaluate()
        if not training.ended and time.monotonic() - self.saved > self.checkpoint_every:
            self.save()
        return training.step - before

    def save(self) -> None:
        """Write a checkpoint."""
        if self.checkpoint is not None and self.training.step > 0:
            self.training.save(self.checkpoint)
        self.saved = time.monotonic()

    def conclude(self) -> TaskResult:
        """Note what came of the run; its checkpoint goes last."""
        result = TaskResult.of(self.training, self.together)
        if self.records is not None:
            self.records.note(result)
        if self.checkpoint is not None:
            self.checkpoint.remove()
        return result


class _Interrupt:
    """Whether the user has asked to stop."""

    requested = False


@contextlib.contextmanager
def _deferred_interrupt() -> Iterator[_Interrupt]:
    """Let Ctrl-C stop training between two steps; a second one stops at once.

    In the middle of a step the weights would be those of no step, and nothing could go on there.
    """
    interrupt = _Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def ask(number: int, frame: Any) -> None:
        del number, frame
        if interrupt.requested:
            raise KeyboardInterrupt
        interrupt.requested = True

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def compiling(compiled: bool) -> Iterator[None]:
    """Compile for every shape and every model: at its limit torch goes on without compiling.

    Parameters
    ----------
    compiled : bool
        Whether anything is to be compiled.
    """
    if not compiled:
        yield
        return
    with torch._dynamo.config.patch(
        recompile_limit=_VARIANTS,
        accumulated_recompile_limit=_VARIANTS,
        fail_on_recompile_limit_hit=True,
    ):
        yield
