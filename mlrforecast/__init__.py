"""Time-series forecasting with multi-level low-rank (MLR) attention.

Importing this package is cheap: torch and the rest are loaded when a name that needs them is used.

Examples
--------
>>> import mlrforecast
>>> forecaster = mlrforecast.MLRForecaster(prediction_length=24)
"""

from typing import TYPE_CHECKING

from mlrforecast._core.lazy import lazy_names
from mlrforecast._version import __version__

if TYPE_CHECKING:
    from mlrforecast.data import TimeSeriesDataset, load_dataset
    from mlrforecast.estimators import MLRForecaster

__all__ = ["MLRForecaster", "TimeSeriesDataset", "__version__", "load_dataset"]

__getattr__ = lazy_names(
    __name__,
    {
        "MLRForecaster": "mlrforecast.estimators",
        "TimeSeriesDataset": "mlrforecast.data",
        "load_dataset": "mlrforecast.data",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
