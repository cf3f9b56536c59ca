"""What the driver of a sweep on Ray does: it makes the trials, and records what they cannot."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlrforecast._core.optional import import_optional
from mlrforecast.tuning._local import failure
from mlrforecast.tuning._space import plain
from mlrforecast.tuning._worker import Record, Sweep, blank_record, ray_tune

Config = dict[str, Any]


def make_trials(
    sweep: Sweep,
    configs: Sequence[Config] | None,
    searcher: Any,
    *,
    total: int,
    max_concurrent: int | None,
) -> Any:
    """Return the search algorithm that makes the trials of a sweep, and hears of their end.

    Parameters
    ----------
    sweep : Sweep
        The sweep; a trial that is known keeps the parameters that it had.
    configs : sequence of dict, optional
        Parameters of each trial.
    searcher : ray.tune.search.Searcher, optional
        What is asked for them otherwise. It learns from earlier sessions too, if it can.
    total : int
        Trials in all.
    max_concurrent : int, optional
        Trials at a time.

    Returns
    -------
    ray.tune.search.SearchAlgorithm
        For ``ray.tune.TuneConfig``.
    """

    # Classes of Ray are extended in here, because Ray is loaded when it is used.
    class OneTrial(ray_tune().experiment.Trial):  # type: ignore[misc]  # no types for ray
        """A trial that is not repeated if it failed by an error of its own."""

        def should_recover(self) -> bool:
            """Tell whether another attempt may come to something else."""
            known = sweep.records.read(int(self.trial_id))
            return bool(super().should_recover()) and not failed_by_itself(known, sweep.session)

    class AllTrials(ray_tune().search.SearchAlgorithm):  # type: ignore[misc]  # no types for ray
        """Trials in the order of their numbers, which are their names in Ray too."""

        def __init__(self) -> None:
            self._next = 0
            self._running: dict[str, Any] = {}
            self._replayed: dict[str, Record] = {}
            self._recorder = Recorder(sweep)

        @property
        def total_samples(self) -> int:
            """Trials in all."""
            return total

        def add_configurations(self, experiments: Any) -> None:
            """Remember how a trial is made."""
            self._spec = experiments[0].spec

        def is_finished(self) -> bool:
            """Tell whether all trials have been made."""
            self._recorder.write_again()
            return self._finished or self._next >= total

        def next_trial(self) -> Any:
            """Make the next trial, unless so many run already."""
            if self.is_finished() or len(self._running) == max_concurrent:
                return None
            name = f"{self._next:05d}"
            config = self._config(name)
            if config == "FINISHED":
                self.set_finished()
            if config is None or self._finished:
                return None
            self._next += 1
            config = {key: plain(value, key) for key, value in config.items()}
            self._running[name] = self._make(name, config)
            return self._running[name]

        def on_trial_result(self, trial_id: str, result: Config) -> None:
            """Tell the searcher a score on the way."""
            if searcher is not None and trial_id not in self._replayed:
                searcher.on_trial_result(trial_id, result)

        def on_trial_complete(
            self, trial_id: str, result: Config | None = None, error: bool = False
        ) -> None:
            """Record the end of a trial, and tell the searcher."""
            trial = self._running.pop(trial_id)
            if error:
                self._recorder.record_death(trial)
            else:
                self._recorder.record_stop(trial)
            if searcher is None:
                return
            known = self._replayed.get(trial_id)
            if known is None:
                searcher.on_trial_complete(trial_id, result, error)
            elif result is not None:
                with suppress(NotImplementedError):
                    searcher.add_evaluated_point(known["config"], result["score"])

        def _config(self, name: str) -> Any:
            """Return the parameters of a trial: those that it had, given ones, or new ones."""
            known = sweep.records.read(int(name))
            if known is not None:
                self._replayed[name] = known
                return known["config"]
            return configs[int(name)] if configs is not None else searcher.suggest(name)

        def _make(self, name: str, config: Config) -> Any:
            """Return a trial of Ray."""
            spec = self._spec
            return OneTrial(
                spec["run"],
                config=config,
                trial_id=name,
                evaluated_params=dict(config),
                experiment_tag=name,
                stopping_criterion=spec["stop"],
                checkpoint_config=spec["checkpoint_config"],
                max_failures=spec["max_failures"],
                storage=spec["storage"],
                trial_name_creator=_name_of,
                trial_dirname_creator=_name_of,
            )

    return AllTrials()


class Recorder:
    """Records what trials cannot: that they were stopped, or died.

    Parameters
    ----------
    sweep : Sweep
        The sweep.
    """

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._unwritten: dict[int, Record] = {}

    def record_stop(self, trial: Any) -> None:
        """Record a trial that has ended, if it has not done so: a scheduler stopped it."""
        record = self._known(trial)
        if record["status"] != "unfinished":
            return
        last = {key: trial.last_result.get(key) for key in ("iteration", "fold", "score")}
        if last["score"] is not None and last not in record["curve"]:
            record["curve"] = [*record["curve"], last]
        score = record["curve"][-1]["score"] if record["curve"] else None
        seconds = max(record["seconds"], trial.last_result.get("time_total_s", 0))
        self._write(record | {"status": "stopped", "score": score, "seconds": seconds})

    def record_death(self, trial: Any) -> None:
        """Record a trial whose process died, or that could not record its own error."""
        record = self._known(trial)
        if record["status"] == "finished" or failed_by_itself(record, self._sweep.session):
            return
        changes = failure(_read_error(trial), record["curve"])
        changes |= {"error": _shortened(changes["error"]), "seconds": record["seconds"]}
        self._write(record | changes)

    def write_again(self) -> None:
        """Write what could not be written; what still cannot be waits on."""
        waiting, self._unwritten = self._unwritten, {}
        for record in waiting.values():
            self._write(record)

    def _known(self, trial: Any) -> Record:
        """Return the record of a trial, or what it would be at its start."""
        number = int(trial.trial_id)
        blank = blank_record(number, dict(trial.config), self._sweep.session)
        return self._sweep.records.read(number) or blank

    def _write(self, record: Record) -> None:
        """Write a record of this session; on a full disk it waits, and the sweep goes on."""
        record = record | {"session": self._sweep.session}
        try:
            self._sweep.records.write(record["number"], record)
        except OSError:
            self._unwritten[record["number"]] = record


def failed_by_itself(record: Mapping[str, Any] | None, session: str) -> bool:
    """Tell whether a trial has recorded in this session that it raised an error."""
    return record is not None and record["status"] == "failed" and record["session"] == session


def _read_error(trial: Any) -> BaseException:
    """Return the error that Ray kept of a trial: the trial's own, or one about its process."""
    cloudpickle = import_optional("ray.cloudpickle", extra="tune", purpose="A sweep on Ray")
    error: BaseException = RuntimeError("The process of the trial ended, and Ray kept no reason.")
    if trial.pickled_error_file is not None:
        with suppress(OSError):
            error = cloudpickle.loads(Path(trial.pickled_error_file).read_bytes())
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error


_NOISE = re.compile(
    r"class_name: .*? ip: \S+ |Node Id: \w+ |Worker exit type: \S+ Worker exit detail: "
    r"| Some common causes include.*"
)
"""What Ray tells of a dead process that helps nobody who reads a table."""


def _shortened(reason: str) -> str:
    """Return Ray's account of a dead process in a line that can be read."""
    text = _NOISE.sub("", reason)
    if "worker process has died" in text:
        text = f"{text} It was killed, or the machine had no memory left."
    return text


def _name_of(trial: Any) -> str:
    """Return the number of a trial, which is its name."""
    return str(trial.trial_id)
