"""Score what `MLRForecaster` does by default on public panels, beside the seasonal naive.

    python benchmarks/panels.py --out benchmarks/results/panels

Each data set is cut once: the newest windows of each series are held back and scored. The
forecaster is told the horizon, the season where time has none, and the covariates; all else are its
defaults. Files are sought as `load_dataset` does, bike_sharing_hour.csv (hour.csv of the UCI bike
sharing data) in the folder that MLRFORECAST_DATA names. A run replaces its own rows.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from _rows import replace_rows

from mlrforecast import MLRForecaster, __version__, load_dataset
from mlrforecast.baselines import seasonal_naive
from mlrforecast.benchmark import cpu_model
from mlrforecast.evaluation import Backtest

COLUMNS = (
    "dataset",
    "model",
    "seed",
    "mase",
    "smape",
    "wql",
    "series",
    "windows",
    "horizon",
    "season",
    "context",
    "steps",
    "fit_s",
    "hardware",
    "torch",
    "version",
    "command",
)
LEVELS = tuple(round(0.1 * level, 1) for level in range(1, 10))


class Task(NamedTuple):
    """What is learnt from and scored.

    Parameters
    ----------
    frame : DataFrame
        All rows.
    train : DataFrame
        Rows to learn from.
    options : dict
        What the forecaster is told.
    windows : int
        Newest cutoffs of each series, a horizon apart, that are scored.
    """

    frame: pd.DataFrame
    train: pd.DataFrame
    options: dict[str, Any]
    windows: int


def of_catalogue(name: str) -> Task:
    """Return the task of a data set of the catalogue, as its card says."""
    dataset = load_dataset(name)
    options = {"prediction_length": dataset.prediction_length}
    if isinstance(dataset.freq, int):
        options["season_length"] = dataset.season_length
    return Task(dataset.frame, dataset.frame_of("train"), options, 1)


def bike_sharing() -> Task:
    """Return the hourly demand of two years, the newest four weeks held back."""
    (path,) = Path(os.environ["MLRFORECAST_DATA"]).rglob("bike_sharing_hour.csv")
    frame = pd.read_csv(path)
    hours = pd.to_timedelta(frame["hr"], unit="h")
    frame["timestamp"] = pd.to_datetime(frame["dteday"]) + hours
    frame["weathersit"] = frame["weathersit"].astype(str)
    options = {
        "prediction_length": 24,
        "target": "cnt",
        # The weather that came to be stands for a forecast of it.
        "known_covariates": ("holiday", "workingday", "weathersit", "temp", "hum", "windspeed"),
        "fill": "missing",
    }
    return Task(frame, frame[frame["timestamp"] < "2012-12-04"], options, 28)


TASKS: dict[str, Callable[[], Task]] = {
    "m4:hourly": lambda: of_catalogue("m4:hourly"),
    "monash:m3_monthly": lambda: of_catalogue("monash:m3_monthly"),
    "monash:electricity_weekly": lambda: of_catalogue("monash:electricity_weekly"),
    "bike_sharing": bike_sharing,
}


def naive(backtest: Backtest) -> Backtest:
    """Return the forecasts of the seasonal naive in the same windows."""
    panel, season = backtest.panel, backtest.season_length
    firsts = panel.bounds[backtest.series]
    past = [
        panel.values[first : first + rows]
        for first, rows in zip(firsts, backtest.num_rows, strict=True)
    ]
    steps = backtest.forecast.shape[1]
    forecast = np.concatenate([seasonal_naive(rows[None], steps, season) for rows in past])
    return Backtest(
        forecast=forecast,
        actual=backtest.actual,
        quantiles=None,
        quantile_levels=(),
        panel=panel,
        series=backtest.series,
        num_rows=backtest.num_rows,
        season_length=season,
    )


def run(name: str, seeds: range, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Fit and score the defaults once a seed, and the seasonal naive."""
    task = TASKS[name]()
    rows = []
    for seed in seeds:
        forecaster = MLRForecaster(**task.options | options, seed=seed)
        start = time.perf_counter()
        forecaster.fit(task.train)
        seconds = time.perf_counter() - start
        backtest = forecaster.backtest(task.frame, windows=task.windows, quantile_levels=LEVELS)
        trained = {
            "seed": seed,
            "context": forecaster.context_length_,
            "steps": forecaster.num_steps_,
            "fit_s": round(seconds, 1),
        }
        rows.append({"model": "MLRForecaster"} | trained | score(backtest))
        print(name, seed, rows[-1]["mase"], f"{seconds:.0f} s", flush=True)
    rows.append({"model": "seasonal_naive"} | score(naive(backtest)))
    print(name, "seasonal naive", rows[-1]["mase"], flush=True)
    shared = {
        "dataset": name,
        "hardware": hardware(),
        "torch": torch.__version__,
        "version": __version__,
        "command": "python benchmarks/panels.py --out benchmarks/results/panels",
    }
    return [shared | row for row in rows]


def score(backtest: Backtest) -> dict[str, Any]:
    """Return the scores of a table's row."""
    scores = backtest.scores()
    return {
        "mase": f"{scores['MASE']:.4f}",
        "smape": f"{scores['sMAPE']:.4f}",
        "wql": f"{scores['WQL']:.4f}" if "WQL" in scores else "",
        "series": len(backtest.panel),
        "windows": len(backtest.series),
        "horizon": backtest.forecast.shape[1],
        "season": backtest.season_length,
    }


def hardware() -> str:
    """Name what the fit ran on."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{cpu_model()}, {torch.get_num_threads()} threads"


def main() -> None:
    """Run the data sets, and write each into the table as soon as it is done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the table")
    parser.add_argument("--datasets", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 to SEEDS - 1")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.datasets:
        rows = run(name, range(given.seeds), {})
        replace_rows(given.out / "panels.csv", COLUMNS, rows, lambda row: row["dataset"])
    sys.stdout.flush()


if __name__ == "__main__":
    main()
