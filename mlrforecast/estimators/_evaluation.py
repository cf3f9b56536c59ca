"""The estimator's forecasts beside what happened: backtests, scores, proofs."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from mlrforecast import metrics
from mlrforecast.estimators import _backtest, _leakage, _parameters
from mlrforecast.estimators._base import FittedForecaster
from mlrforecast.evaluation import Backtest, leaderboard


class EvaluationMixin(FittedForecaster):
    """What compares the forecasts of a fitted estimator with what happened."""

    def backtest(
        self,
        X: object,
        *,
        windows: int | None = None,
        step: int | None = None,
        refit: bool | int = False,
        quantile_levels: Sequence[float] | None = None,
    ) -> Backtest:
        """Forecast from many cutoffs inside a frame, each as if nothing after it were known.

        Parameters
        ----------
        X : DataFrame, Series or ndarray
            A frame in any form; known covariates are read from it too. Of the frame that ``fit``
            was given, the forecasts are in-sample ones, unless the network is fitted again.
            Series with less than ``prediction_length + 1`` rows are left out.
        windows : int, optional
            Cutoffs of each series at most, counted back from its newest row; a series that has
            not room for so many has those that it has room for. Default: all with
            ``context_length_`` rows before them, and at least one of each series.
        step : int, optional
            Rows from one cutoff to the next. Default: ``prediction_length``, so that no step is
            forecast twice.
        refit : bool or int
            Whether a network is fitted anew before each cutoff, or before every ``refit``-th,
            on the rows before it alone. False: the network of ``fit`` forecasts, whatever rows
            it was trained on. Fitted anew or not, this estimator stays as it is.
        quantile_levels : sequence of float, optional
            Levels to forecast too; calibrated, once the estimator is.

        Returns
        -------
        Backtest
            Forecasts and actual values: a tidy frame, scores, residuals and pictures of them.

        Raises
        ------
        NotFittedError, DataError, ValueError, TypeError
            As in :meth:`MLRForecaster.predict`; also if no series is long enough.

        Warns
        -----
        UserWarning
            If some, but not all, series are too short.

        Examples
        --------
        >>> from mlrforecast import MLRForecaster, load_dataset
        >>> data = load_dataset("synthetic")
        >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
        >>> backtest = forecaster.fit(data.train).backtest(
        ...     data.targets, windows=5, quantile_levels=[0.1, 0.9]
        ... )
        >>> sorted(backtest.scores().index)[:4]
        ['CRPS', 'MAE', 'MASE', 'MSE']
        """
        check_is_fitted(self, "model_")
        windows = None if windows is None else _backtest.check_count("windows", windows)
        step = self.config_.prediction_length if step is None else step
        step, every = _backtest.check_count("step", step), _backtest.check_refit(refit)
        levels = self._check_levels(quantile_levels)
        panel = self._read(X)
        cutoffs = _backtest.find_cutoffs(panel, self.config_, windows=windows, step=step)
        found, actual = self._forecast_cutoffs(
            panel, cutoffs, step=step, every=every, point_only=levels is None
        )
        quantiles = None
        if levels is not None:
            residuals = self._residuals_at(panel, cutoffs, found, actual)
            quantiles = replace(found, residuals=residuals).quantiles(np.array(levels))
        return Backtest(
            forecast=found.point,
            actual=actual,
            quantiles=quantiles,
            quantile_levels=levels or (),
            panel=panel,
            series=cutoffs.series,
            num_rows=cutoffs.num_rows,
            season_length=self.season_length_,
        )

    def leaderboard(
        self,
        X: object,
        *,
        windows: int | None = None,
        step: int | None = None,
        refit: bool | int = False,
        quantile_levels: Sequence[float] | None = None,
    ) -> pd.DataFrame:
        """Compare a backtest with simple forecasts of the same windows.

        They repeat the last value, repeat the last season, repeat the mean of the last seven
        seasons, and map the past linearly to the future, see
        :func:`mlrforecast.evaluation.leaderboard`, which compares several estimators too.

        Parameters
        ----------
        X, windows, step, refit, quantile_levels
            As in :meth:`backtest`.

        Returns
        -------
        DataFrame
            A row for each forecast, the best by MASE first, and a column for each score.

        Raises
        ------
        NotFittedError, DataError, ValueError, TypeError
            As in :meth:`backtest`.
        """
        backtest = self.backtest(
            X, windows=windows, step=step, refit=refit, quantile_levels=quantile_levels
        )
        return leaderboard({type(self).__name__: backtest})

    def score(self, X: object, y: None = None) -> float:
        """Return minus the mean absolute scaled error over the windows inside a frame.

        Windows follow each other every ``prediction_length`` steps, counted back from the newest
        row, as in :meth:`backtest`. The error of each is divided by that of the seasonal naive
        forecast over all rows before it; windows after rows that repeat their season exactly,
        and so have no such error, are left out, with one warning that counts them.

        Parameters
        ----------
        X : DataFrame, Series or ndarray
            As in :meth:`backtest`.
        y : None
            Not used; here for scikit-learn.

        Returns
        -------
        float
            Higher is better.

        Raises
        ------
        NotFittedError, DataError, ValueError
            As in :meth:`backtest`; also if no window can be scored.

        Warns
        -----
        UserWarning
            If some, but not all, windows or series are left out.
        """
        found = self.backtest(X)
        return -metrics.mase(found.actual, found.forecast, found.scale())

    def check_leakage(self, X: object, *, cutoffs: int = 3) -> pd.DataFrame:
        """Check on a frame that nothing after a cutoff reaches what stands before it.

        At each cutoff, targets and past covariates after it are replaced, by noise of another
        size and then by nothing, and the rows beyond the steps to forecast are cut off. What the
        forecaster makes of the rows up to the cutoff must stay the same to the last bit.

        Parameters
        ----------
        X : DataFrame, Series or ndarray
            As in :meth:`backtest`; the frame that ``fit`` was given, or a newer one.
        cutoffs : int
            Cutoffs to check, at about equal distances in the longest series.

        Returns
        -------
        DataFrame
            A row for each check, with the columns ``check``, ``cutoff`` (the last stamp before
            what was changed), ``max_change`` and ``passed``.

            - ``"scaler"``: change of the location and scale of the contexts, in units of the scale.
            - ``"forecast"``: change of point forecasts and quantiles, in the same units.
            - ``"training"``: change of the scaled training windows and of the encoding of
              covariates when the rows that early stopping would hold back are replaced. Left out
              if no series is long enough to hold rows back.
            - ``"known covariate 'x'"``: here ``max_change`` is the size of the correlation of a
              numeric known covariate with a target in the same row. Above 0.9999 it does not
              pass: the column may be the target itself, which nobody knows in advance.

        Raises
        ------
        NotFittedError, DataError, ValueError
            As in :meth:`backtest`; also if no series has two rows.

        Examples
        --------
        >>> from mlrforecast import MLRForecaster, load_dataset
        >>> frame = load_dataset("synthetic").targets
        >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
        >>> bool(forecaster.fit(frame).check_leakage(frame)["passed"].all())
        True
        """
        check_is_fitted(self, "model_")
        cutoffs = _backtest.check_count("cutoffs", cutoffs)
        parameters = _parameters.plain_parameters(self)
        return _leakage.find_leaks(self._predictor, self._read(X), parameters, cutoffs)
