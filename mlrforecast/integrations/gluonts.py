"""Fitted forecasters as predictors of GluonTS."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from mlrforecast._core.optional import import_optional
from mlrforecast.data.gluonts import period_of_start
from mlrforecast.estimators import MLRForecaster

__all__: list[str] = []

_FOLDER = "forecaster"
_SETTINGS = "predictor.json"
_MEAN, _MEDIAN = "mean", 0.5

Entry = Mapping[str, Any]


class _Forecasting:
    """What a predictor does; the class of GluonTS is mixed in where that is installed."""

    prediction_length: int

    def __init__(
        self,
        forecaster: MLRForecaster,
        quantile_levels: Sequence[float],
        batch_size: int,
    ) -> None:
        super().__init__(prediction_length=forecaster.config_.prediction_length)  # type: ignore[call-arg]
        self.forecaster = forecaster
        self.quantile_levels = tuple(quantile_levels)
        self.batch_size = batch_size

    def predict(
        self, dataset: Iterable[Entry], num_samples: int | None = None, seed: int = 0
    ) -> Iterator[Any]:
        """Yield a forecast for each entry of a data set, in its order.

        Parameters
        ----------
        dataset : iterable of mappings
            Entries; an ``item_id`` may occur more than once, as in rolling test sets. Known
            covariates go on after the target.
        num_samples : int, optional
            Sample paths of each forecast. Default: quantiles instead.
        seed : int
            Seed of the paths.

        Yields
        ------
        QuantileForecast or SampleForecast
            Of shape (K, F), of a multivariate entry (K, F, C): the point forecast as ``"mean"``
            and a quantile for each level, or sample paths.
        """
        entries = iter(dataset)
        position = 0
        while batch := list(islice(entries, self.batch_size)):
            yield from self._predict(batch, position, num_samples, seed)
            position += len(batch)

    def serialize(self, path: Path) -> None:
        """Write the predictor into an existing folder ``path``: no code, no pickle, no data."""
        super().serialize(path)  # type: ignore[misc]
        self.forecaster.save(path / _FOLDER)
        settings = {"quantile_levels": self.quantile_levels, "batch_size": self.batch_size}
        (path / _SETTINGS).write_text(json.dumps(settings), encoding="utf-8")

    @classmethod
    def deserialize(cls, path: Path, backbone: nn.Module | None = None) -> "_Forecasting":
        """Read a predictor from a folder ``path``; a ``backbone`` of one's own is passed again."""
        settings = json.loads((path / _SETTINGS).read_text(encoding="utf-8"))
        return cls(MLRForecaster.load(path / _FOLDER, backbone=backbone), **settings)

    def _predict(
        self, batch: list[Entry], position: int, num_samples: int | None, seed: int
    ) -> Iterator[Any]:
        """Forecast some entries, of which the first is number ``position`` of the data set."""
        named = _named(batch, position)
        if num_samples is None:
            keys, values = self._quantiles(named)
        else:
            keys = None
            frame = self.forecaster.predict_samples(named, num_samples=num_samples, seed=seed)
            values = self._blocks(frame, [f"sample_{number}" for number in range(num_samples)])
        first = 0
        for entry in batch:
            shape = np.shape(entry["target"])
            channels = shape[0] if len(shape) == 2 else 1
            # (C, F, K) to (K, F, C).
            block = values[first : first + channels].transpose(2, 1, 0)
            first += channels
            start = period_of_start(entry["start"], self.forecaster.freq_) + shape[-1]
            found = block if len(shape) == 2 else block[:, :, 0]
            yield _made(found, keys, start, entry.get("item_id"))

    def _quantiles(self, named: list[Entry]) -> tuple[list[str], np.ndarray]:
        """Return the keys of forecasts, and the forecasts of shape (S, F, K)."""
        if not self.quantile_levels:
            # A point forecast is all there is: it stands for the median too, which scores read.
            frame = self.forecaster.predict(named)
            return [_MEAN, str(_MEDIAN)], self._blocks(frame, ["target", "target"])
        names = [f"{level:g}" for level in self.quantile_levels]
        frame = self.forecaster.predict(named, quantile_levels=self.quantile_levels)
        return [_MEAN, *names], self._blocks(frame, ["target", *names])

    def _blocks(self, frame: pd.DataFrame, columns: list[str]) -> np.ndarray:
        """Return columns of a long frame, of shape (S, F, K)."""
        values = frame[columns].to_numpy(dtype=np.float64)
        return values.reshape(-1, self.prediction_length, len(columns))


def make_predictor(
    forecaster: MLRForecaster, *, quantile_levels: Sequence[float], batch_size: int
) -> Any:
    """Make a predictor of GluonTS of a forecaster.

    Parameters
    ----------
    forecaster : MLRForecaster
        Fitted, with columns that are named as the features of entries are.
    quantile_levels : sequence of float
        Levels of forecasts; none of a forecaster that has points alone.
    batch_size : int
        Entries that are forecast at once.

    Returns
    -------
    gluonts.model.predictor.Predictor
        An ``MLRPredictor``.

    Raises
    ------
    MissingDependencyError
        If GluonTS is not installed.
    """
    return _predictor_class()(forecaster, quantile_levels, batch_size)


def __getattr__(name: str) -> Any:
    # GluonTS looks the class up by its name when it loads a predictor.
    if name == "MLRPredictor":
        return _predictor_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _predictor_class() -> Any:
    """Return the class of predictors, which needs GluonTS to be made."""
    base = _gluonts("gluonts.model.predictor").Predictor
    return type("MLRPredictor", (_Forecasting, base), {"__doc__": __doc__, "__module__": __name__})


def _gluonts(module: str) -> Any:
    return import_optional(module, extra="gluonts", purpose="A predictor of GluonTS")


def _named(batch: list[Entry], position: int) -> list[Entry]:
    """Give every entry a name of its own."""
    named: dict[str, Entry] = {}
    for number, entry in enumerate(batch, start=position):
        item = entry.get("item_id")
        name = str(number if item is None else item)
        if name in named:
            name = f"{name} (entry {number})"
        named[name] = {**entry, "item_id": name}
    return list(named.values())


def _made(values: np.ndarray, keys: list[str] | None, start: pd.Period, item: object) -> Any:
    """Make a forecast of GluonTS."""
    forecast = _gluonts("gluonts.model.forecast")
    item_id = None if item is None else str(item)
    if keys is None:
        return forecast.SampleForecast(values, start_date=start, item_id=item_id)
    return forecast.QuantileForecast(values, start_date=start, forecast_keys=keys, item_id=item_id)
