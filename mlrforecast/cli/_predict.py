"""What ``mlrforecast predict`` does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mlrforecast.cli._console import Console
from mlrforecast.cli._models import load_model, read_for
from mlrforecast.cli._tables import STREAM, flatten, form_of, naming, write_table
from mlrforecast.estimators import MLRForecaster


def run_predict(
    model: Path,
    data: str | None,
    *,
    future: str | None,
    prediction_length: int | None,
    quantile_levels: Sequence[float] | None,
    num_samples: int | None,
    seed: int,
    out: str,
    accelerator: str | None,
    form: str | None,
    console: Console,
) -> None:
    """Forecast with a saved model and write the table."""
    written = form_of(out, form, "--out")
    forecaster = load_model(model, accelerator, console)
    given = read_given(forecaster, data, future, form)
    with naming(X=data or str(model), future=future):
        if num_samples is None:
            forecast = forecaster.predict(
                **given, prediction_length=prediction_length, quantile_levels=quantile_levels
            )
        else:
            forecast = forecaster.predict_samples(
                **given, prediction_length=prediction_length, num_samples=num_samples, seed=seed
            )
    table = flatten(forecast)
    report: dict[str, Any] = {"rows": len(table), "columns": [str(name) for name in table]}
    if out != STREAM:
        write_table(table, out, form=written)
        console.say(f"Wrote {len(table)} rows to {out}.")
        console.finish({"out": out, **report})
    elif console.as_json:
        console.finish({**report, "forecast": records(table)})
    else:
        write_table(table, out, form=written)


def read_given(
    forecaster: MLRForecaster, data: str | None, future: str | None, form: str | None
) -> dict[str, Any]:
    """Read the tables to forecast from, as arguments of ``predict``."""
    if data is None and forecaster.context_ is None:
        raise ValueError(
            "DATA is needed: the model was saved without its context. Name the table to forecast "
            "from, or fit with --with-context."
        )
    return {
        "X": None if data is None else read_for(forecaster, data, form),
        "future": None if future is None else read_for(forecaster, future, form, "--future"),
    }


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as mappings of plain values, missing ones as None."""
    plain = table.astype(object).where(table.notna(), None)
    return [
        {str(name): value for name, value in zip(table.columns, row, strict=True)}
        for row in plain.itertuples(index=False, name=None)
    ]
