"""Estimators on the scikit-learn contract."""

from mlrforecast.estimators._rolling import RollingForecast
from mlrforecast.estimators.forecaster import MLRForecaster

__all__ = ["MLRForecaster", "RollingForecast"]
