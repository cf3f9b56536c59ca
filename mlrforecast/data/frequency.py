"""Frequencies of time stamps: read, inferred, continued; of integer time too."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data._aliases import parse_frequency
from mlrforecast.data._gaps import describe_break, mark_following
from mlrforecast.data._grid import grid_of, in_unit_of, index_of, ticks_of
from mlrforecast.data._inference import (
    carried_frequency,
    count_steps,
    find_frequency,
    most_common,
    propose_frequency,
)

__all__ = [
    "check_regular_runs",
    "clock_seconds",
    "default_season_length",
    "future_index",
    "future_stamps",
    "infer_frequency",
    "parse_frequency",
    "propose_frequency",
    "ticks_of",
]

_SEASONS = {
    "s": 3600,
    "min": 1440,
    "h": 24,
    "D": 1,
    "B": 5,
    "W": 1,
    "SMS": 24,
    "SME": 24,
    "MS": 12,
    "ME": 12,
    "BMS": 12,
    "BME": 12,
    "QS": 4,
    "QE": 4,
    "BQS": 4,
    "BQE": 4,
}


def infer_frequency(
    stamps: pd.Index,
    bounds: np.ndarray,
    *,
    given: str | int | None = None,
    fills: bool = False,
    owner: Callable[[int], str],
) -> str | int:
    """Return the frequency of sorted, unique stamps, taken from the longest series.

    Parameters
    ----------
    stamps : DatetimeIndex or Index of int, of length N
        Stamps of all series, one series after the other.
    bounds : ndarray of int of shape (S + 1,)
        Series ``s`` has the rows ``bounds[s]`` to ``bounds[s + 1] - 1``.
    given : str or int, optional
        A frequency that is known already; it is returned unless the stamps have another one.
    fills : bool
        Whether absent rows are to be filled: stamps may then be some of those of ``given``.
    owner : callable
        Names the series of a number, for messages.

    Returns
    -------
    str or int
        A pandas offset alias, or the step of integer time.

    Raises
    ------
    DataError
        If no frequency fits the stamps, or another one than ``given``.

    Examples
    --------
    >>> stamps = pd.date_range("2024-01-31", periods=6, freq="ME")
    >>> infer_frequency(stamps, np.array([0, 6]), owner=str)
    'ME'
    """
    number = int(np.argmax(np.diff(bounds)))
    longest = stamps[bounds[number] : bounds[number + 1]]
    if given is not None:
        _check_given(longest, given, fills, owner(number))
        return given
    if not isinstance(longest, pd.DatetimeIndex):
        return _integer_step(longest, owner(number))
    found = carried_frequency(longest) or find_frequency(longest)
    if found is None:
        raise DataError(_no_frequency(longest, owner(number)))
    return found


def check_regular_runs(
    stamps: pd.Index, bounds: np.ndarray, freq: str | int, owner: Callable[[int], str]
) -> None:
    """Raise a DataError that names the first stamp which is not one step after the one before.

    Parameters
    ----------
    stamps : DatetimeIndex or Index of int, of length N
        Stamps of all series, one series after the other, each sorted and unique.
    bounds : ndarray of int of shape (S + 1,)
        Series ``s`` has the rows ``bounds[s]`` to ``bounds[s + 1] - 1``.
    freq : str or int
        Pandas offset alias, or the step of integer time.
    owner : callable
        Names the series of a number, for messages.

    Raises
    ------
    DataError
        If a stamp is missing, too early, or not on the frequency at all.

    Examples
    --------
    >>> stamps = pd.to_datetime(["2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 03:00"])
    >>> check_regular_runs(stamps, np.array([0, 2, 3]), "h", owner=str)
    >>> check_regular_runs(stamps, np.array([0, 3]), "h", lambda number: "the frame")
    Traceback (most recent call last):
    ...
    mlrforecast._core.errors.DataError: Time stamps must be regular, but the frame has a gap: ...
    """
    starts = bounds[:-1][np.diff(bounds) > 0]
    follows = mark_following(stamps, starts, freq)
    if follows.all():
        return
    row = int(np.argmin(follows))
    number = int(np.searchsorted(bounds, row, side="right")) - 1
    run = slice(bounds[number], bounds[number + 1])
    raise DataError(describe_break(stamps[run], follows[run], freq, owner(number)))


def future_index(last: pd.Timestamp | int, freq: str | int, periods: int) -> pd.Index:
    """Return the stamps that follow a stamp.

    Parameters
    ----------
    last : Timestamp or int
        A stamp on the frequency; it is not part of the result.
    freq : str or int
        Pandas offset alias, or the step of integer time.
    periods : int
        Number of stamps.

    Returns
    -------
    DatetimeIndex or Index of int
        The next ``periods`` stamps, in the unit of ``last`` where it can hold them.

    Examples
    --------
    >>> [str(stamp.date()) for stamp in future_index(pd.Timestamp("2024-01-31"), "ME", 2)]
    ['2024-02-29', '2024-03-31']
    """
    if not isinstance(last, pd.Timestamp):
        return future_stamps(pd.Index([last], dtype=np.int64), freq, periods)
    # Pandas 2 would make nanoseconds of a list of stamps.
    stamps = pd.DatetimeIndex(np.array([last.asm8]))
    if last.tz is not None:
        stamps = stamps.tz_localize("UTC").tz_convert(last.tz)
    return future_stamps(stamps, freq, periods)


def future_stamps(last: pd.Index, freq: str | int, periods: int) -> pd.Index:
    """Return the stamps that follow the last ones of series.

    Parameters
    ----------
    last : DatetimeIndex or Index of int, of length S
        The last stamp of each series, on the frequency.
    freq : str or int
        Pandas offset alias, or the step of integer time.
    periods : int
        Number of stamps for each series.

    Returns
    -------
    DatetimeIndex or Index of int, of length S * periods
        The stamps of one series after those of another, in the unit of ``last`` where it can hold
        them.

    Raises
    ------
    DataError
        If a stamp lies beyond what the unit of ``last`` can hold.

    Examples
    --------
    >>> last = pd.DatetimeIndex(["2024-01-05", "2024-01-08"])
    >>> [str(stamp.date()) for stamp in future_stamps(last, "B", 2)]
    ['2024-01-08', '2024-01-09', '2024-01-09', '2024-01-10']
    """
    if not len(last) or not periods:
        return last[:0]
    last = in_unit_of(last, freq)
    unique, series = np.unique(ticks_of(last), return_inverse=True)
    stamps = index_of(unique, last)
    grid = grid_of(freq, stamps, ahead=periods)
    places = grid.places(stamps)
    number = places.number[:, None] + grid.step * np.arange(1, periods + 1)
    phase = np.broadcast_to(places.phase[:, None], number.shape)
    found = grid.stamps(number.ravel(), phase.ravel())
    if (ticks_of(found).reshape(number.shape)[:, -1] <= unique).any():
        raise DataError(
            f"The time stamps after {stamps[-1]} (frequency {freq!r}) lie beyond what can be "
            "stored. Check the last time stamps, or convert them with as_unit('s') first."
        )
    rows = series[:, None] * periods + np.arange(periods)
    return found.take(rows.ravel())


def default_season_length(freq: str | int) -> int:
    """Return the steps of the main season of a frequency, as GluonTS defines it.

    Seconds have a season of 3600, minutes 1440, hours 24, business days 5, months 12, quarters 4,
    all else and integer time 1; a multiple of a frequency divides it where it divides evenly
    (``"2h"`` gives 12).

    Parameters
    ----------
    freq : str or int
        Pandas offset alias, or the step of integer time.

    Returns
    -------
    int
        Steps of a season, at least 1.

    Examples
    --------
    >>> [default_season_length(freq) for freq in ("h", "2h", "MS", "W-WED", "5h", 1)]
    [24, 12, 12, 1, 1, 1]
    """
    if isinstance(freq, int):
        return 1
    offset = pd.tseries.frequencies.to_offset(freq)
    assert offset is not None
    season = _SEASONS.get(offset.rule_code.split("-")[0], 1)
    return season // offset.n if season % offset.n == 0 else 1


def clock_seconds(stamps: pd.Index) -> np.ndarray | None:
    """Return what a clock on the spot shows at stamps, as seconds since it showed 1970.

    Parameters
    ----------
    stamps : DatetimeIndex or Index of int, of length N
        Stamps; of a time zone, its local time counts.

    Returns
    -------
    ndarray of float64 of shape (N,) or None
        Seconds; None for integer time.

    Examples
    --------
    >>> clock_seconds(pd.DatetimeIndex(["1970-01-02 00:00:01"], tz="Asia/Kathmandu"))
    array([86401.])
    """
    if not isinstance(stamps, pd.DatetimeIndex):
        return None
    local = stamps.tz_localize(None)
    return np.asarray(local.asi8 / (pd.Timedelta(1, unit="s") // pd.Timedelta(1, unit=local.unit)))


def _integer_step(stamps: pd.Index, owner: str) -> int:
    """Return the most common step of integer time."""
    steps = np.diff(ticks_of(stamps))
    if not len(steps):
        raise DataError(
            f"No frequency can be seen in the time of {owner}: it has one row. Pass freq=1, or "
            "whatever the step is."
        )
    return most_common(steps)


def _check_given(stamps: pd.Index, given: str | int, fills: bool, owner: str) -> None:
    """Raise a DataError if the stamps of a series have a frequency, and not the given one."""
    if isinstance(given, int) == isinstance(stamps, pd.DatetimeIndex):
        kinds = ("time stamps", "integer time")
        raise DataError(
            f"The time of {owner} is {kinds[isinstance(given, str)]} (first: {stamps[0]}), but the "
            f"frequency that was given or fitted, {given!r}, is one of "
            f"{kinds[isinstance(given, int)]}."
        )
    if not isinstance(stamps, pd.DatetimeIndex) or len(stamps) < 3:
        return
    starts = np.zeros(1, dtype=np.int64)
    if mark_following(stamps, starts, given)[1:].any():
        return
    if fills:
        fine = in_unit_of(stamps, given)
        places = grid_of(given, fine).places(fine, starts)
        if bool(places.on.all()) and bool((places.phase == places.phase[0]).all()):
            return
    found = carried_frequency(stamps) or find_frequency(stamps)
    if found is not None and mark_following(stamps, starts, found).all():
        raise DataError(
            f"The time stamps of {owner} have the frequency {found!r}, but {given!r} is wanted, "
            f"which was given or fitted. Pass resample='mean' with freq={given!r} to bring them "
            "to it."
        )


def _no_frequency(stamps: pd.DatetimeIndex, owner: str) -> str:
    """Say why no frequency is seen in stamps, and what to do."""
    where = f"the time stamps of {owner} ({len(stamps)} rows, {stamps[0]} to {stamps[-1]})"
    if len(stamps) < 3:
        return (
            f"No frequency can be seen in {where}: at least 3 regular stamps are needed. Pass "
            "freq, e.g. freq='D'."
        )
    steps = count_steps(stamps)
    common = " and ".join(f"{step} ({count} times)" for step, count in steps[:2] if count > 1)
    return (
        f"No frequency fits {where}: "
        f"{f'their most common steps are {common}' if common else 'no step comes twice'}. Pass "
        f"resample='mean' with freq={propose_frequency(stamps)!r} to bring them to one; or, if "
        "they follow one that has many gaps, pass that as freq, with fill='missing'."
    )
