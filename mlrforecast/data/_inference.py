"""The frequency that stamps follow, gaps or not."""

import warnings
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data._aliases import alias_of, alias_of_length, with_multiple
from mlrforecast.data._grid import grid_of, ticks_of

# Stamps have a frequency, with gaps, where at least this share of their steps follows it.
_MOST = 0.75

# Steps without a stamp that a proposal may make for each stamp.
_MOST_EMPTY = 10

# What so many rows follow, the rest is checked against.
_ENOUGH = 100_000

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")

# What a month, a quarter and a year are named where a month is told by one of its days.
_OF_MONTHS = {
    "MS": ("QS", "YS"),
    "BMS": ("BQS", "BYS"),
    "ME": ("QE", "YE"),
    "BME": ("BQE", "BYE"),
}

# Steps that people would choose, in seconds.
_TIDY: Mapping[str, float] = MappingProxyType(
    {
        **{with_multiple(n, "us"): n / 1e6 for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)},
        **{with_multiple(n, "ms"): n / 1e3 for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)},
        **{with_multiple(n, "s"): n for n in (1, 2, 5, 10, 15, 20, 30)},
        **{with_multiple(n, "min"): 60 * n for n in (1, 2, 5, 10, 15, 20, 30)},
        **{with_multiple(n, "h"): 3600 * n for n in (1, 2, 3, 4, 6, 8, 12)},
        "D": 86_400,
        "W-SUN": 7 * 86_400,
        "MS": 30.4 * 86_400,
        "QS-JAN": 91.3 * 86_400,
        "YS-JAN": 365.2 * 86_400,
    }
)

# Where two fit alike, the first is taken.
_CALENDARS = ("MS", "BMS", "ME", "BME", "D", "B", "SMS-15", "SME-15")


class _Finding(NamedTuple):
    """A frequency and how many steps follow it; whether the one other step is a gap in it."""

    freq: str
    followed: int
    one_gap: bool


def find_frequency(stamps: pd.DatetimeIndex) -> str | None:
    """Return the frequency that most stamps of one series follow, None if there is none.

    Parameters
    ----------
    stamps : DatetimeIndex
        Sorted, unique.

    Returns
    -------
    str or None
        A canonical alias; the coarsest where several fit, such as ``"QS-JAN"`` for ``"3MS"``.
    """
    if len(stamps) < 3:
        return None
    stamps = stamps[:_ENOUGH]
    best = max(_findings(stamps), key=lambda finding: finding.followed)
    steps = len(stamps) - 1
    if best.followed >= _MOST * steps or (
        best.one_gap and best.followed > 1 and best.followed == steps - 1
    ):
        return best.freq
    return _by_pandas(stamps)


def carried_frequency(stamps: pd.DatetimeIndex) -> str | None:
    """Return the frequency that an index carries, None where an alias cannot say it."""
    # A slice of a reversed frame may carry a frequency that runs backwards.
    return None if stamps.freq is None or stamps.freq.n < 1 else alias_of(stamps.freq)


def propose_frequency(stamps: pd.Index) -> str | int:
    """Return the tidy frequency next to the median step of stamps.

    It is a longer one where stamps come in bursts, so that few steps stay without a stamp.

    Parameters
    ----------
    stamps : DatetimeIndex or Index of int, of length T
        Sorted stamps of one series, perhaps with duplicates.

    Returns
    -------
    str or int
        A pandas offset alias, or the step of integer time.

    Raises
    ------
    DataError
        If there are fewer than two different stamps.

    Examples
    --------
    >>> propose_frequency(pd.to_datetime(["2024-01-01 00:01", "2024-01-01 00:12"]))
    '10min'
    """
    ticks = ticks_of(stamps)
    steps = np.diff(ticks)
    steps = steps[steps > 0]
    if not len(steps):
        raise DataError("`resample` needs `freq` where no series has two different time stamps.")
    median = float(np.median(steps))
    shortest = float(steps.sum(dtype=np.float64)) / (_MOST_EMPTY * len(ticks) + 100)
    if not isinstance(stamps, pd.DatetimeIndex):
        return max(int(median), int(np.ceil(shortest)))
    second = pd.Timedelta(1, unit="s") / pd.Timedelta(1, unit=stamps.unit)
    nearest = min(_TIDY.values(), key=lambda length: abs(np.log(length * second / median)))
    long_enough = (
        name for name, length in _TIDY.items() if length >= max(nearest, shortest / second)
    )
    return next(long_enough, "YS-JAN")


def count_steps(stamps: pd.DatetimeIndex) -> list[tuple[pd.Timedelta, int]]:
    """Count the steps between stamps, the most common first."""
    steps, counts = np.unique(np.diff(ticks_of(stamps)), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [(pd.Timedelta(int(steps[n]), unit=stamps.unit), int(counts[n])) for n in order]


def _findings(stamps: pd.DatetimeIndex) -> Iterator[_Finding]:
    """Yield what may be the frequency of stamps, the coarsest first."""
    ticks = ticks_of(stamps)
    steps = np.diff(ticks)
    usual = most_common(steps)
    length = pd.Timedelta(usual, unit=stamps.unit)
    # A day on which clocks change has 23 hours.
    if length >= pd.Timedelta(hours=20):
        starts = np.zeros(1, dtype=np.int64)
        for base in _CALENDARS:
            places = grid_of(base, stamps).places(stamps, starts)
            usual_phase = places.on & (places.phase == most_common(places.phase))
            finding = _finding(base, stamps, places.number, usual_phase)
            if finding is not None:
                yield finding
    follows = steps == usual
    others = steps[~follows]
    yield _Finding(alias_of_length(length), int(follows.sum()), bool((others % usual == 0).all()))


def _finding(
    base: str, stamps: pd.DatetimeIndex, number: np.ndarray, on: np.ndarray
) -> _Finding | None:
    """Count how many steps follow the most common multiple of a frequency."""
    both = on[1:] & on[:-1]
    if not both.any():
        return None
    steps = np.diff(number)
    multiple = most_common(steps[both])
    if base.startswith("SM") and multiple > 1:
        return None
    follows = both & (steps == multiple)
    others = ~follows
    freq = _named(base, multiple, stamps[int(np.argmax(on))])
    gap = bool((both[others] & (steps[others] % multiple == 0)).all())
    return _Finding(freq, int(follows.sum()), gap)


def _named(base: str, multiple: int, stamp: pd.Timestamp) -> str:
    """Name a multiple of a frequency by the larger one that it is."""
    if base == "D" and multiple % 7 == 0:
        return with_multiple(multiple // 7, f"W-{_DAYS[stamp.day_of_week]}")
    if base not in _OF_MONTHS or multiple % 3:
        return with_multiple(multiple, base)
    quarter, year = _OF_MONTHS[base]
    month = stamp.month - 1
    if multiple % 12 == 0:
        return with_multiple(multiple // 12, f"{year}-{_MONTHS[month]}")
    # Quarters are named by the first month that begins one, or by the last that ends one.
    anchor = month % 3 + (9 if quarter.endswith("E") else 0)
    return with_multiple(multiple // 3, f"{quarter}-{_MONTHS[anchor]}")


def _by_pandas(stamps: pd.DatetimeIndex) -> str | None:
    """Return what pandas infers, such as the third Friday of the month."""
    with warnings.catch_warnings():
        # Pandas 3 is about to return an offset instead.
        warnings.simplefilter("ignore")
        found = pd.infer_freq(stamps)
    if found is None:
        return None
    offset = pd.tseries.frequencies.to_offset(found)
    return None if offset is None else alias_of(offset)


def most_common(values: np.ndarray) -> int:
    """Return the most common value, the smallest if there are several; at once if all are alike."""
    if (values == values[0]).all():
        return int(values[0])
    found, counts = np.unique(values, return_counts=True)
    return int(found[np.argmax(counts)])
