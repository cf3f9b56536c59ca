"""Columns and indexes read as time: never by a guess."""

import re
import warnings
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types as dtypes
from pandas.tseries.api import guess_datetime_format

from mlrforecast._core.errors import DataError

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")

# "01/02/2024", "1.2.24 13:00": which of the numbers is the day depends on who wrote it.
_SHORT_NUMBERS = re.compile(r"\s*\d{1,2}([^\d\w:%]+)\d{1,2}\1(\d{4}|\d{2})(?!\d)")
_HALF_DAY = re.compile(r"(\s*)[ap]m\s*$", re.IGNORECASE)
_OFFSET = r"(Z|[+-]\d{2}:?\d{2})\s*$"


_EARLIEST, _LATEST = 1900_01_01, 2100_12_31


class Stamps(NamedTuple):
    """Time of each row, and the step of the periods that it was read from, if it was."""

    times: pd.Index
    step: str | None = None


def holds_time(values: pd.Series | pd.Index) -> bool:
    """Tell whether the dtype of values says that they are stamps or periods."""
    dtype = values.dtype
    if dtypes.is_datetime64_any_dtype(dtype) or isinstance(dtype, pd.PeriodDtype):
        return True
    if dtypes.is_object_dtype(dtype):
        return dtypes.infer_dtype(values, skipna=True) in ("datetime", "date", "period")
    return getattr(dtype, "type", None) is date


def is_text(values: pd.Series | pd.Index) -> bool:
    """Tell whether values are text."""
    if dtypes.is_object_dtype(values.dtype):
        return dtypes.infer_dtype(values, skipna=True) == "string"
    return values.dtype.type is str


def begins_like_stamps(values: pd.Series | pd.Index) -> bool:
    """Tell whether values are text of which the first can be read as a stamp, not as a number."""
    if not is_text(values):
        return False
    present = _as_index(values)[:1000].dropna()[:1].astype(object)
    if not len(present) or _is_number(str(present[0])):
        return False
    return any(isinstance(found, pd.DatetimeIndex) for found in _readings(present).values())


def read_stamps(values: pd.Series | pd.Index, owner: str) -> Stamps:
    """Read values as time: stamps, periods, text of one clear format, or integers.

    Parameters
    ----------
    values : Series or Index
        One entry a row.
    owner : str
        What they are, for messages, as the beginning of a sentence.

    Returns
    -------
    Stamps
        A DatetimeIndex, time zone included, or an Index of int64.

    Raises
    ------
    DataError
        If a value is missing, or is no time, or could be read as more than one.
    """
    index = _as_index(values)
    if isinstance(index, pd.CategoricalIndex):
        index = index.astype(index.categories.dtype)
    missing = np.flatnonzero(np.asarray(index.isna()))
    if len(missing):
        raise DataError(f"{owner} has no time stamp in row {missing[0]}: it is missing.")
    if isinstance(index.dtype, pd.PeriodDtype):
        return _of_periods(index)
    if dtypes.is_object_dtype(index.dtype) and dtypes.infer_dtype(index) == "period":
        return _of_periods(pd.PeriodIndex(index))
    if isinstance(index, pd.DatetimeIndex):
        return Stamps(index.rename(None))
    if holds_time(index):
        return Stamps(_of_times(index, owner))
    if is_text(index):
        return Stamps(_of_text(index, owner))
    return Stamps(_of_integers(index, owner))


def _as_index(values: pd.Series | pd.Index) -> pd.Index:
    # Pandas 2 would infer another dtype, and warn of it, if it were not named.
    return values if isinstance(values, pd.Index) else pd.Index(values.array, dtype=values.dtype)


def _of_periods(periods: Any) -> Stamps:
    """Return the first moment of each period."""
    with warnings.catch_warnings():
        # Periods of business days are to go; their stamps stay.
        warnings.simplefilter("ignore", FutureWarning)
        stamps = periods.to_timestamp(how="start").rename(None)
    return Stamps(stamps, _step_of_periods(periods.freq))


def _step_of_periods(freq: pd.offsets.BaseOffset) -> str:
    """Return the frequency of the first moments of periods."""
    # Periods are named by their end ("Q-DEC", "W-SUN"), their beginnings by themselves.
    name, _, anchor = freq.freqstr.lstrip("0123456789").partition("-")
    if name in ("M", "ME"):
        name = "MS"
    elif anchor in MONTHS:
        name = f"{name[0]}S-{MONTHS[(MONTHS.index(anchor) + 1) % 12]}"
    elif anchor in DAYS:
        name = f"W-{DAYS[(DAYS.index(anchor) + 1) % 7]}"
    return name if freq.n == 1 else f"{freq.n}{name}"


def _refuse_dates(index: pd.Index, owner: str) -> None:
    """Refuse integers such as 20240131, which do not count steps."""
    if not (index.min() >= _EARLIEST and index.max() <= _LATEST):
        return
    read = pd.to_datetime(index.astype(str), format="%Y%m%d", errors="coerce")
    if not read.hasnans:
        raise DataError(
            f"{owner} holds integers that are dates, such as {index[0]}, and not a count of steps. "
            "Convert them, e.g. with pd.to_datetime(..., format='%Y%m%d')."
        )


def _of_integers(index: pd.Index, owner: str) -> pd.Index:
    """Return integers as they are; refuse what is no time at all."""
    if dtypes.is_integer_dtype(index.dtype):
        if int(index.max()) > np.iinfo(np.int64).max:
            raise DataError(f"{owner} holds {index.max()}, which is beyond 64-bit integers.")
        _refuse_dates(index, owner)
        return pd.Index(index.to_numpy(dtype=np.int64))
    what = (
        "numbers"
        if dtypes.is_numeric_dtype(index.dtype)
        or (
            dtypes.is_object_dtype(index.dtype)
            and dtypes.infer_dtype(index) in ("integer", "floating")
        )
        else "values"
    )
    raise DataError(
        f"{owner} holds {what} ({index.dtype}, first value {_first(index)}), not time stamps. "
        "Convert it with pd.to_datetime first, or to integers, which count steps."
    )


def _of_times(index: pd.Index, owner: str) -> pd.DatetimeIndex:
    """Read stamps of Python or pyarrow."""
    found = _attempt(index)
    if isinstance(found, pd.DatetimeIndex):
        return found
    raise DataError(_unreadable(index, found, owner))


def _of_text(index: pd.Index, owner: str) -> pd.DatetimeIndex:
    """Read text of one format, each different text once."""
    codes, texts = pd.factorize(index)
    readings = _readings(texts)
    found = [(way, read) for way, read in readings.items() if isinstance(read, pd.DatetimeIndex)]
    if not found or found[0][1].hasnans:
        raise DataError(_bad_text(texts, codes, readings, owner))
    for other in found[1:]:
        if not other[1].equals(found[0][1]):
            raise DataError(_two_readings(texts, found[0], other, owner))
    return found[0][1].take(codes)


def _readings(texts: pd.Index) -> dict[str, pd.DatetimeIndex | str]:
    """Read text in every way in which people write dates; a way that fails gives its problem."""
    if texts.isin(["now", "today"]).any():
        # Pandas would take the time of the call.
        return {"": "'now' and 'today' are no time stamps"}
    first = str(texts[0])
    formats = _formats(first)
    if formats:
        return {way: _attempt(texts, format=form) for way, form in formats.items()}
    iso = _attempt(texts, format="ISO8601") if re.match(r"\s*\d{4}", first) else ""
    return {"": iso if isinstance(iso, pd.DatetimeIndex) else _attempt(texts)}


def _formats(text: str) -> dict[str, str]:
    """Return the formats of a text that begins with three short numbers, by what comes first."""
    short = _SHORT_NUMBERS.match(text)
    if short is None:
        return {}
    mark, year = short.group(1), "Y" if len(short.group(2)) == 4 else "y"
    rest = text[short.end() :]
    half = _HALF_DAY.search(rest)
    example = f"01{mark}02{mark}2024"
    guess = guess_datetime_format(example + (rest[: half.start()] if half else rest))
    if guess is None:
        return {}
    rest = guess[len(f"%m{mark}%d{mark}%Y") :]
    if half:
        rest = rest.replace("%H", "%I") + half.group(1) + "%p"
    orders = {"month": "md" + year, "day": "dm" + year}
    if year == "y":
        orders["year"] = "ymd"
    return {
        way: mark.join(f"%{letter}" for letter in order) + rest for way, order in orders.items()
    }


def _attempt(values: pd.Index, **options: Any) -> pd.DatetimeIndex | str:
    """Read stamps with pandas; return what it objects to where it fails or has to guess."""
    with warnings.catch_warnings(record=True) as guesses:
        warnings.simplefilter("always")
        try:
            stamps = pd.DatetimeIndex(pd.to_datetime(values, **options))
        except (ValueError, TypeError, OverflowError) as error:
            return str(error)
    return str(guesses[0].message) if guesses else stamps.rename(None)


def _bad_text(
    texts: pd.Index,
    codes: np.ndarray,
    readings: dict[str, pd.DatetimeIndex | str],
    owner: str,
) -> str:
    """Say which text cannot be read as a time stamp."""
    offsets = texts.to_series().astype(object).str.extract(_OFFSET)[0].dropna().unique()
    if len(offsets) > 1:
        return (
            f"{owner} cannot be read as time stamps: it mixes the UTC offsets {offsets[0]} and "
            f"{offsets[1]}, as a zone with summer time does. Convert it with "
            "pd.to_datetime(..., utc=True).dt.tz_convert('Europe/Berlin'), or whichever zone it is."
        )
    way, problem = next(reversed(readings.items()))
    options: dict[str, Any] = {"format": _formats(str(texts[0]))[way]} if way else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = pd.to_datetime(texts, errors="coerce", **options)
    place = int(np.argmax(np.asarray(read.isna())))
    row = int(np.argmax(codes == place))
    reason = problem if isinstance(problem, str) else "it stands for a missing stamp"
    return (
        f"{owner} cannot be read as time stamps without a guess (row {row} is "
        f"{str(texts[place])!r}): {_sentence(reason)}. Convert it with pd.to_datetime first."
    )


def _two_readings(
    texts: pd.Index,
    first: tuple[str, pd.DatetimeIndex],
    second: tuple[str, pd.DatetimeIndex],
    owner: str,
) -> str:
    """Show a text that can be read in two ways, and how to say which is meant."""
    place = int(np.argmax(np.asarray(first[1] != second[1])))
    text, formats = str(texts[place]), _formats(str(texts[0]))
    return (
        f"{owner} can be read in two ways: {text!r} is {first[1][place]} with the {first[0]} first "
        f"({formats[first[0]]!r}) and {second[1][place]} with the {second[0]} first "
        f"({formats[second[0]]!r}). Say which is meant with pd.to_datetime(..., "
        "format=...)."
    )


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", ""))
    except ValueError:
        return False
    return True


def _unreadable(index: pd.Index, problem: str, owner: str) -> str:
    return (
        f"{owner} cannot be read as time stamps without a guess (first value {_first(index)}): "
        f"{_sentence(problem)}. Convert it with pd.to_datetime first."
    )


def _sentence(problem: str) -> str:
    """Return the first sentence of a message of pandas, without what it advises."""
    return problem.split(". You might")[0].split("\n")[0].rstrip(".")


def _first(values: pd.Index) -> str:
    """Show the first value as Python writes it."""
    return repr(values[:1].tolist()[0])
