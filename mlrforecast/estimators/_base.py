"""What every part of the estimator builds on: a fitted network, and frames read for it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from torch import nn

from mlrforecast._core.errors import DataError
from mlrforecast.data import (
    CovariateEncoding,
    FrameSchema,
    Panel,
    default_season_length,
    extend_panel,
    read_panel,
)
from mlrforecast.data.gluonts import unfold_entries
from mlrforecast.estimators import _backtest, _calibration, _inference, _parameters, _paths
from mlrforecast.estimators._calibration import Calibration
from mlrforecast.estimators._fitting import Fitted, fit_panel
from mlrforecast.estimators._forecasts import Forecasts, ResidualQuantiles
from mlrforecast.estimators._output import check_levels_requested
from mlrforecast.models import EncoderConfig, EncoderForecaster


class FittedForecaster(BaseEstimator):  # type: ignore[misc]
    """A trained network, what it needs to read a frame, and what was learnt of its errors."""

    backbone: nn.Module | None
    accelerator: str
    season_length: int | None
    progress: bool

    model_: EncoderForecaster
    config_: EncoderConfig
    schema_: FrameSchema
    encoding_: CovariateEncoding
    dependence_: np.ndarray
    calibration_: Calibration | None
    context_: Panel | None
    context_length_: int
    season_length_: int
    num_steps_: int
    batch_size_: int
    freq_: str | int

    def _set_fitted(
        self,
        fitted: Fitted,
        *,
        schema: FrameSchema,
        freq: str | int,
        context: Panel | None,
        calibration: Calibration | None = None,
    ) -> None:
        self.model_ = fitted.model
        self.config_ = fitted.model.config
        self.context_length_ = self.config_.context_length
        self.schema_ = schema
        self.encoding_ = fitted.encoding
        self.dependence_ = fitted.dependence
        self.num_steps_ = fitted.num_steps
        self.batch_size_ = fitted.batch_size
        self.freq_ = freq
        self.season_length_ = self.season_length or default_season_length(freq)
        self.num_parameters_ = sum(parameter.numel() for parameter in self.model_.parameters())
        self.context_ = context
        self.calibration_ = calibration

    def _note_features(self, names: Sequence[Any]) -> None:
        """Keep what scikit-learn wants to know of the columns of a frame."""
        self.n_features_in_ = len(names)
        if all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            # Of an earlier fit.
            del self.feature_names_in_

    @property
    def _predictor(self) -> _inference.Predictor:
        """What forecasts from panels, without calibration."""
        return _inference.Predictor(self.model_, self.encoding_, self.accelerator)

    def _read(self, X: object, *, newest: int | None = None) -> Panel:
        """Read a frame as the one of ``fit`` was read, whatever the parameters are now."""
        return read_panel(X, self.schema_, freq=self.freq_, newest=newest, progress=self.progress)

    def _unfold(self, X: object, future: object = None) -> tuple[object, object]:
        """Return entries of GluonTS as a frame, and with what they know of the future."""
        frame, ahead, _ = unfold_entries(X, replace(self.schema_, freq=self.freq_))
        return frame, ahead if future is None else future

    def _context(self, X: object) -> tuple[Panel, ResidualQuantiles | None]:
        """Return the rows to forecast from, and what calibrates the forecast."""
        if X is not None:
            rolls = self.calibration_ is not None and self.calibration_.method == "rolling"
            panel = self._read(X, newest=None if rolls else self.context_length_)
            return panel.tail(self.context_length_), self._residuals_after(panel)
        if self.context_ is None:
            raise ValueError(
                "`X` is needed: this forecaster was fitted on a FileDataset, or loaded from a file "
                "without its context. Pass the frame or the FileDataset to forecast from; a fit "
                "on a frame can be saved with `with_context=True`."
            )
        return self.context_, self._residuals_after(self.context_)

    def _fit_again(self, panel: Panel) -> _inference.Predictor:
        """Train a network of the same configuration on other rows."""
        fixed = ("context_length", "patch_length", "patch_stride")
        parameters = _parameters.plain_parameters(self) | {
            name: getattr(self.config_, name) for name in fixed
        }
        # The logs are those of the network that is kept.
        parameters |= {"logger": (), "log_dir": None}
        fitted = fit_panel(panel, parameters, self.backbone)
        return _inference.Predictor(fitted.model, fitted.encoding, self.accelerator)

    def _forecast_cutoffs(
        self,
        panel: Panel,
        cutoffs: _backtest.Cutoffs,
        *,
        step: int,
        every: int,
        point_only: bool = False,
    ) -> tuple[Forecasts, np.ndarray]:
        """Forecast from cutoffs without calibration; fit anew before every ``every``-th one."""
        if every == 0:
            return _backtest.forecast_windows(
                self._predictor, panel, cutoffs, point_only=point_only
            )
        return _backtest.forecast_refitted(self._fit_again, panel, cutoffs, every=every, step=step)

    def _residuals_at(
        self,
        panel: Panel,
        cutoffs: _backtest.Cutoffs,
        forecasts: Forecasts,
        actual: np.ndarray,
    ) -> ResidualQuantiles | None:
        """Return what calibrates forecasts from cutoffs inside a panel."""
        if self.calibration_ is None or self.calibration_.method == "split":
            return self._split_residuals()
        rows = panel.bounds[cutoffs.series] + cutoffs.num_rows - 1
        return _calibration.rolling_residuals(
            self.calibration_,
            forecasts,
            actual,
            panel=panel,
            cutoffs=cutoffs,
            now=_calibration.ticks(panel.index)[rows],
        )

    def _residuals_after(self, panel: Panel) -> ResidualQuantiles | None:
        """Return what calibrates forecasts of what follows a panel."""
        calibration = self.calibration_
        if calibration is None or calibration.method == "split":
            return self._split_residuals()
        cutoffs = _calibration.newer_cutoffs(calibration, panel, self.config_.prediction_length)
        forecasts, actual = self._forecast_cutoffs(panel, cutoffs, step=1, every=0)
        now = np.array([_calibration.ticks(panel.index).max()])
        return _calibration.rolling_residuals(
            calibration, forecasts, actual, panel=panel, cutoffs=cutoffs, now=now
        )

    def _split_residuals(self) -> ResidualQuantiles | None:
        """Return the residuals of a split calibration, if there is one."""
        if self.calibration_ is None:
            return None
        return _calibration.SplitResiduals(
            self.calibration_.residuals, self.calibration_.step_scale
        )

    def _check_levels(self, levels: Sequence[float] | None) -> tuple[float, ...] | None:
        """Return the levels asked of a forecast, or say why they cannot be had."""
        calibrated = self.calibration_ is not None
        return check_levels_requested(levels, self.config_, calibrated=calibrated)

    def _extend(self, panel: Panel, future: object, horizon: int) -> Panel:
        """Add the steps to forecast to the rows to forecast from."""
        _inference.check_observed(panel, self.context_length_)
        trained = self.config_.prediction_length
        if horizon < trained:
            try:
                # What is known of later steps is read by a forecast of the trained length.
                return extend_panel(panel, self.schema_, trained, future)
            except DataError:
                pass
        return extend_panel(panel, self.schema_, horizon, future)

    def _forecaster_of(self, residuals: ResidualQuantiles | None) -> _paths.Forecast:
        """Return what forecasts after some rows of each series of a panel, calibrated."""
        predictor = self._predictor

        def forecast(panel: Panel, num_rows: np.ndarray) -> Forecasts:
            windows = predictor.windows(panel, np.arange(len(panel)), num_rows)
            return replace(predictor.forecast(windows), residuals=residuals)

        return forecast

    def _noise(self, horizon: int, *, num_paths: int, seed: int) -> np.ndarray:
        """Draw what makes paths of forecasts."""
        num_blocks = -(-horizon // self.config_.prediction_length)
        return _paths.draw_noise(
            self.dependence_, num_blocks=num_blocks, num_paths=num_paths, seed=seed
        )

    def _forecast(
        self,
        extended: Panel,
        num_rows: np.ndarray,
        horizon: int,
        levels: tuple[float, ...] | None,
        forecast: _paths.Forecast,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Forecast the steps that follow ``num_rows`` rows of the series of a panel."""
        wanted = None if levels is None else np.array(levels)
        if horizon <= self.config_.prediction_length:
            found = forecast(extended, num_rows)
            quantiles = None if wanted is None else found.quantiles(wanted)[:, :horizon]
            return found.point[:, :horizon], quantiles
        point = _paths.roll_point(forecast, extended, num_rows, horizon)
        if wanted is None:
            return point, None
        noise = self._noise(horizon, num_paths=_paths.NUM_PATHS, seed=0)
        return point, _paths.roll_quantiles(forecast, extended, horizon, wanted, noise)
