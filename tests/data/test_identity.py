"""Data sets that are what they say: known scores of forecasts that anyone can repeat."""

import numpy as np
import pandas as pd
import pytest

from mlrforecast import load_dataset
from mlrforecast.baselines import seasonal_naive
from mlrforecast.data import TimeSeriesDataset, read_panel
from mlrforecast.evaluation import Backtest
from mlrforecast.metrics import mase, seasonal_error, smape

# name -> file of the published scores, its name of the data set, and what it forecasts.
PUBLISHED = {
    "monash:m1_monthly": ("zero-shot", "monash_m1_monthly", 18, 12),
    "monash:m1_quarterly": ("zero-shot", "monash_m1_quarterly", 8, 4),
    "monash:m1_yearly": ("zero-shot", "monash_m1_yearly", 6, 1),
    "monash:m3_monthly": ("zero-shot", "monash_m3_monthly", 18, 12),
    "monash:m3_yearly": ("zero-shot", "monash_m3_yearly", 6, 1),
    "monash:electricity_weekly": ("in-domain", "monash_electricity_weekly", 8, 1),
    "m4:hourly": ("in-domain", "m4_hourly", 48, 24),
    "exchange_rate": ("zero-shot", "exchange_rate", 30, 5),
    "ETTh1 ETTh2": ("zero-shot", "ETTh", 24, 24),
}


def seasonal_naive_mase(frame: pd.DataFrame, horizon: int, season: int) -> float:
    """MASE of our seasonal naive for the last window of each series, as our backtests have it."""
    panel = read_panel(frame)
    past = [series.values[None, :-horizon] for series in panel]
    backtest = Backtest(
        forecast=np.concatenate([seasonal_naive(values, horizon, season) for values in past]),
        actual=np.stack([series.values[-horizon:] for series in panel]),
        quantiles=None,
        quantile_levels=(),
        panel=panel,
        series=np.arange(len(panel)),
        num_rows=panel.lengths - horizon,
        season_length=season,
    )
    return float(backtest.scores()["MASE"])


@pytest.mark.shared
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_seasonal_naive_scores_as_published_with_chronos(name, shared_file):
    part, published, horizon, season = PUBLISHED[name]
    table = pd.read_csv(shared_file(f"seasonal-naive-{part}.csv"), index_col="dataset")
    sets = [load_dataset(single, download=False) for single in name.split()]
    if name not in ("exchange_rate", "ETTh1 ETTh2"):
        assert (sets[0].prediction_length, sets[0].season_length) == (horizon, season)
    # Both of ETT have the same stamps and names of columns.
    frames = [
        one.targets.add_suffix(f" {one.name}") if not one.is_long else one.frame for one in sets
    ]
    frame = pd.concat(frames, axis=1) if len(frames) > 1 else frames[0]
    found = seasonal_naive_mase(frame, horizon, season)
    assert round(found, 4) == round(table.loc[published, "MASE"], 4)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("file", "known"),
    [
        ("Hourly-sNaive-forecasts.csv", (13.912, 1.193)),
        ("Hourly-Naive2-forecasts.csv", (18.383, 2.395)),
    ],
)
def test_forecasts_of_the_m4_competition_score_as_it_says(file, known, shared_file):
    dataset = load_dataset("m4:hourly", download=False)
    forecast = pd.read_csv(shared_file(file), index_col=0).to_numpy()[..., None]
    items = dataset.frame["item_id"].unique()
    assert list(items) == list(pd.read_csv(shared_file(file), index_col=0).index)
    actual = dataset.test["target"].to_numpy().reshape(forecast.shape)
    train = dataset.train.groupby("item_id", sort=False)["target"]
    scale = [seasonal_error(past.to_numpy()[None, :, None], 24)[0] for _, past in train]
    assert round(100 * smape(actual, forecast), 3) == known[0]
    assert round(mase(actual, forecast, np.array(scale)), 3) == known[1]


@pytest.mark.shared
def test_the_starts_of_m4_are_those_of_the_copy_with_starts(shared_file):
    """The same number of rows as the file of starts says, so that the two can be joined."""
    dataset: TimeSeriesDataset = load_dataset("m4:hourly", download=False)
    starts = pd.read_csv(shared_file("hourly-start-timestamps.csv"), index_col="id")
    assert dataset.lengths.to_dict() == starts["length_train_plus_test"].to_dict()
