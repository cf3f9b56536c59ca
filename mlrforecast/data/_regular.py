"""Rows brought onto one frequency: gaps filled, irregular rows put together, doubles refused."""

from collections.abc import Callable, Hashable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data._gaps import CHANGING
from mlrforecast.data._grid import Grid, Places, grid_of, in_unit_of, index_of, ticks_of
from mlrforecast.data.schema import Fill, Resample

Kind: TypeAlias = Literal["target", "number", "category"]

# A stray stamp of another century must not fill the memory.
_MOST_FILLED = 1_000_000
_MOST_TIMES = 20


class Table(NamedTuple):
    """The rows of all series, sorted by series and time.

    Parameters
    ----------
    stamps : DatetimeIndex or Index of int, of length N
        Time.
    codes : ndarray of int of shape (N,)
        Number of the series of each row.
    columns : list of tuple
        Name, values of shape (N,) and kind of each column: float64 of a target or a numeric
        covariate, NaN where missing; int codes of a categorical one, -1 where missing.
    """

    stamps: pd.Index
    codes: np.ndarray
    columns: list[tuple[Hashable, np.ndarray, Kind]]


def check_duplicates(stamps: pd.Index, bounds: np.ndarray, owner: Callable[[int], str]) -> None:
    """Check that sorted stamps rise in each series.

    Parameters
    ----------
    stamps : DatetimeIndex or Index of int, of length N
        Time of all series, one after the other, each sorted.
    bounds : ndarray of int of shape (S + 1,)
        Series ``s`` has the stamps ``bounds[s]`` to ``bounds[s + 1] - 1``.
    owner : callable
        Names the series of a number, for messages.

    Raises
    ------
    DataError
        If a series has a stamp twice.
    """
    same = np.diff(ticks_of(stamps)) == 0
    same[bounds[1:-1] - 1] = False
    if not same.any():
        return
    row = int(np.argmax(same))
    number = int(np.searchsorted(bounds, row, side="right")) - 1
    run = stamps[bounds[number] : bounds[number + 1]]
    times = int(np.count_nonzero(run == stamps[row]))
    raise DataError(
        f"Time stamps must be unique, but {owner(number)} has {stamps[row]} {times} times "
        f"(rows too many in all: {np.count_nonzero(same)}). {_of_many(same, len(bounds) - 1)}Pass "
        "resample='mean' (or 'sum', 'last', ...) to put the rows of a step together, or drop some "
        f"of them, e.g. with frame.drop_duplicates.{_of_autumn(stamps[:-1][same])}"
    )


def _of_many(same: np.ndarray, num_series: int) -> str:
    """Say that the column of the series may not have been named, if so many rows are doubles."""
    if num_series > 1 or np.count_nonzero(same) < 0.3 * len(same):
        return ""
    return (
        "If rows of several series stand in the frame, name the column that tells them apart: "
        "id_column=.... Otherwise: "
    )


def _of_autumn(doubled: pd.Index) -> str:
    """Say that a time zone may be missing, if stamps look like it."""
    if not isinstance(doubled, pd.DatetimeIndex) or doubled.tz is not None:
        return ""
    once_a_year = doubled.normalize().unique().year.is_unique
    if not (
        once_a_year
        and doubled.is_unique
        and doubled.hour.max() < 4
        and doubled.month.isin(CHANGING).all()
    ):
        return ""
    return (
        " If this is the hour that a clock shows twice in autumn, give the stamps their zone, e.g. "
        "with tz_localize('Europe/Paris', ambiguous='infer')."
    )


def fill_gaps(table: Table, freq: str | int, how: Fill) -> Table:
    """Insert the rows that are absent between the first and the last of each series.

    Parameters
    ----------
    table : Table
        Rows without duplicates.
    freq : str or int
        Pandas offset alias, or the step of integer time.
    how : {"missing", "zero"}
        What targets hold there; covariates are missing.

    Returns
    -------
    Table
        The given one where no row is absent. A gap next to a stamp that does not lie on the
        frequency stays.

    Raises
    ------
    DataError
        If so many rows are absent that a stray stamp is likely.
    """
    stamps = in_unit_of(table.stamps, freq)
    starts = np.flatnonzero(np.diff(table.codes, prepend=-1))
    grid = grid_of(freq, stamps)
    absent, places = _absent(stamps, starts, grid)
    total = len(stamps) + int(absent.sum())
    if total == len(stamps):
        return table
    if total - len(stamps) > max(_MOST_FILLED, _MOST_TIMES * len(stamps)):
        widest = int(np.argmax(absent))
        raise DataError(
            f"To fill all gaps, {total - len(stamps)} rows of {freq!r} would be added to "
            f"{len(stamps)}; the widest one begins at {stamps[widest]}. Look for stray time "
            "stamps, or pass a longer freq."
        )
    # Each row goes before the rows that are absent after it.
    row = np.repeat(np.arange(len(stamps)), 1 + absent)
    position = np.arange(len(stamps)) + np.cumsum(absent) - absent
    number = places.number[row] + (np.arange(total) - position[row]) * grid.step
    filled = ticks_of(grid.stamps(number, places.phase[row])).copy()
    # A stamp in an hour that the clock shows twice stays in the one that it was in.
    filled[position] = ticks_of(stamps)
    columns = [
        (name, _spread(values, position, total, kind, how), kind)
        for name, values, kind in table.columns
    ]
    return Table(index_of(filled, stamps), table.codes[row], columns)


def resample(table: Table, freq: str | int, how: Resample, fill: Fill = "missing") -> Table:
    """Put the rows of each step of a frequency together.

    Parameters
    ----------
    table : Table
        Sorted rows, perhaps with duplicates.
    freq : str or int
        Pandas offset alias, or the step of integer time. A step holds the rows from its stamp to
        the next; one that pandas names by its end (``"ME"``, ``"W-SUN"``) those up to the end of
        the day of its stamp. Steps on the clock are counted from midnight; where
        they do not divide a day, from that of 1970.
    how : {"mean", "sum", "median", "min", "max", "first", "last"}
        What targets become. Numeric covariates become their mean, categories the last one.
    fill : {"missing", "zero"}
        What targets hold in a step without rows.

    Returns
    -------
    Table
        Regular rows.

    Raises
    ------
    DataError
        If far more steps than rows would come of it.
    """
    stamps = _steps_of(in_unit_of(table.stamps, freq), freq)
    changes = (np.diff(ticks_of(stamps)) != 0) | (np.diff(table.codes) != 0)
    starts = np.append(0, np.flatnonzero(changes) + 1)
    columns = [
        (name, _put_together(values, starts, how, kind), kind)
        for name, values, kind in table.columns
    ]
    return fill_gaps(Table(stamps[starts], table.codes[starts], columns), freq, fill)


def _absent(stamps: pd.Index, starts: np.ndarray, grid: Grid) -> tuple[np.ndarray, Places]:
    """Count the rows that are absent after each row; return where the rows stand too."""
    places = grid.places(stamps, starts)
    absent = np.zeros(len(stamps), dtype=np.int64)
    steps, rest = np.divmod(np.diff(places.number), grid.step)
    whole = (rest == 0) & (np.diff(places.phase) == 0) & places.on[1:] & places.on[:-1]
    absent[:-1] = np.where(whole, np.maximum(steps - 1, 0), 0)
    # The last row of a series is followed by another one.
    absent[starts[1:] - 1] = 0
    return absent, places


def _spread(
    values: np.ndarray, position: np.ndarray, total: int, kind: Kind, how: Fill
) -> np.ndarray:
    """Put values at their positions among ``total`` rows."""
    absent = -1 if kind == "category" else 0.0 if kind == "target" and how == "zero" else np.nan
    spread = np.full(total, absent, dtype=values.dtype)
    spread[position] = values
    return spread


def _steps_of(stamps: pd.Index, freq: str | int) -> pd.Index:
    """Return the stamp of the step that each stamp falls into."""
    grid = grid_of(freq, stamps, ahead=1)
    if grid.width is not None:
        origin = stamps.min()
        if isinstance(stamps, pd.DatetimeIndex):
            origin = _midnight(stamps, grid.width)
        ticks = ticks_of(stamps) - origin
        return index_of(ticks - ticks % grid.width + origin, stamps)
    places = grid.places(stamps)
    number = places.number if grid.labels_end else places.number - ~places.on
    earliest = number.min()
    steps = (number - earliest + (grid.step - 1 if grid.labels_end else 0)) // grid.step
    number = earliest + steps * grid.step
    return grid.stamps(number, np.zeros_like(number))


def _midnight(stamps: pd.DatetimeIndex, width: int) -> int:
    """Return a first moment of a step, in ticks of the stamps.

    Steps are counted from the midnight before the first stamp or, where they do not divide a day,
    from that of 1970: so they are the same whatever stamp is the first.
    """
    first = stamps[int(np.argmin(stamps.asi8)) :][:1]
    days = grid_of("D", first)
    number = days.places(first).number
    midnight = int(ticks_of(days.stamps(number, np.zeros_like(number)))[0])
    since = int(first.tz_localize(None).as_unit("s").asi8[0] // 86_400)
    day = int(pd.Timedelta(days=1) / pd.Timedelta(1, unit=stamps.unit))
    return midnight - since * day % width


def _put_together(values: np.ndarray, starts: np.ndarray, how: Resample, kind: Kind) -> np.ndarray:
    """Put the observed values of each run together; missing where there are none."""
    if kind == "category":
        return _outermost(values, values >= 0, starts, "last", -1)
    observed = ~np.isnan(values)
    if kind == "number":
        how = "mean"
    if how in ("first", "last"):
        return _outermost(values, observed, starts, how, np.nan)
    if how in ("min", "max"):
        return np.asarray((np.fmin if how == "min" else np.fmax).reduceat(values, starts))
    counts = np.add.reduceat(observed, starts, dtype=np.int64)
    if how == "median":
        found = _median(values, starts, counts)
    elif how == "sum":
        found = np.add.reduceat(np.where(observed, values, 0.0), starts)
    else:
        # From a value of the run on, so that the mean of equal values is that value.
        first = _outermost(values, observed, starts, "first", 0.0)
        beyond = values - np.repeat(first, np.diff(np.append(starts, len(values))))
        total = np.add.reduceat(np.where(observed, beyond, 0.0), starts)
        found = first + total / np.maximum(counts, 1)
    return np.where(counts > 0, found, np.nan)


def _median(values: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the median of the observed values of each run; anything where there are none."""
    number = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(values))))
    # Missing values sort behind all others of their run.
    ordered = values[np.lexsort((values, number))]
    low = ordered[starts + np.maximum(counts - 1, 0) // 2]
    high = ordered[starts + np.minimum(counts // 2, np.maximum(counts - 1, 0))]
    return np.asarray(low + (high - low) / 2)


def _outermost(
    values: np.ndarray, observed: np.ndarray, starts: np.ndarray, which: str, absent: float
) -> np.ndarray:
    """Return the first or the last observed value of each run, ``absent`` where there is none."""
    rows = np.arange(len(values))
    if which == "last":
        found = np.maximum.reduceat(np.where(observed, rows, -1), starts)
    else:
        found = np.minimum.reduceat(np.where(observed, rows, len(rows)), starts)
    there = (found >= 0) & (found < len(rows))
    return np.where(there, values[found % len(rows)], absent).astype(values.dtype)
