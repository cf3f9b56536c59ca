"""Stamps as whole numbers of steps, so that series are checked, filled and continued by arithmetic.

A grid holds the moments of one frequency, numbered in order. A stamp stands at a place: the number
of a moment and a phase, what the stamp lies after it (such as the hour of daily stamps). Rows of a
series lie ``step`` numbers apart and share one phase; of a multiple of a frequency, such as
``"2W-WED"``, a grid numbers every moment, so that series that began at odds share it.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data._aliases import length_of

_DAY, _HOUR = 86_400, 3_600
_UNITS: tuple[Literal["s", "ms", "us", "ns"], ...] = ("s", "ms", "us", "ns")
_LARGEST = np.iinfo(np.int64).max


class Places(NamedTuple):
    """Where stamps stand on a grid.

    Parameters
    ----------
    number, phase : ndarray of int of shape (N,)
        The moment, and the time after it in the unit of the stamps.
    on : ndarray of bool of shape (N,)
        Whether the grid has that moment; if not, the number is that of the next one.
    """

    number: np.ndarray
    phase: np.ndarray
    on: np.ndarray


@runtime_checkable
class Grid(Protocol):
    """Moments of one frequency."""

    @property
    def step(self) -> int:
        """Numbers from one row of a series to the next."""

    @property
    def width(self) -> int | None:
        """Ticks of a step, None if it depends on the calendar."""

    @property
    def labels_end(self) -> bool:
        """Whether a moment names the time before it, as the end of a month does."""

    def places(self, stamps: pd.Index, starts: np.ndarray | None = None) -> Places:
        """Return where stamps stand.

        ``starts`` are the first rows of the series: where clocks change, a stamp may lie an hour
        after the time of day of its series. By default no stamp is taken to lie after a moment if
        it is the first one that the clock had from there on.
        """

    def stamps(self, number: np.ndarray, phase: np.ndarray) -> pd.Index:
        """Return the stamps at places."""


@dataclass(frozen=True)
class _EvenGrid:
    """Moments of one distance, counted from a number that all are."""

    width: int
    like: pd.Index
    step: int = 1
    labels_end: bool = False

    def places(self, stamps: pd.Index, starts: np.ndarray | None = None) -> Places:
        ticks = ticks_of(stamps)
        number = ticks // self.width
        return Places(number, ticks - number * self.width, np.ones(len(ticks), dtype=bool))

    def stamps(self, number: np.ndarray, phase: np.ndarray) -> pd.Index:
        return index_of(number * self.width + phase, self.like)


@dataclass(frozen=True)
class _CalendarGrid:
    """Moments of a calendar: days, or hours of business, of the local clock.

    ``moments`` counts them since 1970 in days or hours, which are ``ticks`` of the stamps.
    """

    moments: np.ndarray
    ticks: int
    like: pd.DatetimeIndex
    step: int
    labels_end: bool
    width: None = None

    def places(self, stamps: pd.Index, starts: np.ndarray | None = None) -> Places:
        assert isinstance(stamps, pd.DatetimeIndex)
        local = stamps.tz_localize(None).asi8
        key = local // self.ticks
        phase = local - key * self.ticks
        if self.like.tz is not None:
            phase = self._unshifted(stamps, key, phase, starts)
        number = np.searchsorted(self.moments, key)
        return Places(number, phase, np.append(self.moments, _LARGEST)[number] == key)

    def stamps(self, number: np.ndarray, phase: np.ndarray) -> pd.Index:
        if len(number) > len(self.moments) and bool((phase == phase[0]).all()):
            # Changes of clocks are looked up once for each moment, not for each row.
            moments = self._of_local(self.moments * self.ticks + phase[0])
            return index_of(ticks_of(moments)[number], self.like)
        return self._of_local(self.moments[number] * self.ticks + phase)

    def _unshifted(
        self, stamps: pd.Index, key: np.ndarray, phase: np.ndarray, starts: np.ndarray | None
    ) -> np.ndarray:
        """Return phases, of stamps that a change of clocks has moved too."""
        if starts is None:
            usual = np.zeros_like(phase)
        else:
            rows = np.diff(np.append(starts, len(phase)))
            usual = np.repeat(np.minimum.reduceat(phase, starts), rows)
        odd = np.flatnonzero(phase != usual)
        unmoved = key[odd] * self.ticks + usual[odd]
        moved = odd[ticks_of(self._of_local(unmoved)) == ticks_of(stamps)[odd]]
        phase[moved] = usual[moved]
        return phase

    def _of_local(self, local: np.ndarray) -> pd.DatetimeIndex:
        """Return the stamps at which the clock shows a time, or else the first one after it."""
        index = pd.DatetimeIndex(local.view(f"M8[{self.like.unit}]"))
        if self.like.tz is None:
            return index
        first_of_two = np.ones(len(index), dtype=bool)
        return index.tz_localize(
            self.like.tz, ambiguous=first_of_two, nonexistent="shift_forward"
        ).as_unit(self.like.unit)


def grid_of(freq: str | int, stamps: pd.Index, *, ahead: int = 0) -> Grid:
    """Return the grid of a frequency around stamps.

    Parameters
    ----------
    freq : str or int
        Frequency, an int for integer time.
    stamps : DatetimeIndex or Index of int, not empty
        Stamps in any order. Places are those of stamps of their unit; of a frequency that is finer
        than the unit, they must come from :func:`in_unit_of` first.
    ahead : int
        How many steps are wanted after the newest stamp.

    Raises
    ------
    DataError
        If stamps lie outside the years 1 to 9999 and the frequency depends on the calendar.
    """
    if isinstance(freq, int):
        return _EvenGrid(freq, stamps)
    assert isinstance(stamps, pd.DatetimeIndex)
    offset = pd.tseries.frequencies.to_offset(freq)
    assert offset is not None
    unit = pd.Timedelta(1, unit=stamps.unit)
    length = _length_of(offset, stamps)
    if length is not None:
        return _EvenGrid(int(length // unit), stamps)
    ends = index_of(np.array([stamps.asi8.min(), stamps.asi8.max()]), stamps)
    assert isinstance(ends, pd.DatetimeIndex)
    daily = not isinstance(offset, pd.offsets.BusinessHour)
    try:
        moments = _moments(offset.base, ends.tz_localize(None), daily=daily, ahead=ahead * offset.n)
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"Time stamps of frequency {freq!r} must lie within the years 1 to 9999, but they "
            f"range from {stamps.min()} to {stamps.max()}."
        ) from error
    width = _DAY if daily else _HOUR
    return _CalendarGrid(
        moments=moments // width,
        ticks=width * int(pd.Timedelta(1, unit="s") // unit),
        like=stamps,
        step=offset.n,
        labels_end=_labels_end(offset),
    )


def _length_of(offset: pd.offsets.BaseOffset, stamps: pd.DatetimeIndex) -> pd.Timedelta | None:
    """Return the length of a step, None if it depends on the calendar."""
    if isinstance(offset, pd.offsets.Day):
        # A day of a zone may have 23 or 25 hours.
        even = stamps.tz is None or str(stamps.tz) == "UTC"
        return pd.Timedelta(hours=24 * offset.n) if even else None
    return length_of(offset)


def _moments(
    base: pd.offsets.BaseOffset, local: pd.DatetimeIndex, *, daily: bool, ahead: int
) -> np.ndarray:
    """Return all moments from just before stamps to some after them, in seconds since 1970."""
    first, last = local.normalize().as_unit("s")
    # Hours of business are counted from the opening of a day, a week before at most.
    first = base.rollback(first) if daily else base.rollforward(first - pd.Timedelta(days=7))
    last = base.rollforward(last if daily else last + pd.Timedelta(days=1))
    moments = pd.date_range(first, last, freq=base, unit="s")
    if ahead:
        later = pd.date_range(last, periods=ahead + 1, freq=base, unit="s")[1:]
        if len(later) < ahead:
            # Pandas 2 gives up without a word.
            raise OverflowError
        return np.concatenate([moments.asi8, later.asi8])
    return moments.asi8


def _labels_end(offset: pd.offsets.BaseOffset) -> bool:
    """Tell whether pandas resamples to moments that name the time before them."""
    name = offset.rule_code.split("-")[0]
    return (name.endswith("E") and name != "SME") or name in ("W", "REQ", "WOM", "LWOM")


def in_unit_of(stamps: pd.Index, freq: str | int) -> pd.Index:
    """Return stamps in a unit that can hold a step of the frequency, their own if it can."""
    if isinstance(freq, int):
        return stamps
    assert isinstance(stamps, pd.DatetimeIndex)
    offset = pd.tseries.frequencies.to_offset(freq)
    assert offset is not None
    length = length_of(offset)
    if length is None:
        return stamps
    for unit in _UNITS[_UNITS.index(stamps.unit) :]:
        if length % pd.Timedelta(1, unit=unit) == pd.Timedelta(0):
            return stamps.as_unit(unit)
    return stamps


def ticks_of(stamps: pd.Index) -> np.ndarray:
    """Return ``stamps`` as int64, in their own unit, without a copy."""
    return np.asarray(stamps.asi8 if isinstance(stamps, pd.DatetimeIndex) else stamps.to_numpy())


def index_of(ticks: np.ndarray, like: pd.Index) -> pd.Index:
    """Return stamps of the unit and time zone of others, without a copy of the ``ticks``."""
    if not isinstance(like, pd.DatetimeIndex):
        index: pd.Index = pd.Index(ticks, copy=False)
        return index
    if like.tz is None:
        return pd.DatetimeIndex(ticks.view(f"M8[{like.unit}]"), copy=False)
    dtype = pd.DatetimeTZDtype(like.unit, like.tz)
    return pd.DatetimeIndex(ticks, dtype=dtype, copy=False)
