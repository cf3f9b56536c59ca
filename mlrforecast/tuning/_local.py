"""Trials on this machine, without Ray."""

import functools
import math
import shutil
import socket
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed  # type: ignore[import-untyped]  # no types for joblib
from joblib.externals.loky.process_executor import (  # type: ignore[import-untyped]
    TerminatedWorkerError,
)
from tqdm.auto import tqdm  # type: ignore[import-untyped]  # no types for tqdm

from mlrforecast.tuning._records import Records
from mlrforecast.tuning._settings import Settings
from mlrforecast.tuning._trial import Report, Task, run_trial

Config = dict[str, Any]


def run_local(
    task: Task, configs: Sequence[Config], settings: Settings, records: Records, *, session: str
) -> None:
    """Run all trials whose records do not say that they are done, and record them.

    With ``max_concurrent`` above 1 each runs in one of so many processes, which share the data.
    """
    done = {record["number"] for record in records.all() if record["status"] == "finished"}
    left = [number for number in range(len(configs)) if number not in done]
    limit = math.inf if settings.max_time is None else time.time() + settings.max_time
    with _scratch(records) as scratch, _bar(settings, len(configs), len(done)) as bar:
        run = functools.partial(
            record_trial, task, records=records, scratch=scratch, session=session, limit=limit
        )
        jobs = settings.max_concurrent or 1
        if jobs == 1:
            for number in left:
                run(number, configs[number])
                bar.update()
            return
        try:
            _run_in_processes(run, configs, left, jobs, bar)
        except TerminatedWorkerError:
            # A process was killed, and with it all that ran at the time: those that are not
            # recorded run once more, each alone, so that the one that is to blame is found.
            recorded = {entry["number"] for entry in records.all() if entry["session"] == session}
            for number in left:
                if number not in recorded:
                    _run_alone(run, configs, number, records, session, bar)


def record_trial(
    task: Task,
    number: int,
    config: Config,
    *,
    records: Records,
    scratch: Path,
    session: str,
    limit: float,
) -> None:
    """Run a trial, if there is time left, and record what came of it, or its exception."""
    if time.time() >= limit:
        return
    record: dict[str, Any] = {
        "number": number,
        "config": config,
        "started": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "host": socket.gethostname(),
        "session": session,
        "error": None,
    }
    folder = scratch / f"{number:05d}"
    curve: list[dict[str, float]] = []

    def keep(report: Report) -> None:
        curve.append(_point(report))

    try:
        outcome = run_trial(task, config, keep, folder=folder)
    except Exception as error:
        records.write(number, record | failure(error, curve))
        return
    records.write(number, record | {"status": "finished"} | outcome._asdict())
    shutil.rmtree(folder, ignore_errors=True)


def failure(error: BaseException, curve: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return what is recorded of a trial that an exception ended."""
    lines = traceback.format_exception_only(error)
    return {
        "status": "failed",
        "error": " ".join("".join(lines).split()),
        "score": None,
        "fold_scores": [],
        "curve": list(curve),
        "seconds": None,
    }


def _point(report: Report) -> dict[str, float]:
    return {"iteration": report.iteration, "fold": report.fold, "score": report.score}


def _run_in_processes(
    run: Callable[[int, Config], None],
    configs: Sequence[Config],
    numbers: Sequence[int],
    jobs: int,
    bar: tqdm,
) -> None:
    """Run trials in processes."""
    calls = (delayed(run)(number, configs[number]) for number in numbers)
    with warnings.catch_warnings():
        # Of joblib, about processes that end early: what they left undone is run again.
        warnings.filterwarnings("ignore", message="A worker stopped", category=UserWarning)
        pool = Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1)
        for _ in pool(calls):
            bar.update()


def _run_alone(
    run: Callable[[int, Config], None],
    configs: Sequence[Config],
    number: int,
    records: Records,
    session: str,
    bar: tqdm,
) -> None:
    """Run a trial in a process of its own; if that is killed, record it."""
    try:
        # With one job joblib would run it in this process: the second stays idle.
        _run_in_processes(run, configs, [number], 2, bar)
    except TerminatedWorkerError:
        error = MemoryError("The process of the trial was killed; it may have run out of memory.")
        blank = {"number": number, "config": configs[number], "session": session}
        blank |= {"started": None, "host": socket.gethostname()}
        records.write(number, blank | failure(error, []))
        bar.update()


@contextmanager
def _scratch(records: Records) -> Iterator[Path]:
    """Give a folder for unfinished trials: beside their records, if that is on this machine."""
    if records.local is not None:
        folder = records.local / "unfinished"
        yield folder
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        return
    with tempfile.TemporaryDirectory(prefix="mlrforecast-") as name:
        yield Path(name)


def _bar(settings: Settings, total: int, done: int) -> tqdm:
    return tqdm(
        total=total, initial=done, desc="Trials", unit="trial", disable=not settings.progress
    )
