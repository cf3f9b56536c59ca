"""Files and frames in, checked series and typed batches out; knows no model."""

from typing import TYPE_CHECKING

from mlrforecast._core.lazy import lazy_names
from mlrforecast.data.catalogue import (
    ColumnCard,
    DatasetCard,
    FileCard,
    list_datasets,
    load_card,
)
from mlrforecast.data.covariates import ColumnEncoding, CovariateEncoding, EncodedCovariates
from mlrforecast.data.datasets import TimeSeriesDataset, load_dataset
from mlrforecast.data.fetching import (
    datasets_at_hand,
    fetch_dataset,
    find_files,
    verify_dataset,
)
from mlrforecast.data.frequency import (
    check_regular_runs,
    clock_seconds,
    default_season_length,
    future_index,
    future_stamps,
    infer_frequency,
    parse_frequency,
    propose_frequency,
)
from mlrforecast.data.future import extend_panel
from mlrforecast.data.gluonts import gluonts_to_long_frame
from mlrforecast.data.panel import Covariate, Layout, Panel, Series
from mlrforecast.data.reading import read_panel
from mlrforecast.data.scaling import Scaling
from mlrforecast.data.schema import FrameSchema
from mlrforecast.data.streaming import FileDataset
from mlrforecast.data.synthetic import SyntheticData, make_synthetic
from mlrforecast.data.tsf import TsfData, parse_tsf, read_tsf
from mlrforecast.data.writing import write_forecast

if TYPE_CHECKING:
    from mlrforecast.data.batch import ForecastBatch
    from mlrforecast.data.forecast_windows import ForecastWindows
    from mlrforecast.data.windows import WindowStore

__all__ = [
    "ColumnCard",
    "ColumnEncoding",
    "Covariate",
    "CovariateEncoding",
    "DatasetCard",
    "EncodedCovariates",
    "FileCard",
    "FileDataset",
    "ForecastBatch",
    "ForecastWindows",
    "FrameSchema",
    "Layout",
    "Panel",
    "Scaling",
    "Series",
    "SyntheticData",
    "TimeSeriesDataset",
    "TsfData",
    "WindowStore",
    "check_regular_runs",
    "clock_seconds",
    "datasets_at_hand",
    "default_season_length",
    "extend_panel",
    "fetch_dataset",
    "find_files",
    "future_index",
    "future_stamps",
    "gluonts_to_long_frame",
    "infer_frequency",
    "list_datasets",
    "load_card",
    "load_dataset",
    "make_synthetic",
    "parse_frequency",
    "parse_tsf",
    "propose_frequency",
    "read_panel",
    "read_tsf",
    "verify_dataset",
    "write_forecast",
]

# These need torch, which loading a data set does not.
__getattr__ = lazy_names(
    __name__,
    {
        "ForecastBatch": "mlrforecast.data.batch",
        "ForecastWindows": "mlrforecast.data.forecast_windows",
        "WindowStore": "mlrforecast.data.windows",
    },
)
