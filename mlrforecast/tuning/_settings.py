"""How a sweep is run, checked before anything is."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from numbers import Integral
from typing import Any

from mlrforecast.estimators.folds import METRICS

EXECUTORS = ("ray", "local")
SCHEDULERS = ("fifo", "asha", "hyperband", "pbt", "median")
"""Names of schedulers; those of searchers are Ray's own."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The keyword arguments of :func:`mlrforecast.tuning.tune`, checked.

    Parameters
    ----------
    num_samples, metric, folds, windows, step, reports, seed, executor, scheduler, searcher, \
max_concurrent, resources, address, runtime_env, storage_path, resume, max_failures, max_time, \
progress
        As in :func:`mlrforecast.tuning.tune`; ``storage_path`` is a folder or an address, never
        None.
    """

    num_samples: int
    metric: str
    folds: int
    windows: int | None
    step: int | None
    reports: int
    seed: int
    executor: str
    scheduler: Any
    searcher: Any
    max_concurrent: int | None
    resources: Mapping[str, Any]
    address: str | None
    runtime_env: Mapping[str, Any] | None
    storage_path: str
    resume: bool
    max_failures: int
    max_time: float | None
    progress: bool

    def __post_init__(self) -> None:
        for name in ("num_samples", "folds", "reports"):
            check_whole(name, getattr(self, name), least=1)
        for name in ("windows", "step", "max_concurrent"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), least=1)
        for name in ("seed", "max_failures"):
            check_whole(name, getattr(self, name), least=0)
        if self.seed >= 2**32:
            raise ValueError(f"`seed` must be below 2**32, got {self.seed}.")
        _check_name("metric", self.metric, METRICS)
        _check_name("executor", self.executor, EXECUTORS)
        if isinstance(self.scheduler, str):
            _check_name("scheduler", self.scheduler, SCHEDULERS)
        self._check_resources()
        if self.executor == "local":
            self._check_local()

    def _check_resources(self) -> None:
        if not isinstance(self.resources, Mapping):
            raise TypeError(
                f"`resources` must be a mapping such as {{'cpu': 1, 'gpu': 0.5}}, got "
                f"{self.resources!r}."
            )
        for name, amount in self.resources.items():
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not amount >= 0:
                raise ValueError(f"`resources` must not be negative, got {amount!r} of {name!r}.")

    def _check_local(self) -> None:
        """Refuse what only Ray can do."""
        alone = {
            "scheduler": ("fifo", self.scheduler),
            "searcher": ("random", self.searcher),
            "address": (None, self.address),
            "runtime_env": (None, self.runtime_env),
        }
        for name, (only, given) in alone.items():
            if given != only:
                raise ValueError(
                    f"`{name}`={given!r} needs executor='ray'; executor='local' can have "
                    f"{name}={only!r} only."
                )
        if others := sorted(set(self.resources) - {"cpu"}):
            raise ValueError(
                f"`resources` of executor='local' must hold 'cpu' alone, the threads of a trial; "
                f"got {others[0]!r}."
            )

    @property
    def threads(self) -> int:
        """Threads of a trial."""
        return max(1, int(self.resources.get("cpu", 1)))


def check_whole(name: str, value: Any, *, least: int) -> None:
    """Refuse what is no whole number, or too small."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be a whole number, got {value!r}.")
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}, got {value}.")


def to_seconds(max_time: timedelta | float | None) -> float | None:
    """Return a time limit in seconds, or refuse it."""
    if max_time is None:
        return None
    seconds: Any = max_time.total_seconds() if isinstance(max_time, timedelta) else max_time
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"`max_time` must be a timedelta or seconds, got {max_time!r}.")
    if not 0 < seconds < float("inf"):
        raise ValueError(f"`max_time` must be positive and finite, got {max_time!r}.")
    return float(seconds)


def _check_name(name: str, given: Any, known: tuple[str, ...]) -> None:
    if given not in known:
        raise ValueError(f"`{name}` must be one of {', '.join(known)}, got {given!r}.")
