"""Frequencies: seen in the stamps, checked step by step, continued."""

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data.frequency import (
    check_regular_runs,
    clock_seconds,
    default_season_length,
    future_index,
    future_stamps,
    infer_frequency,
    parse_frequency,
    propose_frequency,
)

# The frequency that makes the stamps, and others that describe them as well.
FREQUENCIES = [
    ("15min", None),
    ("h", None),
    ("2h", None),
    ("D", None),
    ("7D", None),
    ("B", None),
    ("W-SUN", None),
    ("W-WED", None),
    ("MS", None),
    ("ME", None),
    ("2MS", None),
    ("QS", None),
    ("QE", None),
    ("YS", None),
    ("YE", None),
    ("s", None),
    ("h", "UTC"),
    ("h", "Europe/Berlin"),
    ("15min", "Europe/Berlin"),
    ("D", "Europe/Berlin"),
    ("B", "Europe/Berlin"),
    ("MS", "America/New_York"),
    ("W-MON", "Asia/Kathmandu"),
]


def infer(stamps: pd.Index, **options: object) -> str | int:
    """Infer the frequency of one series."""
    return infer_frequency(
        stamps,
        np.array([0, len(stamps)]),
        **{"owner": lambda _: "the frame", **options},  # type: ignore[arg-type]
    )


def check(stamps: pd.Index, freq: str | int) -> None:
    """Check one series."""
    check_regular_runs(stamps, np.array([0, len(stamps)]), freq, lambda _: "the frame")


def stamps_across_dst(freq: str, zone: str | None, rows: int = 40) -> pd.DatetimeIndex:
    """Stamps that cross 31 March 2024, when clocks in Berlin jump, without their frequency."""
    fine = freq in ("15min", "h", "2h", "s")
    start = pd.Timestamp("2024-03-30 12:00" if fine else "2024-03-01", tz=zone)
    return pd.DatetimeIndex(pd.date_range(start, periods=rows, freq=freq), freq=None)


@pytest.mark.parametrize(("freq", "zone"), FREQUENCIES)
def test_a_frequency_is_seen_and_continued(freq: str, zone: str | None) -> None:
    stamps = stamps_across_dst(freq, zone)
    found = infer(stamps)
    check(stamps, found)
    check(stamps, freq)
    assert infer(stamps, given=freq) == freq
    for known in (freq, found):
        continued = future_index(stamps[-8], known, 7)
        assert list(continued) == list(stamps[-7:])
        assert continued.tz == stamps.tz


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("60min", "h"),
        ("24h", "D"),
        ("7D", "W-MON"),
        ("14D", "2W-MON"),
        ("2D", "2D"),
        ("5B", "W-MON"),
        ("3MS", "QS-JAN"),
        ("QS-NOV", "QS-FEB"),
        ("QS-MAR", "QS-MAR"),
        ("2QE-NOV", "2QE-NOV"),
        ("QE-APR", "QE-OCT"),
        ("12ME", "YE-JAN"),
        ("BQE-MAR", "BQE-DEC"),
        ("2BYS-MAY", "2BYS-MAY"),
        ("WOM-3FRI", "WOM-3FRI"),
    ],
)
def test_a_frequency_is_named_by_the_largest_unit(made: str, named: str) -> None:
    stamps = pd.date_range("2024-01-01", periods=30, freq=made)
    assert infer(pd.DatetimeIndex(stamps, freq=None)) == named


@pytest.mark.parametrize(("freq", "zone"), FREQUENCIES)
@pytest.mark.parametrize("unit", ["ns", "us", "s"])
def test_a_gap_is_found_where_it_is(freq: str, zone: str | None, unit: str) -> None:
    stamps = stamps_across_dst(freq, zone).as_unit(unit)
    broken = stamps.delete(17)
    with pytest.raises(DataError) as caught:
        check(broken, freq)
    message = str(caught.value)
    assert f"{stamps[16]} is followed by {stamps[18]}, and {stamps[17]} was expected" in message
    assert f"gap: {stamps[16]}" in message
    assert f"1 step of {freq!r} absent. " in message
    assert message.endswith("Pass fill='missing' to make absent rows missing values.")


@pytest.mark.parametrize(("freq", "zone"), FREQUENCIES)
def test_runs_are_judged_as_one_by_one(freq: str, zone: str | None) -> None:
    stamps = stamps_across_dst(freq, zone)
    runs = [stamps, stamps[3:9], stamps[:1], stamps[5:30]]

    def check_all(parts: list[pd.DatetimeIndex]) -> None:
        joined = parts[0].append(parts[1:])
        bounds = np.cumsum([0, *(len(part) for part in parts)])
        check_regular_runs(joined, bounds, freq, lambda number: f"run {number}")

    check_all(runs)
    check_all([stamps[:0], *runs, stamps[:0]])
    for number in range(len(runs)):
        if len(runs[number]) == 1:
            continue
        broken = [*runs]
        broken[number] = broken[number].delete(3)
        with pytest.raises(DataError, match=f"run {number} has a gap"):
            check_all(broken)


@pytest.mark.parametrize("freq", ["MS", "ME", "W-WED", "B", "QS"])
def test_a_lone_stamp_off_the_frequency_is_found_among_runs(freq: str) -> None:
    off = pd.DatetimeIndex(["2024-03-16"])  # a Saturday in mid-month
    stamps = stamps_across_dst(freq, None, rows=3).append(off)
    with pytest.raises(DataError, match=f"run 1, 2024-03-16.* does not lie on .*{freq}"):
        check_regular_runs(stamps, np.array([0, 3, 4]), freq, lambda number: f"run {number}")


def test_a_step_that_comes_too_early_is_told() -> None:
    stamps = pd.date_range("2024", periods=20, freq="h").insert(8, pd.Timestamp("2024-01-01 07:30"))
    with pytest.raises(
        DataError,
        match=r"07:30:00 after 2024-01-01 07:00:00, before the next.*"
        r"resample='mean' with freq='h'",
    ):
        check(stamps, "h")


def test_the_longest_series_shows_the_frequency() -> None:
    short, lasting = (pd.date_range("2024", periods=n, freq=f) for n, f in ((5, "h"), (9, "D")))
    stamps = short.append(lasting)
    assert infer_frequency(stamps, np.array([0, 5, 14]), owner=str) == "D"
    assert infer_frequency(stamps[::-1][::-1], np.array([0, 0, 5, 14]), owner=str) == "D"


@pytest.mark.parametrize("seen", ["D", "ME", "h"])
def test_a_frequency_is_seen_in_spite_of_gaps(seen: str) -> None:
    stamps = pd.date_range("2024-01-31", periods=100, freq=seen).delete([11, 12, 40, 77])
    assert infer(stamps) == seen


@pytest.mark.parametrize(("freq", "step"), [("D", "24h"), ("2D", "48h"), ("90min", "90min")])
def test_a_short_series_with_a_gap_shows_its_most_common_step(freq: str, step: str) -> None:
    stamps = pd.date_range("2024-01-03", periods=6, freq=step).delete(3)
    assert infer(stamps) == freq


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_stamps_without_frequency_are_told_their_steps(zone: str | None, unit: str) -> None:
    days = ["2024-01-01", "2024-01-02", "2024-01-05", "2024-01-06", "2024-01-09", "2024-01-10"]
    stamps = pd.DatetimeIndex(days, tz=zone).as_unit(unit)
    with pytest.raises(DataError) as caught:
        infer(stamps)
    text = str(caught.value)
    assert "No frequency fits the time stamps of the frame (6 rows, 2024-01-01 00:00:00" in text
    assert "1 days 00:00:00 (3 times) and 3 days 00:00:00 (2 times)" in text
    assert "asfreq" not in text


@pytest.mark.parametrize("rows", [4, 5, 13, 60])
@pytest.mark.parametrize("freq", ["SMS-15", "SME-15"])
def test_twice_a_month_is_not_taken_for_a_fortnight(rows: int, freq: str) -> None:
    stamps = pd.DatetimeIndex(pd.date_range("2024-01-01", periods=rows, freq=freq), freq=None)
    assert infer(stamps) == freq


def test_a_regular_stretch_of_irregular_stamps_is_no_frequency() -> None:
    gaps = np.random.default_rng(0).integers(1, 9, size=60)
    days = np.cumsum(np.concatenate([[0], gaps, np.ones(14, dtype=int), gaps]))
    stamps = pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D")
    with pytest.raises(DataError, match="No frequency fits"):
        infer(pd.DatetimeIndex(stamps))


@pytest.mark.parametrize("freq", ["h", "D", "B", "bh", "MS", "W-WED", "2D"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_future_stamps_keep_their_unit(freq: str, unit: str, zone: str | None) -> None:
    last = pd.Timestamp("2024-01-01 10:00", tz=zone).as_unit(unit)
    last = pd.date_range(last, freq=freq, periods=1)[0].as_unit(unit)
    ahead = future_index(last, freq, 5)
    assert ahead.unit == unit
    assert [last, *ahead] == list(pd.date_range(last, freq=freq, periods=6))


def test_future_stamps_finer_than_their_unit_are_not_rounded() -> None:
    ahead = future_index(pd.Timestamp("2024-01-01").as_unit("s"), "500ms", 2)
    assert [stamp.microsecond for stamp in ahead] == [500_000, 0]


def test_a_wrong_frequency_is_told_with_both_names() -> None:
    stamps = pd.date_range("2024", periods=9, freq="D")
    for fills in (False, True):
        with pytest.raises(DataError, match=r"the frame have the frequency 'D'.*'36h' is wanted"):
            infer(stamps, given="36h", fills=fills)
    with pytest.raises(DataError, match=r"the frame have the frequency 'D', but 'h' is wanted"):
        infer(stamps, given="h")
    # Absent rows make hours of days, where they are to be filled.
    assert infer(stamps, given="h", fills=True) == "h"
    # A series that is a multiple of the longest one is told what it is.
    with pytest.raises(
        DataError,
        match=r"23 steps of 'h' absent; 8 gaps and 184 steps in all\. "
        "All its stamps have the frequency 'D'",
    ):
        check(stamps, "h")


def test_too_few_stamps_show_no_frequency() -> None:
    stamps = pd.DatetimeIndex(["2024-01-01", "2024-01-02"])
    with pytest.raises(DataError, match=r"the frame \(2 rows, 2024-01-01.*2024-01-02.*freq='D'"):
        infer(stamps)
    assert infer(stamps, given="D") == "D"


@pytest.mark.parametrize("keep", [True, False])
def test_days_hold_where_clocks_change_at_midnight(keep: bool) -> None:
    """On 4 November 2018 the day began at 1:00 in Sao Paulo."""
    hours = pd.date_range("2018-10-20", "2018-11-07", freq="h", tz="America/Sao_Paulo")
    days = pd.DataFrame({"load": 1.0}, index=hours).resample("D").mean().index
    assert days.hour.max() == 1
    if not keep:
        days.freq = None
    assert infer(days) == "D"
    check(days, "D")
    for row in range(12, 17):
        ahead = future_index(days[row], "D", 2)
        assert list(ahead) == list(days[row + 1 : row + 3])


@pytest.mark.parametrize(
    ("last", "freq", "expected"),
    [
        ("2024-12-31 23:00", "h", ["2025-01-01 00:00", "2025-01-01 01:00"]),
        ("2023-01-31", "ME", ["2023-02-28", "2023-03-31"]),
        ("2024-03-08", "B", ["2024-03-11", "2024-03-12"]),
        ("2024-03-06", "W-WED", ["2024-03-13", "2024-03-20"]),
        ("2024-10-01", "QS-OCT", ["2025-01-01", "2025-04-01"]),
    ],
)
def test_future_stamps(last: str, freq: str, expected: list[str]) -> None:
    assert list(future_index(pd.Timestamp(last), freq, 2)) == [pd.Timestamp(e) for e in expected]


@pytest.mark.parametrize(
    ("freq", "season"),
    [
        ("s", 3600),
        ("min", 1440),
        ("15min", 96),
        ("60min", 24),
        ("h", 24),
        ("2h", 12),
        ("5h", 1),
        ("24h", 1),
        ("48h", 1),
        ("D", 1),
        ("2D", 1),
        ("B", 5),
        ("W-THU", 1),
        ("MS", 12),
        ("ME", 12),
        ("3MS", 4),
        ("QS-OCT", 4),
        ("QE-DEC", 4),
        ("YS", 1),
        ("YE-MAR", 1),
    ],
)
def test_season_lengths_are_those_of_gluonts(freq: str, season: int) -> None:
    assert default_season_length(freq) == season


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("H", "h"),
        ("2H", "2h"),
        ("60min", "h"),
        ("T", "min"),
        ("15T", "15min"),
        ("90T", "90min"),
        ("S", "s"),
        ("500L", "500ms"),
        ("ms", "ms"),
        ("U", "us"),
        ("N", "ns"),
        ("d", "D"),
        (" 2 d ", "2D"),
        ("1h30min", "90min"),
        ("1.5h", "90min"),
        ("b", "B"),
        ("W", "W-SUN"),
        ("w-wed", "W-WED"),
        ("2W-Wed", "2W-WED"),
        ("M", "ME"),
        ("2M", "2ME"),
        ("MS", "MS"),
        ("SM", "SME-15"),
        ("SMS", "SMS-15"),
        ("BM", "BME"),
        ("BMS", "BMS"),
        ("Q", "QE-DEC"),
        ("Q-FEB", "QE-FEB"),
        ("qs-feb", "QS-FEB"),
        ("BQ", "BQE-DEC"),
        ("BQS", "BQS-JAN"),
        ("A", "YE-DEC"),
        ("Y", "YE-DEC"),
        ("A-MAR", "YE-MAR"),
        ("AS", "YS-JAN"),
        ("YS-APR", "YS-APR"),
        ("BA", "BYE-DEC"),
        ("BAS", "BYS-JAN"),
        ("BH", "bh"),
        ("WOM-3FRI", "WOM-3FRI"),
        (3, 3),
        (np.int64(2), 2),
    ],
)
def test_old_and_new_names_are_read(written: str | int, read: str | int) -> None:
    found = parse_frequency(written)
    assert found == read
    assert type(found) is type(read)
    assert parse_frequency(found) == found


@pytest.mark.parametrize(
    ("freq", "reason"),
    [
        ("often", "pandas knows no such"),
        ("", "pandas knows no such"),
        ("h!", "pandas knows no such"),
        ("W-XYZ", "pandas knows no such"),
        ("1.5MS", "pandas knows no such"),
        ("m", "minutes ('min') or for months"),
        ("0h", "not positive"),
        ("-1h", "pandas knows no such"),
        ("C", "custom business days cannot be told by a name. Take 'B'"),
        ("2CBMS", "custom business days"),
        (0, "must be positive, got 0"),
        (-2, "must be positive"),
    ],
)
def test_what_is_no_frequency_is_refused(freq: str | int, reason: str) -> None:
    with pytest.raises(ValueError, match="`freq`") as caught:
        parse_frequency(freq)
    assert reason in str(caught.value)


@pytest.mark.parametrize("freq", [None, 1.5, True, pd.Timedelta("1h"), pd.offsets.Hour()])
def test_other_types_are_no_frequency(freq: object) -> None:
    with pytest.raises(TypeError, match="`freq` must be a pandas offset alias such as 'h'"):
        parse_frequency(freq)  # type: ignore[arg-type]


def test_integer_time_has_its_most_common_step() -> None:
    stamps = pd.Index([0, 5, 10, 15, 25])
    assert infer(stamps) == 5
    with pytest.raises(DataError, match="15 is followed by 25, and 20 was expected: 1 step of 5 "):
        check(stamps, 5)
    with pytest.raises(DataError, match=r"has 12 after 10, before the next step 15 \(frequency 5"):
        check(pd.Index([0, 5, 10, 12, 15]), 5)
    check(stamps[:4], 5)
    assert list(future_index(15, 5, 2)) == [20, 25]
    assert list(future_stamps(pd.Index([15, 3]), 5, 2)) == [20, 25, 8, 13]
    with pytest.raises(DataError, match=r"one row\. Pass freq=1"):
        infer(stamps[:1])


def test_time_and_frequency_must_be_of_one_kind() -> None:
    with pytest.raises(
        DataError, match=r"is integer time \(first: 0\), but .* 'h', is one of time st"
    ):
        infer(pd.Index([0, 1, 2]), given="h")
    with pytest.raises(
        DataError, match=r"is time stamps \(first: 2024.* 2, is one of integer time"
    ):
        infer(pd.date_range("2024", periods=3), given=2)


def test_series_of_a_multiple_may_begin_at_odds() -> None:
    """Series of two weeks, two months and noon, one step apart."""
    for freq, base in (("2W-WED", "W-WED"), ("2MS", "MS"), ("3QE-DEC", "QE-DEC"), ("2B", "B")):
        stamps = pd.date_range("2024-01-01", periods=13, freq=base, tz="Europe/Paris")
        both = (
            stamps[::2].append(stamps[1::2]) if freq[0] == "2" else stamps[::3].append(stamps[1::3])
        )
        half = len(stamps[:: int(freq[0])])
        check_regular_runs(both, np.array([0, half, len(both)]), freq, str)
    days = pd.date_range("2024-03-25", periods=10, tz="Europe/Paris")
    noon = pd.date_range("2024-03-25 12:00", periods=10, tz="Europe/Paris")
    check_regular_runs(days.append(noon), np.array([0, 10, 20]), "D", str)
    ahead = future_stamps(pd.DatetimeIndex([days[-1], noon[-1]]), "D", 2)
    assert [str(stamp)[:13] for stamp in ahead] == [
        "2024-04-04 00", "2024-04-05 00", "2024-04-04 12", "2024-04-05 12",
    ]  # fmt: skip
    with pytest.raises(DataError, match=r"1 has 2024-03-29 12:00:00\+01:00 after 2024-03-28 00"):
        check_regular_runs(days.append(days[:4]).append(noon[4:]), np.array([0, 10, 20]), "D", str)


def test_weekends_that_are_absent_are_told() -> None:
    stamps = pd.date_range("2024-01-01", periods=20, freq="B")
    assert infer(pd.DatetimeIndex(stamps, freq=None)) == "B"
    with pytest.raises(DataError, match=r"2 steps of 'D'.*pass freq='B'"):
        check(stamps, "D")
    days = pd.date_range("2024-01-01", periods=20).delete([3, 9])
    with pytest.raises(
        DataError, match=r"1 step of 'D' absent; 2 gaps and 2 steps in all. Pass fill"
    ):
        check(days, "D")
    holiday = stamps.delete(7)
    assert infer(holiday) == "B"
    with pytest.raises(DataError, match="2024-01-10 00:00:00 was expected: 1 step of 'B'"):
        check(holiday, "B")


def test_a_calendar_of_ones_own_counts_as_business_days() -> None:
    stamps = pd.date_range("2024-07-01", periods=30, freq=pd.offsets.CDay(holidays=["2024-07-04"]))
    assert infer(stamps) == "B"
    with pytest.raises(DataError, match=r"2024-07-04 00:00:00 was expected.*fill='missing'"):
        check(stamps, "B")


def test_an_hour_that_a_clock_skips_is_explained() -> None:
    zoned = pd.date_range("2024-03-30", periods=72, freq="h", tz="Europe/Paris")
    check(zoned, "h")
    with pytest.raises(DataError, match=r"2024-03-31 02:00:00 was expected.*tz_localize"):
        check(zoned.tz_localize(None), "h")
    quarters = pd.date_range("2024-03-30", periods=240, freq="15min", tz="Europe/Paris")
    with pytest.raises(DataError, match=r"4 steps of '15min' absent.*tz_localize"):
        check(quarters.tz_localize(None), "15min")
    with pytest.raises(DataError, match=r"1 step of 'h' absent\. Pass fill"):
        check(pd.date_range("2024-01-01", periods=40, freq="h").delete(2), "h")


def test_a_day_that_begins_twice_begins_at_the_first() -> None:
    """On 3 November 2024 a clock in Havana showed midnight twice."""
    last = pd.Timestamp("2024-11-01", tz="America/Havana")
    ahead = future_index(last, "D", 3)
    assert [str(stamp) for stamp in ahead] == [
        "2024-11-02 00:00:00-04:00",
        "2024-11-03 00:00:00-04:00",
        "2024-11-04 00:00:00-05:00",
    ]
    second = ahead.insert(1, ahead[1] + pd.Timedelta("1h")).delete(2)
    for stamps in (ahead, second):
        assert infer(stamps, given="D") == "D"
        check(stamps, "D")
        check(stamps[1:], "D")


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York", "Australia/Melbourne"])
def test_days_at_an_hour_that_clocks_skip_hold(zone: str) -> None:
    """A clock read daily at 02:00, which on one day of the year does not come."""
    for start in ("2024-03-05", "2024-09-25", "2024-10-20"):
        local = pd.date_range(f"{start} 02:00", periods=40)
        stamps = local.tz_localize(
            zone, ambiguous=np.zeros(40, dtype=bool), nonexistent="shift_forward"
        )
        assert infer(stamps) == "D"
        check(stamps, "D")
        first = stamps[stamps.hour == 3]
        assert len(first) <= 1
        check(stamps[-8:], "D")


def test_stamps_beyond_what_can_be_stored_are_refused() -> None:
    last = pd.Timestamp("2262-04-10").as_unit("ns")
    for freq in ("D", "W-SUN", "YE-DEC", "h"):
        with pytest.raises(DataError, match=r"after 2262-04-10.*beyond what can be stored"):
            future_index(last, freq, 100)
    assert future_index(last.as_unit("s"), "D", 2)[-1].day == 12
    with pytest.raises(DataError, match="beyond what can be stored"):
        future_index(np.iinfo(np.int64).max - 1, 1, 2)


def test_series_that_end_together_share_their_future() -> None:
    last = pd.date_range("2024-01-31", periods=3, freq="ME").repeat(4)
    ahead = future_stamps(last, "ME", 2)
    expected = [stamp for end in last for stamp in future_index(end, "ME", 2)]
    assert list(ahead) == expected
    assert len(future_stamps(last[:0], "ME", 2)) == len(future_stamps(last, "ME", 0)) == 0


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_clocks_show_local_time(unit: str) -> None:
    stamps = pd.date_range("1970-01-01", periods=3, freq="12h", tz="Asia/Kathmandu").as_unit(unit)
    clock = clock_seconds(stamps)
    assert clock is not None
    assert (clock.dtype, clock.tolist()) == (np.dtype("float64"), [0.0, 43200.0, 86400.0])
    assert clock_seconds(pd.Index([1, 2])) is None
    summer = pd.DatetimeIndex(["2024-07-01 12:00"], tz="Europe/Paris").as_unit(unit)
    naive = pd.DatetimeIndex(["2024-07-01 12:00"])
    np.testing.assert_array_equal(clock_seconds(summer), clock_seconds(naive))


@pytest.mark.parametrize(
    ("step", "proposed"),
    [
        ("90us", "100us"),
        ("130ms", "100ms"),
        ("1s", "s"),
        ("7s", "5s"),
        ("58s", "min"),
        ("13min", "15min"),
        ("61min", "h"),
        ("5h", "6h"),
        ("25h", "D"),
        ("8D", "W-SUN"),
        ("29D", "MS"),
        ("90D", "QS-JAN"),
        ("400D", "YS-JAN"),
    ],
)
def test_a_tidy_step_is_proposed(step: str, proposed: str) -> None:
    stamps = pd.Timestamp("2024-01-01") + np.arange(9) * pd.Timedelta(step)
    assert propose_frequency(pd.DatetimeIndex(stamps)) == proposed


def test_a_proposal_does_not_make_more_steps_than_it_must() -> None:
    """Bursts of seconds, a year apart."""
    second, year = pd.Timedelta("1s"), pd.Timedelta("365D")
    stamps = pd.DatetimeIndex(
        [pd.Timestamp("2020-01-01") + a * year + b * second for a in range(4) for b in range(9)]
    )
    freq = propose_frequency(stamps)
    assert 4 <= len(pd.date_range(stamps[0], stamps[-1], freq=freq)) < 1000
    assert propose_frequency(pd.Index([0, 3, 6, 7, 11])) == 3
    with pytest.raises(DataError, match="needs `freq`"):
        propose_frequency(stamps[:1])


@pytest.mark.parametrize("freq", ["D", "W-MON", "B", "MS"])
def test_stamps_may_lie_in_any_year(freq: str) -> None:
    for day, after in (("12024-01-01", "12024"), ("0001-01-01", "0001")):
        last = pd.DatetimeIndex(np.array([day], dtype="M8[s]"))
        try:
            ahead = future_stamps(last, freq, 1)
        except DataError as error:
            # What pandas 2 cannot do.
            assert "within the years 1 to 9999" in str(error)  # noqa: PT017
        else:
            assert str(ahead.to_numpy()[0]).startswith(after)
    hours = pd.DatetimeIndex(np.array(["12024-01-01"], dtype="M8[s]"))
    with pytest.raises(DataError, match="within the years 1 to 9999"):
        future_stamps(hours, "bh", 1)
