"""One trial: an estimator with some parameters, trained and scored on every fold."""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sklearn.base import clone

from mlrforecast._core.atomic import write_whole
from mlrforecast.data import Panel
from mlrforecast.estimators import MLRForecaster
from mlrforecast.estimators.folds import Fold, FoldScorer
from mlrforecast.training import Checkpoint

MUTABLE = frozenset(
    {
        "batch_size",
        "dropout",
        "frequency_weight",
        "gradient_clip",
        "head_dropout",
        "learning_rate",
        "weight_decay",
    }
)
"""Parameters that may change in the course of a training: no weight has another shape then."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """What all trials of a sweep share; none of them writes to it.

    Parameters
    ----------
    panel : Panel
        The series.
    forecaster : MLRForecaster
        The estimator whose parameters a trial changes, not fitted.
    plans : mapping of int to tuple of Fold
        The folds for each prediction length.
    metric : str
        The score.
    quantile_levels : tuple of float
        Levels at which quantiles are scored, in all trials alike.
    season_length : int
        Steps of a season, for scaled errors.
    reports : int
        Scores of each fold that are reported.
    threads : int
        Threads of a trial.
    """

    panel: Panel = field(repr=False)
    forecaster: MLRForecaster
    plans: Mapping[int, tuple[Fold, ...]] = field(repr=False)
    metric: str
    quantile_levels: tuple[float, ...]
    season_length: int
    reports: int
    threads: int

    @property
    def folds(self) -> int:
        """How many folds there are."""
        return len(next(iter(self.plans.values())))

    @property
    def max_iteration(self) -> int:
        """Number of the last report of a trial; the first has the number 1."""
        return self.folds * self.reports

    @property
    def scorer(self) -> FoldScorer:
        """What scores an estimator on a fold."""
        return FoldScorer(
            panel=self.panel,
            metric=self.metric,
            quantile_levels=self.quantile_levels,
            season_length=self.season_length,
            times=self.reports,
        )

    def configured(self, config: Mapping[str, Any]) -> MLRForecaster:
        """Return the estimator of a trial."""
        copied: MLRForecaster = clone(self.forecaster)
        copied.set_params(**config)
        return copied


class Report(NamedTuple):
    """The score of a trial in the course of its training.

    Parameters
    ----------
    iteration : int
        Number of the report, from 1 to ``Task.max_iteration``; those that early stopping skips
        are left out.
    score : float
        Mean of the scores of the folds that are done and of the current one; lower is better.
    fold : int
        The current fold, from 1.
    folder : Path
        What the trial needs to go on from here; it changes after the call.
    """

    iteration: int
    score: float
    fold: int
    folder: Path


class Outcome(NamedTuple):
    """What came of a trial.

    Parameters
    ----------
    score : float
        Mean over the folds; lower is better.
    fold_scores : tuple of float
        Score of each.
    curve : list of dict
        The reports, as ``iteration``, ``fold`` and ``score``.
    seconds : float
        What it took, without interruptions.
    """

    score: float
    fold_scores: tuple[float, ...]
    curve: list[dict[str, float]]
    seconds: float


def run_trial(
    task: Task,
    config: Mapping[str, Any],
    report: Callable[[Report], None],
    *,
    folder: Path,
    start: Path | None = None,
) -> Outcome:
    """Train and score one configuration on every fold.

    Parameters
    ----------
    task : Task
        What all trials share.
    config : mapping of str to object
        Parameters of the estimator.
    report : callable
        Is told every score; what it raises ends the trial, which can go on from the folder of the
        report.
    folder : Path
        Where the trial keeps what it needs to go on; it goes on from there if it has begun.
    start : Path, optional
        Copy of such a folder to go on from, also of another trial whose network has the same
        shape.

    Returns
    -------
    Outcome
        The scores.
    """
    if start is not None:
        shutil.copytree(start, folder, dirs_exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    forecaster, scorer = task.configured(config), task.scorer
    scorer.check(forecaster)
    state = TrialState.read(folder)
    begin = time.monotonic() - state.seconds

    def tell(iteration: int, scores: list[float]) -> None:
        point = {"iteration": iteration, "fold": fold + 1, "score": sum(scores) / len(scores)}
        state.curve.append(point)
        state.seconds = time.monotonic() - begin
        state.write(folder)
        report(Report(iteration, point["score"], fold + 1, folder))

    with _limited_threads(task.threads):
        plan = task.plans[int(forecaster.prediction_length)]
        for fold in range(len(state.fold_scores), len(plan)):
            # The run that the checkpoint belongs to is known by its place, not by its parameters:
            # population-based training changes them on the way.
            checkpoint = Checkpoint(folder, f"{fold:012x}")
            score = scorer.score(
                forecaster,
                plan[fold],
                checkpoint=checkpoint,
                look=lambda found: tell(state.iteration + 1, [*state.fold_scores, found]),
            )
            state.fold_scores.append(score)
            checkpoint.path.unlink()
            tell((fold + 1) * task.reports, state.fold_scores)
    scores = tuple(state.fold_scores)
    return Outcome(sum(scores) / len(scores), scores, state.curve, state.seconds)


@dataclass
class TrialState:
    """How far a trial has come, beside the network that it is training."""

    fold_scores: list[float]
    curve: list[dict[str, float]]
    seconds: float

    @classmethod
    def read(cls, folder: Path) -> "TrialState":
        """Return the state that a folder holds, or that of the start."""
        file = folder / "trial.json"
        return cls(**json.loads(file.read_bytes())) if file.is_file() else cls([], [], 0.0)

    def write(self, folder: Path) -> None:
        """Keep the state in a folder."""
        write_whole(folder / "trial.json", json.dumps(vars(self)).encode())

    @property
    def iteration(self) -> int:
        """Number of the newest report."""
        return int(self.curve[-1]["iteration"]) if self.curve else 0


@contextmanager
def _limited_threads(threads: int) -> Iterator[None]:
    """Let torch have so many threads, so that sums are the same wherever a trial runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
