"""Draw the first series of each data set of the page, as ``load_dataset(name).plot()`` does.

Files are sought where ``MLRFORECAST_DATA`` says; nothing is downloaded.
"""

from pathlib import Path

from matplotlib import pyplot as plt

from mlrforecast import load_dataset

NAMES = (
    "ETTh1",
    "ETTh2",
    "exchange_rate",
    "synthetic",
    "m4:hourly",
    "monash:electricity_weekly",
    "monash:m1_monthly",
    "monash:m1_quarterly",
    "monash:m1_yearly",
    "monash:m3_monthly",
    "monash:m3_yearly",
    "monash:solar_weekly",
    "monash:us_births",
    "monash:vehicle_trips_without_missing",
)


def draw(folder: Path) -> None:
    """Draw one picture a data set."""
    for name in NAMES:
        axes = load_dataset(name, download=False).plot(max_items=1)
        axes[0].set_xlabel("")
        axes[0].figure.set_size_inches(8, 2.2)
        axes[0].figure.savefig(folder / f"dataset_{name.replace(':', '_')}.png", dpi=70)
        plt.close(axes[0].figure)
