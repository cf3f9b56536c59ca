"""Rows brought onto one frequency: duplicates, gaps and irregular stamps."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data._regular import Table, check_duplicates, fill_gaps, resample
from mlrforecast.data.frequency import check_regular_runs, propose_frequency

DAY = pd.Timestamp("2024-03-04")


def table_of(*series: pd.Index, seed: int = 0) -> Table:
    """Make a table of a target, a number and a category, each with missing values."""
    rng = np.random.default_rng(seed)
    count = sum(map(len, series))
    codes = np.repeat(np.arange(len(series)), [len(stamps) for stamps in series])
    stamps = series[0].append(list(series[1:]))
    target, number = rng.normal(size=(2, count))
    target[rng.random(count) < 0.2] = np.nan
    number[rng.random(count) < 0.2] = np.nan
    category = rng.integers(-1, 4, size=count)
    columns: list[Any] = [
        ("y", target, "target"), ("x", number, "number"), ("kind", category, "category"),
    ]  # fmt: skip
    return Table(stamps, codes, columns)


def frames_of(table: Table) -> list[pd.DataFrame]:
    """Return the rows of each series as pandas would hold them, missing categories too."""
    frame = pd.DataFrame({name: values for name, values, _ in table.columns}, index=table.stamps)
    frame["kind"] = frame["kind"].where(frame["kind"] >= 0)
    return [frame[table.codes == code] for code in np.unique(table.codes)]


def irregular(seed: int, rows: int = 80, hours: float = 30) -> pd.DatetimeIndex:
    """Draw stamps, some of them twice."""
    ticks = np.cumsum(np.random.default_rng(seed).exponential(hours * 3600, size=rows)).astype(int)
    ticks[5:7] = ticks[5]
    return pd.DatetimeIndex(DAY.as_unit("s") + ticks.astype("m8[s]"))


@pytest.mark.parametrize("how", ["mean", "sum", "median", "min", "max", "first", "last"])
@pytest.mark.parametrize(
    "freq",
    [
        *("h", "6h", "7h", "15h", "D", "2D", "B", "W-SUN", "W-WED", "SMS-15", "MS", "ME", "BMS"),
        *("BME", "QS-FEB", "QE-DEC", "YS-JAN", "YE-MAR"),
    ],
)
def test_resampling_does_what_pandas_does(freq: str, how: str) -> None:
    table = table_of(irregular(0), seed=1)
    found = resample(table, freq, how)  # type: ignore[arg-type]
    (frame,) = frames_of(table)
    # What does not divide a day is counted from a fixed day, not from the first of the frame.
    pandas = frame.resample(freq, origin="epoch" if freq in ("7h", "15h") else "start_day")
    target = pandas["y"].sum(min_count=1) if how == "sum" else pandas["y"].agg(how)
    expected = target.index
    assert list(found.stamps) == list(expected)
    np.testing.assert_allclose(found.columns[0][1], target, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.columns[1][1], pandas["x"].mean(), rtol=1e-12)
    np.testing.assert_array_equal(found.columns[2][1], pandas["kind"].last().fillna(-1))
    assert found.columns[2][1].dtype == table.columns[2][1].dtype
    assert (found.codes == 0).all()


@pytest.mark.parametrize("freq", ["5h", "7h", "7min", "12h"])
@pytest.mark.parametrize("zone", [None, "Asia/Kathmandu"])
def test_the_steps_of_a_series_do_not_depend_on_its_first_row(freq: str, zone: str | None) -> None:
    stamps = irregular(1, rows=300, hours=0.2).tz_localize(zone)
    table = table_of(stamps, seed=2)
    whole = resample(table, freq, "sum")
    cut = resample(Table(*(part[60:] for part in table[:2]), [
        (name, values[60:], kind) for name, values, kind in table.columns
    ]), freq, "sum")  # fmt: skip
    assert cut.stamps[1:].equals(whole.stamps[-len(cut.stamps) :][1:])
    np.testing.assert_array_equal(
        cut.columns[0][1][1:], whole.columns[0][1][-len(cut.stamps) :][1:]
    )


@pytest.mark.parametrize("zone", [None, "Europe/Paris", "America/Sao_Paulo", "Asia/Kathmandu"])
@pytest.mark.parametrize("freq", ["h", "D", "2W-WED", "2MS", "3QE-DEC", "2B", "B", "45min"])
@pytest.mark.parametrize("unit", ["s", "ns"])
def test_resampled_series_are_regular_and_lose_nothing(
    zone: str | None, freq: str, unit: str
) -> None:
    series = [irregular(seed, rows=40 + seed).tz_localize("UTC").tz_convert(zone).as_unit(unit)
              for seed in range(4)]  # fmt: skip
    table = table_of(*series)
    before = [values.copy() for _, values, _ in table.columns]
    found = resample(table, freq, "sum")
    bounds = np.append(np.flatnonzero(np.diff(found.codes, prepend=-1)), len(found.codes))
    assert len(bounds) == 5
    check_regular_runs(found.stamps, bounds, freq, str)
    assert found.stamps.dtype == table.stamps.dtype
    for number, frame in enumerate(frames_of(table)):
        total = found.columns[0][1][found.codes == number]
        assert np.nansum(total) == pytest.approx(frame["y"].sum())
        stamps = found.stamps[found.codes == number]
        if freq in ("h", "45min", "D", "2MS", "B"):
            assert stamps[0] <= frame.index[0]
            assert (stamps[1:] > frame.index[0]).all()
            assert stamps[-1] <= frame.index[-1]
    for (_, values, _), was in zip(table.columns, before, strict=True):
        np.testing.assert_array_equal(values, was)


def test_steps_begin_at_local_midnight() -> None:
    stamps = pd.date_range("2024-03-30 22:10", periods=30, freq="50min", tz="Asia/Kathmandu")
    found = resample(table_of(stamps), "2h", "mean")
    assert set(found.stamps.minute) == {0}
    assert set(found.stamps.hour % 2) == {0}
    days = pd.date_range("2018-10-30 12:00", periods=150, freq="h", tz="America/Sao_Paulo")
    hours = resample(table_of(days), "D", "mean").stamps.hour
    assert list(hours) == [0, 0, 0, 0, 0, 1, 0]


def test_the_mean_of_equal_values_is_that_value() -> None:
    for value in (0.1, 1e300, -1e300, 1e-300):
        stamps = pd.DatetimeIndex([DAY] * 7 + [DAY + pd.Timedelta("1h")] * 3)
        table = Table(stamps, np.zeros(10, int), [("y", np.full(10, value), "target")])
        for how in ("mean", "median"):
            assert resample(table, "h", how).columns[0][1].tolist() == [value, value]  # type: ignore[arg-type]


def test_integer_time_is_resampled() -> None:
    table = table_of(pd.Index([3, 4, 4, 9, 12]), pd.Index([3, 8]))
    table.columns[0][1][:] = [1, 2, 3, 4, 5, 6, 7]
    found = resample(table, 3, "sum")
    assert found.stamps.tolist() == [3, 6, 9, 12, 3, 6]
    np.testing.assert_array_equal(found.columns[0][1], [6, np.nan, 4, 5, 6, 7])
    assert found.codes.tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("fill", ["missing", "zero"])
def test_steps_without_rows_hold_what_is_asked_for(fill: Any) -> None:
    stamps = pd.DatetimeIndex([DAY, DAY + pd.Timedelta("150min")])
    table = Table(
        stamps,
        np.zeros(2, int),
        [
            ("y", np.array([1.0, np.nan]), "target"),
            ("x", np.array([2.0, 3.0]), "number"),
            ("kind", np.array([4, 5]), "category"),
        ],
    )
    absent = np.nan if fill == "missing" else 0.0
    for found in (
        resample(table, "h", "mean", fill),
        fill_gaps(table._replace(stamps=stamps.floor("h")), "h", fill),
    ):
        assert list(found.stamps) == list(pd.date_range(DAY, periods=3, freq="h"))
        y, x, kind = (values for _, values, _ in found.columns)
        # A row that is there and whose value is missing stays so.
        np.testing.assert_array_equal(y, [1, absent, np.nan])
        np.testing.assert_array_equal(x, [2, np.nan, 3])
        np.testing.assert_array_equal(kind, [4, -1, 5])


@pytest.mark.parametrize("zone", ["Europe/Paris", "Australia/Melbourne", "America/Sao_Paulo"])
@pytest.mark.parametrize("freq", ["15min", "h", "2h", "D", "W-SUN", "B", "MS"])
def test_gaps_across_a_change_of_clocks_are_filled(zone: str, freq: str) -> None:
    for start in ("2018-10-10", "2018-11-01", "2018-03-20", "2018-02-10", "2018-03-28"):
        stamps = pd.DatetimeIndex(
            pd.date_range(f"{start} 00:00", periods=600 if "min" in freq else 60, freq="15min"
                          if "min" in freq else freq, tz="UTC")
        )  # fmt: skip
        if "h" in freq or "min" in freq:
            stamps = stamps.tz_convert(zone)
        else:
            stamps = stamps.tz_localize(None).tz_localize(zone, nonexistent="shift_forward")
        keep = np.random.default_rng(0).random(len(stamps)) < 0.6
        keep[[0, -1]] = True
        table = table_of(stamps[keep], stamps[3:][keep[3:]])
        found = fill_gaps(table, freq, "missing")
        first = found.codes == 0
        assert list(found.stamps[first]) == list(stamps)
        np.testing.assert_array_equal(
            found.columns[2][1][first][keep], table.columns[2][1][: keep.sum()]
        )
        assert np.isnan(found.columns[0][1][first][~keep]).all()


def test_a_stamp_in_the_second_of_two_hours_stays_there() -> None:
    """At 02:30 on 27 October 2024 by a clock that has been set back."""
    local = pd.date_range("2024-10-24 02:30", periods=6)
    stamps = local.tz_localize("Europe/Paris", ambiguous=np.zeros(6, dtype=bool))
    found = fill_gaps(table_of(stamps.delete(1)), "D", "missing")
    assert list(found.stamps) == list(stamps)


def test_a_table_without_gaps_is_returned_as_it_is() -> None:
    table = table_of(pd.date_range(DAY, periods=5), pd.date_range("2020", periods=1))
    assert fill_gaps(table, "D", "missing") is table
    same_unit = table_of(pd.date_range(DAY, periods=5).as_unit("s"))
    assert fill_gaps(same_unit, "D", "missing") is same_unit


def test_no_rows_are_filled_in_between_series() -> None:
    table = table_of(pd.date_range(DAY, periods=3), pd.date_range(DAY, periods=3)[[2]])
    later = table_of(pd.date_range(DAY, periods=3), pd.date_range("2024-06-01", periods=3)[[0, 2]])
    assert fill_gaps(table, "D", "missing") is table
    found = fill_gaps(later, "D", "missing")
    assert found.codes.tolist() == [0, 0, 0, 1, 1, 1]
    assert list(found.stamps[3:]) == list(pd.date_range("2024-06-01", periods=3))


def test_gaps_beside_irregular_stamps_stay() -> None:
    stamps = pd.DatetimeIndex([DAY + pd.Timedelta(hours=n) for n in (0, 1, 3, 3.5, 6, 7)])
    found = fill_gaps(table_of(stamps), "h", "missing")
    assert [stamp.hour + stamp.minute / 60 for stamp in found.stamps] == [0, 1, 2, 3, 3.5, 6, 7]
    with pytest.raises(DataError, match=r"03:30:00 after .*03:00:00, before the next"):
        check_regular_runs(found.stamps, np.array([0, len(found.stamps)]), "h", str)


def test_a_stray_stamp_does_not_fill_the_memory() -> None:
    stamps = pd.date_range("2024", periods=30, freq="s").insert(0, pd.Timestamp("2023-12-11"))
    for function in (fill_gaps, resample):
        with pytest.raises(DataError, match=r"would be added to 31; the widest one begins at 2023"):
            function(table_of(stamps), "s", "missing" if function is fill_gaps else "mean")
    integers = pd.Index([0, 2**62])
    with pytest.raises(DataError, match="would be added to 2"):
        fill_gaps(table_of(integers), 1, "missing")


@pytest.mark.parametrize("step", ["7s", "11min", "50min", "26h", "9D", "31D"])
def test_what_is_proposed_gives_regular_rows(step: str) -> None:
    rng = np.random.default_rng(0)
    ticks = np.cumsum(rng.lognormal(sigma=1.5, size=200)) * pd.Timedelta(step).total_seconds()
    stamps = pd.DatetimeIndex((1e9 + ticks).astype("int64").view("M8[s]"))
    freq = propose_frequency(stamps)
    found = resample(table_of(stamps), freq, "mean")
    check_regular_runs(found.stamps, np.array([0, len(found.stamps)]), freq, str)
    assert 20 < len(found.stamps) < 3000


def test_duplicates_are_named_with_their_series() -> None:
    days = pd.date_range(DAY, periods=4)
    doubled = days.insert(2, days[2]).insert(2, days[2])
    stamps, bounds = days.append([doubled, days]), np.array([0, 4, 10, 14])
    with pytest.raises(DataError) as caught:
        check_duplicates(stamps, bounds, lambda number: f"series {number}")
    message = str(caught.value)
    assert f"series 1 has {days[2]} 3 times (rows too many in all: 2)" in message
    assert "resample='mean'" in message
    assert "drop_duplicates" in message
    assert "zone" not in message
    # The same stamp at the end of a series and at the beginning of the next is no duplicate.
    check_duplicates(days.append(days[3:]), np.array([0, 4, 5]), str)
    with pytest.raises(DataError, match="0 has 2 2 times"):
        check_duplicates(pd.Index([1, 2, 2]), np.array([0, 3]), str)


@pytest.mark.parametrize("freq", ["h", "15min"])
def test_an_hour_that_a_clock_shows_twice_is_explained(freq: str) -> None:
    zoned = pd.date_range("2024-10-26", periods=500, freq=freq, tz="Europe/Paris")
    naive = zoned.tz_localize(None).sort_values()
    with pytest.raises(DataError, match=r"2024-10-27 02:00:00 2 times.*clock shows twice.*zone"):
        check_duplicates(naive, np.array([0, 500]), str)
    check_duplicates(zoned, np.array([0, 500]), str)
    days = pd.date_range("2024-10-26 02:00", periods=9)
    for others in (
        days.insert(1, days[1]) + pd.Timedelta("10h"),
        days.repeat(2),
        days.insert(1, days[1]).shift(70, "D"),
    ):
        with pytest.raises(DataError, match="too many") as caught:
            check_duplicates(others, np.array([0, len(others)]), str)
        assert "clock" not in str(caught.value)


@pytest.mark.parametrize("freq", ["h", "D", "W-MON"])
@pytest.mark.parametrize("zone", [None, "Europe/Paris"])
def test_a_hundred_thousand_series_are_checked_at_once(freq: str, zone: str | None) -> None:
    base = pd.date_range("2024-01-01", periods=120, freq=freq, tz=zone)
    rng = np.random.default_rng(0)
    first = rng.integers(0, 100, size=100_000)
    counts = rng.integers(1, 20, size=100_000)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    place = np.repeat(first - bounds[:-1], counts) + np.arange(bounds[-1])
    check_regular_runs(base[place], bounds, freq, str)
    place[bounds[77_777] + counts[77_777] - 1 :][:1] += 1
    bad = 77_777 if counts[77_777] > 1 else None
    if bad is not None:
        with pytest.raises(DataError, match=f"{bad} has a gap"):
            check_regular_runs(base[place], bounds, freq, str)
