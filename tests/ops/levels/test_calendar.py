"""Calendar blocks against Python's own calendar, stamp by stamp."""

import datetime as dt
from collections.abc import Callable
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlrforecast.ops import Levels, calendar_block_ids
from tests.ops.levels.partitions import blocks, is_nested, same_partition

# What names the period of a local time; equal names, one block.
NAMES: dict[str, Callable[[dt.datetime], object]] = {
    "2Y": lambda t: (t.year - 1970) // 2,
    "year": lambda t: t.year,
    "quarter": lambda t: (t.year, (t.month - 1) // 3),
    "2M": lambda t: (t.year, (t.month - 1) // 2),
    "month": lambda t: (t.year, t.month),
    "week": lambda t: t.isocalendar()[:2],
    "W-SAT": lambda t: (t.date() + dt.timedelta(days=1)).isocalendar()[:2],
    "day": lambda t: t.date(),
    "12h": lambda t: (t.date(), t.hour // 12),
    "6h": lambda t: (t.date(), t.hour // 6),
    "hour": lambda t: (t.date(), t.hour, t.utcoffset()),
    "30min": lambda t: (t.date(), t.hour, t.minute // 30, t.utcoffset()),
    "minute": lambda t: (t.date(), t.hour, t.minute, t.utcoffset()),
}
ZONES = [None, "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]
ZONES += ["America/Sao_Paulo", "Pacific/Apia"]


def local_times(index: pd.DatetimeIndex, zone: str | None) -> list[dt.datetime]:
    """The wall clock at each stamp, without pandas."""
    if zone is None:
        return [stamp.to_pydatetime() for stamp in index]
    instants = index.tz_convert("UTC")
    return [stamp.to_pydatetime().astimezone(ZoneInfo(zone)) for stamp in instants]


@st.composite
def stamp_cases(draw: st.DrawFn) -> tuple[pd.DatetimeIndex, str | None, tuple[str, ...]]:
    zone = draw(st.sampled_from(ZONES))
    minutes = st.integers(0, 60 * 365 * 24 * 60)
    start = pd.Timestamp("1965-01-01") + pd.Timedelta(minutes=draw(minutes))
    if draw(st.booleans()):  # near a change of the clocks
        start = pd.Timestamp(draw(st.sampled_from(["2024-10-26", "2024-03-30", "2017-10-14"])))
    step = draw(st.sampled_from([7, 30, 60, 61, 360, 1440, 1441, 10_080, 44_640]))
    index = pd.date_range(start, periods=draw(st.integers(1, 60)), freq=pd.Timedelta(minutes=step))
    index = index[draw(st.lists(st.booleans(), min_size=len(index), max_size=len(index)))]
    index = index if len(index) else pd.DatetimeIndex([start])
    names = list(NAMES)
    first = draw(st.integers(0, len(names) - 1))
    picked = [names[first], *(n for n in names[first + 1 :] if draw(st.booleans()))]
    if zone is not None:
        index = index.tz_localize("UTC").tz_convert(zone)
    return index, zone, tuple(picked)


@given(stamp_cases(), st.booleans(), st.booleans())
def test_blocks_are_the_periods_of_the_local_calendar(
    case: tuple[pd.DatetimeIndex, str | None, tuple[str, ...]], whole: bool, nested: bool
) -> None:
    index, zone, periods = case
    ids = calendar_block_ids(index, periods, whole=whole, nested=nested).tolist()
    names: list[list] = [[NAMES[period](t) for t in local_times(index, zone)] for period in periods]
    if nested:
        names = [list(zip(*names[: lvl + 1], strict=True)) for lvl in range(len(names))]
    expected = [[0] * len(index), *names] if whole else names
    assert len(ids) == len(expected)
    for found, row in zip(ids, expected, strict=True):
        assert same_partition(found, row)
        assert set(found) == set(range(len(blocks(row))))
    if nested:
        assert is_nested(ids)


def test_a_day_has_the_hours_that_its_zone_gave_it() -> None:
    index = pd.date_range("2024-03-30", "2024-04-01", freq="h", tz="Europe/Berlin")[:-1]
    days = calendar_block_ids(index, ["day"])[1]
    assert days.bincount().tolist() == [24, 23]
    index = pd.date_range("2024-11-02", "2024-11-05", freq="h", tz="America/New_York")[:-1]
    ids = calendar_block_ids(index, ["day", "6h", "hour"])
    assert ids[1].bincount().tolist() == [24, 25, 24]
    assert ids[2].bincount().tolist() == [6] * 4 + [7] + [6] * 7
    assert torch.equal(ids[3], torch.arange(73))


def test_an_hour_that_comes_twice_is_two_blocks() -> None:
    index = pd.date_range("2024-10-27 00:00", periods=20, freq="15min", tz="Europe/Berlin")
    assert calendar_block_ids(index, ["hour"])[1].bincount().tolist() == [4] * 5
    half = calendar_block_ids(index, ["30min"])[1]
    assert half.tolist() == [i // 2 for i in range(20)]


def test_months_of_daily_stamps() -> None:
    index = pd.date_range("2024-01-15", "2024-04-10", freq="D")
    assert calendar_block_ids(index, ["month"])[1].bincount().tolist() == [17, 29, 31, 10]


def test_a_week_over_the_end_of_a_month_is_cut_only_if_levels_nest() -> None:
    index = pd.date_range("2024-01-29", periods=7, freq="D")
    nested, free = (calendar_block_ids(index, ["month", "week"], nested=n) for n in (True, False))
    assert nested.tolist() == [[0] * 7, [0] * 3 + [1] * 4, [0] * 3 + [1] * 4]
    assert free.tolist() == [[0] * 7, [0] * 3 + [1] * 4, [0] * 7]
    assert Levels(7, (1, 1, 1), block_ids=nested).nested
    assert not Levels(7, (1, 1, 1), block_ids=free).nested


def test_whatever_holds_the_stamps() -> None:
    index = pd.date_range("2024-01-29", periods=9, freq="D")
    expected = calendar_block_ids(index)
    assert expected.shape == (4, 9)
    python = index.to_pydatetime()
    held = [pd.Series(index, index=range(1, 10)), index.to_numpy(), index.to_numpy("datetime64[s]")]
    held += [list(index), list(python), [t.date() for t in python], index.to_period("D")]
    held += [pd.Series(index.to_period("D")), index.astype(str).tolist()]
    for stamps in held:
        assert torch.equal(calendar_block_ids(stamps), expected)
    zoned = pd.Series(index.tz_localize("Asia/Kolkata"))
    assert torch.equal(calendar_block_ids(zoned), expected)
    assert torch.equal(calendar_block_ids(list(zoned)), expected)


def test_unsorted_stamps_meet_in_their_period() -> None:
    index = pd.DatetimeIndex(["2024-05-02", "2024-04-01", "2024-05-01", "2024-04-09"])
    assert calendar_block_ids(index, ["month"]).tolist() == [[0, 0, 0, 0], [1, 0, 1, 0]]


def test_the_index_is_not_changed() -> None:
    index = pd.date_range("2024-01-29", periods=9, freq="D", tz="Europe/Berlin", name="when")
    before = index.copy()
    calendar_block_ids(index)
    assert index.equals(before)
    assert index.freq == before.freq


@pytest.mark.parametrize(
    ("stamps", "periods", "message"),
    [
        ([], ["day"], "`stamps` must hold at least one time stamp"),
        (pd.DatetimeIndex(["2024-01-01", None]), ["day"], "got NaT at position 1"),
        (
            ["2024-01-01"],
            ["fortnight"],
            r"`periods\[0\]` must be one of year, .*fortnight",
        ),
        (["2024-01-01"], ["year", "MS"], r"`periods\[1\]` must be one of .*got 'MS'"),
        (["2024-01-01"], ["day", "month"], "must run coarse to fine, got"),
        (["2024-01-01"], ["6h", "12h"], "must run coarse to fine, got"),
    ],
)
def test_bad_values(stamps: object, periods: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calendar_block_ids(stamps, periods)


def test_the_order_of_periods_is_no_matter_of_the_stamps() -> None:
    for first in ("2024-01-03", "2024-02-03"):
        assert calendar_block_ids([first], ["month", "30D"]).tolist() == [[0], [0], [0]]
        with pytest.raises(ValueError, match="coarse to fine"):
            calendar_block_ids([first], ["30D", "month"])


def test_no_level_at_all() -> None:
    assert calendar_block_ids(["2024-01-01"], []).tolist() == [[0]]
    with pytest.raises(ValueError, match="at least one period where `whole` is False"):
        calendar_block_ids(["2024-01-01"], [], whole=False)


@pytest.mark.parametrize(
    "stamps",
    [
        [1, 2],
        np.arange(3.0),
        pd.Series([1.0], index=pd.DatetimeIndex(["2024-01-01"])),
        pd.to_timedelta([1], unit="h"),
        ["yesterday or so"],
        "2024-01-01",
        None,
        [pd.Timestamp("2024-01-01", tz="UTC"), pd.Timestamp("2024-01-01", tz="Asia/Tokyo")],
        pd.DataFrame({"when": pd.date_range("2024", periods=2)}),
    ],
    ids=str,
)
def test_what_is_no_time(stamps: object) -> None:
    with pytest.raises(TypeError, match="`stamps` must be time stamps"):
        calendar_block_ids(stamps)


@pytest.mark.parametrize("periods", ["day", [1], None])
def test_periods_are_texts(periods: object, own_errors: None) -> None:
    with pytest.raises(TypeError, match="`periods` must be"):
        calendar_block_ids(["2024-01-01"], periods)


@pytest.mark.usefixtures("own_errors")
def test_a_whole_frame_is_refused_with_what_to_give() -> None:
    frame = pd.DataFrame({"load": range(3)}, index=pd.date_range("2024", periods=3, freq="h"))
    for whole in (frame, frame.reset_index(), frame.iloc[:, :0]):
        with pytest.raises(TypeError, match=r"`stamps` must .* got a DataFrame\. Give its index"):
            calendar_block_ids(whole)
