"""Folds: a network trained on the rows before each, and scored on the forecasts in it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data import FrameSchema, Panel, default_season_length, read_panel
from mlrforecast.data.gluonts import unfold_entries
from mlrforecast.estimators import _backtest, _parameters
from mlrforecast.estimators._fitting import train_on_panel
from mlrforecast.estimators._forecasts import has_quantiles
from mlrforecast.estimators._inference import Predictor
from mlrforecast.estimators.forecaster import MLRForecaster
from mlrforecast.evaluation import Backtest, seasonal_scale
from mlrforecast.training import Checkpoint, isolated_seed

__all__ = ["METRICS", "Fold", "FoldScorer", "plan_folds", "read_training_panel"]

METRICS = ("MASE", "MAE", "MSE", "RMSE", "sMAPE", "CRPS", "WQL")
"""Scores of which the lowest is the best."""
OF_QUANTILES = ("CRPS", "WQL")
"""Those that need more than a point forecast."""

HELD_BACK = 4
"""Folds lie in the newest quarter of the longest series, unless told otherwise."""
NUM_WINDOWS = 20
"""Windows of a series in a fold, at most, unless told otherwise."""


@dataclass(frozen=True, eq=False)
class Fold:
    """Which rows a network learns from, and which forecasts it is scored on.

    Parameters
    ----------
    num_rows : ndarray of int of shape (S,)
        Rows of each series, from its first, that are trained on.
    cutoffs : Cutoffs
        Where forecasts begin: ``N`` of them.
    scale : ndarray of shape (N, C)
        Seasonal error before each, the unit of scaled errors.
    """

    num_rows: np.ndarray
    cutoffs: _backtest.Cutoffs
    scale: np.ndarray


def read_training_panel(forecaster: MLRForecaster, X: object) -> tuple[Panel, FrameSchema]:
    """Read a frame as ``fit`` would.

    Parameters
    ----------
    forecaster : MLRForecaster
        What is to be fitted.
    X : DataFrame, Series or ndarray
        The frame.

    Returns
    -------
    panel : Panel
        Its series.
    schema : FrameSchema
        How it was read.

    Raises
    ------
    DataError, TypeError, ValueError
        As in :meth:`MLRForecaster.fit`.

    Examples
    --------
    >>> from mlrforecast import MLRForecaster, load_dataset
    >>> frame = load_dataset("synthetic").targets
    >>> panel, schema = read_training_panel(MLRForecaster(prediction_length=24), frame)
    >>> panel.num_channels
    3
    """
    forecaster.check_parameters()
    parameters = _parameters.plain_parameters(forecaster)
    schema = _parameters.to_schema(parameters)
    with isolated_seed(parameters["seed"]):
        X, _, schema = unfold_entries(X, schema, find_roles=True)
        return read_panel(X, schema, progress=parameters["progress"]), schema


def plan_folds(
    panel: Panel,
    prediction_length: int,
    *,
    folds: int,
    windows: int | None = None,
    step: int | None = None,
    season_length: int | None = None,
) -> tuple[Fold, ...]:
    """Cut the newest rows of a panel into folds, from old to new.

    Parameters
    ----------
    panel : Panel
        The series.
    prediction_length : int
        Steps of each forecast.
    folds : int
        How many.
    windows : int, optional
        Forecasts of each series in a fold, where it has room for them. Default: at most 20 that
        lie in the newest quarter of the longest series, all folds together; at least one.
    step : int, optional
        Rows from one to the next. Default: ``prediction_length`` if ``windows`` is given,
        otherwise what spreads them evenly.
    season_length : int, optional
        Steps of a season, for scaled errors. Default: that of the frequency.

    Returns
    -------
    tuple of Fold
        No fold is trained on rows that it, or a later one, forecasts.

    Raises
    ------
    DataError
        If no series is long enough.

    Warns
    -----
    UserWarning
        If some series are too short for any forecast.

    Examples
    --------
    >>> import pandas as pd
    >>> index = pd.date_range("2024-01-01", periods=100, freq="h")
    >>> panel = read_panel(pd.DataFrame({"load": np.arange(100) % 24}, index=index))
    >>> [int(fold.num_rows[0]) for fold in plan_folds(panel, 5, folds=2)]
    [76, 86]
    """
    room = panel.lengths - prediction_length - 1
    _backtest.check_room(panel, room, prediction_length)
    windows, step = _spread(panel, prediction_length, folds, windows, step)
    counts = np.where(room < 0, 0, np.minimum(room // step + 1, folds * windows))
    cutoffs = _backtest.newest_cutoffs(room + 1, counts, step)
    planned = []
    for newer in range(folds - 1, -1, -1):
        inside = (cutoffs.places >= newer * windows) & (cutoffs.places < (newer + 1) * windows)
        num_rows = np.maximum(room + 1 - step * ((newer + 1) * windows - 1), 0)
        chosen = _backtest.Cutoffs(*(part[inside] for part in cutoffs))
        if not len(chosen.series) or num_rows.max() < 2:
            number = int(np.argmax(panel.lengths))
            needed = 2 + step * (folds * windows - 1) + prediction_length
            raise DataError(
                f"folds={folds} of {windows} windows, {step} rows apart, need a series of {needed} "
                f"rows (2 of them to learn from), but {panel.owner(number)} has "
                f"{panel.lengths[number]}{' and is the longest' * (len(panel) > 1)}. Ask for "
                "fewer `folds` or `windows`, or pass more rows."
            )
        season = season_length or default_season_length(panel.freq)
        scale = seasonal_scale(panel, chosen.series, chosen.num_rows, season)
        planned.append(Fold(num_rows, chosen, scale))
    return tuple(planned)


@dataclass(frozen=True, eq=False, kw_only=True)
class FoldScorer:
    """Train networks on folds of a panel, and score them.

    Parameters
    ----------
    panel : Panel
        The series; nothing is written to it.
    metric : str
        One of :data:`METRICS`.
    quantile_levels : tuple of float
        Levels at which quantiles are scored.
    season_length : int
        Steps of a season.
    times : int
        Scores of each fold: the last one is that of the trained network, the others come at equal
        parts of the training.

    Examples
    --------
    >>> from mlrforecast import MLRForecaster, load_dataset
    >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
    >>> panel, _ = read_training_panel(forecaster, load_dataset("synthetic").targets)
    >>> (fold,) = plan_folds(panel, 24, folds=1)
    >>> scorer = FoldScorer(panel=panel, metric="MAE", quantile_levels=(), season_length=24)
    >>> scorer.score(forecaster, fold) > 0
    True
    """

    panel: Panel = field(repr=False)
    metric: str
    quantile_levels: tuple[float, ...]
    season_length: int
    times: int = 1

    def check(self, forecaster: MLRForecaster) -> None:
        """Raise what ``fit`` would raise of parameters alone, and if the metric cannot be had.

        Parameters
        ----------
        forecaster : MLRForecaster
            What is to be scored.

        Raises
        ------
        ValueError, TypeError
            If its parameters, or its loss with this metric, cannot be used.
        """
        forecaster.check_parameters()
        if self.metric in OF_QUANTILES and forecaster.loss in ("mse", "mae"):
            raise ValueError(
                f"`metric`={self.metric!r} needs quantiles, which loss={forecaster.loss!r} does "
                "not forecast. Choose another metric, such as 'MASE', or loss='quantile'."
            )

    def score(
        self,
        forecaster: MLRForecaster,
        fold: Fold,
        *,
        checkpoint: Checkpoint | None = None,
        look: Callable[[float], None] | None = None,
    ) -> float:
        """Train on the rows before a fold, and score the forecasts in it.

        Parameters
        ----------
        forecaster : MLRForecaster
            How to train; it stays as it is.
        fold : Fold
            The rows.
        checkpoint : Checkpoint, optional
            Where the run is kept, and goes on from; written before each ``look``.
        look : callable, optional
            Is given the score in the course of the training; what it raises ends it.

        Returns
        -------
        float
            The score; lower is better.

        Raises
        ------
        FloatingPointError
            If training diverged, or the score is not a number.
        DataError, ValueError, MemoryError
            As in :meth:`MLRForecaster.fit`.
        """
        parameters = _parameters.plain_parameters(forecaster)
        rows = _backtest.training_rows(self.panel, fold.num_rows)
        trained = train_on_panel(
            rows,
            parameters,
            forecaster.backbone,
            checkpoint=checkpoint,
            look=None if look is None else lambda predictor: look(self._score(predictor, fold)),
            times=self.times,
        )
        accelerator = parameters["accelerator"]
        return self._score(Predictor(trained.model, trained.encoding, accelerator), fold)

    def _score(self, predictor: Predictor, fold: Fold) -> float:
        """Score what a network forecasts in a fold."""
        quantiles = None
        asked = bool(self.quantile_levels) and has_quantiles(predictor.model.config)
        found, actual = _backtest.forecast_windows(
            predictor, self.panel, fold.cutoffs, point_only=not asked
        )
        if asked:
            quantiles = found.quantiles(np.array(self.quantile_levels))
        scored = Backtest(
            forecast=found.point,
            actual=actual,
            quantiles=quantiles,
            quantile_levels=self.quantile_levels if asked else (),
            panel=self.panel,
            series=fold.cutoffs.series,
            num_rows=fold.cutoffs.num_rows,
            season_length=self.season_length,
        )
        if not np.isfinite(found.point[np.isfinite(found.scale).all(axis=(1, 2))]).all():
            raise FloatingPointError(
                "Training diverged: forecasts of a fold are no numbers. Lower `learning_rate`."
            )
        score = float(pd.Series(scored.scores(scale=fold.scale))[self.metric])
        if not np.isfinite(score):
            raise FloatingPointError(
                f"The {self.metric} of a fold is {score}: no value of it was observed, or there is "
                "no error of the seasonal naive forecast to be scaled by."
            )
        return score


def _spread(
    panel: Panel, prediction_length: int, folds: int, windows: int | None, step: int | None
) -> tuple[int, int]:
    """Return how many windows of a series a fold has, and how far they are apart."""
    room = max(0, int(panel.lengths.max()) // HELD_BACK - prediction_length) // folds
    if step is None:
        step = prediction_length if windows is not None else max(1, room // NUM_WINDOWS)
    if windows is None:
        windows = max(1, min(NUM_WINDOWS, room // step))
    return windows, step
