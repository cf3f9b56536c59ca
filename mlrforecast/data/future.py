"""The steps to be forecast: their stamps, and what is known of them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data._columns import check_values
from mlrforecast.data._regular import Table, resample
from mlrforecast.data.frequency import future_stamps, ticks_of
from mlrforecast.data.panel import Covariate, Panel, name_at
from mlrforecast.data.reading import Rows, as_columns, from_columns, read_rows, sort_rows
from mlrforecast.data.schema import FrameSchema, Resample
from mlrforecast.data.writing import has_index

_SHOWN = 3


def extend_panel(
    panel: Panel,
    schema: FrameSchema,
    prediction_length: int,
    future: object = None,
    *,
    argument: str = "future",
) -> Panel:
    """Add the steps to be forecast to each series.

    Parameters
    ----------
    panel : Panel
        The series, each with at least one row.
    schema : FrameSchema
        Which columns are known covariates. Where it says what gaps are filled with, steps that
        ``future`` skips, and goes on after, have missing covariates.
    prediction_length : int
        Steps to add.
    future : DataFrame or ndarray, optional
        Known covariates of these steps, in the form of the frame that the panel was read from:
        time, the items of a long frame, and the known covariates. Other rows and columns are not
        read. The rows of what has neither stamps nor an index, such as an array, are taken to
        follow the history.
    argument : str
        Name of the frame, for messages.

    Returns
    -------
    Panel
        A panel with ``prediction_length`` rows more in each series. Targets and past covariates
        are missing there.

    Raises
    ------
    DataError
        If there are known covariates but no frame, or the other way round; if the frame lacks a
        column, a row or a value, and the message lists what is missing; if it has a row twice, or
        time or covariates of another kind than the history.

    Examples
    --------
    >>> from mlrforecast.data import read_panel
    >>> index = pd.date_range("2024-01-01", periods=6, freq="h")
    >>> frame = pd.DataFrame({"load": np.arange(6.0), "wind": [3, 1, 4, 1, 5, 9]}, index=index)
    >>> schema = FrameSchema(known_covariates=("wind",))
    >>> panel = read_panel(frame[:4], schema)
    >>> extended = extend_panel(panel, schema, 2, frame[["wind"]])
    >>> extended.index[-1], extended.values.ravel().tolist()
    (Timestamp('2024-01-01 05:00:00'), [0.0, 1.0, 2.0, 3.0, nan, nan])
    >>> extended.known[0].values.tolist()
    [3.0, 1.0, 4.0, 1.0, 5.0, 9.0]
    >>> extend_panel(panel, schema, 2, frame[["wind"]][:5])
    Traceback (most recent call last):
    ...
    mlrforecast._core.errors.DataError: `future` lacks 1 of the 2 rows to be forecast: ...
    """
    stamps = future_stamps(panel.index[panel.bounds[1:] - 1], panel.freq, prediction_length)
    ahead = _Ahead(panel, stamps, prediction_length, argument)
    known = _read_known(ahead, schema, future)
    count, added = len(panel.values), len(stamps)
    # The rows of the history, and where they stand in the result.
    before = np.arange(count) + np.repeat(prediction_length * np.arange(len(panel)), panel.lengths)
    order = np.full(count + added, -1)
    order[before] = np.arange(count)
    order[order < 0] = count + np.arange(added)
    values = np.full((count + added, panel.num_channels), np.nan)
    values[before] = panel.values
    return replace(
        panel,
        index=panel.index.append(stamps)[order],
        values=values,
        bounds=panel.bounds + prediction_length * np.arange(len(panel) + 1),
        past=tuple(_join(covariate, _absent(covariate, added), order) for covariate in panel.past),
        known=tuple(
            _join(covariate, later, order)
            for covariate, later in zip(panel.known, known, strict=True)
        ),
    )


class _Ahead(NamedTuple):
    """The steps to be forecast, one series after the other, and the frame that tells of them."""

    panel: Panel
    stamps: pd.Index
    steps: int
    argument: str

    def name(self, number: int) -> str:
        """Name one step."""
        if self.panel.layout.form != "long":
            return str(self.stamps[number])
        return f"{self.stamps[number]} of {self.panel.owner(number // self.steps)}"

    def span(self) -> str:
        """Name all steps."""
        first = f"{self.stamps[0]} to {self.stamps[self.steps - 1]}"
        if self.panel.layout.form != "long":
            return f"the {self.steps} steps from {first}"
        return f"the {self.steps} steps after each series (of {self.panel.owner(0)}: {first})"


def _read_known(ahead: _Ahead, schema: FrameSchema, future: object) -> tuple[Covariate, ...]:
    """Return the known covariates of the steps to be forecast."""
    panel, argument = ahead.panel, ahead.argument
    if future is None:
        if panel.known:
            raise DataError(
                f"`{argument}` is needed: a frame with the known covariates "
                f"{', '.join(repr(covariate.name) for covariate in panel.known)} of "
                f"{ahead.span()}."
            )
        return ()
    if not panel.known:
        raise DataError(
            f"`{argument}` was given, but there are no known covariates: name its columns in "
            "`known_covariates` and fit again, or leave it out."
        )
    rows = read_rows(
        future, replace(schema, static_covariates=()), argument=argument, targets=False
    )
    _check_form(panel, rows, argument)
    counted = rows.layout.indexed and not has_index(rows.layout)
    if counted and not isinstance(panel.index, pd.DatetimeIndex):
        rows = replace(rows, stamps=future_stamps(panel.index[-1:], panel.freq, len(rows.stamps)))
    _check_time(panel.index, rows.stamps, argument)
    if schema.resample is not None:
        rows = _resampled(rows, panel.freq, schema.resample)
    place = _find_rows(ahead, rows, gaps=schema.fill is not None)
    known = tuple(
        _without(_as_before(before, later, argument).take(np.maximum(place, 0)), place < 0)
        for before, later in zip(panel.known, rows.known, strict=True)
    )
    _check_complete(ahead, known, place >= 0)
    return known


def _resampled(rows: Rows, freq: str | int, how: Resample) -> Rows:
    """Put the rows of each step together, as those of the history were."""
    rows = sort_rows(rows)
    table = resample(Table(rows.stamps, rows.codes, as_columns(rows.known)), freq, how)
    known = from_columns(rows.known, table.columns)
    return replace(rows, stamps=table.stamps, codes=table.codes, known=known)


def _check_form(panel: Panel, rows: Rows, argument: str) -> None:
    """Check that both frames are long, or neither."""
    forms = ["long" if layout.form == "long" else "wide" for layout in (panel.layout, rows.layout)]
    if forms[0] == forms[1]:
        return
    advice = (
        f"It needs the item of each row, as {panel.layout.id_name!r}"
        if forms[0] == "long"
        else f"Keep the rows of one item, without {rows.layout.id_name!r}"
    )
    raise DataError(
        f"`{argument}` is a {forms[1]} frame, but the history is a {forms[0]} one. {advice}."
    )


def _check_time(index: pd.Index, stamps: pd.Index, argument: str) -> None:
    """Check that time is of one kind in both frames."""
    kinds = [_kind_of_time(index), _kind_of_time(stamps)]
    if kinds[0] != kinds[1]:
        advice = (
            "integers"
            if "integers" in kinds
            else "the time zone, with tz_localize or tz_convert(None)"
        )
        raise DataError(
            f"The time of `{argument}` is {kinds[1]} (first: {stamps[0]}), that of the history is "
            f"{kinds[0]} (last: {index[-1]}). Bring both to the same kind, here {advice}."
        )


def _kind_of_time(index: pd.Index) -> str:
    if not isinstance(index, pd.DatetimeIndex):
        return "integers"
    return "stamps without a time zone" if index.tz is None else "stamps with a time zone"


def _find_rows(ahead: _Ahead, rows: Rows, *, gaps: bool) -> np.ndarray:
    """Return the row of each step; with ``gaps``, -1 where it is absent before a later one.

    Raises a DataError that lists the other absent ones, or names a row that is there twice.
    """
    panel, steps = ahead.panel, ahead.steps
    series = _find_series(panel, rows)
    near, ticks = _ticks_among(ahead.stamps, rows.stamps)
    used = np.flatnonzero(near & (series >= 0))
    times, codes = np.unique(np.concatenate([ticks_of(ahead.stamps), ticks]), return_inverse=True)
    wanted = np.repeat(np.arange(len(panel)), steps) * len(times) + codes[: len(ahead.stamps)]
    found = series[used] * len(times) + codes[len(ahead.stamps) :][used]
    order = np.argsort(found, kind="stable")
    ordered = np.append(found[order], -1)
    first = np.searchsorted(ordered[:-1], wanted)
    there = ordered[first] == wanted
    twice = there & (ordered[np.minimum(first + 1, len(used))] == wanted)
    if twice.any():
        raise DataError(
            f"`{ahead.argument}` has the row {ahead.name(int(np.argmax(twice)))} more than once. "
            "Keep one."
        )
    place = np.full(len(wanted), -1)
    place[there] = used[order[first[there]]]
    # Whether a later row of the same series is there, also beyond the steps to be forecast.
    lost = ~there
    if gaps:
        lost &= ~_goes_on(ahead, rows, series)
    if lost.any():
        raise DataError(_missing_rows(ahead, lost, rows, series))
    return place


def _find_series(panel: Panel, rows: Rows) -> np.ndarray:
    """Return the number of the series of each row, -1 for other items."""
    if panel.layout.form != "long":
        return np.zeros(len(rows.codes), dtype=np.int64)
    # Not by dtype: a category of other categories holds the same items. Nor by an index, which
    # makes several levels of tuples.
    number = {item: place for place, item in enumerate(panel.labels.tolist())}
    numbers = [number.get(item, -1) for item in rows.labels.tolist()]
    return np.asarray(np.array(numbers, dtype=np.int64)[rows.codes])


def _ticks_among(stamps: pd.Index, given: pd.Index) -> tuple[np.ndarray, np.ndarray]:
    """Return which of the given stamps may be among others, and their ticks in the same unit."""
    near = np.asarray((given >= stamps.min()) & (given <= stamps.max()))
    ticks = np.zeros(len(given), dtype=np.int64)
    if isinstance(stamps, pd.DatetimeIndex) and isinstance(given, pd.DatetimeIndex):
        # Only of stamps that are near: others may lie beyond what the unit can hold.
        close = given[near].as_unit(stamps.unit)
        ticks[near] = close.asi8
        near[near] = np.asarray(close == given[near])
    else:
        ticks[near] = ticks_of(given[near])
    return near, ticks


def _goes_on(ahead: _Ahead, rows: Rows, series: np.ndarray) -> np.ndarray:
    """Tell of each step whether the frame has a later row of its series."""
    steps = ahead.steps
    known = np.flatnonzero(series >= 0)
    order = known[np.lexsort((ticks_of(rows.stamps)[known], series[known]))]
    # The newest row of each series that has one.
    newest = order[np.flatnonzero(np.diff(series[order], append=-1))]
    own = (series[newest][:, None] * steps + np.arange(steps)).ravel()
    later = np.zeros(len(ahead.stamps), dtype=bool)
    later[own] = np.asarray(rows.stamps[newest.repeat(steps)] > ahead.stamps[own])
    return later


def _missing_rows(ahead: _Ahead, lost: np.ndarray, rows: Rows, series: np.ndarray) -> str:
    """List steps that have no row."""
    panel, argument = ahead.panel, ahead.argument
    needed = f"It needs a row for each of {ahead.span()}"
    if panel.layout.form == "long" and (series < 0).all():
        return (
            f"`{argument}` has no item of the history: its items are such as "
            f"{name_at(rows.labels, 0)!r}, those of the history such as "
            f"{name_at(panel.labels, 0)!r}. {needed}."
        )
    absent = np.setdiff1d(np.arange(len(panel)), series)
    items = ""
    if len(absent):
        shown = _listed((repr(name_at(panel.labels, int(n))) for n in absent), len(absent))
        items = f" It has no row at all of {len(absent)} of {len(panel)} series: {shown}."
    count = int(np.count_nonzero(lost))
    return (
        f"`{argument}` lacks {count} of the {len(lost)} rows to be forecast: "
        f"{_listed((ahead.name(int(number)) for number in np.flatnonzero(lost)), count)}.{items} "
        f"{needed}, and holds {rows.stamps.min()} to {rows.stamps.max()}."
    )


def _listed(names: Iterable[str], count: int) -> str:
    """List the first names."""
    shown = [name for name, _ in zip(names, range(_SHOWN), strict=False)]
    return ", ".join(shown) + ", ..." * (count > _SHOWN)


def _as_before(before: Covariate, later: Covariate, argument: str) -> Covariate:
    """Give a covariate the categories of the history, and new ones after them."""
    if (before.categories is None) != (later.categories is None):
        kinds = ("numbers", "categories")
        raise DataError(
            f"Covariate {before.name!r} holds {kinds[before.categories is not None]} in the "
            f"history, but {kinds[later.categories is not None]} in `{argument}`. Bring it to the "
            "same dtype."
        )
    if before.categories is None or later.categories is None:
        return later
    categories = tuple(dict.fromkeys(before.categories + later.categories))
    number = {category: code for code, category in enumerate(categories)}
    codes = np.array([*(number[category] for category in later.categories), -1], dtype=np.int64)
    return Covariate(before.name, codes[later.values], categories)


def _check_complete(ahead: _Ahead, known: tuple[Covariate, ...], there: np.ndarray) -> None:
    """Check that no value of a row that is there is missing or infinite."""
    listed: list[str] = []
    count = 0
    for covariate in known:
        if covariate.categories is None:
            owner = f"column {covariate.name!r} of `{ahead.argument}`"
            bounds = np.array([0, len(there)])
            check_values(covariate.values, ahead.stamps, bounds, [owner].__getitem__)
        lost = there & covariate.missing
        count += int(np.count_nonzero(lost))
        listed += [
            f"{covariate.name!r} at {ahead.name(int(number))}"
            for number in np.flatnonzero(lost)[:_SHOWN]
        ]
    if count:
        raise DataError(
            f"`{ahead.argument}` lacks {count} value{'s' * (count > 1)} of known covariates: "
            f"{_listed(listed, count)}. Fill them in."
        )


def _without(covariate: Covariate, rows: np.ndarray) -> Covariate:
    """Return a covariate that is missing in some rows."""
    missing = np.nan if covariate.categories is None else -1
    return replace(covariate, values=np.where(rows, missing, covariate.values))


def _absent(covariate: Covariate, count: int) -> Covariate:
    """Return a covariate of ``count`` rows that is missing in all of them."""
    empty = np.zeros(count, dtype=covariate.values.dtype)
    return _without(replace(covariate, values=empty), np.ones(count, dtype=bool))


def _join(before: Covariate, later: Covariate, order: np.ndarray) -> Covariate:
    """Put the rows of two covariates together, in an order."""
    values = np.concatenate([before.values, later.values])[order]
    return replace(later, values=values)
