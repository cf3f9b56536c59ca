"""The demonstration: fit, forecast, score, draw."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from mlrforecast import metrics
from mlrforecast._core.errors import DatasetNotFoundError
from mlrforecast.baselines import profile_mean, repeat_last, seasonal_naive
from mlrforecast.cli._paths import whole_file
from mlrforecast.data import TimeSeriesDataset, find_files, load_card, load_dataset
from mlrforecast.estimators import MLRForecaster
from mlrforecast.plots import plot_forecast

Values = NDArray[np.float64]

_LEVELS = (0.1, 0.5, 0.9)
_FAN = (0.1, 0.3, 0.5, 0.7, 0.9)
_NUM_SEASONS = 7
_MAX_DRAWN = 4


def run_demo(data: str, *, out: Path, max_steps: int | None, seed: int) -> Iterator[str]:
    """Run the demonstration and tell, line by line, what it does and finds."""
    if out.suffix.lower() != ".png":
        raise ValueError(f"`--out` must name a .png file, got {out.name!r}.")
    dataset = load(data)
    yield dataset.describe()
    forecaster = MLRForecaster(dataset.prediction_length, seed=seed)
    if max_steps is not None:
        forecaster.set_params(max_steps=max_steps)
    train = dataset.splits["train"]
    yield f"Fitting MLRForecaster on the {train.stop - train.start} train rows."
    forecaster.fit(dataset.targets.iloc[train.start : train.stop])
    yield ""
    yield from score_lines(dataset, forecaster)
    draw(dataset, forecaster, out)
    yield ""
    yield f"Picture of the last test window: {out}"


def load(data: str) -> TimeSeriesDataset:
    """Read ``--data``: the embedded series, ETTh1 from a folder, or ETTh1 wherever it is."""
    if data == "synthetic":
        return load_dataset("synthetic")
    if data == "download":
        return load_dataset("ETTh1")
    if not Path(data).is_dir():
        raise FileNotFoundError(
            f"`--data` must be synthetic, download or an existing folder, got {data!r}."
        )
    # load_dataset would go on to look elsewhere; a folder that was named is the one that is meant.
    file = load_card("ETTh1").files[0].name
    if not find_files(data, file):
        raise DatasetNotFoundError(
            f"`--data` must be a folder that holds {file} or {file}.xz, at any depth; "
            f"there is none in {data!r}."
        )
    return load_dataset("ETTh1", root=data, download=False)


def score_lines(dataset: TimeSeriesDataset, forecaster: MLRForecaster) -> list[str]:
    """Score the forecaster and the floors on every window of the test rows."""
    test, context = dataset.splits["test"], forecaster.context_length_
    rolled = forecaster.backtest(
        dataset.targets.iloc[test.start - context : test.stop], step=1, quantile_levels=_LEVELS
    )
    scale = metrics.seasonal_error(dataset.train.to_numpy()[None], dataset.season_length)
    forecasts = {"MLRForecaster": rolled.forecast} | _floors(dataset, len(rolled.forecast))
    rows = {
        name: _point_scores(rolled.actual, forecast, scale, dataset.target_columns)
        for name, forecast in forecasts.items()
    }
    assert rolled.quantiles is not None, "levels were asked for"
    wql = metrics.weighted_quantile_loss(rolled.actual, rolled.quantiles, _LEVELS)
    inside = metrics.coverage(rolled.actual, rolled.quantiles[..., 0], rolled.quantiles[..., -1])
    return [
        f"MASE (MAE) over {len(rolled.forecast)} test windows of {dataset.prediction_length} "
        "steps; lower is better:",
        *pd.DataFrame(rows).T.to_string().splitlines(),
        f"Quantiles of MLRForecaster: WQL {wql:.3f}, {inside:.0%} of the values inside the "
        "80 % interval.",
    ]


def _point_scores(
    actual: Values, forecast: Values, scale: Values, columns: tuple[str, ...]
) -> dict[str, str]:
    scores = {}
    for place, name in enumerate(columns):
        one = slice(place, place + 1)
        pair = actual[..., one], forecast[..., one]
        scores[name] = f"{metrics.mase(*pair, scale[:, one]):.3f} ({metrics.mae(*pair):#.3g})"
    mean = f"{metrics.mase(actual, forecast, scale):.3f} ({metrics.mae(actual, forecast):#.3g})"
    return scores | {"mean": mean}


def _floors(dataset: TimeSeriesDataset, windows: int) -> dict[str, Values]:
    """Forecast the same windows from the last seven seasons, without training."""
    season, horizon, test = dataset.season_length, dataset.prediction_length, dataset.splits["test"]
    values = dataset.targets.to_numpy(dtype=np.float64)
    known = values[test.start - _NUM_SEASONS * season : test.stop - horizon]
    past = sliding_window_view(known, _NUM_SEASONS * season, axis=0).transpose(0, 2, 1)
    assert len(past) == windows, "floors and forecaster are scored on the same windows"
    return {
        "repeat last": repeat_last(past, horizon),
        "seasonal naive": seasonal_naive(past, horizon, season),
        f"mean of {_NUM_SEASONS} seasons": profile_mean(past, horizon, season, _NUM_SEASONS),
    }


def draw(dataset: TimeSeriesDataset, forecaster: MLRForecaster, out: Path) -> None:
    """Draw the last window of the test rows and write it as a PNG file."""
    cutoff = dataset.splits["test"].stop - dataset.prediction_length
    history = dataset.targets.iloc[:cutoff]
    actual = dataset.targets.iloc[cutoff : dataset.splits["test"].stop]
    forecast = forecaster.predict(history, quantile_levels=_FAN)
    drawn = min(len(dataset.target_columns), _MAX_DRAWN)
    # A figure of its own, without pyplot: no window and no screen is needed.
    figure = Figure(figsize=(10, 1.4 + 2.1 * drawn), layout="constrained")
    grid = figure.subplots(drawn, 1, sharex=True, squeeze=False)
    axes = plot_forecast(history, forecast, actual=actual, max_items=_MAX_DRAWN, ax=grid[:, 0])
    units = {column.name: column.unit for column in dataset.card.columns}
    for axis in axes:
        if (unit := units[axis.get_ylabel()]) != "not stated":
            axis.set_ylabel(f"{axis.get_ylabel()} ({unit})")
    figure.align_ylabels()
    figure.suptitle(f"{dataset.name}: {dataset.prediction_length} steps ahead", ha="left", x=0.01)
    with whole_file(out) as draft:
        figure.savefig(draft, format="png", dpi=130)
