"""Any run of stamps that pandas makes is inferred, continued as pandas does, and its gaps named."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mlrforecast._core.errors import DataError
from mlrforecast.data._regular import Table, fill_gaps, resample
from mlrforecast.data.frequency import (
    check_regular_runs,
    future_index,
    future_stamps,
    infer_frequency,
    parse_frequency,
    propose_frequency,
)

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
ZONES = (
    None,
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "Australia/Melbourne",
    "America/Sao_Paulo",
    "Asia/Kathmandu",
)

ON_THE_CLOCK = st.sampled_from(["s", "min", "h", "ms"])
ON_A_DAY = st.one_of(
    st.sampled_from(["D", "B", "MS", "ME", "BMS", "BME"]),
    st.sampled_from(["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]).map("W-{}".format),
    st.tuples(st.sampled_from(["QS", "QE", "BQS", "BQE", "YS", "YE"]), st.sampled_from(MONTHS)).map(
        "-".join
    ),
)


@st.composite
def runs(draw: st.DrawFn, rows: int = 60) -> tuple[pd.DatetimeIndex, str]:
    """Draw stamps without their frequency, and the frequency."""
    base = draw(st.one_of(ON_THE_CLOCK, ON_A_DAY))
    multiple = draw(st.integers(1, 40 if base in ("s", "min", "h", "ms") else 4))
    freq = base if multiple == 1 else f"{multiple}{base}"
    zone = draw(st.sampled_from(ZONES))
    start = pd.Timestamp("1995-01-01") + pd.Timedelta(hours=draw(st.integers(0, 24 * 365 * 30)))
    if base not in ("s", "min", "h", "ms"):
        # Midnight, or an hour at which no clock of these zones is changed.
        start = start.normalize() + pd.Timedelta(hours=draw(st.sampled_from([0, 0, 5, 12])))
    local = pd.date_range(start, periods=rows, freq=freq)
    if zone is not None and base not in ("s", "min", "h", "ms"):
        first = np.ones(rows, dtype=bool)
        stamps = local.tz_localize(zone, ambiguous=first, nonexistent="shift_forward")
    else:
        stamps = pd.date_range(start, periods=rows, freq=freq, tz=None if zone is None else "UTC")
        stamps = stamps if zone is None else stamps.tz_convert(zone)
    unit = draw(st.sampled_from(["ns", "us", "ms"] if base == "ms" else ["ns", "us", "ms", "s"]))
    return pd.DatetimeIndex(stamps, freq=None).as_unit(unit), freq


def bounds_of(stamps: pd.Index) -> np.ndarray:
    return np.array([0, len(stamps)])


COMMON = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@COMMON
@given(runs(), st.integers(3, 40))
def test_it_is_inferred_and_continued(run: tuple[pd.DatetimeIndex, str], rows: int) -> None:
    stamps, freq = run
    seen, later = stamps[:rows], stamps[rows:]
    found = infer_frequency(seen, bounds_of(seen), owner=str)
    assert isinstance(found, str)
    assert parse_frequency(found) == found
    check_regular_runs(seen, bounds_of(seen), found, str)
    for known in (freq, parse_frequency(freq)):
        assert infer_frequency(seen, bounds_of(seen), given=known, owner=str) == known
        check_regular_runs(seen, bounds_of(seen), known, str)
        ahead = future_index(seen[-1], known, len(later))
        assert list(ahead) == list(later)
        assert (ahead.dtype, str(ahead.tz)) == (seen.dtype, str(seen.tz))
    # A few rows may follow several frequencies, many rows one.
    if rows >= 30:
        assert list(future_index(seen[-1], found, len(later))) == list(later)


@COMMON
@given(runs(), st.integers(1, 58), st.integers(1, 20), st.booleans())
def test_rows_that_are_dropped_are_named(
    run: tuple[pd.DatetimeIndex, str], first: int, count: int, known: bool
) -> None:
    stamps, freq = run
    last = min(first + count, 59)
    broken = stamps.delete(range(first, last))
    assume(len(broken) > 30)
    found = freq if known else infer_frequency(broken, bounds_of(broken), owner=str)
    with pytest.raises(DataError) as caught:
        check_regular_runs(broken, bounds_of(broken), found, lambda _: "series 'a'")
    message = str(caught.value)
    steps = f"{last - first} step{'s' * (last - first > 1)} of {found!r} absent"
    assert f"series 'a' has a gap: {stamps[first - 1]} is followed by {stamps[last]}" in message
    assert f"and {stamps[first]} was expected: {steps}. " in message
    # What the message advises mends it.
    table = Table(
        broken, np.zeros(len(broken), int), [("y", np.arange(len(broken) * 1.0), "target")]
    )
    filled = fill_gaps(table, found, "missing")
    assert list(filled.stamps) == list(stamps)
    assert filled.stamps.dtype == stamps.dtype
    values = np.insert(np.arange(len(broken) * 1.0), first, np.full(last - first, np.nan))
    np.testing.assert_array_equal(filled.columns[0][1], values)


@COMMON
@given(runs(), st.data())
def test_many_series_are_judged_as_one_by_one(
    run: tuple[pd.DatetimeIndex, str], data: st.DataObject
) -> None:
    stamps, freq = run
    ends = st.tuples(st.integers(0, 59), st.integers(0, 59)).map(sorted)
    cuts = data.draw(st.lists(ends, min_size=1, max_size=6))
    parts = [stamps[first : last + 1] for first, last in cuts]
    bad = data.draw(st.integers(-1, len(parts) - 1))
    if bad >= 0 and len(parts[bad]) > 2:
        parts[bad] = parts[bad].delete(1)
    else:
        bad = -1
    joined = parts[0].append(parts[1:])
    bounds = np.cumsum([0, *map(len, parts)])
    if bad < 0:
        check_regular_runs(joined, bounds, freq, str)
    else:
        with pytest.raises(DataError, match=f"series {bad} has a gap"):
            check_regular_runs(joined, bounds, freq, lambda number: f"series {number}")
    last = joined[bounds[1:] - 1]
    expected = [stamp for end in last for stamp in future_index(end, freq, 3)]
    assert list(future_stamps(last, freq, 3)) == expected


@COMMON
@given(runs(), st.data())
def test_irregular_stamps_are_mended_as_their_message_advises(
    run: tuple[pd.DatetimeIndex, str], data: st.DataObject
) -> None:
    stamps, _ = run
    length = int(np.diff(stamps.asi8).min())
    shifts = data.draw(st.lists(st.integers(0, max(length * 3 // 4, 1)), min_size=60, max_size=60))
    moved = pd.DatetimeIndex(np.unique(stamps.asi8 + shifts).view(f"M8[{stamps.unit}]"))
    if stamps.tz is not None:
        moved = moved.tz_localize("UTC").tz_convert(stamps.tz)
    try:
        freq = infer_frequency(moved, bounds_of(moved), owner=str)
        check_regular_runs(moved, bounds_of(moved), freq, str)
    except DataError as error:
        message = str(error)
        assert "resample='mean' with freq=" in message or "fill='missing'" in message
    proposed = propose_frequency(moved)
    table = Table(moved, np.zeros(len(moved), int), [("y", np.ones(len(moved)), "target")])
    for freq in (proposed, "D", "W-WED", "2MS", "QE-DEC"):
        mended = resample(table, freq, "sum")
        check_regular_runs(mended.stamps, bounds_of(mended.stamps), freq, str)
        assert np.nansum(mended.columns[0][1]) == len(moved)
        assert len(mended.stamps) <= 25 * len(moved) or freq != proposed
        assert mended.stamps.dtype == moved.dtype
