"""Frequencies of time stamps: inferred, checked, continued."""

import warnings
from collections.abc import Callable, Sequence

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
    found = index.freqstr or _most_common_frequency(index)
    if given is None:
        if found is None:
            raise DataError(
                f"No frequency can be seen in the time stamps of {owner(number)} "
                f"({len(index)} rows, {index[0]} to {index[-1]}): at least 3 regular stamps are "
                "needed."
            )
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


def future_index(last: pd.Timestamp, freq: str, periods: int) -> pd.DatetimeIndex:
    """Return the ``periods`` stamps that follow ``last``.

    Examples
    --------
    >>> future_index(pd.Timestamp("2024-01-31"), "ME", 2)
    DatetimeIndex(['2024-02-29', '2024-03-31'], dtype='datetime64[us]', freq='ME')
    """
    return pd.date_range(last, periods=periods + 1, freq=freq)[1:]


def default_season_length(freq: str) -> int:
    """Return the steps of the main season of a frequency, as GluonTS defines it.

    Seconds have a season of 3600, minutes 1440, hours 24, business days 5, months 12, quarters 4,
    all else 1; a multiple of a frequency divides it where it divides evenly (``"2h"`` gives 12).

    Examples
    --------
    >>> [default_season_length(freq) for freq in ("h", "2h", "MS", "W-WED", "5h")]
    [24, 12, 12, 1, 1]
    """
    offset = pd.tseries.frequencies.to_offset(freq)
    assert offset is not None
    season = _SEASONS.get(offset.rule_code.split("-")[0], 1)
    return season // offset.n if season % offset.n == 0 else 1


def _continued(index: pd.DatetimeIndex, freq: str) -> pd.DatetimeIndex:
    """Return the stamps that an index of this start and length would have."""
    return pd.date_range(index[0], periods=len(index), freq=freq).as_unit(index.unit)


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
    if named:
        return max(set(named), key=named.count)
    steps, counts = np.unique(np.diff(index.values), return_counts=True)
    step = pd.Timedelta(steps[int(np.argmax(counts))])
    return pd.tseries.frequencies.to_offset(step).freqstr if counts.max() > 1 else None
