"""Trials on Ray, on this machine or on a cluster.

The records of the trials are the memory of a sweep, not the state that Ray writes: a sweep that
goes on is a new experiment of Ray over the same records, in which trials that are done are told
once more and the others go on from their checkpoints.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import fsspec  # type: ignore[import-untyped]  # no types for fsspec
from fsspec.implementations.local import (  # type: ignore[import-untyped]
    LocalFileSystem,
)

from mlrforecast._core.cluster import connected, random_state_kept
from mlrforecast._core.optional import import_optional
from mlrforecast.tuning._driver import make_trials
from mlrforecast.tuning._records import Records
from mlrforecast.tuning._schedulers import COMPARING, PAUSING, make_scheduler
from mlrforecast.tuning._searchers import make_searcher
from mlrforecast.tuning._settings import Settings
from mlrforecast.tuning._trial import Task
from mlrforecast.tuning._worker import Sweep, ray_tune, run_on_ray

Config = dict[str, Any]

_FOLDER = "ray"
_ENVIRONMENT = {
    # The table of Ray that can be directed to the error stream.
    "RAY_AIR_NEW_OUTPUT": "0",
    # The loggers that Ray's results are read from. Where callbacks are passed, Ray imports mlflow,
    # wandb and others, to count them.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "RAY_TUNE_CALLBACKS": "ray.tune.logger.CSVLoggerCallback,ray.tune.logger.JsonLoggerCallback",
    # Errors stand in the records.
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
_WAITING = 16
"""Trials that may wait for resources, as an autoscaler sees them, if no searcher is to learn."""


def run_ray(
    task: Task,
    configs: Sequence[Config] | None,
    space: Mapping[str, Any],
    settings: Settings,
    records: Records,
    *,
    session: str,
) -> Any:
    """Run all trials that are not done, and record them.

    Parameters
    ----------
    task : Task
        What all trials share; it is put into the object store once.
    configs : sequence of dict, optional
        Parameters of each trial; None lets the searcher find them.
    space : mapping of str to object
        What is searched.
    settings : Settings
        How the sweep is run.
    records : Records
        What is known of the trials.
    session : str
        Which run of the sweep this is.

    Returns
    -------
    ray.tune.ResultGrid
        Ray's own results.

    Raises
    ------
    KeyboardInterrupt
        If the user stopped it; trials that had begun go on from their checkpoints in the next run.
    """
    tune = ray_tune()
    scheduler = make_scheduler(task, space, settings)
    known = records.all()
    searcher = None
    if configs is None:
        searcher = make_searcher(space, settings, known=len(known))
    total = settings.num_samples if configs is None else len(configs)
    filesystem, root = _storage(settings.storage_path)
    sweep = Sweep(
        records=records,
        filesystem=filesystem,
        root=root,
        session=session,
        replay=settings.scheduler in COMPARING,
    )
    pausing = settings.scheduler in PAUSING or not isinstance(settings.scheduler, str)
    waiting = _WAITING if searcher is None else 1
    environment = _ENVIRONMENT | {"TUNE_MAX_PENDING_TRIALS_PG": str(waiting)}
    with _variables(environment), _connected(settings, environment) as ray:
        trainable = tune.with_parameters(run_on_ray, task=task, sweep=sweep)
        tuner = tune.Tuner(
            tune.with_resources(trainable, dict(settings.resources)),
            tune_config=tune.TuneConfig(
                metric="score",
                mode="min",
                scheduler=scheduler,
                search_alg=make_trials(
                    sweep, configs, searcher, total=total, max_concurrent=settings.max_concurrent
                ),
                num_samples=total,
                time_budget_s=settings.max_time,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name=session,
                storage_path=f"{root}/{_FOLDER}",
                storage_filesystem=filesystem,
                failure_config=tune.FailureConfig(max_failures=settings.max_failures),
                # Another trial may take over the weights a while after they were written.
                checkpoint_config=tune.CheckpointConfig(
                    num_to_keep=task.reports + 2 if pausing else 2
                ),
                progress_reporter=_reporter(settings, tuple(space)) if settings.progress else None,
                verbose=int(settings.progress),
            ),
        )
        with _interrupts_raised(ray), random_state_kept():
            return tuner.fit()


def _storage(storage_path: str) -> tuple[Any, str]:
    """Return the file system of Arrow that holds the folder of a sweep, and the folder there."""
    fs = import_optional("pyarrow.fs", extra="tune", purpose="A sweep on Ray")
    system, root = fsspec.core.url_to_fs(storage_path)
    if isinstance(system, LocalFileSystem):
        return fs.LocalFileSystem(), root
    return fs.PyFileSystem(fs.FSSpecHandler(system)), root


@contextmanager
def _connected(settings: Settings, environment: Mapping[str, str]) -> Iterator[ModuleType]:
    """Connect to Ray; on a machine alone, refuse trials that it could never run."""
    runtime_env = settings.runtime_env
    if settings.address is not None and settings.address.startswith("ray://"):
        # The driver of a client is a process of the cluster.
        runtime_env = dict(runtime_env or {})
        runtime_env["env_vars"] = {**environment, **runtime_env.get("env_vars", {})}
    with connected(
        settings.address,
        runtime_env=runtime_env,
        quiet=not settings.progress,
        purpose="A sweep on Ray",
    ) as ray:
        if settings.address is None:
            there = ray.cluster_resources()
            for name, amount in settings.resources.items():
                most = there.get(name.upper() if name in ("cpu", "gpu") else name, 0)
                if amount > most:
                    raise ValueError(
                        f"`resources` ask for {amount:g} {name!r} for a trial, and the Ray that is "
                        f"connected has {most:g}."
                    )
        yield ray


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that the user has not set, for the length of a block."""
    new = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in new})
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


@contextmanager
def _interrupts_raised(ray: ModuleType) -> Iterator[None]:
    """Raise the KeyboardInterrupt that Ray Tune takes as a request to end.

    It does so in the main thread alone, and not for a client, whose driver is elsewhere.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or ray.util.client.ray.is_connected():
        yield
        return
    names = [name for name in ("SIGINT", "SIGUSR1") if hasattr(signal, name)]
    before = {name: signal.getsignal(getattr(signal, name)) for name in names}
    try:
        yield
        # Ray puts the handler back at the first signal, and leaves its own where none came.
        if signal.getsignal(signal.SIGINT) is before["SIGINT"]:
            raise KeyboardInterrupt
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def _reporter(settings: Settings, parameters: tuple[str, ...]) -> Any:
    """Return Ray's own table of trials, on the error stream."""

    class Reporter(ray_tune().CLIReporter):  # type: ignore[misc]  # no types for ray
        """The table on the error stream."""

        def _print(self, msg: str) -> None:
            sys.stderr.write(f"{msg}\n")

    return Reporter(
        metric_columns={"score": settings.metric, "iteration": "reports", "fold": "fold"},
        parameter_columns=list(parameters),
        print_intermediate_tables=True,
    )
