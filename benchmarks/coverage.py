"""Measure how often intervals hold what they promise, before and after conformal calibration.

Each panel is cut once: a forecaster is fitted and calibrated on the older rows, and forecasts from
every cutoff in the newer ones, which it never sees before. Nothing is chosen on these panels: the
forecaster has its defaults.

    python benchmarks/coverage.py --root FOLDER --out benchmarks/results/coverage

FOLDER holds the files, at any depth: Hourly-train.csv and Hourly-test.csv of the M4 competition,
pjm_in_zone.csv, exchange_rate.csv, and m3_monthly_dataset.tsf of the Monash repository.
"""

import argparse
import csv
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from mlrforecast import MLRForecaster, __version__, load_dataset
from mlrforecast.benchmark import cpu_model
from mlrforecast.data import find_files

LEVELS = (0.025, 0.1, 0.5, 0.9, 0.975)
LOSSES = ("quantile", "student_t", "mse")
METHODS = ("none", "split", "rolling")
FIELDS = (
    "panel",
    "loss",
    "seed",
    "calibration",
    "coverage_80",
    "coverage_95",
    "width_80",
    "width_95",
    "msis_95",
    "wql",
    "mase",
    "series",
    "windows",
    "horizon",
    "fit_s",
    "calibrate_s",
    "hardware",
    "torch",
    "version",
    "command",
)


class Task(NamedTuple):
    """A panel, and how it is cut.

    Parameters
    ----------
    read : callable
        Gives the frame from the folder of the files.
    options : dict
        What the forecaster is told: the horizon, and the season where the frequency has none.
    windows : int
        Newest cutoffs of each series, a horizon apart, that are held back and scored.
    """

    read: Callable[[Path], pd.DataFrame]
    options: dict[str, Any]
    windows: int


def of_catalogue(name: str, root: Path) -> pd.DataFrame:
    """Read a data set of the catalogue."""
    return load_dataset(name, root=root, download=False).frame


def m3_monthly(root: Path) -> pd.DataFrame:
    """Read the monthly series of M3, as integer time: they end at different dates."""
    frame = of_catalogue("monash:m3_monthly", root)
    return frame.assign(timestamp=frame.groupby("item_id").cumcount())


def pjm(root: Path) -> pd.DataFrame:
    """Read the load of five zones, hourly."""
    frame = pd.read_csv(find_files(root, "pjm_in_zone.csv")[0])
    return frame.assign(ds=pd.to_datetime(frame["ds"], utc=True))


TASKS = {
    "m4_hourly": Task(
        partial(of_catalogue, "m4:hourly"), {"prediction_length": 48, "season_length": 24}, 2
    ),
    "pjm_load": Task(pjm, {"prediction_length": 24}, 60),
    "exchange_rate": Task(partial(of_catalogue, "exchange_rate"), {"prediction_length": 30}, 40),
    "m3_monthly": Task(m3_monthly, {"prediction_length": 6, "season_length": 12}, 3),
}


def run(name: str, root: Path, loss: str, seed: int) -> list[dict[str, Any]]:
    """Fit, calibrate and score one forecaster on one panel."""
    torch.set_num_threads(1)
    task = TASKS[name]
    frame = task.read(root)
    held_back = task.windows * task.options["prediction_length"]
    ids = [column for column in ("item_id", "unique_id") if column in frame]
    newer = frame.groupby(ids).cumcount(ascending=False) < held_back if ids else None
    older = frame[:-held_back] if newer is None else frame[~newer]
    forecaster = MLRForecaster(
        **task.options, loss=loss, seed=seed, progress=False, accelerator="cpu"
    )
    start = time.perf_counter()
    forecaster.fit(older)
    fit_s = time.perf_counter() - start
    rows = []
    for method in METHODS:
        start = time.perf_counter()
        if method == "split":
            forecaster.calibrate(older)
        elif method == "rolling":
            # From the same residuals: it would fit the same second network again.
            forecaster.calibration_ = replace(forecaster.calibration_, method="rolling")
        elif loss == "mse":
            continue
        calibrate_s = time.perf_counter() - start
        backtest = forecaster.backtest(frame, windows=task.windows, quantile_levels=LEVELS)
        scores = backtest.scores()
        scale = backtest.scale()[:, None]
        usable = np.where(scale > 0, scale, np.nan)
        width = {
            share: np.nanmean(
                (backtest.quantiles[..., high] - backtest.quantiles[..., low]) / usable
            )
            for share, low, high in ((80, 1, 3), (95, 0, 4))
        }
        rows.append(
            {
                "panel": name,
                "loss": loss,
                "seed": seed,
                "calibration": method,
                "coverage_80": scores["coverage 80%"],
                "coverage_95": scores["coverage 95%"],
                "width_80": width[80],
                "width_95": width[95],
                "msis_95": scores["MSIS 95%"],
                "wql": scores["WQL"],
                "mase": scores["MASE"],
                "series": len(backtest.panel) * backtest.panel.num_channels,
                "windows": len(backtest.series),
                "horizon": backtest.forecast.shape[1],
                "fit_s": round(fit_s, 1),
                "calibrate_s": round(calibrate_s, 1),
                "hardware": cpu_model(),
                "torch": torch.__version__,
                "version": __version__,
            }
        )
    return rows


def _short(value: Any) -> Any:
    """Return what stands in the file."""
    return f"{value:.4g}" if isinstance(value, float) else value


def main() -> None:
    """Run all panels, losses and seeds, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--panels", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs = [
        (panel, options.root, loss, seed)
        for panel in options.panels
        for loss in options.losses
        for seed in range(options.seeds)
    ]
    command = f"python benchmarks/coverage.py --seeds {options.seeds} --jobs {options.jobs}"
    found = []
    with (
        ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool,
        (options.out / "coverage.csv").open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        pending = [pool.submit(run, *options_of_run) for options_of_run in runs]
        for done in tqdm(as_completed(pending), total=len(runs)):
            rows = [row | {"command": command} for row in done.result()]
            found += rows
            writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)
            file.flush()
    table = pd.DataFrame(found).groupby(["panel", "loss", "calibration"], sort=False)
    print(
        table[["coverage_80", "coverage_95", "width_80", "width_95", "msis_95", "wql"]]
        .mean()
        .round(3)
    )


if __name__ == "__main__":
    main()
