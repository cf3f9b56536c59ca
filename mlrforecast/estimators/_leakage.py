"""A proof, on a caller's own frame, that nothing after a cutoff reaches what stands before it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data import Covariate, Panel
from mlrforecast.data.scaling import scale_runs
from mlrforecast.estimators._inference import BATCH, Predictor, slices
from mlrforecast.estimators._training_data import TrainingData, prepare

SAME = 0.9999
"""A known covariate that correlates more than this with a target is taken for the target."""


class Finding(NamedTuple):
    """One line of the report."""

    check: str
    cutoff: Any
    max_change: float
    passed: bool


def find_leaks(
    predictor: Predictor, panel: Panel, parameters: dict[str, Any], cutoffs: int
) -> pd.DataFrame:
    """Check scalers, forecasts, training data and known covariates, see ``check_leakage``."""
    findings: list[Finding] = []
    for stamp in _stamps(panel, cutoffs):
        findings += _of_cutoff(predictor, panel, stamp)
    findings += _of_training(panel, parameters)
    findings += _of_known_covariates(panel)
    report = pd.DataFrame(findings, columns=list(Finding._fields))
    dated = isinstance(panel.index, pd.DatetimeIndex)
    # Not left to pandas: a missing stamp would make objects or floats of them.
    dtype = panel.index.dtype if dated else pd.Int64Dtype()
    return report.astype({"cutoff": dtype})


def _stamps(panel: Panel, count: int) -> list[Any]:
    """Return stamps that cut the longest series into parts of about one length."""
    number = int(np.argmax(panel.lengths))
    rows = int(panel.lengths[number])
    if rows < 2:
        raise DataError(
            f"A cutoff needs a row before and one after it, but {panel.owner(number)} has {rows}."
        )
    places = np.unique(np.linspace(0, rows, count + 2)[1:-1].astype(int).clip(1, rows - 1))
    return list(panel.index[panel.bounds[number] + places - 1])


def _of_cutoff(predictor: Predictor, panel: Panel, stamp: Any) -> list[Finding]:
    """Forecast from a cutoff, whatever stands after it."""
    later = panel.index > stamp
    cutoffs = np.add.reduceat(~later, panel.bounds[:-1], dtype=np.int64)
    ends = np.minimum(cutoffs + predictor.model.config.prediction_length, panel.lengths)
    expected = _read(predictor, panel, cutoffs)
    worst = dict.fromkeys(("scaler", "forecast"), 0.0)
    for changed in _changed(panel, later, past_only=True):
        # As a whole, and as it was at the cutoff, with the known covariates of the forecast.
        for given in (changed, changed.crop(np.zeros_like(ends), ends)):
            for name, change in _changes(expected, _read(predictor, given, cutoffs)).items():
                worst[name] = max(worst[name], change)
    return [Finding(name, stamp, change, change == 0) for name, change in worst.items()]


def _changed(panel: Panel, rows: np.ndarray, *, past_only: bool) -> Iterator[Panel]:
    """Yield panels that hold other values in the rows that must not be read, and none there."""
    rng = np.random.default_rng(0)
    garbage = rng.normal(1e6, 1e6, size=(int(rows.sum()), panel.num_channels))

    def hide(covariates: Iterable[Covariate]) -> tuple[Covariate, ...]:
        return tuple(_with_garbage(covariate, rows, rng) for covariate in covariates)

    for content in (garbage, np.nan):
        values = panel.values.copy()
        values[rows] = content
        known = panel.known if past_only else hide(panel.known)
        yield replace(panel, values=values, past=hide(panel.past), known=known)


def _with_garbage(covariate: Covariate, rows: np.ndarray, rng: np.random.Generator) -> Covariate:
    values, count = covariate.values.copy(), int(rows.sum())
    if covariate.categories is None:
        values[rows] = rng.normal(1e6, 1e6, size=count)
    else:
        values[rows] = rng.integers(-1, len(covariate.categories), size=count)
    return Covariate(covariate.name, values, covariate.categories)


def _read(predictor: Predictor, panel: Panel, cutoffs: np.ndarray) -> dict[str, np.ndarray]:
    """Return the scalers at some cutoffs, and the forecasts with their quantiles behind them."""
    series = np.flatnonzero(cutoffs)
    windows = predictor.windows(panel, series, cutoffs[series])
    given = [windows.gather(rows) for rows in slices(len(windows), BATCH)]
    found = predictor.forecast(windows)
    point = found.point[..., None]
    forecasts = [point] if found.details is None else [point, found.details]
    return {
        "loc": np.concatenate([part.loc for part in given]),
        "scale": np.concatenate([part.scale for part in given]),
        "forecast": np.concatenate(forecasts, axis=-1),
    }


def _changes(expected: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the largest changes, in units of the scale of each context."""
    scale = expected["scale"]
    scaler = [_largest(expected[name], found[name], scale) for name in ("loc", "scale")]
    forecast = _largest(expected["forecast"], found["forecast"], scale[..., None])
    return {"scaler": max(scaler), "forecast": forecast}


def _largest(expected: np.ndarray, found: np.ndarray, scale: np.ndarray | float = 1.0) -> float:
    """Return the largest change, infinite where a value came or went."""
    if expected.shape != found.shape:
        return np.inf
    same = (expected == found) | (np.isnan(expected) & np.isnan(found))
    change = np.where(same, 0.0, np.abs(found - expected) / scale)
    return float(np.nan_to_num(change, nan=np.inf, posinf=np.inf).max(initial=0.0))


def _of_training(panel: Panel, parameters: dict[str, Any]) -> list[Finding]:
    """Check that rows held back for early stopping change nothing that is trained on."""
    stopping = parameters | {"early_stopping": True}
    try:
        expected = prepare(panel, stopping)
    except DataError:
        # No series is long enough that rows could be held back.
        return []
    places = np.arange(len(panel.index)) - np.repeat(panel.bounds[:-1], panel.lengths)
    held_back = places >= np.repeat(expected.num_rows, panel.lengths)
    change = 0.0
    for changed in _changed(panel, held_back, past_only=False):
        change = max(change, _change_of_training(expected, prepare(changed, stopping)))
    number = int(np.argmax(panel.lengths))
    cutoff = panel.index[panel.bounds[number] + expected.num_rows[number] - 1]
    return [Finding("training", cutoff, change, change == 0)]


def _change_of_training(expected: TrainingData, found: TrainingData) -> float:
    """Return the largest change of training windows, infinite if covariates are read otherwise."""
    if expected.encoding != found.encoding:
        return np.inf
    return _largest(expected.store.buffer.numpy(), found.store.buffer.numpy())


def _of_known_covariates(panel: Panel) -> list[Finding]:
    """Check that no known covariate is a target in disguise: a straight line makes one of it."""
    findings = []
    for covariate in panel.known:
        if covariate.categories is None:
            channels = range(panel.num_channels)
            alike = max(_correlation(panel, covariate.values, channel) for channel in channels)
            name = f"known covariate {covariate.name!r}"
            findings.append(Finding(name, None, alike, alike <= SAME))
    return findings


def _correlation(panel: Panel, numbers: np.ndarray, channel: int) -> float:
    """Return the size of the correlation of numbers with a target, inside the series."""
    target = panel.values[:, channel]
    together = ~np.isnan(target) & ~np.isnan(numbers)
    one, other = (
        np.nan_to_num(scale_runs(np.where(together, values, np.nan), panel.bounds).values)
        for values in (target, numbers)
    )
    size = float(np.sqrt(np.sum(one * one) * np.sum(other * other)))
    return abs(float(np.sum(one * other))) / size if size else 0.0
