"""One run of the ETT benchmark: a fit and its scores, or a floor and its scores."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from mlrforecast._core.provenance import config_hash, cpu_name, device_name, versions
from mlrforecast._core.result_table import Row
from mlrforecast.benchmark._floors import FLOORS, score_floor
from mlrforecast.benchmark._splits import (
    Errors,
    Split,
    future_windows,
    make_splits,
    mean_errors,
    num_windows,
    standardise,
)
from mlrforecast.data import load_dataset
from mlrforecast.estimators import MLRForecaster
from mlrforecast.nn import attentions, option_names

MODEL = "MLRForecaster"
# Every run sets these itself; they are columns of the result or change no number.
SET_BY_RUN = ("attention", "prediction_length", "progress", "seed")
# Where a fit runs and what it tells of itself.
_CHANGE_NO_NUMBER = ("accelerator", "checkpoint_dir", "log_dir", "logger", "progress")


@dataclass(frozen=True, kw_only=True)
class Task:
    """What all runs of one command share."""

    dataset: str
    target: str | None
    final: bool
    root: str | os.PathLike[str] | None
    options: Mapping[str, object]
    command: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """One line of the result file: which model, on which rows, how far ahead."""

    split: Split
    horizon: int
    model: str
    attention: str = ""
    seed: int | None = None


def load_task(task: Task) -> tuple[pd.DataFrame, list[Split]]:
    """Load the target columns of a task and cut its splits."""
    dataset = load_dataset(task.dataset, root=task.root)
    splits = make_splits(dataset.splits, final=task.final)
    if task.target is None:
        return dataset.targets, splits
    if task.target not in dataset.target_columns:
        raise ValueError(
            f"`target` must be a column of {task.dataset}, one of "
            f"{list(dataset.target_columns)}, got {task.target!r}."
        )
    return dataset.targets[[task.target]], splits


def scores_of(attention: str) -> list[str]:
    """Return the names in an entry of ``attention``: one, or one a layer with ``+`` between."""
    return attention.split("+")


def score_options(options: Mapping[str, object]) -> list[str]:
    """Return the options that some scores have and others have not, by name."""
    nested = options.get("attention_options")
    given = [*options, *(nested if isinstance(nested, Mapping) else ())]
    known = {option for name in attentions for option in option_names(attentions[name])}
    return [option for option in given if option in known]


def run_key(task: Task, run: Run) -> Row:
    """Fill the columns that tell this run from every other, before it runs."""
    return {
        "dataset": task.dataset,
        "target": task.target or "M",
        "split": run.split.name,
        "horizon": run.horizon,
        "model": run.model,
        "attention": run.attention,
        "seed": "" if run.seed is None else run.seed,
        "config_hash": _hash(task, run),
    }


def check_options(task: Task, runs: Sequence[Run]) -> None:
    """Refuse options that a fit would refuse, or a context that a run among ``runs`` lacks."""
    for run in runs:
        if run.model in FLOORS:
            continue
        forecaster = _forecaster(task, run)
        try:
            forecaster.check_parameters()
        except TypeError as error:
            raise ValueError(f"`options` must fit MLRForecaster: {error}") from error
        context = forecaster.get_params(deep=False).get("context_length")
        most = min(len(run.split.train), run.split.scored.start, run.split.validation.start)
        if context is not None and context > most:
            raise ValueError(
                f"`context_length` must be at most {most}, the rows to learn from of "
                f"{run.split.name} and those before its first scored one, got {context}."
            )


def execute(task: Task, run: Run) -> Row:
    """Fit and score one run; the result is one complete row."""
    frame, _ = load_task(task)
    scaled = standardise(frame, run.split.train)
    scores = _run_floor(scaled, run) if run.model in FLOORS else _run_model(task, scaled, run)
    shared = {
        "windows": num_windows(run.split.scored, run.horizon),
        "versions": versions(),
        "command": task.command,
    }
    return run_key(task, run) | scores | shared


def limit_threads(threads: int) -> None:
    """Keep one of several worker processes to its share of the cores."""
    torch.set_num_threads(threads)


def _hash(task: Task, run: Run) -> str:
    if run.model in FLOORS:
        return config_hash({"model": run.model})
    return config_hash(settings_of(_forecaster(task, run), *SET_BY_RUN) | {"model": run.model})


def settings_of(forecaster: MLRForecaster, *left_out: str) -> dict[str, object]:
    """Return the parameters that change a number, without those that are columns of their own."""
    hidden = (*left_out, *_CHANGE_NO_NUMBER)
    settings = forecaster.get_params(deep=False)
    return {name: value for name, value in settings.items() if name not in hidden}


def _forecaster(task: Task, run: Run) -> MLRForecaster:
    scores = scores_of(run.attention)
    settings: dict[str, object] = {
        "attention": scores[0] if len(scores) == 1 else tuple(scores),
        "seed": run.seed,
        "progress": False,
    }
    options = _options_for(scores, task.options)
    try:
        return MLRForecaster(run.horizon, **(options | settings))  # type: ignore[arg-type]
    except TypeError as error:
        raise ValueError(f"`options` must hold arguments of MLRForecaster only: {error}") from error


def _options_for(scores: Sequence[str], options: Mapping[str, object]) -> dict[str, object]:
    """Leave out what these scores do not have: it is meant for another that is compared."""
    have = {option for name in scores for option in option_names(attentions[name])}
    left_out = set(score_options(options)) - have
    kept = {name: value for name, value in options.items() if name not in left_out}
    if isinstance(nested := kept.get("attention_options"), Mapping):
        rest = {name: value for name, value in nested.items() if name not in left_out}
        kept["attention_options"] = rest or None
    return kept


def _run_floor(scaled: pd.DataFrame, run: Run) -> Row:
    values = scaled.to_numpy(dtype=np.float64)
    return {
        "context_length": FLOORS[run.model].context_length,
        **_scores(run, lambda rows: score_floor(run.model, values, rows, run.horizon)),
        "parameters": 0,
        "train_seconds": 0.0,
        "hardware": cpu_name(),
    }


def _run_model(task: Task, scaled: pd.DataFrame, run: Run) -> Row:
    forecaster = _forecaster(task, run)
    start = time.perf_counter()
    forecaster.fit(scaled.iloc[run.split.train.start : run.split.train.stop])
    seconds = time.perf_counter() - start
    return {
        "context_length": forecaster.context_length_,
        **_scores(run, lambda rows: _score_model(forecaster, scaled, rows, run.horizon)),
        "parameters": forecaster.num_parameters_,
        "train_seconds": round(seconds, 2),
        "hardware": device_name(str(forecaster.accelerator)),
    }


def _scores(run: Run, score: Callable[[range], Errors]) -> Row:
    """Score what a run is scored on, and the validation rows if those are others."""
    found = score(run.split.scored)
    elsewhere = run.split.validation != run.split.scored
    return {
        "mse": found.mse,
        "mae": found.mae,
        "validation_mse": score(run.split.validation).mse if elsewhere else found.mse,
        "mse_by_step": " ".join(f"{error:.4g}" for error in found.mse_by_step),
    }


def _score_model(
    forecaster: MLRForecaster, scaled: pd.DataFrame, scored: range, horizon: int
) -> Errors:
    """Score every window of the scored rows; the context may reach before them."""
    context = forecaster.context_length_
    assert context <= scored.start, "checked before the fit; one derived has at most 504 rows"
    rolled = forecaster.backtest(scaled.iloc[scored.start - context : scored.stop], step=1)
    forecast: NDArray[np.float64] = np.asarray(rolled.forecast)
    actual = future_windows(scaled.to_numpy(dtype=np.float64), scored, horizon)
    assert forecast.shape == actual.shape, "the estimator forecasts every window once"
    return mean_errors(actual, lambda rows: forecast[rows])
