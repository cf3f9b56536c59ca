"""The estimator: frames in, forecasts out."""

from mlrforecast.estimators._calibration import Calibration
from mlrforecast.estimators._summary import Summary
from mlrforecast.estimators.forecaster import MLRForecaster

__all__ = ["Calibration", "MLRForecaster", "Summary"]
