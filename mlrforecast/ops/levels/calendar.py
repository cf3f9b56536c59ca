"""Blocks of a time index: local years, months, weeks, days, hours."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mlrforecast.ops._checks import entries
from mlrforecast.ops.levels.combine import nested_block_ids

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["calendar_block_ids"]

_ALIASES = {
    "year": "Y",
    "quarter": "Q",
    "month": "M",
    "week": "W",
    "day": "D",
    "hour": "h",
    "minute": "min",
    "second": "s",
}


def calendar_block_ids(
    stamps: Any,
    periods: Sequence[str] = ("month", "week", "day"),
    *,
    whole: bool = True,
    nested: bool = True,
) -> Int[Tensor, "num_levels S"]:
    """Return the calendar period of each time stamp on each level, as block ids.

    Blocks are ragged as the calendar is: a month has 28 to 31 days, the first and the last block
    may be short, and missing or irregular stamps change nothing. Stamps of a time zone are read
    from its clocks: a day with a change of the clocks has 23 or 25 hours, and an hour that comes
    twice is two blocks.

    Parameters
    ----------
    stamps : DatetimeIndex, PeriodIndex, Series or array of S time stamps
        Such as the index of a frame; sorted or not.
    periods : sequence of str, coarse to fine, default ("month", "week", "day")
        Each ``"year"``, ``"quarter"``, ``"month"``, ``"week"`` (from Monday), ``"day"``,
        ``"hour"``, ``"minute"``, ``"second"``, or a pandas period alias such as ``"6h"``,
        ``"W-SAT"`` or ``"2M"``. Multiples are counted from the beginning of 1970.
    whole : bool, default True
        Whether a first level holds all stamps in one block.
    nested : bool, default True
        Whether a block also ends where a coarser one does, so that the levels nest as fast
        backends need it: a week over the end of a month is then two blocks.

    Returns
    -------
    Tensor of shape (num_levels, S), int64
        Ids from 0 on each level, for ``block_ids=``; later periods have larger ids.

    Raises
    ------
    ValueError
        If there are no stamps, one is missing (``NaT``), a period is unknown, or the periods do
        not run coarse to fine.
    TypeError
        If ``stamps`` or ``periods`` are something else.

    Examples
    --------
    >>> import pandas as pd
    >>> stamps = pd.date_range("2024-02-28", periods=6, freq="12h")
    >>> calendar_block_ids(stamps, ("month", "day"))
    tensor([[0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 1, 1],
            [0, 0, 1, 1, 2, 2]])
    """
    index = _index(stamps)
    rows = [np.zeros(len(index), dtype=np.int64)] if whole else []
    shortest = None
    for lvl, period in enumerate(_names(periods)):
        row, length = _periods_of(index, period, lvl)
        if shortest is not None and length > shortest:
            raise ValueError(f"`periods` must run coarse to fine, got {tuple(periods)}.")
        shortest = length
        rows.append(row)
    if not rows:
        raise ValueError("`periods` must name at least one period where `whole` is False.")
    ids = torch.from_numpy(np.stack([np.unique(row, return_inverse=True)[1] for row in rows]))
    return nested_block_ids(ids) if nested else ids


def _names(periods: Sequence[str]) -> tuple[str, ...]:
    """Return the names of periods, refusing a lone text."""
    names = () if isinstance(periods, str) else entries(periods, "periods")
    if isinstance(periods, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"`periods` must be texts such as ('week', 'day'), got {periods!r}.")
    return names


def _index(stamps: Any) -> "pd.DatetimeIndex":
    """Turn stamps into an index, and check that each is there."""
    import pandas as pd

    if isinstance(stamps, pd.DataFrame):
        raise TypeError(
            "`stamps` must be time stamps, got a DataFrame. Give its index, or its column of "
            "stamps."
        )
    try:
        given = pd.Index(stamps)
        if pd.api.types.is_numeric_dtype(given):
            raise TypeError(f"got {given.dtype}")
        index = pd.DatetimeIndex(
            given.to_timestamp() if isinstance(given, pd.PeriodIndex) else given
        )
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`stamps` must be time stamps, such as the index of a frame, of one time zone: {error}"
        ) from error
    if not len(index):
        raise ValueError("`stamps` must hold at least one time stamp, got none.")
    if index.hasnans:
        raise ValueError(
            f"`stamps` must not be missing, got NaT at position {int(index.isna().argmax())}. "
            "Fill it or drop the row."
        )
    return index


def _periods_of(
    index: "pd.DatetimeIndex", period: str, lvl: int
) -> tuple[np.ndarray, "pd.Timedelta"]:
    """Return the number of each stamp's period on the local clocks, and a period's length."""
    import pandas as pd

    clocks = index.tz_localize(None)
    try:
        found = pd.PeriodIndex(clocks, freq=_ALIASES.get(period, period))
    except ValueError as error:
        raise ValueError(
            f"`periods[{lvl}]` must be one of {', '.join(_ALIASES)} or a pandas period alias such "
            f"as '6h' or 'W-SAT', got {period!r}."
        ) from error
    # pandas lets a multiple begin at every stamp; here it begins at multiples of itself.
    numbers = found.asi8 // found[0].freq.n
    # That of the first one since 1970, so that the order of periods is no matter of the stamps.
    one = pd.Period(ordinal=0, freq=found.freqstr)
    length = one.end_time - one.start_time
    if index.tz is None or length > pd.Timedelta("1h"):
        return numbers, length
    # On the clocks, an hour that comes twice differs only in its distance from UTC.
    behind = index.as_unit("s").asi8 - clocks.as_unit("s").asi8
    block = np.unique(np.stack([numbers, behind]), axis=1, return_inverse=True)[1].ravel()
    first = np.full(block.max() + 1, index.asi8.max())
    np.minimum.at(first, block, index.asi8)
    return first[block], length
