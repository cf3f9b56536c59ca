"""Files and frames in, checked series and typed batches out; knows no model."""

from typing import TYPE_CHECKING

from mlrforecast._core.lazy import lazy_names
from mlrforecast.data.catalogue import ColumnCard, DatasetCard, list_datasets, load_card
from mlrforecast.data.datasets import TimeSeriesDataset, load_dataset
from mlrforecast.data.frequency import (
    check_regular,
    default_season_length,
    future_index,
    infer_frequency,
)
from mlrforecast.data.gluonts import gluonts_to_long_frame, load_gluonts
from mlrforecast.data.panel import Panel, Series, read_panel
from mlrforecast.data.synthetic import SyntheticData, make_synthetic

if TYPE_CHECKING:
    from mlrforecast.data.batch import ForecastBatch
    from mlrforecast.data.windows import WindowStore, context_batch

__all__ = [
    "ColumnCard",
    "DatasetCard",
    "ForecastBatch",
    "Panel",
    "Series",
    "SyntheticData",
    "TimeSeriesDataset",
    "WindowStore",
    "check_regular",
    "context_batch",
    "default_season_length",
    "future_index",
    "gluonts_to_long_frame",
    "infer_frequency",
    "list_datasets",
    "load_card",
    "load_dataset",
    "load_gluonts",
    "make_synthetic",
    "read_panel",
]

# These need torch, which loading a data set does not.
__getattr__ = lazy_names(
    __name__,
    {
        "ForecastBatch": "mlrforecast.data.batch",
        "WindowStore": "mlrforecast.data.windows",
        "context_batch": "mlrforecast.data.windows",
    },
)
