"""The line of a forecast and the bands of its quantiles."""

import pandas as pd
from matplotlib.axes import Axes

from mlrforecast.plots._style import FORECAST


def draw_fan(
    axis: Axes, line: pd.Series, levels: dict[float, pd.Series], *, labelled: bool = True
) -> None:
    """Draw nested bands, the widest first, then single levels and the line."""
    mirror = {round(level, 9): level for level in levels}
    pairs = [
        (level, mirror[round(1 - level, 9)])
        for level in sorted(levels)
        if level < 0.5 and round(1 - level, 9) in mirror
    ]
    for number, (low, high) in enumerate(pairs):
        # A band over one step has no width.
        draw, width = (axis.vlines, 7) if len(line) == 1 else (axis.fill_between, 0)
        draw(
            line.index,
            levels[low],
            levels[high],
            color=FORECAST,
            alpha=0.18 + 0.14 * number,
            linewidth=width,
            label=f"{100 * (high - low):.3g} % interval" if labelled else "_hidden",
            zorder=1 + 0.1 * number,
        )
    paired = {level for pair in pairs for level in pair}
    for level in sorted(set(levels) - paired - {0.5}):
        axis.plot(
            line.index,
            levels[level],
            ":",
            color=FORECAST,
            linewidth=1,
            label=f"quantile {level:g}" if labelled else "_hidden",
        )
    axis.plot(
        line.index,
        line,
        color=FORECAST,
        linewidth=1.8,
        marker="o" if len(line) == 1 else None,
        markersize=4,
        label="forecast" if labelled else "_hidden",
        zorder=3,
    )
