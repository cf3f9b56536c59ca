"""Forecast the day-ahead prices of Nord Pool as the EPF benchmark does.

At every midnight of two years the 24 prices of the day are forecast from the prices before and the
published forecasts of load and wind for that day. The network is fitted anew every ``--refit`` days
on all rows before. With ``--final`` the years are the test years of the benchmark, 2016-12-27 to
2018-12-24, and the run is noted in ``final_runs.log`` before it begins; without, they are the two
years before, where settings are chosen. Run it from the root of the repository, with the folder of
data sets in MLRFORECAST_DATA::

    python benchmarks/epf.py benchmarks/results/epf --refit 28 --final

Naive forecasts, the price of the same hour of the day and of the week before, are rows of the same
file. The published ensembles of the benchmark (Lago et al., "Forecasting day-ahead electricity
prices", Applied Energy 293, 2021), fitted anew every day, have a mean absolute error of 1.738
(LEAR) and 1.683 (DNN) over the test years.
"""

import argparse
import os
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _arguments import add_settings, read_settings
from _rows import replace_rows

from mlrforecast import MLRForecaster
from mlrforecast._core.provenance import config_hash, device_name, versions
from mlrforecast.benchmark._results import append_log
from mlrforecast.benchmark._runs import settings_of

DAYS = 728
KEY = ("part", "model", "refit_days", "seed", "config_hash")
COLUMNS = (
    *KEY,
    *("mae", "rmse", "hours", "fits", "context_length", "parameters", "seconds"),
    *("hardware", "versions", "command"),
)
COVARIATES = ("load", "wind")


def main() -> None:
    """Forecast, score and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument("--final", action="store_true", help="the test years of the benchmark")
    parser.add_argument("--refit", type=int, default=28, help="days from one fit to the next")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--days", type=int, default=DAYS, help="fewer for a trial")
    add_settings(parser)
    arguments = parser.parse_args()
    options = read_settings(arguments.options)
    frame = read()
    part = "test" if arguments.final else "validation"
    if not arguments.final:
        frame = frame.iloc[: -24 * DAYS]
    frame = frame.iloc[: len(frame) - 24 * (DAYS - arguments.days)]
    shared = {
        "part": part,
        "hours": 24 * arguments.days,
        "versions": versions(),
        "command": f"python benchmarks/epf.py {shlex.join(sys.argv[1:])}",
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.final:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        append_log(arguments.out, {"time": now, "command": shared["command"]})
    write(arguments.out, [shared | row for row in naive_rows(frame, arguments.days)])
    for seed in range(arguments.seeds):
        row = shared | measured(frame, arguments.days, arguments.refit, seed, options)
        write(arguments.out, [row])
        print(f"{part}, seed {seed}: MAE {row['mae']}, {row['seconds']} s", flush=True)


def read() -> pd.DataFrame:
    """Return the hours of the Nord Pool market, oldest first."""
    if not (root := os.environ.get("MLRFORECAST_DATA")):
        raise SystemExit("Set MLRFORECAST_DATA to the folder of the data sets.")
    if not (found := sorted(Path(root).rglob("epf_NP.csv*"))):
        raise SystemExit(f"There is no epf_NP.csv in {root}.")
    frame = pd.read_csv(found[0], skipinitialspace=True)
    frame.columns = pd.Index(["timestamp", "price", *COVARIATES])
    return frame.assign(timestamp=pd.to_datetime(frame["timestamp"]))


def naive_rows(frame: pd.DataFrame, days: int) -> list[dict[str, Any]]:
    """Score the prices of the same hour before."""
    price = frame["price"].to_numpy()
    hours = 24 * days
    rows = []
    for model, lag in (("same hour of the day before", 24), ("same hour of the week before", 168)):
        errors = price[-hours:] - price[-hours - lag : -lag]
        rows.append({"model": model, "context_length": lag} | scores(errors))
    return rows


def measured(
    frame: pd.DataFrame, days: int, refit: int, seed: int, options: dict[str, Any]
) -> dict[str, Any]:
    """Forecast every day, fitted anew every ``refit`` days on the rows before."""
    forecaster = MLRForecaster(
        24,
        target="price",
        timestamp_column="timestamp",
        known_covariates=COVARIATES,
        progress=False,
        seed=seed,
        **options,
    )
    begin = time.perf_counter()
    forecaster.fit(frame.iloc[: -24 * days])
    first = min(refit, days)
    rolled = [forecaster.backtest(frame.iloc[: len(frame) - 24 * (days - first)], windows=first)]
    if later := days - first:
        rolled.append(forecaster.backtest(frame, windows=later, refit=refit))
    seconds = time.perf_counter() - begin
    errors = [np.asarray(part.actual) - np.asarray(part.forecast) for part in rolled]
    return {
        "model": "MLRForecaster",
        "refit_days": refit,
        "seed": seed,
        "config_hash": config_hash(settings_of(forecaster, "seed")),
        "fits": -(-days // refit),
        "context_length": forecaster.context_length_,
        "parameters": forecaster.num_parameters_,
        "seconds": round(seconds, 1),
        "hardware": device_name(str(forecaster.accelerator)),
    } | scores(np.concatenate(errors))


def scores(errors: np.ndarray) -> dict[str, str]:
    """Return the mean absolute and the root mean squared error, in EUR/MWh."""
    return {
        "mae": f"{np.abs(errors).mean():.4f}",
        "rmse": f"{np.sqrt(np.square(errors).mean()):.4f}",
    }


def write(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Replace the rows of the same runs."""
    replace_rows(folder / "epf.csv", COLUMNS, rows, rank)


def rank(row: dict[str, Any]) -> tuple[str, ...]:
    """Tell runs apart."""
    return tuple(str(row.get(name) or "") for name in KEY)


if __name__ == "__main__":
    main()
