"""Frequencies: seen in the stamps, checked step by step, continued."""

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data import (
    check_regular,
    default_season_length,
    future_index,
    infer_frequency,
    read_panel,
)
from mlrforecast.data.frequency import check_regular_runs

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


def stamps_across_dst(freq: str, zone: str | None, rows: int = 40) -> pd.DatetimeIndex:
    """Stamps that cross 31 March 2024, when clocks in Berlin jump, without their frequency."""
    fine = freq in ("15min", "h", "2h", "s")
    start = pd.Timestamp("2024-03-30 12:00" if fine else "2024-03-01", tz=zone)
    return pd.DatetimeIndex(pd.date_range(start, periods=rows, freq=freq), freq=None)


@pytest.mark.parametrize(("freq", "zone"), FREQUENCIES)
def test_a_frequency_is_seen_and_continued(freq: str, zone: str | None) -> None:
    stamps = stamps_across_dst(freq, zone)
    found = infer_frequency([stamps], owner=str)
    check_regular(stamps, found, "the frame")
    check_regular(stamps, freq, "the frame")
    assert infer_frequency([stamps], given=freq, owner=str) == freq
    for known in (freq, found):
        continued = future_index(stamps[-8], known, 7)
        assert list(continued) == list(stamps[-7:])
        assert continued.tz == stamps.tz


@pytest.mark.parametrize(("freq", "zone"), FREQUENCIES)
@pytest.mark.parametrize("unit", ["ns", "us", "s"])
def test_a_gap_is_found_where_it_is(freq: str, zone: str | None, unit: str) -> None:
    stamps = stamps_across_dst(freq, zone).as_unit(unit)
    broken = stamps.delete(17)
    with pytest.raises(DataError) as caught:
        check_regular(broken, freq, "the frame")
    message = str(caught.value)
    assert f"{stamps[16]} is followed by {stamps[18]}, and {stamps[17]} was expected" in message
    assert "gap" in message
    assert f"asfreq({freq!r})" in message


@pytest.mark.parametrize(("freq", "zone"), FREQUENCIES)
def test_runs_are_judged_as_one_by_one(freq: str, zone: str | None) -> None:
    stamps = stamps_across_dst(freq, zone)
    runs = [stamps, stamps[3:9], stamps[:1], stamps[5:30]]

    def check(parts: list[pd.DatetimeIndex]) -> None:
        joined = parts[0].append(parts[1:])
        starts = np.cumsum([0, *(len(part) for part in parts[:-1])])
        check_regular_runs(joined, starts, freq, lambda number: f"run {number}")

    check(runs)
    for number in range(len(runs)):
        if len(runs[number]) == 1:
            continue
        broken = [*runs]
        broken[number] = broken[number].delete(3)
        with pytest.raises(DataError, match=f"run {number} has a gap"):
            check(broken)


@pytest.mark.parametrize("freq", ["MS", "ME", "W-WED", "B", "QS"])
def test_a_lone_stamp_off_the_frequency_is_found_among_runs(freq: str) -> None:
    off = pd.DatetimeIndex(["2024-03-16"])  # a Saturday in mid-month
    stamps = stamps_across_dst(freq, None, rows=3).append(off)
    with pytest.raises(DataError, match=f"run 1, 2024-03-16.* does not lie on .*{freq}"):
        check_regular_runs(stamps, np.array([0, 3]), freq, lambda number: f"run {number}")


def test_a_step_that_comes_too_early_is_told() -> None:
    stamps = pd.date_range("2024", periods=20, freq="h").insert(8, pd.Timestamp("2024-01-01 07:30"))
    with pytest.raises(DataError, match=r"07:30:00 after 2024-01-01 07:00:00.*resample\('h'\)"):
        check_regular(stamps, "h", "the frame")


def test_the_longest_series_shows_the_frequency() -> None:
    short, lasting = (pd.date_range("2024", periods=n, freq=f) for n, f in ((5, "h"), (9, "D")))
    assert infer_frequency([short, lasting], owner=str) == "D"


@pytest.mark.parametrize("seen", ["D", "ME", "h"])
def test_a_frequency_is_seen_in_spite_of_gaps(seen: str) -> None:
    stamps = pd.date_range("2024-01-31", periods=100, freq=seen).delete([11, 12, 40, 77])
    assert infer_frequency([stamps], owner=str) == seen


@pytest.mark.parametrize(("freq", "step"), [("D", "24h"), ("2D", "48h"), ("90min", "90min")])
def test_a_short_series_with_a_gap_shows_its_most_common_step(freq: str, step: str) -> None:
    stamps = pd.date_range("2024-01-03", periods=6, freq=step).delete(3)
    assert infer_frequency([stamps], owner=str) == freq


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_stamps_without_frequency_are_told_their_steps(zone: str | None, unit: str) -> None:
    days = ["2024-01-01", "2024-01-02", "2024-01-05", "2024-01-06", "2024-01-09", "2024-01-10"]
    stamps = pd.DatetimeIndex(days, tz=zone).as_unit(unit)
    with pytest.raises(DataError) as caught:
        infer_frequency([stamps], owner=lambda _: "the frame")
    text = str(caught.value)
    assert "No frequency fits the time stamps of the frame (6 rows, 2024-01-01 00:00:00" in text
    assert "1 days 00:00:00 (3 times) and 3 days 00:00:00 (2 times)" in text
    assert "asfreq" not in text


@pytest.mark.parametrize("rows", [4, 5, 13, 60])
@pytest.mark.parametrize("freq", ["SMS", "SME"])
def test_twice_a_month_is_not_taken_for_a_fortnight(rows: int, freq: str) -> None:
    made = pd.date_range("2024-01-01", periods=rows, freq=freq)
    stamps = pd.DatetimeIndex(made, freq=None)
    with pytest.raises(DataError, match=r"^No frequency (fits|can be seen)") as caught:
        read_panel(pd.DataFrame({"load": 1.0}, index=stamps))
    assert "asfreq" not in str(caught.value)
    # The advice holds: said, the frequency serves.
    assert read_panel(pd.DataFrame({"load": 1.0}, index=made)).freq.startswith(freq)


def test_a_regular_stretch_of_irregular_stamps_is_no_frequency() -> None:
    gaps = np.random.default_rng(0).integers(1, 9, size=60)
    days = np.cumsum(np.concatenate([[0], gaps, np.ones(14, dtype=int), gaps]))
    stamps = pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D")
    with pytest.raises(DataError, match="No frequency fits"):
        infer_frequency([pd.DatetimeIndex(stamps)], owner=str)


@pytest.mark.parametrize("freq", ["h", "D", "B", "C", "bh", "MS", "W-WED", "2D"])
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
    with pytest.raises(DataError, match=r"series 0 have the frequency 'D'.*fitted on 'h'"):
        infer_frequency([stamps], given="h", owner=lambda number: f"series {number}")


def test_too_few_stamps_show_no_frequency() -> None:
    stamps = pd.DatetimeIndex(["2024-01-01", "2024-01-02"])
    with pytest.raises(DataError, match=r"series 0 \(2 rows, 2024-01-01.*2024-01-02"):
        infer_frequency([stamps], owner=lambda number: f"series {number}")
    assert infer_frequency([stamps], given="D", owner=str) == "D"


@pytest.mark.parametrize("keep", [True, False])
def test_days_hold_where_clocks_change_at_midnight(keep: bool) -> None:
    """On 4 November 2018 the day began at 1:00 in Sao Paulo."""
    hours = pd.date_range("2018-10-20", "2018-11-07", freq="h", tz="America/Sao_Paulo")
    daily = pd.DataFrame({"load": 1.0}, index=hours).resample("D").mean()
    assert daily.index.hour.max() == 1
    if not keep:
        daily.index.freq = None
    panel = read_panel(daily)
    assert panel.freq == "D"
    ahead = future_index(pd.Timestamp("2018-11-02", tz="America/Sao_Paulo"), panel.freq, 3)
    assert list(ahead) == list(daily.loc["2018-11-03":"2018-11-05"].index)


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
