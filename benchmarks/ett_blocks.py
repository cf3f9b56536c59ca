"""Hold out four months after four months of ETT, and forecast them: where defaults are chosen.

The first 16 months, all before the first test row, make four blocks. For each of them a forecaster
is fitted on the other three and forecasts every seventh window of the block; the network, the
linear regression and their mean are scored on the same windows. The standard validation slice is
the last block. Run it from the root of the repository, with the folder of data sets in
MLRFORECAST_DATA::

    python benchmarks/ett_blocks.py benchmarks/results/ett --set calendar=false
"""

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _arguments import add_settings, numbers, read_settings
from _rows import replace_rows
from tqdm import tqdm

from mlrforecast import MLRForecaster, load_dataset
from mlrforecast._core.provenance import config_hash, device_name, versions
from mlrforecast.benchmark._runs import settings_of

BLOCK = 2880
BLOCKS = {
    "July to October 2016": 0,
    "November 2016 to February 2017": BLOCK,
    "March to June 2017": 2 * BLOCK,
    "July to October 2017": 3 * BLOCK,
}
EVERY = 7
KEY = ("dataset", "block", "horizon", "options", "seed", "forecast")
COLUMNS = (*KEY, "mse", "mae", "windows", "context_length", "num_steps", "train_seconds")
COLUMNS += ("config_hash", "hardware", "versions", "command")


def main() -> None:
    """Fit, score and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument("--dataset", default="ETTh1", choices=("ETTh1", "ETTh2"))
    parser.add_argument("--horizons", type=numbers, default=(96, 336))
    parser.add_argument("--blocks", type=numbers, default=tuple(range(len(BLOCKS))))
    parser.add_argument("--seed", type=int, default=0)
    add_settings(parser)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    values = load_dataset(arguments.dataset).targets.iloc[: BLOCK * len(BLOCKS)]
    names = list(BLOCKS)
    tasks = [(h, names[block]) for h in arguments.horizons for block in arguments.blocks]
    for horizon, block in tqdm(tasks, desc="blocks"):
        shared = {
            "dataset": arguments.dataset,
            "block": block,
            "horizon": horizon,
            "options": " ".join(sorted(arguments.options)),
            "seed": arguments.seed,
            "versions": versions(),
            "command": f"python benchmarks/ett_blocks.py {shlex.join(sys.argv[1:])}",
        }
        options = read_settings(arguments.options)
        rows = measured(values, BLOCKS[block], horizon, arguments.seed, options)
        replace_rows(arguments.out / "blocks.csv", COLUMNS, [shared | row for row in rows], rank)


def measured(
    values: pd.DataFrame, first: int, horizon: int, seed: int, options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Fit on all blocks but one and score that one."""
    parts = [part for part in (values[:first], values[first + BLOCK :]) if len(part)]
    known = pd.concat(parts)
    loc, scale = known.mean(), known.std(ddof=0)
    frame = pd.concat([series((part - loc) / scale, place) for place, part in enumerate(parts)])
    forecaster = MLRForecaster(horizon, progress=False, seed=seed, **options)
    begin = time.perf_counter()
    forecaster.fit(frame)
    seconds = time.perf_counter() - begin
    scored = (values - loc) / scale
    scored = scored[max(first - forecaster.context_length_, 0) : first + BLOCK]
    shared = {
        "context_length": forecaster.context_length_,
        "num_steps": forecaster.num_steps_,
        "train_seconds": round(seconds, 1),
        "config_hash": config_hash(settings_of(forecaster, "seed")),
        "hardware": device_name(str(forecaster.accelerator)),
    }
    linear = forecaster.model_.linear
    shares = {"network": 0.0}
    if linear is not None:
        shares |= {"mean": float(linear.share), "linear": 1.0}
    rows = []
    for forecast, share in shares.items():
        if linear is not None:
            linear.share.fill_(share)
        rolled = forecaster.backtest(series(scored, 0), step=EVERY)
        errors = np.asarray(rolled.forecast) - np.asarray(rolled.actual)
        scores = {"mse": f"{np.square(errors).mean():.5f}", "mae": f"{np.abs(errors).mean():.5f}"}
        rows.append(shared | {"forecast": forecast, "windows": len(errors)} | scores)
    return rows


def series(part: pd.DataFrame, place: int) -> pd.DataFrame:
    """Return the columns of consecutive rows as series of a long frame."""
    long = part.rename_axis("timestamp").reset_index().melt("timestamp", value_name="target")
    return long.assign(item_id=long.pop("variable") + f" {place}")


def rank(row: dict[str, Any]) -> tuple[str, ...]:
    """Tell one measurement from every other, in the order of the file."""
    return tuple(str(row[name]) for name in KEY)


if __name__ == "__main__":
    main()
