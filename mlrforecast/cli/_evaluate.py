"""What ``mlrforecast backtest`` and ``mlrforecast plot`` do."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from mlrforecast.cli._console import Console
from mlrforecast.cli._models import has_quantiles, load_model, read_for
from mlrforecast.cli._paths import whole_file
from mlrforecast.cli._predict import read_given, records
from mlrforecast.cli._tables import form_of, naming, write_table
from mlrforecast.estimators import MLRForecaster
from mlrforecast.evaluation import Backtest, leaderboard

_NAME = "MLRForecaster"
_LEVELS = (0.1, 0.5, 0.9)
_PICTURES = (".png", ".pdf", ".svg")


def run_backtest(
    model: Path,
    data: str,
    *,
    windows: int | None,
    step: int | None,
    refit: int | bool,
    quantile_levels: Sequence[float] | None,
    out: str | None,
    accelerator: str | None,
    form: str | None,
    console: Console,
) -> None:
    """Score a saved model beside simple forecasts, and write every forecast."""
    written = None if out is None else form_of(out, form, "--out")
    forecaster = load_model(model, accelerator, console)
    frame = read_for(forecaster, data, form)
    if quantile_levels is None and has_quantiles(forecaster):
        quantile_levels = _default_levels(forecaster)
    with naming(X=data):
        result = forecaster.backtest(
            frame, windows=windows, step=step, refit=refit, quantile_levels=quantile_levels
        )
        table = leaderboard({_NAME: result})
    if out is not None:
        write_table(result.frame, out, form=written or "csv")
        console.say(f"Wrote {len(result.frame)} rows to {out}.")
    left_out = table.attrs.get("left_out", {})
    for name, reason in left_out.items():
        console.say(f"Without {name}: {reason}")
    console.finish(
        {
            "model": str(model),
            **_span(result),
            "leaderboard": records(table.rename_axis("model").reset_index()),
            "left_out": left_out,
            "out": out,
        },
        _as_text(result, table),
    )


def _default_levels(forecaster: MLRForecaster) -> tuple[float, ...]:
    """Return the levels that are scored unless others are asked for."""
    trained = forecaster.config_.quantile_levels
    return trained if forecaster.config_.loss == "quantile" and len(trained) == 1 else _LEVELS


def _span(result: Backtest) -> dict[str, Any]:
    """Return what a backtest was of."""
    return {
        "series": len(np.unique(result.series)),
        "windows": len(result.forecast),
        "prediction_length": result.forecast.shape[1],
        "first_cutoff": result.cutoffs.min(),
        "last_cutoff": result.cutoffs.max(),
    }


def _as_text(result: Backtest, table: pd.DataFrame) -> str:
    """Return the leaderboard to be read."""
    span = _span(result)
    windows = "1 window" if span["windows"] == 1 else f"{span['windows']} windows"
    return (
        f"{windows} of {span['prediction_length']} steps, cutoffs from {span['first_cutoff']} to "
        f"{span['last_cutoff']}:\n"
        + table.rename_axis(None).to_string(float_format="{:.4g}".format, na_rep="")
    )


def run_plot(
    model: Path,
    data: str | None,
    *,
    out: Path,
    kind: str,
    future: str | None,
    quantile_levels: Sequence[float] | None,
    items: Sequence[str] | None,
    max_items: int,
    windows: int | None,
    step: int | None,
    accelerator: str | None,
    form: str | None,
    console: Console,
) -> None:
    """Draw a forecast or a backtest of a saved model."""
    if out.suffix.lower() not in _PICTURES:
        raise ValueError(f"`--out` must end in {', '.join(_PICTURES)}, got {out.name!r}.")
    forecaster = load_model(model, accelerator, console)
    given = read_given(forecaster, data, future, form)
    with naming(X=data or str(model), future=future):
        chosen = _items(forecaster, given["X"], items)
        shown: dict[str, Any] = {"items": chosen, "max_items": max_items}
        axes: Any
        if kind == "forecast":
            axes = forecaster.plot(**given, **shown, quantile_levels=quantile_levels)
        else:
            if quantile_levels is None and kind == "backtest" and has_quantiles(forecaster):
                quantile_levels = forecaster.config_.quantile_levels
            result = forecaster.backtest(
                given["X"], windows=windows, step=step, quantile_levels=quantile_levels
            )
            axes = result.plot(**shown) if kind == "backtest" else result.plot_error_by_step()
    _save(axes, out)
    console.say(f"Drew {out}.")
    console.finish({"out": str(out), "kind": kind})


def _items(
    forecaster: MLRForecaster, frame: pd.DataFrame | None, names: Sequence[str] | None
) -> list[Any] | None:
    """Return items by the names that were typed, numbers of a parquet file too."""
    if names is None:
        return None
    known: list[Any] = []
    column = forecaster.id_column
    if frame is not None:
        candidates = ("item_id", "unique_id") if column is None else (column,)
        held = [name for name in candidates if name in frame.columns]
        known = frame[held[0]].unique().tolist() if held else frame.columns.tolist()
    elif forecaster.context_ is not None:
        known = forecaster.context_.labels.tolist()
    by_text = {str(name): name for name in known}
    return [by_text.get(name, name) for name in names]


def _save(axes: Any, out: Path) -> None:
    """Write the figure of axes, whole or not at all."""
    figure = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()[0].figure
    try:
        with whole_file(out) as draft:
            figure.savefig(draft, format=out.suffix.lower()[1:], dpi=130)
    finally:
        plt.close(figure)
