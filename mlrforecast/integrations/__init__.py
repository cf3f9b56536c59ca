"""Other libraries and services; each module is imported only when it is used."""

from typing import TYPE_CHECKING

from mlrforecast._core.lazy import lazy_names

if TYPE_CHECKING:
    from mlrforecast.integrations.ray._predict import predict_parquet
    from mlrforecast.integrations.ray._workers import RayWorkers

__all__ = ["RayWorkers", "predict_parquet"]

# Processes that read files for a forecast need neither, nor the time to import torch.
__getattr__ = lazy_names(
    __name__,
    {
        "RayWorkers": "mlrforecast.integrations.ray._workers",
        "predict_parquet": "mlrforecast.integrations.ray._predict",
    },
)
