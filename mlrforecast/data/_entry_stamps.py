"""Stamps of the rows of GluonTS entries, which give the start of a series alone."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data._aliases import parse_frequency, with_multiple
from mlrforecast.data._grid import grid_of, in_unit_of
from mlrforecast.data._stamps import DAYS, MONTHS, read_stamps


def stamps_of(
    starts: Sequence[Any],
    first: np.ndarray,
    counts: np.ndarray,
    freq: str | int | None,
    names: Sequence[str],
) -> pd.Index:
    """Return the stamps of some rows of series, one series after the other.

    Parameters
    ----------
    starts : sequence of Period, int, or what reads as a stamp
        Row 0 of each series.
    first, counts : ndarray of int of shape (S,)
        The first row wanted of each series, and how many.
    freq : str or int, optional
        Frequency that the stamps are to have, as :func:`parse_frequency` returns it. Without one
        periods stay periods, and integers count steps of 1.
    names : sequence of str
        Names of the series, for messages.

    Raises
    ------
    DataError
        If starts are of more than one kind or frequency, or are no time, or stamps without a
        frequency.
    """
    steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts - first, counts)
    kinds = [_kind_of(start) for start in starts]
    if (other := next((n for n, kind in enumerate(kinds) if kind != kinds[0]), None)) is not None:
        raise DataError(
            f"The starts of all entries must be of one kind, but start of item_id {names[0]!r} is "
            f"{starts[0]!r} and that of {names[other]!r} is {starts[other]!r}."
        )
    if kinds[0] == "period":
        return _of_periods(starts, steps, counts, freq, names)
    if kinds[0] == "number":
        if isinstance(freq, str):
            raise DataError(
                f"start of item_id {names[0]!r} is the integer {starts[0]!r}, but freq={freq!r} is "
                "one of time stamps. Give stamps or periods, or an integer as freq."
            )
        begins = np.repeat(np.array(starts, dtype=np.int64), counts)
        numbers: pd.Index = pd.Index(begins + steps * (1 if freq is None else freq))
        return numbers
    if not isinstance(freq, str):
        raise DataError(
            f"start of item_id {names[0]!r} is {starts[0]!r}, which says nothing of the step. Pass "
            "freq, e.g. freq='h', or give starts as pandas Periods, as data sets of GluonTS do."
        )
    return _of_stamps(starts, steps, counts, freq)


def _kind_of(start: Any) -> str:
    if isinstance(start, pd.Period):
        return "period"
    is_number = isinstance(start, int | np.integer) and not isinstance(start, bool)
    return "number" if is_number else "stamp"


def _of_periods(
    starts: Sequence[pd.Period],
    steps: np.ndarray,
    counts: np.ndarray,
    freq: str | int | None,
    names: Sequence[str],
) -> pd.Index:
    """Return periods, or the stamps of a frequency that stand for them."""
    # Most entries share few objects, which are quicker told apart than compared.
    shared = {id(start.freq): number for number, start in enumerate(starts)}
    for number in shared.values():
        if starts[number].freq != starts[0].freq:
            raise DataError(
                f"All entries must have one frequency, but start of item_id {names[0]!r} has "
                f"{starts[0].freqstr!r} and that of {names[number]!r} has "
                f"{starts[number].freqstr!r}."
            )
    offset = starts[0].freq
    ordinals = np.fromiter((start.ordinal for start in starts), dtype=np.int64, count=len(starts))
    ordinals = np.repeat(ordinals, counts) + steps * offset.n
    if isinstance(freq, int):
        numbers: pd.Index = pd.Index(ordinals)
        return numbers
    with warnings.catch_warnings():
        # Periods of business days are to go.
        warnings.simplefilter("ignore", FutureWarning)
        periods: pd.PeriodIndex = pd.PeriodIndex.from_ordinals(  # type: ignore[attr-defined]  # not in stubs
            ordinals, freq=offset
        )
    return periods if freq is None else stamps_of_periods(periods, freq)


def stamps_of_periods(periods: pd.PeriodIndex, freq: str) -> pd.Index:
    """Return the first days of periods, or the last ones if those are what a frequency has."""
    begins = read_stamps(periods, "The start of entries")
    if begins.step is None or parse_frequency(begins.step) == freq:
        return begins.times
    try:
        ends = parse_frequency(periods.freqstr)
    except ValueError:
        return begins.times
    # A frequency that fits neither is told when the stamps are checked.
    return periods.to_timestamp(how="end").normalize() if ends == freq else begins.times


def _of_stamps(
    starts: Sequence[Any], steps: np.ndarray, counts: np.ndarray, freq: str
) -> pd.DatetimeIndex:
    """Return the stamps of a frequency from starts on; one between two stamps is in the first.

    That is the moment before it, or the one after it of a frequency that names the end of what it
    stands for, such as the last day of a month.
    """
    begins = read_stamps(pd.Index(list(starts)), "The start of entries").times
    if not isinstance(begins, pd.DatetimeIndex):
        raise DataError(f"The start of entries must be a time, got {starts[0]!r}.")
    begins = in_unit_of(begins, freq)
    grid = grid_of(freq, begins, ahead=int(steps.max(initial=0)))
    places = grid.places(begins)
    between = ~places.on
    number = places.number - (between & (not grid.labels_end))
    phase = np.where(between, 0, places.phase)
    stamps = grid.stamps(np.repeat(number, counts) + grid.step * steps, np.repeat(phase, counts))
    return pd.DatetimeIndex(stamps)


def period_alias(freq: str | int) -> str:
    """Return the frequency of periods that stamps of a frequency are the beginnings of.

    Of the end of a month, quarter or year, it is the period that ends there; of integer time, the
    days that are so many days after 1970-01-01.

    Raises
    ------
    ValueError
        If pandas has no such periods.

    Examples
    --------
    >>> [period_alias(freq) for freq in ("h", "15min", "MS", "2ME", "W-MON", "QS-OCT", "YE-DEC", 1)]
    ['h', '15min', 'M', '2M', 'W-SUN', 'Q-SEP', 'Y-DEC', 'D']
    """
    if isinstance(freq, int):
        return with_multiple(freq, "D")
    offset = pd.tseries.frequencies.to_offset(freq)
    assert offset is not None
    name, _, anchor = offset.rule_code.partition("-")
    if name in ("MS", "ME"):
        alias = "M"
    elif name in ("QE", "YE"):
        alias = f"{name[0]}-{anchor}"
    elif name in ("QS", "YS"):
        alias = f"{name[0]}-{MONTHS[MONTHS.index(anchor) - 1]}"
    elif name == "W":
        alias = f"W-{DAYS[DAYS.index(anchor) - 1]}"
    elif isinstance(offset, pd.offsets.Tick) or name in ("D", "B"):
        alias = name
    else:
        raise ValueError(
            f"GluonTS has periods in the place of stamps, and pandas has none of freq={freq!r}. "
            "Resample to another frequency, such as 'D' or 'MS', first."
        )
    return with_multiple(offset.n, alias)
