"""The data sets on which pretrained models are scored, with the windows of Chronos' evaluation."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mlrforecast.baselines import seasonal_naive
from mlrforecast.data import read_tsf
from mlrforecast.metrics import seasonal_error, weighted_quantile_loss

# Name -> files, steps to forecast, steps of a season.
DATASETS = {
    "ETTh": (("ETTh1.csv", "ETTh2.csv"), 24, 24),
    "m4_hourly": (("Hourly-train.csv", "Hourly-test.csv"), 48, 24),
    "monash_electricity_weekly": (("electricity_weekly_dataset.tsf",), 8, 1),
    "monash_m1_monthly": (("m1_monthly_dataset.tsf",), 18, 12),
    "monash_m1_quarterly": (("m1_quarterly_dataset.tsf",), 8, 4),
    "monash_m3_monthly": (("m3_monthly_dataset.tsf",), 18, 12),
    "monash_m3_yearly": (("m3_yearly_dataset.tsf",), 6, 1),
}


@dataclass(frozen=True)
class Dataset:
    """The last window of each series of a data set."""

    name: str
    contexts: list[np.ndarray]
    actual: np.ndarray
    season: int

    @property
    def horizon(self) -> int:
        """Steps to forecast."""
        return self.actual.shape[1]


def read_datasets(names: Sequence[str], *, most: int | None = None) -> list[Dataset]:
    """Read data sets from the folder in MLRFORECAST_DATA, at most so many series of each."""
    if unknown := set(names) - set(DATASETS):
        raise SystemExit(f"Unknown data sets: {', '.join(sorted(unknown))}.")
    if not (root := os.environ.get("MLRFORECAST_DATA")):
        raise SystemExit("Set MLRFORECAST_DATA to the folder of the data sets.")
    return [_read(name, Path(root), most) for name in names]


def _read(name: str, root: Path, most: int | None) -> Dataset:
    """Read one data set."""
    files, horizon, season = DATASETS[name]
    paths = [_found(root, file) for file in files]
    if name == "ETTh":
        tables = [pd.read_csv(path).iloc[:, 1:] for path in paths]
        series = [table[column].to_numpy(float) for table in tables for column in table]
    elif name == "m4_hourly":
        past, future = (pd.read_csv(path).iloc[:, 1:].to_numpy(float) for path in paths)
        series = [
            np.concatenate([row[~np.isnan(row)], ahead])
            for row, ahead in zip(past, future, strict=True)
        ]
    else:
        (path,) = paths
        frame = read_tsf(path).frame
        series = [
            group.to_numpy(float) for _, group in frame.groupby("item_id", sort=False)["target"]
        ]
    series = series[:most]
    actual = np.stack([each[-horizon:] for each in series])
    return Dataset(name, [each[:-horizon] for each in series], actual, season)


def _found(root: Path, name: str) -> Path:
    """Return a file at any depth, plain or compressed."""
    for wanted in (name, f"{name}.xz"):
        if found := sorted(root.rglob(wanted)):
            return found[0]
    raise SystemExit(f"No {name} (or {name}.xz) in the folder that MLRFORECAST_DATA names.")


def score(
    data: Dataset, point: np.ndarray, quantiles: np.ndarray, levels: Sequence[float]
) -> tuple[float, float]:
    """Return MASE and WQL of a point forecast (N, F) and of quantiles (N, F, Q)."""
    scales = np.array(
        [seasonal_error(past[None, :, None], data.season).item() for past in data.contexts]
    )
    errors = np.abs(data.actual - point) / np.where(scales > 0, scales, np.nan)[:, None]
    wql = weighted_quantile_loss(data.actual[..., None], quantiles[:, :, None], levels)
    return float(np.nanmean(errors)), wql


def seasonal_naive_scores(data: Dataset, levels: Sequence[float]) -> tuple[float, float]:
    """Score the values of one season before."""
    point = np.stack(
        [
            seasonal_naive(past[None, :, None], data.horizon, data.season)[0, :, 0]
            for past in data.contexts
        ]
    )
    return score(data, point, np.repeat(point[..., None], len(levels), axis=-1), levels)
