"""Coverage of intervals on four real panels, before and after calibration."""

from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "coverage" / "coverage.csv"
STATES = {
    "none": ("not calibrated", "#E69F00", "o"),
    "split": ("split", "#56B4E9", "s"),
    "rolling": ("rolling", "#0072B2", "D"),
}
LOSSES = ("quantile", "student_t", "mse")


def draw(folder: Path) -> None:
    """Draw what the committed benchmark measured."""
    table = pd.read_csv(RESULTS, keep_default_na=False)
    panels = ["m4_hourly", "pjm_load", "exchange_rate", "m3_monthly"]
    rows = [(panel, loss) for panel in panels for loss in LOSSES]
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 5.0), sharey=True, layout="constrained")
    for axis, nominal in zip(axes, (80, 95), strict=True):
        axis.axvline(nominal, color="#7F7F7F", linewidth=1.0, linestyle=(0, (4, 3)), zorder=0)
        for place, (panel, loss) in enumerate(rows):
            here = table[(table["panel"] == panel) & (table["loss"] == loss)]
            for state, (_, colour, marker) in STATES.items():
                found = 100 * here.loc[here["calibration"] == state, f"coverage_{nominal}"]
                axis.plot(found, [place] * len(found), marker, color=colour, markersize=7)
        for place in range(len(LOSSES), len(rows), len(LOSSES)):
            axis.axhline(place - 0.5, color="#E6E6E6", linewidth=0.8, zorder=0)
        axis.set_xlabel(f"values inside the {nominal} % interval (%)")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="x", color="#E6E6E6", linewidth=0.7)
        axis.set_axisbelow(True)
    axes[0].set_xlim(75, 90)
    axes[1].set_xlim(89, 99)
    names = [f"{panel.replace('_', ' ')}, {loss}" for panel, loss in rows]
    axes[0].set_yticks(range(len(rows)), names)
    axes[0].invert_yaxis()
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", markersize=7)
        for _, colour, marker in STATES.values()
    ]
    figure.legend(
        handles,
        [name for name, _, _ in STATES.values()],
        loc="outside upper left",
        ncols=3,
        frameon=False,
    )
    figure.savefig(folder / "coverage.png", dpi=110)
    plt.close(figure)
