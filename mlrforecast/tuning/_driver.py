"""What the driver of a sweep on Ray does: it makes the trials, and records what they cannot."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlrforecast._core.optional import import_optional
from mlrforecast.tuning._local import failure
from mlrforecast.tuning._space import plain
from mlrforecast.tuning._worker import Record, Sweep, blank_record, number_of, ray_tune

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
            known = sweep.records.read(number_of(self.trial_id))
            return bool(super().should_recover()) and not failed_by_itself(known, sweep.session)

    class AllTrials(ray_tune().search.SearchAlgorithm):  # type: ignore[misc]  # no types for ray
        """Trials in the order of their numbers, which are their names in Ray too.

        A process that ends a trial is given the next one. If it dies, or is not ready, before the
        next one has begun, Ray ends that one with an error, however often it may fail: it is made
        anew here, under another name, and goes on from its record.
        """

        def __init__(self) -> None:
            self._next = 0
            self._running: dict[str, Any] = {}
            self._replayed: dict[int, Record] = {}
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
            return self._finished or (self._next >= total and not self._lost())

        def next_trial(self) -> Any:
            """Make a lost trial anew, or the next one, unless so many run already."""
            if self.is_finished():
                return None
            for lost in self._lost():
                if _failures_left(lost) >= 0:
                    return self._make_anew(lost)
                self.on_trial_complete(lost.trial_id, error=True)
            if self._next >= total or len(self._running) == max_concurrent:
                return None
            config = self._config(self._next)
            if config == "FINISHED":
                self.set_finished()
            if config is None or self._finished:
                return None
            name = _name_of(self._next)
            self._next += 1
            config = {key: plain(value, key) for key, value in config.items()}
            return self._make(name, config, self._spec["max_failures"])

        def on_trial_result(self, trial_id: str, result: Config) -> None:
            """Tell the searcher a score on the way."""
            number = number_of(trial_id)
            if searcher is not None and number not in self._replayed:
                searcher.on_trial_result(_name_of(number), result)

        def on_trial_complete(
            self, trial_id: str, result: Config | None = None, error: bool = False
        ) -> None:
            """Record the end of a trial, and tell the searcher."""
            trial = self._running[trial_id]
            if error and trial.status == trial.PENDING and _failures_left(trial) >= 0:
                # Lost before it began: `next_trial` makes it anew.
                return
            del self._running[trial_id]
            if error:
                self._recorder.record_death(trial)
            else:
                self._recorder.record_stop(trial)
            if searcher is None:
                return
            number = number_of(trial_id)
            known = self._replayed.get(number)
            if known is None:
                searcher.on_trial_complete(_name_of(number), result, error)
            elif result is not None:
                with suppress(NotImplementedError):
                    searcher.add_evaluated_point(known["config"], result["score"])

        def _config(self, number: int) -> Any:
            """Return the parameters of a trial: those that it had, given ones, or new ones."""
            known = sweep.records.read(number)
            if known is not None:
                self._replayed[number] = known
                return known["config"]
            return configs[number] if configs is not None else searcher.suggest(_name_of(number))

        def _lost(self) -> list[Any]:
            """Return the trials that Ray ended before they began."""
            return [trial for trial in self._running.values() if trial.status == trial.ERROR]

        def _make_anew(self, lost: Any) -> Any:
            """Return a trial for one that was lost, with the parameters of its record."""
            del self._running[lost.trial_id]
            first, _, times = lost.trial_id.partition("-")
            known = sweep.records.read(number_of(first))
            config = lost.config if known is None else known["config"]
            return self._make(f"{first}-{int(times or 0) + 1}", config, _failures_left(lost))

        def _make(self, name: str, config: Config, max_failures: int) -> Any:
            """Return a trial of Ray, which counts as running."""
            spec = self._spec
            self._running[name] = OneTrial(
                spec["run"],
                config=config,
                trial_id=name,
                evaluated_params=dict(config),
                experiment_tag=name,
                stopping_criterion=spec["stop"],
                checkpoint_config=spec["checkpoint_config"],
                max_failures=max_failures,
                storage=spec["storage"],
                trial_name_creator=_id_of,
                trial_dirname_creator=_id_of,
            )
            return self._running[name]

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
        number = number_of(trial.trial_id)
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


def _failures_left(trial: Any) -> int:
    """Return how often a trial that was lost before it began may fail after that.

    Ray counts the death of a process twice that was being given the trial.
    """
    return int(trial.max_failures - max(1, trial.num_failures - 1))


def _name_of(number: int) -> str:
    """Return the name of a trial, if it is not made anew."""
    return f"{number:05d}"


def _id_of(trial: Any) -> str:
    """Return the identifier of a trial, which is its name."""
    return str(trial.trial_id)
