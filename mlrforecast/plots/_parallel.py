"""Parallel coordinates: an axis for each parameter, a line for each trial."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import Locator, LogLocator, MaxNLocator
from numpy.typing import NDArray

from mlrforecast.plots._style import GREY, INK

_MOST_STEPS = 6
"""Different numbers that stand at equal distances; more of them have a scale."""
_DECADE = 10.0
"""Least ratio of the largest to the smallest number of a logarithmic scale."""
_BESIDE = 1.11
"""Where values stand that the scale has no place for, such as the score of a failed trial."""


@dataclass(frozen=True)
class Scale:
    """Where the values of one column stand between 0 and 1, and what is written there."""

    positions: NDArray[np.float64]
    ticks: tuple[tuple[float, str], ...]


def scale_of(column: pd.Series) -> Scale:
    """Place numbers on a scale, linear or logarithmic, and anything else at equal distances."""
    known = column.dropna()
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if not numeric or known.empty:
        return _steps(column)
    chosen = pd.api.types.is_integer_dtype(column) or known.nunique() < len(known)
    if chosen and known.nunique() <= _MOST_STEPS:
        return _steps(column)
    return _numbers(column, logarithmic=_is_logarithmic(known.to_numpy(dtype=float)))


def _is_logarithmic(values: NDArray[np.float64]) -> bool:
    """Tell whether numbers lie more evenly on a logarithmic scale than on a linear one."""
    low, high = values.min(), values.max()
    if low <= 0 or high / low < _DECADE:
        return False
    middle = float(np.median(values))
    linear = (middle - low) / (high - low)
    logarithmic = np.log(middle / low) / np.log(high / low)
    return bool(abs(logarithmic - 0.5) < abs(linear - 0.5))


def _steps(column: pd.Series) -> Scale:
    """Place different values at equal distances, in their order, what is missing first."""
    texts = [_text(value) for value in column]
    by_text = dict(zip(texts, column, strict=True))
    order = sorted(by_text, key=lambda text: _rank(by_text[text]))
    places = {text: (step + 0.5) / len(order) for step, text in enumerate(order)}
    positions = np.array([places[text] for text in texts])
    return Scale(positions, tuple((places[text], _short(text)) for text in order))


def _rank(value: Any) -> tuple[int, float, str]:
    """Return a key that sorts what is missing before numbers, and those before all else."""
    if _is_missing(value):
        return 0, 0.0, ""
    if isinstance(value, (int, float, np.number)):
        return 1, float(value), ""
    return 2, 0.0, str(value)


def _is_missing(value: Any) -> bool:
    """Tell whether there is no value."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _text(value: Any) -> str:
    """Return a value as it is written on an axis."""
    if _is_missing(value):
        return "None"
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return f"{value:.4g}" if is_number and float(value) != int(value) else _whole(value)


def _whole(value: Any) -> str:
    """Return a value without decimals, or as it is written."""
    return str(int(value)) if isinstance(value, (float, np.floating)) else str(value)


def _short(text: str) -> str:
    """Cut a text that would cover the next axis."""
    return text if len(text) <= 16 else f"{text[:15]}…"


def _numbers(column: pd.Series, *, logarithmic: bool) -> Scale:
    """Place numbers on a scale; what is missing beside it."""
    values = column.to_numpy(dtype=float)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    change = np.log10 if logarithmic else np.asarray
    marks: Locator = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])
    if logarithmic:
        marks = LogLocator(subs=(1.0,) if high / low >= 1000 else (1.0, 2.0, 5.0))
    ticks = [mark for mark in marks.tick_values(low, high) if low <= mark <= high]
    first, span = float(change(low)), float(change(high)) - float(change(low))
    positions = (change(values) - first) / (span or 1.0)
    named = [(float((change(tick) - first) / (span or 1.0)), _short(f"{tick:g}")) for tick in ticks]
    if np.isnan(positions).any():
        named.append((_BESIDE, "None"))
    return Scale(np.where(np.isnan(positions), _BESIDE, positions), tuple(named))


def score_scale(scores: NDArray[np.float64], most: float) -> Scale:
    """Place scores up to ``most`` on a scale; larger ones at its end, and none beside it."""
    shown = scores[np.isfinite(scores)]
    if not len(shown):
        return Scale(np.full(len(scores), _BESIDE), ((_BESIDE, "no score"),))
    scale = _numbers(pd.Series(np.minimum(shown, most)), logarithmic=False)
    positions = np.full(len(scores), _BESIDE)
    positions[np.isfinite(scores)] = scale.positions
    ticks = [tick for tick in scale.ticks if tick[0] < 0.97 or shown.max() <= most]
    if shown.max() > most:
        ticks.append((1.0, f"> {most:.3g}"))
    if len(shown) < len(scores):
        ticks.append((_BESIDE, "no score"))
    return Scale(positions, tuple(ticks))


def draw_axes(axis: Axes, names: Sequence[str], scales: Sequence[Scale]) -> None:
    """Draw an upright line for each column, its name above and its ticks beside it."""
    beside = any(at == _BESIDE for scale in scales for at, _ in scale.ticks)
    head = _BESIDE + 0.07 if beside else 1.05
    for place, (name, scale) in enumerate(zip(names, scales, strict=True)):
        axis.plot([place, place], [0, 1], color=INK, linewidth=1.0, zorder=5)
        axis.text(place, head, name, ha="center", va="bottom", fontweight="bold", fontsize=9)
        # The last one, which no line leaves, is free on the right.
        side, align = (1, "left") if place == len(names) - 1 else (-1, "right")
        for at, text in scale.ticks:
            axis.plot([place, place + side * 0.02], [at, at], color=INK, linewidth=1.0, zorder=5)
            axis.text(
                place + side * 0.035,
                at,
                text,
                ha=align,
                va="center",
                fontsize=8,
                zorder=6,
                bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8},
            )
    axis.set_xlim(-0.45, len(names) - 1 + 0.4)
    axis.set_ylim(-0.04, head + 0.08 * (1 + max(name.count("\n") for name in names)))
    axis.set_axis_off()


def draw_line(axis: Axes, positions: Sequence[float], **style: Any) -> None:
    """Draw one trial as a smooth line through its positions."""
    points, codes = [(0.0, positions[0])], [Path.MOVETO]
    for place in range(1, len(positions)):
        before, here = positions[place - 1], positions[place]
        points += [(place - 0.6, before), (place - 0.4, here), (float(place), here)]
        codes += [Path.CURVE4] * 3
    line = {"edgecolor": GREY, "linewidth": 1.0, "capstyle": "round"} | style
    axis.add_patch(PathPatch(Path(points, codes), facecolor="none", **line))
