"""Calendar features against the standard library's calendar."""

import math
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from mlrforecast.data import clock_seconds
from mlrforecast.data.calendar import calendar_cycles, calendar_features

DAY, YEAR = 86_400.0, 365.2425 * 86_400.0


def by_hand(stamp: datetime) -> list[float]:
    """Day, week and year of one stamp, by the fields of the calendar."""
    day = (stamp.hour * 3600 + stamp.minute * 60 + stamp.second) / DAY
    week = (stamp.weekday() + day) / 7
    # A Gregorian year is 365.2425 days; counted from the first Monday of 1970 less 4 days.
    year = ((stamp - datetime(1969, 12, 29)) / timedelta(days=365.2425)) % 1
    return [
        function(2 * math.pi * turns * share)
        for share in (day, week, year)
        for turns in (1, 2)
        for function in (math.sin, math.cos)
    ]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("start", ["1968-02-28 23:15", "2024-03-30 22:30", "2031-12-31 12:00"])
def test_features_are_those_of_the_local_clock(start: str, zone: str | None) -> None:
    index = pd.date_range(start, periods=61, freq="37min", tz=zone)
    found = calendar_features(clock_seconds(index), ("day", "week", "year"))
    assert found.dtype == np.float32
    expected = [by_hand(stamp.tz_localize(None).to_pydatetime()) for stamp in index]
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_day_has_its_features_whether_clocks_change_or_not() -> None:
    """At 8:00 in Berlin the day is as old in summer as in winter."""
    for change in ("2024-03-31", "2024-10-27"):
        eve = pd.Timestamp(change) - pd.Timedelta(hours=16)
        mornings = pd.date_range(eve, periods=3, freq="D").tz_localize("Europe/Berlin")
        features = calendar_features(clock_seconds(mornings), ("day",))
        np.testing.assert_array_equal(features, features[[0, 0, 0]])


def test_a_year_later_a_year_has_the_same_features() -> None:
    index = pd.to_datetime(["2020-05-01", "2021-05-01", "2024-05-01", "2060-05-01"])
    features = calendar_features(clock_seconds(index), ("year",))
    np.testing.assert_allclose(features, features[[0] * 4], atol=0.03)


def test_cycles_come_in_the_order_asked_for_and_any_shape_is_kept() -> None:
    clock = np.arange(24.0).reshape(2, 3, 4) * 7777
    week, day = calendar_features(clock, ("week",)), calendar_features(clock, ("day",))
    both = calendar_features(clock, ("day", "week"))
    np.testing.assert_array_equal(both, np.concatenate([day, week], axis=-1))
    assert both.shape == (2, 3, 4, 8)
    assert calendar_features(clock, ()).shape == (2, 3, 4, 0)


@pytest.mark.parametrize(
    ("freq", "days", "cycles"),
    [
        ("h", 1.5, ()),
        ("h", 2, ("day",)),
        ("15min", 13, ("day",)),
        ("h", 14, ("day", "week")),
        ("12h", 800, ("day", "week", "year")),
        ("D", 20, ("week",)),
        ("D", 700, ("week",)),
        ("B", 731, ("week", "year")),
        ("W-WED", 5000, ("year",)),
        ("MS", 600, ()),
        ("QS-FEB", 731, ("year",)),
        ("YE", 9000, ()),
        ("YS", 9000, ()),
        (1, 9000, ()),
    ],
)
def test_a_cycle_is_longer_than_a_step_and_was_seen_twice(
    freq: str | int, days: float, cycles: tuple[str, ...]
) -> None:
    assert calendar_cycles(freq, days * DAY) == cycles


@pytest.mark.parametrize(
    ("freq", "periods", "cycles"), [("MS", 24, ("year",)), ("MS", 22, ()), ("h", 48, ("day",))]
)
def test_whole_cycles_of_rows_are_enough(freq: str, periods: int, cycles: tuple[str, ...]) -> None:
    """Of two years of months, the last stamp is not yet two years after the first."""
    for start in ("2022-01-01", "2023-01-01", "2024-03-01"):
        clock = clock_seconds(pd.date_range(start, periods=periods, freq=freq))
        assert calendar_cycles(freq, float(clock[-1] - clock[0])) == cycles
