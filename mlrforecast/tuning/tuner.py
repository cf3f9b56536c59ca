"""The one door to sweeps."""

import json
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from os import PathLike, fspath
from typing import Any

from sklearn.base import clone

from mlrforecast._core.errors import TuningError
from mlrforecast._core.optional import import_optional
from mlrforecast._version import __version__
from mlrforecast.data import default_season_length
from mlrforecast.estimators import MLRForecaster
from mlrforecast.estimators.folds import plan_folds, read_training_panel
from mlrforecast.tuning import _space
from mlrforecast.tuning._local import run_local
from mlrforecast.tuning._records import SWEEP, Records
from mlrforecast.tuning._settings import Settings, to_seconds
from mlrforecast.tuning._trial import Task
from mlrforecast.tuning.presets import presets
from mlrforecast.tuning.result import TuneResult, to_frames

__all__ = ["tune"]

Config = dict[str, Any]

NOT_OF_THE_SWEEP = ("accelerator", "progress")
"""Parameters of the estimator that may differ when a sweep goes on."""


def tune(
    forecaster: MLRForecaster,
    X: object,
    space: Mapping[str, Any] | str | None = None,
    *,
    num_samples: int = 20,
    metric: str = "MASE",
    folds: int = 3,
    windows: int | None = None,
    step: int | None = None,
    reports: int = 4,
    seed: int = 0,
    executor: str = "ray",
    scheduler: Any = "fifo",
    searcher: Any = "random",
    max_concurrent: int | None = None,
    resources: Mapping[str, float] | None = None,
    address: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    storage_path: str | PathLike[str] | None = None,
    resume: bool = False,
    max_failures: int = 2,
    max_time: timedelta | float | None = None,
    refit: bool = True,
    progress: bool = True,
) -> TuneResult:
    """Search the parameters of an estimator, on this machine or on a Ray cluster.

    A trial is a copy of the estimator with some of its parameters changed. For each of some folds
    in the newest rows it is trained on the rows before the fold alone, and scored on forecasts in
    it. The parameters with the lowest mean score are fitted once more, on all rows.

    Parameters
    ----------
    forecaster : MLRForecaster
        The estimator; it stays as it is. What the space does not name is the same in all trials.
    X : DataFrame, Series or ndarray
        The frame that ``fit`` would be given. It is read once, and shared by all trials.
    space : mapping of str to object, or str, optional
        Name of a parameter -> what is searched: a domain of Ray, such as
        ``ray.tune.loguniform(1e-4, 1e-2)``; a list, as a choice; a frozen distribution of
        scipy.stats; or a grid, ``{"grid_search": [...]}``. Or the name of a preset, whose space
        is taken, see :data:`mlrforecast.tuning.presets`. Default: that of :func:`default_space`.
    num_samples : int
        Trials; with a grid, trials for each point of it.
    metric : {"MASE", "MAE", "MSE", "RMSE", "sMAPE", "CRPS", "WQL"}
        What is to be small. Scores of quantiles are those of the ``quantile_levels`` of
        ``forecaster``.
    folds : int
        Folds of a trial.
    windows : int, optional
        Forecasts of each series in a fold. Default: at most 20 that lie in the newest quarter of
        the longest series, all folds together; at least one.
    step : int, optional
        Rows from one of them to the next. Default: ``prediction_length`` if ``windows`` is given,
        otherwise what spreads them evenly.
    reports : int
        Scores that a trial tells in the course of each fold, the last one included. A scheduler
        compares trials at equal numbers of reports.
    seed : int
        Of the draws from the space.
    executor : {"ray", "local"}
        ``"ray"``: Ray Tune, on this machine or on a cluster. ``"local"``: the same trials without
        Ray.
    scheduler : {"fifo", "asha", "hyperband", "pbt", "median"} or ray.tune.schedulers.TrialScheduler
        What stops bad trials early. ``"pbt"`` (population-based training) has them go on from the
        weights of better ones with other training parameters, such as the learning rate.
    searcher : str or ray.tune.search.Searcher
        ``"random"``: all configurations are drawn at the start, the same ones whatever the
        executor and the scheduler. Or ``"optuna"``, ``"hyperopt"`` and the others that Ray knows,
        which learn from the trials; each needs its package.
    max_concurrent : int, optional
        Trials at a time. Default: as many as ``resources`` allow on Ray, otherwise 1. With
        ``executor="local"`` more than 1 run in processes of their own.
    resources : mapping of str to float, optional
        What a trial takes, such as ``{"cpu": 2, "gpu": 0.25}``. Default: ``{"cpu": 1}``.
    address : str, optional
        The cluster: ``"auto"`` for the one that this machine belongs to, ``"host:port"``, or
        ``"ray://host:10001"`` for a client of it. Default: the Ray that is initialised, otherwise
        one of this machine for the time of the sweep.
    runtime_env : mapping of str to object, optional
        Ray's runtime environment of the trials, such as ``{"pip": ["mlrforecast.whl"]}``.
    storage_path : path or str, optional
        Folder of this sweep, or address that fsspec knows, such as ``"s3://bucket/sweep"``; all
        nodes of a cluster must reach it. Needed with ``address``. Default: a temporary folder
        that goes at the end.
    resume : bool
        Whether to go on with the sweep in ``storage_path``: trials that have finished are kept,
        those that failed are run again. The data and the settings of the search must be the same,
        but ``num_samples`` may be larger: the trials that there are keep their places.
    max_failures : int
        How often a trial is started again after its process or node died. Trials that raise an
        error are not.
    max_time : timedelta or float, optional
        Longest time of the sweep; a number is in seconds. No trial begins after it; on Ray those
        that are running are stopped.
    refit : bool
        Whether the best parameters are fitted on the whole frame.
    progress : bool
        Whether progress is shown, on the error stream: Ray's own table, or a bar.

    Returns
    -------
    TuneResult
        The best estimator, a tidy frame of trials, and Ray's own results.

    Raises
    ------
    ValueError, TypeError
        If an argument, or a configuration that was drawn, cannot be used. Nothing has been trained
        then.
    DataError
        If the frame breaks a rule, or no series is long enough for the folds.
    TuningError
        If no trial finished; it says what became of them.
    MissingDependencyError
        If Ray, or the package of a searcher, is not installed.
    ConnectionError
        If there is no Ray cluster at ``address``.
    KeyboardInterrupt
        If the user stopped it: with a ``storage_path``, ``resume=True`` goes on.

    Examples
    --------
    >>> from mlrforecast import MLRForecaster, load_dataset
    >>> frame = load_dataset("synthetic").targets
    >>> result = tune(
    ...     MLRForecaster(prediction_length=24, max_steps=2, progress=False),
    ...     frame,
    ...     {"width": [8, 16]},
    ...     num_samples=2,
    ...     folds=1,
    ...     executor="local",
    ...     progress=False,
    ... )
    >>> result.trials[["trial", "status"]].sort_values("trial").values.tolist()
    [[0, 'finished'], [1, 'finished']]
    """
    if isinstance(space, str):
        if space not in presets:
            raise ValueError(f"`space` must be a preset, {', '.join(presets)}, got {space!r}.")
        space = presets[space].space
    with _storage(storage_path, address, resume=resume) as storage:
        settings = Settings(
            num_samples=num_samples,
            metric=metric,
            folds=folds,
            windows=windows,
            step=step,
            reports=reports,
            seed=seed,
            executor=executor,
            scheduler=scheduler,
            searcher=searcher,
            max_concurrent=max_concurrent,
            resources={"cpu": 1} if resources is None else dict(resources),
            address=address,
            runtime_env=runtime_env,
            storage_path=storage,
            resume=resume,
            max_failures=max_failures,
            max_time=to_seconds(max_time),
            progress=progress,
        )
        if executor == "ray":
            import_optional("ray.tune", extra="tune", purpose="A sweep on Ray")
        if space is not None:
            _space.check_space(space, forecaster)
        task, space = _prepare(forecaster, X, space, settings)
        configs = None
        if searcher == "random":
            configs = _space.draw(space, num_samples, seed)
            _check_configs(task, configs)
        records = Records(storage)
        _begin(records, _describe(task, space, settings), resume=resume)
        with _advice_on_interrupt(settings, kept=storage_path is not None):
            grid = _run(task, configs, space, settings, records)
        result = _result(task, records, tuple(space), grid)
    shown = progress and bool(forecaster.progress)
    return _refitted(result, task, X, progress=shown) if refit else result


def _run(
    task: Task,
    configs: list[Config] | None,
    space: Mapping[str, Any],
    settings: Settings,
    records: Records,
) -> Any:
    """Run the trials that are not done, by the executor of the settings; return Ray's results."""
    session = secrets.token_hex(8)
    if settings.executor == "local":
        assert configs is not None
        run_local(task, configs, settings, records, session=session)
        return None
    from mlrforecast.tuning._ray import run_ray

    return run_ray(task, configs, space, settings, records, session=session)


def _prepare(
    forecaster: MLRForecaster, X: object, space: Mapping[str, Any] | None, settings: Settings
) -> tuple[Task, Mapping[str, Any]]:
    """Read the data and cut the folds; return what trials share, and the space."""
    copied = clone(forecaster).set_params(
        progress=False, logger=None, log_dir=None, checkpoint_dir=None, warm_start=False
    )
    panel, _ = read_training_panel(copied, X)
    if not panel.storage.in_memory:
        raise ValueError(
            "`X` must be a frame: the trials of a sweep share it in memory, and a FileDataset is "
            "read from files. Tune on some of its series."
        )
    if space is None:
        space = _space.default_space(copied, panel)
    lengths = _space.grid_values(space.get("prediction_length")) or [copied.prediction_length]
    season = copied.season_length or default_season_length(panel.freq)
    plans = {
        int(length): plan_folds(
            panel,
            int(length),
            folds=settings.folds,
            windows=settings.windows,
            step=settings.step,
            season_length=season,
        )
        for length in lengths
    }
    task = Task(
        panel=panel,
        forecaster=copied,
        plans=plans,
        metric=settings.metric,
        quantile_levels=tuple(float(level) for level in copied.quantile_levels),
        season_length=season,
        reports=settings.reports,
        threads=settings.threads,
    )
    return task, space


def _check_configs(task: Task, configs: Sequence[Config]) -> None:
    """Refuse configurations that no fit would accept, before any is trained."""
    checked = set()
    for config in configs:
        known = json.dumps(config, sort_keys=True, default=str)
        if known in checked:
            continue
        checked.add(known)
        try:
            task.scorer.check(task.configured(config))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"`space` holds a configuration that cannot be used, {config}: {error}"
            ) from error


def _describe(task: Task, space: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return what makes a sweep what it is, as JSON holds it."""
    parameters = task.forecaster.get_params(deep=False)
    kept = {name: value for name, value in parameters.items() if name not in NOT_OF_THE_SWEEP}
    names = ("num_samples", "metric", "folds", "windows", "step", "reports", "seed")
    searched = {name: getattr(settings, name) for name in names}
    for name in ("scheduler", "searcher"):
        value = getattr(settings, name)
        searched[name] = value if isinstance(value, str) else type(value).__name__
    return {
        "version": __version__,
        "data": task.panel.digest(),
        "space": _space.describe(space),
        "settings": searched,
        "forecaster": {name: repr(value) for name, value in sorted(kept.items())},
    }


def _begin(records: Records, description: dict[str, Any], *, resume: bool) -> None:
    """Note what the sweep is, or check that it is the one that is to go on."""
    description = json.loads(json.dumps(description))
    if not resume:
        records.write_sweep(description)
        return
    begun = records.read_sweep()
    if begun is None:
        raise ValueError(
            f"`resume` needs a sweep in `storage_path`, but {records.storage_path!r} has no "
            f"{SWEEP}."
        )
    for name, before, now in _differences(begun, description):
        if name == "settings.num_samples" and now > before:
            records.write_sweep(description)
            continue
        raise ValueError(
            f"`resume` needs the sweep as it was begun, but {name} was {before!r} and is {now!r}."
        )


def _differences(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs between two descriptions: its name, and both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before | now:
            path = f"{name}.{key}" if name else key
            yield from _differences(before.get(key), now.get(key), path)
    elif before != now:
        yield name, before, now


@contextmanager
def _storage(
    storage_path: str | PathLike[str] | None, address: str | None, *, resume: bool
) -> Iterator[str]:
    """Give the folder of the sweep: that which was named, or one that goes at the end."""
    if storage_path is not None:
        if not fspath(storage_path):
            raise ValueError("`storage_path` must name a folder, got an empty text.")
        path = fspath(storage_path)
        if not resume and not Records(path).is_empty():
            raise ValueError(
                f"`storage_path` {path!r} is not empty. Name a new folder, or go on with the sweep "
                "in it by resume=True."
            )
        yield path
        return
    if resume:
        raise ValueError("`resume` needs the `storage_path` of the sweep that is to go on.")
    if address is not None:
        raise ValueError(
            f"`storage_path` is needed with `address`={address!r}: a folder or an address that all "
            "nodes of the cluster reach."
        )
    with tempfile.TemporaryDirectory(prefix="mlrforecast-") as folder:
        yield folder


@contextmanager
def _advice_on_interrupt(settings: Settings, *, kept: bool) -> Iterator[None]:
    """Say how an interrupted sweep goes on."""
    try:
        yield
    except KeyboardInterrupt as error:
        if not kept:
            raise
        raise KeyboardInterrupt(
            f"The sweep was stopped. tune(..., storage_path={settings.storage_path!r}, "
            "resume=True) goes on with it."
        ) from error


def _result(task: Task, records: Records, parameters: tuple[str, ...], grid: Any) -> TuneResult:
    """Put the records together; a TuningError if no trial finished."""
    trials, curves = to_frames(records.all(), parameters, task.folds)
    done = trials[trials["status"] == "finished"]
    if done.empty:
        reasons = trials["error"].dropna()
        first = ""
        if len(reasons):
            row = trials.loc[reasons.index[0]]
            told = ", ".join(f"{name}={row[name]}" for name in parameters)
            first = f"; trial {row['trial']} with {told}: {reasons.iloc[0]}"
        counts = ", ".join(
            f"{count} {status}" for status, count in trials["status"].value_counts().items()
        )
        raise TuningError(f"No trial finished ({counts or 'none was started'}){first}")
    configs = {record["number"]: record["config"] for record in records.all()}
    best: dict[int, Config] = {}
    for number in done["trial"]:
        config = configs[number]
        length = int(config.get("prediction_length", task.forecaster.prediction_length))
        best.setdefault(length, config)
    return TuneResult(
        trials=trials,
        curves=curves,
        metric=task.metric,
        parameters=parameters,
        best_configs=dict(sorted(best.items())),
        best_estimators={
            length: task.configured(config) for length, config in sorted(best.items())
        },
        result_grid=grid,
    )


def _refitted(result: TuneResult, task: Task, X: object, *, progress: bool) -> TuneResult:
    """Fit the best estimators on the whole frame."""
    for estimator in result.best_estimators.values():
        estimator.set_params(progress=progress).fit(X)
    return result
