"""What comes of a sweep."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from mlrforecast.estimators import MLRForecaster
from mlrforecast.plots import plot_sweep

__all__ = ["TuneResult"]


@dataclass(frozen=True, eq=False, kw_only=True)
class TuneResult:
    """Trials of a sweep, and the best estimators.

    Parameters
    ----------
    trials : DataFrame
        A row a trial, the best first: ``trial`` (its number), ``status`` (``"finished"``,
        ``"stopped"`` early by a scheduler, ``"failed"`` or ``"unfinished"``), ``score`` (the mean
        over the folds; lower is better), ``fold_1``, ``fold_2`` ..., ``seconds``, ``iterations``
        (reports), ``host``, ``started`` (UTC), ``error``, and a column for each parameter of the
        space.
    curves : DataFrame
        A row a report: ``trial``, ``iteration``, ``fold``, ``score``.
    metric : str
        The score.
    parameters : tuple of str
        The parameters of the space.
    best_estimators : dict of int to MLRForecaster
        For each prediction length the estimator with the best parameters, refitted on the whole
        frame unless that was declined.
    best_configs : dict of int to dict
        Their parameters.
    result_grid : ray.tune.ResultGrid or None
        Ray's own results; None of ``executor="local"``.

    Examples
    --------
    >>> from mlrforecast import MLRForecaster, load_dataset
    >>> from mlrforecast.tuning import tune
    >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
    >>> result = tune(
    ...     forecaster,
    ...     load_dataset("synthetic").targets,
    ...     {"learning_rate": {"grid_search": [1e-3, 1e-2]}},
    ...     num_samples=1,
    ...     folds=1,
    ...     executor="local",
    ...     progress=False,
    ... )
    >>> result
    TuneResult(trials: 2, finished: 2, stopped: 0, failed: 0, metric: MASE)
    >>> len(result.best_estimator.predict())
    24
    """

    trials: pd.DataFrame
    curves: pd.DataFrame
    metric: str
    parameters: tuple[str, ...]
    best_configs: dict[int, dict[str, Any]]
    best_estimators: dict[int, MLRForecaster] = field(repr=False)
    result_grid: Any = field(default=None, repr=False)

    def __repr__(self) -> str:
        counts = self.trials["status"].value_counts()
        told = ", ".join(f"{name}: {counts.get(name, 0)}" for name in STATUSES[:3])
        return f"TuneResult(trials: {len(self.trials)}, {told}, metric: {self.metric})"

    @property
    def best_estimator(self) -> MLRForecaster:
        """The best estimator; a ValueError if the sweep has several prediction lengths."""
        estimator: MLRForecaster = self._only(self.best_estimators, "best_estimators")
        return estimator

    @property
    def best_config(self) -> dict[str, Any]:
        """Its parameters; a ValueError if the sweep has several prediction lengths."""
        config: dict[str, Any] = self._only(self.best_configs, "best_configs")
        return config

    @property
    def best_score(self) -> float:
        """Its score; a ValueError if the sweep has several prediction lengths."""
        self._only(self.best_configs, "trials")
        return float(self.trials["score"].iloc[0])

    def plot(self, path: str | PathLike[str] | None = None) -> Figure:
        """Draw the sweep: parallel coordinates, learning curves, importance of parameters.

        Parameters
        ----------
        path : path, optional
            A .png, .pdf or .svg file to write. Default: nothing is written or shown.

        Returns
        -------
        Figure
            The picture.
        """
        figure = plot_sweep(
            self.trials, self.curves, metric=self.metric, parameters=list(self.parameters)
        )
        if path is not None:
            figure.savefig(path, bbox_inches="tight")
        return figure

    def _only(self, by_horizon: dict[int, Any], name: str) -> Any:
        if len(by_horizon) != 1:
            raise ValueError(
                f"The sweep has the prediction lengths {sorted(by_horizon)}, whose scores cannot "
                f"be compared: there is a best estimator for each, see `{name}`."
            )
        return next(iter(by_horizon.values()))


STATUSES = ("finished", "stopped", "failed", "unfinished")
"""What a trial may be; the order is that of the trials frame."""


def to_frames(
    records: Sequence[dict[str, Any]], parameters: Sequence[str], folds: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the records of trials as one row each, the best first, and their curves."""
    rows = []
    for record in records:
        scores = [*record["fold_scores"], *[None] * folds][:folds]
        rows.append(
            {
                "trial": record["number"],
                "status": record["status"],
                "score": record["score"],
                **{f"fold_{place}": score for place, score in enumerate(scores, start=1)},
                "seconds": record["seconds"],
                "iterations": len(record["curve"]),
                "host": record["host"],
                "started": record["started"],
                "error": record["error"],
                **{name: record["config"].get(name) for name in parameters},
            }
        )
    names = ["trial", "status", "score", *(f"fold_{place}" for place in range(1, folds + 1))]
    names += ["seconds", "iterations", "host", "started", "error", *parameters]
    trials = pd.DataFrame(rows, columns=names)
    numeric = ["score", *names[3 : 3 + folds], "seconds"]
    trials[numeric] = trials[numeric].astype(float)
    trials["started"] = pd.to_datetime(trials["started"], utc=True)
    order = trials["status"].map({name: place for place, name in enumerate(STATUSES)})
    sorted_rows = trials.assign(order=order).sort_values(["order", "score", "trial"]).index
    curves = pd.DataFrame(
        [{"trial": record["number"], **point} for record in records for point in record["curve"]],
        columns=["trial", "iteration", "fold", "score"],
    )
    return trials.loc[sorted_rows].reset_index(drop=True), curves
