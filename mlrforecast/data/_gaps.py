"""Stamps that do not follow the ones before them, found and told."""

import numpy as np
import pandas as pd

from mlrforecast.data._grid import Grid, Places, grid_of, in_unit_of, ticks_of
from mlrforecast.data._inference import find_frequency

# Months in which clocks change somewhere.
CHANGING = (3, 4, 9, 10, 11)


def mark_following(stamps: pd.Index, starts: np.ndarray, freq: str | int) -> np.ndarray:
    """Mark stamps that lie one step after the one before; a first one, that is on the frequency.

    Parameters
    ----------
    stamps : DatetimeIndex or Index of int, of length N
        Stamps of all series, one series after the other, each sorted.
    starts : ndarray of int of shape (S,)
        First row of each series; none is empty.
    freq : str or int
        Frequency.

    Returns
    -------
    ndarray of bool of shape (N,)
    """
    stamps = in_unit_of(stamps, freq)
    grid = grid_of(freq, stamps)
    follows = np.ones(len(stamps), dtype=bool)
    if grid.width is not None:
        np.equal(np.diff(ticks_of(stamps)), grid.width, out=follows[1:])
    else:
        places = grid.places(stamps, starts)
        np.equal(np.diff(places.number), grid.step, out=follows[1:])
        follows[1:] &= np.diff(places.phase) == 0
    follows[starts] = True
    return follows if grid.width is not None else follows & places.on


def describe_break(stamps: pd.Index, follows: np.ndarray, freq: str | int, owner: str) -> str:
    """Say where the stamps of a series leave their frequency first, and what to do.

    Parameters
    ----------
    stamps : DatetimeIndex or Index of int, of length T
        Stamps of the series.
    follows : ndarray of bool of shape (T,)
        What :func:`mark_following` returns for them; not all true.
    freq : str or int
        Frequency.
    owner : str
        Name of the series.
    """
    stamps = in_unit_of(stamps, freq)
    grid = grid_of(freq, stamps, ahead=1)
    places = grid.places(stamps, np.zeros(1, dtype=np.int64))
    whole = _whole_steps(places, grid.step)
    row = int(np.argmin(follows if whole.all() else whole))
    if row == 0:
        return (
            f"The first time stamp of {owner}, {stamps[0]}, does not lie on the frequency {freq!r}."
            f"{_way_out(freq)}"
        )
    wanted = grid.stamps(places.number[row - 1 : row] + grid.step, places.phase[row - 1 : row])[0]
    if whole.all():
        return _gap(stamps, places.number, grid, freq, owner, row, wanted)
    side = "before" if stamps[row] < wanted else "beyond"
    return (
        f"Time stamps must be regular, but {owner} has {stamps[row]} after {stamps[row - 1]}, "
        f"{side} the next step {wanted} (frequency {freq!r}).{_way_out(freq)}"
    )


def _whole_steps(places: Places, step: int) -> np.ndarray:
    """Mark rows of one series that lie whole steps after the one before; a first one, on a grid."""
    whole = places.on.copy()
    whole[1:] &= (np.diff(places.phase) == 0) & (np.diff(places.number) % step == 0)
    return whole


def _way_out(freq: str | int) -> str:
    return f" Pass resample='mean' with freq={freq!r} to bring all rows to one frequency."


def _gap(
    stamps: pd.Index,
    numbers: np.ndarray,
    grid: Grid,
    freq: str | int,
    owner: str,
    row: int,
    wanted: object,
) -> str:
    """Describe the first gap of a series."""
    absent = np.diff(numbers) // grid.step - 1
    gaps = int(np.count_nonzero(absent))
    first = int(absent[row - 1])
    more = f"; {gaps} gaps and {int(absent.sum())} steps in all" if gaps > 1 else ""
    return (
        f"Time stamps must be regular, but {owner} has a gap: {stamps[row - 1]} is followed by "
        f"{stamps[row]}, and {wanted} was expected: {first} step{'s' * (first > 1)} of {freq!r} "
        f"absent{more}. {_hint(stamps, absent, freq, grid.width)}"
        "Pass fill='missing' to make absent rows missing values."
    )


def _hint(stamps: pd.Index, absent: np.ndarray, freq: str | int, width: int | None) -> str:
    """Say what kind of gaps these are, if that is plain."""
    if not isinstance(stamps, pd.DatetimeIndex):
        return ""
    if freq == "D" and bool((stamps.day_of_week < 5).all()):
        return "No row lies on a weekend: pass freq='B' if they are business days. "
    if len(stamps) > 2 and bool((absent > 0).all()):
        found = find_frequency(stamps)
        return f"All its stamps have the frequency {found!r}. " if found else ""
    gaps = absent > 0
    before = stamps[:-1][gaps]
    hour = pd.Timedelta(hours=1) // pd.Timedelta(1, unit=stamps.unit)
    if (
        stamps.tz is None
        and width is not None
        and bool((absent[gaps] * width == hour).all() and (before.hour < 4).all())
        and bool(before.month.isin(CHANGING).all())
    ):
        return (
            "If these are hours that a clock skips in spring, give the stamps their zone, e.g. "
            "with tz_localize('Europe/Paris'). "
        )
    return ""
