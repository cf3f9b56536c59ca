"""Forecast one week of the test rows of ETTh1, for a picture.

The week is the second one from Monday to Sunday, since the meters stood still for a day in the
first; the network is that of the defaults, of seed 0, fitted on the train rows. Run it from the
root of the repository, with the folder of data sets in MLRFORECAST_DATA if they should not be
fetched::

    python benchmarks/ett_week.py benchmarks/results/ett

``week.csv`` holds a row for each hour of the week and of the two days before, of a few series. The
forecast is empty before the week.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from mlrforecast import MLRForecaster, load_dataset
from mlrforecast._core.provenance import device_name, versions

CHANNELS = ("HUFL", "LULL", "OT")
BEGIN = pd.Timestamp("2017-11-06")
STEPS, BEFORE = 168, 48
LEVELS = (0.1, 0.9)


def main() -> None:
    """Fit, forecast and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of the result")
    parser.add_argument("--max-steps", type=int, help="fewer for a trial")
    arguments = parser.parse_args()
    dataset = load_dataset("ETTh1")
    forecaster = MLRForecaster(STEPS, max_steps=arguments.max_steps, seed=0).fit(dataset.train)
    rows = week(forecaster, dataset.targets, CHANNELS, BEGIN).assign(
        hardware=device_name(str(forecaster.accelerator)),
        versions=versions(),
        command=f"python benchmarks/ett_week.py {shlex.join(sys.argv[1:])}",
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows.to_csv(arguments.out / "week.csv", index=False, float_format="%.5g", lineterminator="\n")


def week(
    forecaster: MLRForecaster, targets: pd.DataFrame, channels: Sequence[str], begin: pd.Timestamp
) -> pd.DataFrame:
    """Return what came to be and what was forecast, a row for each hour of each channel.

    Parameters
    ----------
    forecaster : MLRForecaster
        A fitted one, whose horizon is the week.
    targets : DataFrame
        All rows; those before ``begin`` are its context.
    channels : sequence of str
        Columns to keep.
    begin : Timestamp
        The first hour of the forecast.
    """
    levels = LEVELS if forecaster.loss in {"quantile", "student_t"} else ()
    known = targets[targets.index < begin]
    forecast = forecaster.predict(known, quantile_levels=levels or None)
    parts = []
    for channel in channels:
        found = forecast[channel]
        columns = {"forecast": found["point"] if levels else found}
        columns |= {f"quantile_{level}": found[str(level)] for level in levels}
        hours = known.index[-BEFORE:].append(forecast.index)
        part = pd.DataFrame(columns, index=hours)
        part.insert(0, "actual", targets.loc[hours, channel])
        part.insert(0, "channel", channel)
        parts.append(part.rename_axis("timestamp").reset_index())
    return pd.concat(parts, ignore_index=True)


if __name__ == "__main__":
    main()
