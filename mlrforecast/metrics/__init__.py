"""Forecast scores: numpy arrays in, one float out.

Every array of values is laid out ``[N, F, C]``: windows (or series), future steps, channels. A NaN
in ``actual`` is a missing value and is left out; a NaN in a forecast is a fault and makes the score
NaN, so that it is seen. Every score is a mean over all observed values alike. What is averaged
stands in :mod:`mlrforecast.metrics.losses`.
"""

from mlrforecast.metrics._point import mae, mse, rmse, smape
from mlrforecast.metrics._probabilistic import (
    coverage,
    crps,
    quantile_loss,
    weighted_quantile_loss,
)
from mlrforecast.metrics._scaled import mase, msis, scaled_quantile_loss, seasonal_error

__all__ = [
    "coverage",
    "crps",
    "mae",
    "mase",
    "mse",
    "msis",
    "quantile_loss",
    "rmse",
    "scaled_quantile_loss",
    "seasonal_error",
    "smape",
    "weighted_quantile_loss",
]
