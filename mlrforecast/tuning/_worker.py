"""What a trial does in a process of Ray."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlrforecast._core.optional import import_optional
from mlrforecast.tuning._local import failure
from mlrforecast.tuning._records import Records
from mlrforecast.tuning._trial import Report, Task, TrialState, run_trial

Record = dict[str, Any]

DONE = ("finished", "stopped")
"""What a trial may have come to that is not run again."""
_SECONDS_TO_END = "60"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What each trial of a session needs to know of the sweep, beside the task.

    Parameters
    ----------
    records : Records
        What is known of the trials. It decides what is still to be done, whatever Ray remembers.
    filesystem : pyarrow.fs.FileSystem
        Where the folder of the sweep lies.
    root : str
        The folder there.
    session : str
        Which run of the sweep this is.
    replay : bool
        Whether the scheduler is told all reports of an earlier session, otherwise the last alone.
    """

    records: Records
    filesystem: Any
    root: str
    session: str
    replay: bool


def ray_tune() -> Any:
    """Return the module ``ray.tune``."""
    return import_optional("ray.tune", extra="tune", purpose="A sweep on Ray")


def run_on_ray(config: Mapping[str, Any], *, task: Task, sweep: Sweep) -> None:
    """Run the trial of this process, go on with it, or tell once more what came of it.

    Parameters
    ----------
    config : mapping of str to object
        Parameters of the estimator.
    task : Task
        What all trials share.
    sweep : Sweep
        The sweep. A trial that its records call finished is never trained again.
    """
    tune = ray_tune()
    # Ray gives up the next trial of this process if this one does not end in time, by default 2 s.
    os.environ.setdefault("TUNE_FUNCTION_THREAD_TIMEOUT_S", _SECONDS_TO_END)
    number = number_of(tune.get_context().get_trial_id())
    known = sweep.records.read(number)
    if known is not None and known["status"] in DONE:
        for point in known["curve"] if sweep.replay else known["curve"][-1:]:
            tune.report(dict(point))
        return
    trial = _Trial(number, dict(config), task, sweep)
    # Ray's working directory of a trial lies in the folder of the session, and goes with it.
    with TemporaryDirectory(prefix="trial-", dir=Path.cwd(), ignore_cleanup_errors=True) as name:
        folder = Path(name)
        checkpoint = tune.get_checkpoint()
        if checkpoint is not None:
            # Of this session: the process died or was paused, or the weights are another trial's.
            trial.take(checkpoint.path, folder)
        elif known is not None and known["status"] == "unfinished" and known["checkpoint"]:
            trial.take(f"{sweep.root}/{known['checkpoint']}", folder)
            for point in trial.record["curve"] if sweep.replay else []:
                tune.report(dict(point))
        trial.run(folder)


class _Trial:
    """One trial in a process of Ray, which keeps its own record.

    Parameters
    ----------
    number : int
        Its number.
    config : dict
        Parameters of the estimator.
    task : Task
        What all trials share.
    sweep : Sweep
        The sweep.
    """

    def __init__(self, number: int, config: dict[str, Any], task: Task, sweep: Sweep) -> None:
        self.number, self.task, self.sweep = number, task, sweep
        self.record = blank_record(number, config, sweep.session)
        self.record |= {
            "started": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "host": socket.gethostname(),
        }

    def take(self, path: str, folder: Path) -> None:
        """Fetch a checkpoint into a folder; what cannot be read leaves the folder empty.

        The trial begins anew then: the same result, later.
        """
        fs = import_optional("pyarrow.fs", extra="tune", purpose="A sweep on Ray")
        try:
            fs.copy_files(path, str(folder), source_filesystem=self.sweep.filesystem)
            state = TrialState.read(folder)
        except (OSError, ValueError, TypeError):
            for file in folder.iterdir():
                file.unlink()
            return
        self.record |= {
            "curve": state.curve,
            "seconds": state.seconds,
            "checkpoint": path.removeprefix(f"{self.sweep.root}/"),
        }

    def run(self, folder: Path) -> None:
        """Train and score, and record what came of it before Ray is told."""
        self._write()
        self._begin = time.monotonic() - self.record["seconds"]
        try:
            outcome = run_trial(self.task, self.record["config"], self._tell, folder=folder)
        except Exception as error:
            with suppress(OSError):
                # On a full disk it is the driver that records the reason.
                self._write(**failure(error, self.record["curve"]))
            raise
        self._write(status="finished", **outcome._asdict())
        ray_tune().report(dict(outcome.curve[-1]))

    def _tell(self, report: Report) -> None:
        """Report a score and a checkpoint to Ray; the last score waits until it is recorded."""
        tune = ray_tune()
        point = {"iteration": report.iteration, "fold": report.fold, "score": report.score}
        self.record["curve"] = [*self.record["curve"], point]
        if report.iteration == self.task.max_iteration:
            return
        tune.report(dict(point), checkpoint=tune.Checkpoint.from_directory(report.folder))
        path = tune.get_checkpoint().path
        self._write(
            score=report.score,
            seconds=time.monotonic() - self._begin,
            checkpoint=path.removeprefix(f"{self.sweep.root}/"),
        )

    def _write(self, **changes: Any) -> None:
        """Record the trial as it is now."""
        self.record |= changes
        self.sweep.records.write(self.number, self.record)


def number_of(trial_id: str) -> int:
    """Return the number of a trial from its name in Ray, which has an appendix if it is made anew.

    Examples
    --------
    >>> number_of("00012"), number_of("00012-1")
    (12, 12)
    """
    return int(trial_id.partition("-")[0])


def blank_record(number: int, config: dict[str, Any], session: str) -> Record:
    """Return the record of a trial that nothing is known of but its parameters."""
    return {
        "number": number,
        "config": config,
        "status": "unfinished",
        "score": None,
        "fold_scores": [],
        "curve": [],
        "seconds": 0.0,
        "started": None,
        "host": None,
        "error": None,
        "session": session,
        "checkpoint": None,
    }
