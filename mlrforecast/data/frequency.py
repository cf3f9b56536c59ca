"""Frequencies of time stamps: inferred, checked, continued."""

import warnings
from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import Any

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError

_SEASONS = {
    "s": 3600,
    "min": 1440,
    "h": 24,
    "D": 1,
    "B": 5,
    "W": 1,
    "MS": 12,
    "ME": 12,
    "QS": 4,
    "QE": 4,
    "YS": 1,
    "YE": 1,
}

# Stamps have a frequency, with gaps, where at least this share of their steps follows it.
_MOST = 0.75


def infer_frequency(
    indexes: Sequence[pd.DatetimeIndex],
    *,
    given: str | None = None,
    owner: Callable[[int], str],
) -> str:
    """Return the frequency of sorted, unique stamps, taken from the longest index.

    Parameters
    ----------
    indexes : sequence of DatetimeIndex
        Stamps of each series.
    given : str, optional
        A frequency that is known already; it is returned unless the stamps have another one.
    owner : callable
        Names the series of a number, for messages.

    Returns
    -------
    str
        A pandas offset alias.

    Raises
    ------
    DataError
        If no frequency fits the stamps, or another one than ``given``.

    Examples
    --------
    >>> stamps = pd.date_range("2024-01-31", periods=6, freq="ME")
    >>> infer_frequency([stamps], owner=str)
    'ME'
    """
    number = max(range(len(indexes)), key=lambda item: len(indexes[item]))
    index = indexes[number]
    # A slice of a reversed frame may carry a frequency that runs backwards.
    known = index.freqstr if index.freq is not None and index.freq.n > 0 else None
    found = known or _most_common_frequency(index)
    if given is None:
        if found is None:
            raise DataError(_no_frequency(index, owner(number)))
        return found
    if found is not None and pd.tseries.frequencies.to_offset(
        found
    ) != pd.tseries.frequencies.to_offset(given):
        # An alias is no identity: a short run of MS stamps also fits QS or 31D.
        if len(index) == len(_continued(index, given)) and index.equals(_continued(index, given)):
            return given
        raise DataError(
            f"The time stamps of {owner(number)} have the frequency {found!r}; "
            f"the forecaster was fitted on {given!r}."
        )
    return given


def check_regular(index: pd.DatetimeIndex, freq: str, owner: str) -> None:
    """Raise a DataError that names the first stamp which is not one step after the last.

    Parameters
    ----------
    index : DatetimeIndex
        Sorted, unique stamps.
    freq : str
        Pandas offset alias.
    owner : str
        What the stamps belong to, for messages.

    Raises
    ------
    DataError
        If a stamp is missing, too early, or not on the frequency at all.

    Examples
    --------
    >>> stamps = pd.to_datetime(["2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 03:00"])
    >>> check_regular(stamps[:2], "h", "the frame")
    >>> check_regular(stamps, "h", "the frame")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    mlrforecast._core.errors.DataError: Time stamps must be regular, but the frame has a gap: ...
    """
    expected = _continued(index, freq)
    if index.equals(expected):
        return
    differing = np.flatnonzero(np.asarray(index != expected))
    position = int(differing[0])
    if position == 0:
        raise DataError(
            f"The first time stamp of {owner}, {index[0]}, does not lie on the frequency {freq!r}."
        )
    after, found, wanted = index[position - 1], index[position], expected[position]
    if found > wanted:
        raise DataError(
            f"Time stamps must be regular, but {owner} has a gap: {after} is followed by {found}, "
            f"and {wanted} was expected (frequency {freq!r}). Make the missing rows explicit, "
            f"e.g. with frame.asfreq({freq!r}): missing values are allowed, missing rows are not."
        )
    raise DataError(
        f"Time stamps must be regular, but {owner} has {found} after {after}, before the next "
        f"step {wanted} (frequency {freq!r}). Bring it to one frequency, e.g. with "
        f"frame.resample({freq!r}).mean()."
    )


def check_regular_runs(
    stamps: pd.DatetimeIndex, starts: np.ndarray, freq: str, owner: Callable[[int], str]
) -> None:
    """Do what :func:`check_regular` does for many series at once.

    ``stamps`` holds the series one after the other, each sorted; ``starts`` their first rows;
    ``freq`` is their frequency, and ``owner`` names the series of a number.
    """
    follows = _follows(stamps, freq, starts)
    suspects = np.flatnonzero(~np.logical_and.reduceat(follows, starts))
    ends = np.append(starts[1:], len(stamps))
    for number in suspects:
        check_regular(stamps[starts[number] : ends[number]], freq, owner(int(number)))


def future_index(last: pd.Timestamp, freq: str, periods: int) -> pd.DatetimeIndex:
    """Return the stamps that follow a stamp.

    Parameters
    ----------
    last : Timestamp
        A stamp on the frequency; it is not part of the result.
    freq : str
        Pandas offset alias.
    periods : int
        Number of stamps.

    Returns
    -------
    DatetimeIndex
        The next ``periods`` stamps, in the unit of ``last`` where it can hold them.

    Examples
    --------
    >>> [str(stamp.date()) for stamp in future_index(pd.Timestamp("2024-01-31"), "ME", 2)]
    ['2024-02-29', '2024-03-31']
    """
    stamps = _stamps_from(last, freq, periods=periods + 1)[1:]
    # Of a calendar frequency date_range returns microseconds, whatever it was given.
    same = stamps.as_unit(last.unit)
    return same if bool((same == stamps).all()) else stamps


def default_season_length(freq: str) -> int:
    """Return the steps of the main season of a frequency, as GluonTS defines it.

    Seconds have a season of 3600, minutes 1440, hours 24, business days 5, months 12, quarters 4,
    all else 1; a multiple of a frequency divides it where it divides evenly (``"2h"`` gives 12).

    Parameters
    ----------
    freq : str
        Pandas offset alias.

    Returns
    -------
    int
        Steps of a season, at least 1.

    Examples
    --------
    >>> [default_season_length(freq) for freq in ("h", "2h", "MS", "W-WED", "5h")]
    [24, 12, 12, 1, 1]
    """
    offset = pd.tseries.frequencies.to_offset(freq)
    assert offset is not None
    season = _SEASONS.get(offset.rule_code.split("-")[0], 1)
    return season // offset.n if season % offset.n == 0 else 1


def _follows(stamps: pd.DatetimeIndex, freq: str, starts: np.ndarray) -> np.ndarray:
    """Mark stamps that surely lie one step after the one before; a first one, on the frequency."""
    step = _fixed_step(freq, stamps)
    ticks = stamps.asi8
    follows = np.empty(len(stamps), dtype=bool)
    if step is not None:
        np.equal(np.diff(ticks), step, out=follows[1:])
        follows[starts] = True
        return follows
    grid = _stamps_from(stamps.min(), freq, end=stamps.max()).as_unit(stamps.unit).asi8
    place = np.searchsorted(grid, ticks)
    on_grid = np.append(grid, 0)[place] == ticks
    np.equal(np.diff(place), 1, out=follows[1:])
    follows[starts] = True
    return np.asarray(follows & on_grid)


def _fixed_step(freq: str, stamps: pd.DatetimeIndex) -> int | None:
    """Return the length of a step in the unit of the stamps, None if it depends on the calendar."""
    length = _fixed_length(freq, stamps.tz)
    unit = pd.Timedelta(1, unit=stamps.unit)
    if length is None or length % unit != pd.Timedelta(0):
        return None
    return int(length // unit)


def _fixed_length(freq: str, zone: tzinfo | None) -> pd.Timedelta | None:
    """Return the length of a step, None if it depends on the calendar."""
    offset = pd.tseries.frequencies.to_offset(freq)
    if isinstance(offset, pd.offsets.Day):
        # A day of a zone may have 23 or 25 hours.
        return pd.Timedelta(hours=24 * offset.n) if zone is None or str(zone) == "UTC" else None
    return pd.Timedelta(offset) if isinstance(offset, pd.offsets.Tick) else None


def _stamps_from(start: pd.Timestamp, freq: str, **extent: Any) -> pd.DatetimeIndex:
    """Return the stamps of a frequency from ``start`` on, up to ``end=`` or ``periods=`` of them.

    In a zone whose clocks change at midnight a day may begin at 1:00, which ``date_range`` refuses
    and ``resample`` gives.
    """
    zone = start.tz
    if zone is None or _fixed_length(freq, zone) is not None:
        return pd.DatetimeIndex(pd.date_range(start, freq=freq, **extent))
    if "end" in extent:
        extent["end"] = extent["end"].tz_localize(None)
    local = pd.date_range(start.tz_localize(None), freq=freq, **extent)
    first_of_two = np.ones(len(local), dtype=bool)
    return pd.DatetimeIndex(
        local.tz_localize(zone, ambiguous=first_of_two, nonexistent="shift_forward")
    )


def _continued(index: pd.DatetimeIndex, freq: str) -> pd.DatetimeIndex:
    """Return the stamps that an index of this start and length would have."""
    return _stamps_from(index[0], freq, periods=len(index)).as_unit(index.unit)


def _infer(index: pd.DatetimeIndex) -> str | None:
    """Return what pandas infers as an alias; pandas 3 is about to return an offset instead."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pd.infer_freq(index)
    return found if found is None or isinstance(found, str) else found.freqstr


def _most_common_frequency(index: pd.DatetimeIndex) -> str | None:
    """Infer the frequency of stamps that may hold a gap, so that the gap can be named."""
    if len(index) < 3:
        return None
    whole = _infer(index)
    if whole is not None:
        return whole
    width = min(12, len(index))
    starts = np.unique(np.linspace(0, len(index) - width, num=50, dtype=int))
    found = [_infer(index[start : start + width]) for start in starts]
    named = [freq for freq in found if freq is not None]
    freq = max(sorted(set(named)), key=named.count) if named else _most_common_step(index)
    follows = _follows(index, freq, np.zeros(1, dtype=np.int64))[1:]
    return freq if follows.mean() >= _MOST or _has_one_gap(index) else None


def _most_common_step(index: pd.DatetimeIndex) -> str:
    """Return the alias of the step that most stamps follow."""
    step, _ = _count_steps(index)[0]
    whole_days = step.components.days if step == step.floor("D") else 0
    freq = pd.tseries.frequencies.to_offset(f"{whole_days}D" if whole_days else step).freqstr
    assert isinstance(freq, str)
    return freq


def _has_one_gap(index: pd.DatetimeIndex) -> bool:
    """Tell whether all steps but one are alike, at least two, and that one is a multiple."""
    steps, counts = np.unique(np.diff(index.asi8), return_counts=True)
    return len(steps) == 2 and counts[0] > 1 == counts[1] and bool(steps[1] % steps[0] == 0)


def _count_steps(index: pd.DatetimeIndex) -> list[tuple[pd.Timedelta, int]]:
    """Count the steps between stamps, the most common first."""
    steps, counts = np.unique(np.diff(index.asi8), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [(pd.Timedelta(int(steps[n]), unit=index.unit), int(counts[n])) for n in order]


def _no_frequency(index: pd.DatetimeIndex, owner: str) -> str:
    """Say why no frequency is seen in stamps, and what to do."""
    where = f"the time stamps of {owner} ({len(index)} rows, {index[0]} to {index[-1]})"
    steps = _count_steps(index)
    if not steps or steps[0][1] < 2:
        return f"No frequency can be seen in {where}: at least 3 regular stamps are needed."
    common = " and ".join(f"{step} ({count} times)" for step, count in steps[:2])
    return (
        f"No frequency fits {where}: their most common steps are {common}. Bring them to one "
        "frequency, e.g. with frame.resample(...).mean(), or, where an index follows a rule that "
        "pandas knows but cannot see, say so: frame.index.freq = 'SMS'."
    )
