"""Frequencies as users write them, in the notation of any pandas, and as this library does."""

import re
import warnings

import numpy as np
import pandas as pd

_NAMES = (
    *("h", "min", "s", "ms", "us", "ns", "D", "B", "W", "bh", "WOM", "LWOM", "RE", "REQ"),
    *("SMS", "SME", "MS", "ME", "BMS", "BME", "QS", "QE", "BQS", "BQE", "YS", "YE", "BYS", "BYE"),
)

# What pandas wrote before version 2.2, and writes now.
_FORMER = {
    "H": "h",
    "T": "min",
    "S": "s",
    "L": "ms",
    "U": "us",
    "N": "ns",
    "M": "ME",
    "SM": "SME",
    "BM": "BME",
    "Q": "QE",
    "BQ": "BQE",
    "A": "YE",
    "Y": "YE",
    "BA": "BYE",
    "BY": "BYE",
    "AS": "YS",
    "BAS": "BYS",
    "BH": "bh",
}

_EXACT = {name: name for name in _NAMES} | _FORMER
_ANY_CASE = {name.lower(): now for name, now in _EXACT.items() if name not in ("M", "MS")}

_CUSTOM = ("c", "cbms", "cbme", "cbm", "cbh")
_CUSTOM_OFFSETS = (
    pd.offsets.CustomBusinessDay,
    pd.offsets.CustomBusinessHour,
    pd.offsets.CustomBusinessMonthBegin,
    pd.offsets.CustomBusinessMonthEnd,
)

_PART = re.compile(r"\s*(\d+(?:\.\d+)?)?\s*([A-Za-z]+)(-[A-Za-z0-9-]+)?\s*")


def parse_frequency(freq: str | int) -> str | int:
    """Read a frequency in old or new notation.

    Parameters
    ----------
    freq : str or int
        A pandas offset alias, such as ``"h"``, ``"15T"``, ``"W-WED"`` or ``"2M"``; or the step of
        integer time.

    Returns
    -------
    str or int
        The alias that every pandas from 2.2 on writes and reads in the same way.

    Raises
    ------
    TypeError
        If ``freq`` is neither text nor an integer.
    ValueError
        If it is not positive, means nothing, or more than one thing.

    Examples
    --------
    >>> [parse_frequency(freq) for freq in ("H", "15T", "w-wed", "2M", "QS-FEB", "1h30min", 3)]
    ['h', '15min', 'W-WED', '2ME', 'QS-FEB', '90min', 3]
    """
    if isinstance(freq, int | np.integer) and not isinstance(freq, bool):
        if freq < 1:
            raise ValueError(f"`freq` must be positive, got {freq}.")
        return int(freq)
    if not isinstance(freq, str):
        raise TypeError(
            "`freq` must be a pandas offset alias such as 'h' or 'W-WED', or an integer for "
            f"integer time, got {freq!r} ({type(freq).__name__})."
        )
    try:
        alias = alias_of(_read_offset(freq))
        if alias is None:
            raise ValueError("pandas knows no such frequency")
    except ValueError as error:
        raise ValueError(
            "`freq` must be a pandas offset alias such as 's', '15min', 'h', 'D', 'B', 'W-WED', "
            f"'MS', 'ME', 'QS-FEB' or 'YE', got {freq!r}, but {error}."
        ) from error
    return alias


def _read_offset(text: str) -> pd.offsets.BaseOffset:
    """Return the offset that a text means; the message of an error goes on after "but"."""
    parts = []
    end = 0
    while part := _PART.match(text, end):
        parts.append(part.groups(default=""))
        end = part.end()
    if not parts or end < len(text):
        raise ValueError("pandas knows no such frequency")
    current = "".join(number + _now(name) + anchor.upper() for number, name, anchor in parts)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            offset = pd.tseries.frequencies.to_offset(current)
    except (ValueError, Warning) as error:
        raise ValueError("pandas knows no such frequency") from error
    if offset is None or offset.n < 1:
        raise ValueError("it is not positive")
    return offset


def _now(name: str) -> str:
    """Return what pandas calls a frequency now."""
    if name.lower() in _CUSTOM:
        raise ValueError(
            "the calendar of custom business days cannot be told by a name. Take 'B' (or 'D') and "
            "fill='missing', which makes the days off missing values"
        )
    if name == "m":
        raise ValueError("it may stand for minutes ('min') or for months ('MS', 'ME')")
    return _EXACT.get(name) or _ANY_CASE.get(name.lower(), name)


def alias_of(offset: pd.offsets.BaseOffset) -> str | None:
    """Return an alias that every pandas from 2.2 on reads as this offset, None if there is none."""
    length = length_of(offset)
    if length is not None:
        return alias_of_length(length)
    if isinstance(offset, _CUSTOM_OFFSETS):
        return None
    try:
        same = pd.tseries.frequencies.to_offset(offset.freqstr) == offset
    except ValueError:
        return None
    return offset.freqstr if same else None


def alias_of_length(length: pd.Timedelta) -> str:
    """Return the alias of a length on the clock, in the largest unit up to the hour."""
    for unit in ("h", "min", "s", "ms", "us"):
        if length % pd.Timedelta(1, unit=unit) == pd.Timedelta(0):
            return with_multiple(length // pd.Timedelta(1, unit=unit), unit)
    return with_multiple(length.value, "ns")


def with_multiple(number: int, alias: str) -> str:
    """Return the alias of a multiple of a frequency."""
    return alias if number == 1 else f"{number}{alias}"


def length_of(offset: pd.offsets.BaseOffset) -> pd.Timedelta | None:
    """Return a length on the clock; a day is none, although pandas 2 says so."""
    if isinstance(offset, pd.offsets.Tick) and not isinstance(offset, pd.offsets.Day):
        return pd.Timedelta(offset)
    return None
