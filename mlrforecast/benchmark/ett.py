"""The ETT horizon benchmark: rolling-origin folds by default, the test windows once at the end."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
from tqdm.auto import tqdm  # type: ignore[import-untyped]  # no types for tqdm

from mlrforecast._core.provenance import command_line, num_cores
from mlrforecast._core.result_table import Row
from mlrforecast.benchmark._floors import FLOORS
from mlrforecast.benchmark._results import RESULTS, append_log, as_frame
from mlrforecast.benchmark._runs import (
    MODEL,
    SET_BY_RUN,
    Run,
    Task,
    check_options,
    execute,
    limit_threads,
    load_task,
    run_key,
    score_options,
    scores_of,
)
from mlrforecast.benchmark._splits import Split, num_windows
from mlrforecast.nn import attentions, option_names

__all__ = ["EttConfig", "run_ett"]


@dataclass(frozen=True, kw_only=True)
class EttConfig:
    """What the benchmark compares, and on which rows.

    Attributes
    ----------
    dataset : str, default "ETTh1"
        A data set of the catalogue, with the splits of its card.
    horizons : tuple of int, default (96, 192, 336, 720)
        Forecast lengths, one fit each.
    attention : tuple of str, default ("mlr", "standard")
        Attentions to compare, by name; the layers of a mix are joined by ``+``, as in
        ``"standard+sliding_window"``.
    seeds : int, default 3
        Fits of each setting, with the seeds 0, 1, ...
    target : str, optional
        The one column to forecast; all target columns by default.
    final : bool, default False
        Score the test windows, and log it, instead of the folds inside train and validation rows.
    root : path, optional
        Folder to look for the data set in.
    options : mapping of str to object, optional
        Further arguments of ``MLRForecaster``, e.g. ``{"max_steps": 500}``. Options of the
        attention, such as ``ranks`` or those in ``attention_options``, go to the attentions that
        have them.

    Raises
    ------
    ValueError
        If a list is empty or repeats itself, a number is below 1, an attention is unknown, an
        option is one that each run sets itself, or one that no attention has.

    Examples
    --------
    >>> EttConfig(horizons=(96,), seeds=1).attention
    ('mlr', 'standard')
    >>> EttConfig(seeds=0)
    Traceback (most recent call last):
    ...
    ValueError: `seeds` must be at least 1, got 0.
    """

    dataset: str = "ETTh1"
    horizons: tuple[int, ...] = (96, 192, 336, 720)
    attention: tuple[str, ...] = ("mlr", "standard")
    seeds: int = 3
    target: str | None = None
    final: bool = False
    root: str | os.PathLike[str] | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("horizons", "attention"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(
                    f"`{name}` must hold distinct entries, at least one, got {values}."
                )
        for name, number in (("seeds", self.seeds), ("horizons", min(self.horizons))):
            if number < 1:
                raise ValueError(f"`{name}` must be at least 1, got {number}.")
        names = [name for entry in self.attention for name in scores_of(entry)]
        if unknown := [name for name in names if name not in attentions]:
            raise ValueError(f"`attention` must hold names of {list(attentions)}, got {unknown}.")
        if taken := sorted(set(SET_BY_RUN) & set(self.options)):
            raise ValueError(f"`options` must not hold {taken}: each run sets them itself.")
        have = {option for name in names for option in option_names(attentions[name])}
        if idle := [option for option in score_options(self.options) if option not in have]:
            raise ValueError(
                f"`options` must be options of an attention that is compared; none of "
                f"{list(self.attention)} has {idle}."
            )


def run_ett(
    config: EttConfig,
    *,
    out: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    progress: bool = False,
) -> pd.DataFrame:
    """Run the benchmark, or what is left of it, and return its rows.

    Values are standardised by the train rows of each split; the scores are plain means over all
    windows of stride 1, steps and channels, in those units. The floors (repeat-last, seasonal
    naive of a day and a week, mean of the last seven daily profiles) are scored on the same
    windows.

    Parameters
    ----------
    config : EttConfig
        What to run.
    out : path, optional
        Folder of the result file ``<dataset>_<target or M>_<final or folds>.csv``: each run is
        appended as it ends, and a run that stands there is not repeated. Needed where
        ``config.final``, because the run is noted there in ``final_runs.log``.
    jobs : int, default 1
        Runs at a time, each in a process of its own with its share of the cores.
    progress : bool, default False
        Show a bar over the runs on standard error.

    Returns
    -------
    DataFrame
        One row per run of ``config``, earlier ones included, with the columns of the file.
        ``validation_mse`` is the error on the standard validation slice where the test was scored;
        on folds it equals ``mse``.

    Raises
    ------
    ValueError
        If ``config`` does not fit the data, an option is refused by ``MLRForecaster``, ``jobs`` is
        below 1, a final run has no ``out``, or the result file is damaged. Nothing has been
        logged, scored or written then.
    DatasetNotFoundError
        If the data file is nowhere to be had.

    Examples
    --------
    >>> config = EttConfig(dataset="synthetic", horizons=(24,), attention=("mlr",), seeds=1)
    >>> results = run_ett(config)  # doctest: +SKIP
    """
    if jobs < 1:
        raise ValueError(f"`jobs` must be at least 1, got {jobs}.")
    if config.final and out is None:
        raise ValueError("`out` must name a folder where `final`: the run is logged there.")
    folder = None if out is None else Path(out)
    task = _task(config, folder, jobs)
    runs = list(_runs(config, load_task(task)[1]))
    check_options(task, runs)
    keys = [RESULTS.key_of(run_key(task, run)) for run in runs]
    path = None if folder is None else folder / _file_name(config)
    known = {RESULTS.key_of(row): row for row in RESULTS.read(path)} if path else {}
    pending = [run for run, key in zip(runs, keys, strict=True) if key not in known]
    if config.final and pending and folder is not None:
        append_log(folder, _log_entry(config, task, runs, len(pending)))
    for row in tqdm(
        _execute_all(task, pending, jobs), total=len(pending), desc="runs", disable=not progress
    ):
        known[RESULTS.key_of(row)] = row
        if path:
            RESULTS.append(path, row)
    return as_frame([known[key] for key in keys])


def _runs(config: EttConfig, splits: Sequence[Split]) -> Iterator[Run]:
    """List every run: the floors, which cost nothing, then the models."""
    for horizon in config.horizons:
        for split in splits:
            num_windows(split.scored, horizon)
            for floor in FLOORS:
                yield Run(split=split, horizon=horizon, model=floor)
    for seed in range(config.seeds):
        for horizon in config.horizons:
            for split in splits:
                for attention in config.attention:
                    yield Run(
                        split=split, horizon=horizon, model=MODEL, attention=attention, seed=seed
                    )


def _execute_all(task: Task, runs: Sequence[Run], jobs: int) -> Iterator[Row]:
    """Yield the row of each run as it ends; with several jobs, in the order of ending."""
    if jobs == 1 or len(runs) < 2:
        for run in runs:
            yield execute(task, run)
        return
    # A forked copy of a process that has used torch may hang, so workers start afresh.
    pool = ProcessPoolExecutor(
        max_workers=min(jobs, len(runs)),
        mp_context=get_context("spawn"),
        initializer=limit_threads,
        initargs=(max(1, num_cores() // jobs),),
    )
    with pool:
        futures: list[Future[Row]] = [pool.submit(execute, task, run) for run in runs]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            # After a failure or an interrupt the runs that have not begun are given up.
            pool.shutdown(wait=True, cancel_futures=True)


def _task(config: EttConfig, folder: Path | None, jobs: int) -> Task:
    options = {
        "dataset": config.dataset,
        "horizons": ",".join(map(str, config.horizons)),
        "attention": ",".join(config.attention),
        "seeds": config.seeds,
        "target": config.target,
        "final": config.final,
        "set": tuple(f"{name}={value}" for name, value in config.options.items()),
        # Training times mean something else where runs share a machine.
        "jobs": jobs if jobs > 1 else None,
        "out": folder,
    }
    return Task(
        dataset=config.dataset,
        target=config.target,
        final=config.final,
        root=config.root,
        options=dict(config.options),
        command=command_line(("benchmark", "ett"), options),
    )


def _file_name(config: EttConfig) -> str:
    return f"{config.dataset}_{config.target or 'M'}_{'final' if config.final else 'folds'}.csv"


def _log_entry(config: EttConfig, task: Task, runs: Sequence[Run], pending: int) -> Row:
    """Describe a final run before its first score, so that a stopped one counts too."""
    # Seed, attention and horizon are not part of the hash: one model run tells it for all.
    model_run = next(run for run in runs if run.model == MODEL)
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "config_hash": run_key(task, model_run)["config_hash"],
        "command": task.command,
        "dataset": config.dataset,
        "target": config.target or "M",
        "horizons": list(config.horizons),
        "attention": list(config.attention),
        "seeds": config.seeds,
        "runs": pending,
    }
