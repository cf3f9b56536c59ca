"""Panels made by hand, and what plain loops in float64 make of them."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from mlrforecast.data import Covariate, Layout, Panel


def make_panel(
    lengths: Sequence[int],
    *,
    channels: int = 1,
    missing: float = 0.0,
    seed: int = 0,
    past: tuple[Covariate, ...] = (),
    known: tuple[Covariate, ...] = (),
    static: tuple[Covariate, ...] = (),
    start: str = "2024-01-01",
    freq: str = "h",
    zone: str | None = None,
) -> Panel:
    """Series of any size and level, each with the stamps from ``start`` on."""
    rng = np.random.default_rng(seed)
    parts = []
    for rows in lengths:
        size = 10.0 ** rng.integers(-3, 4, channels)
        values = size * (5 + rng.standard_normal((rows, channels)))
        values[rng.random((rows, channels)) < missing] = np.nan
        parts.append(values)
    stamps = [pd.date_range(start, periods=rows, freq=freq, tz=zone) for rows in lengths]
    wide = channels > 1 and len(lengths) == 1
    labels = pd.Index(range(channels if wide else len(lengths)))
    return Panel(
        layout=Layout(form="wide" if wide else "long"),
        freq=freq,
        labels=labels,
        index=stamps[0].append(stamps[1:]),
        values=np.concatenate(parts),
        bounds=np.concatenate([[0], np.cumsum(lengths)]),
        past=past,
        known=known,
        static=static,
    )


def numbers_of(name: str, count: int, *, missing: float = 0.0, seed: int = 0) -> Covariate:
    rng = np.random.default_rng([seed, *name.encode()])
    values = 100 * rng.standard_normal(count) + 40
    values[rng.random(count) < missing] = np.nan
    return Covariate(name, values)


def categories_of(name: str, count: int, *, seed: int = 0) -> Covariate:
    codes = np.random.default_rng([seed, *name.encode()]).integers(-1, 3, count)
    return Covariate(name, codes, ("wet", "dry", "hot"))


def row_numbers(lengths: Sequence[int]) -> np.ndarray:
    """The place of each row in its own series."""
    return np.concatenate([np.arange(rows) for rows in lengths]).astype(float)


@st.composite
def random_panels(draw: st.DrawFn) -> Panel:
    """Short and long series with gaps, some channels, and covariates of every kind."""
    channels = draw(st.sampled_from([1, 1, 2, 3]))
    lengths = draw(st.lists(st.integers(2, 19), min_size=1, max_size=4))
    seed = draw(st.integers(0, 99))
    count, gaps = sum(lengths), draw(st.sampled_from([0.0, 0.3]))
    kinds = draw(st.sets(st.sampled_from(["past", "known", "words", "static", "kind"])))
    known = [numbers_of("known", count, seed=seed)] if "known" in kinds else []
    known += [categories_of("words", count, seed=seed)] if "words" in kinds else []
    static = [numbers_of("static", len(lengths), seed=seed)] if "static" in kinds else []
    static += [categories_of("kind", len(lengths), seed=seed)] if "kind" in kinds else []
    past = [numbers_of("past", count, missing=gaps, seed=seed)] if "past" in kinds else []
    return make_panel(
        lengths,
        channels=channels,
        missing=gaps,
        seed=seed,
        past=tuple(past),
        known=tuple(known),
        static=tuple(static),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def scaler(values: Sequence[float], scaling: str) -> tuple[float, float]:
    """Location and scale of one run; values of a moderate size only."""
    seen = sorted(x for x in values if not math.isnan(x))
    if not seen:
        return 0.0, 1.0
    if scaling == "mean_abs":
        return 0.0, math.fsum(map(abs, seen)) / len(seen) or 1.0
    mean = math.fsum(seen) / len(seen)
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in seen) / len(seen))
    if seen[0] == seen[-1]:
        return seen[0], 1.0
    if scaling == "standard":
        return mean, deviation
    distance = (quantile(seen, 0.75) - quantile(seen, 0.25)) / 1.3489795003921634
    return quantile(seen, 0.5), distance or deviation


def encoded_steps(
    covariate: Covariate, training: Covariate, bounds: np.ndarray, series: int, steps: range
) -> tuple[list[float], bool]:
    """One covariate over steps of a series: standardised or coded, NaN where there is none."""
    first, end = bounds[series], bounds[series + 1]
    rows = [first + step if first <= first + step < end else None for step in steps]
    if covariate.categories is not None:
        seen = sorted({training.categories[code] for code in training.values if code >= 0})
        names = [None if row is None else covariate.values[row] for row in rows]
        texts = [None if n is None or n < 0 else covariate.categories[n] for n in names]
        return [float(seen.index(t) + 1) if t in seen else 0.0 for t in texts], True
    loc, scale = scaler(training.values, "standard")
    values = [math.nan if row is None else (covariate.values[row] - loc) / scale for row in rows]
    return values, False


def columns_by_loop(
    covariates: tuple[Covariate, ...],
    training: tuple[Covariate, ...],
    bounds: np.ndarray,
    series: int,
    steps: range,
    context: int,
) -> np.ndarray:
    """The columns of a batch for one window, shape (steps, K)."""
    standard, relative, marks, codes = [], [], [], []
    for covariate, fitted in zip(covariates, training, strict=True):
        values, is_code = encoded_steps(covariate, fitted, bounds, series, steps)
        if is_code:
            codes.append(values)
            continue
        standard.append([0.0 if math.isnan(x) else x for x in values])
        loc, scale = scaler(values[:context], "standard")
        seen = {x for x in values[:context] if not math.isnan(x)}
        moves = len(seen) > 1
        relative.append(
            [
                0.0 if math.isnan(x) or not moves else min(10.0, max(-10.0, (x - loc) / scale))
                for x in values
            ]
        )
        if np.isnan(fitted.values).any():
            marks.append([float(math.isnan(x)) for x in values])
    return np.array(standard + relative + marks + codes).T
