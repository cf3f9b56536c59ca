"""Saved models, and the tables that they read."""

from pathlib import Path

import pandas as pd

from mlrforecast.cli._console import Console
from mlrforecast.cli._tables import ITEM_NAMES, form_of, read_table
from mlrforecast.estimators import MLRForecaster


def load_model(folder: Path, accelerator: str | None, console: Console) -> MLRForecaster:
    """Load a model, to compute where, and with the bars, that were asked for."""
    forecaster = MLRForecaster.load(folder)
    forecaster.set_params(progress=console.progress)
    if accelerator is not None:
        forecaster.set_params(accelerator=accelerator)
    return forecaster


def read_for(
    forecaster: MLRForecaster, source: str, form: str | None, argument: str = "DATA"
) -> pd.DataFrame:
    """Read a table in which the items of the model stay text."""
    named = forecaster.id_column
    return read_table(
        source,
        form=form_of(source, form, argument),
        items=ITEM_NAMES if named is None else (named,),
    )


def has_quantiles(forecaster: MLRForecaster) -> bool:
    """Tell whether a model forecasts more than a point."""
    return forecaster.calibration_ is not None or forecaster.config_.loss not in ("mae", "mse")
