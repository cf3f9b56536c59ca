"""Reading time: where it stands, of what type it is, and text that has one meaning or two."""

import datetime as dt
import re

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data import FrameSchema, read_panel
from tests.data.frames import long, refused, wide


def timed(values: object, name: str = "when") -> pd.DataFrame:
    """Make a wide frame with a column of time and a default index."""
    count = len(values)  # type: ignore[arg-type]
    return pd.DataFrame({name: values, "load": np.arange(float(count))})


def days(count: int = 5, form: str = "%Y-%m-%d") -> list[str]:
    return [f"{day:{form}}" for day in pd.date_range("2024-03-10", periods=count)]


@pytest.mark.parametrize(
    "values",
    [
        pd.date_range("2024-03-10", periods=5),
        pd.date_range("2024-03-10", periods=5, tz="Europe/Berlin"),
        pd.date_range("2024-03-10", periods=5, unit="s"),
        pd.Categorical(pd.date_range("2024-03-10", periods=5)),
        pd.Series(pd.date_range("2024-03-10", periods=5).date, dtype=object),
        pd.Series(pd.date_range("2024-03-10", periods=5).to_pydatetime(), dtype=object),
        days(),
        pd.Categorical(days()),
        pd.array(days(), dtype="string"),
        days(form="%Y/%m/%d"),
        days(form="%Y%m%d"),
        days(form="%d %B %Y"),
        days(form="%Y-%m-%dT%H:%M:%S"),
        days(form="%Y-%m-%d %H:%M:%S.%f"),
        days(form="%Y-%m-%d %H:%M:%S+00:00"),
        days(form="%Y-%m-%dT%H:%M:%SZ"),
        days(form="%Y-%m-%dT%H:%M:%S+01:00"),
        [*days(4), "2024-03-14 00:00:00"],
    ],
)
def test_stamps_of_any_type_are_read(values: object) -> None:
    frame = timed(values)
    panel = read_panel(frame, FrameSchema(timestamp_column="when"))
    assert [str(stamp.date()) for stamp in panel.index] == days()
    assert (panel.freq, panel.layout.time_name, panel.layout.indexed) == ("D", "when", False)
    assert list(panel.labels) == ["load"]
    frame = long("a", "b").assign(timestamp=pd.Series([*values, *values]))
    assert list(read_panel(frame).index[:5]) == list(panel.index)


@pytest.mark.parametrize(
    "dtype", ["timestamp[us][pyarrow]", "timestamp[ns, tz=Europe/Berlin][pyarrow]", "date32"]
)
def test_stamps_of_pyarrow_are_read(dtype: str) -> None:
    pa = pytest.importorskip("pyarrow")
    if dtype == "date32":
        values = pd.Series(pd.to_datetime(days()).date).astype(pd.ArrowDtype(pa.date32()))
    else:
        zone = "Europe/Berlin" if "Berlin" in dtype else None
        kind = pa.timestamp("us", tz=zone)
        values = pd.Series(pd.to_datetime(days()).tz_localize(zone)).astype(pd.ArrowDtype(kind))
    panel = read_panel(timed(values))
    assert [str(stamp.date()) for stamp in panel.index] == days()
    assert (str(panel.index.tz) == "Europe/Berlin") == ("Berlin" in dtype)


def test_time_zones_are_kept() -> None:
    frame = wide(72).tz_localize("Europe/Berlin")
    assert str(read_panel(frame).index.tz) == "Europe/Berlin"
    assert str(read_panel(timed(frame.index)).index.tz) == "Europe/Berlin"
    assert str(read_panel(timed(days(form="%Y-%m-%dT00:00Z"))).index.tz) == "UTC"


def test_an_index_of_text_is_read_as_read_csv_leaves_it() -> None:
    frame = timed(days()).set_index("when")
    panel = read_panel(frame)
    assert [str(stamp.date()) for stamp in panel.index] == days()
    assert (panel.layout.indexed, panel.layout.time_name) == (True, "when")


@pytest.mark.parametrize(
    ("freq", "found"),
    [
        ("D", "D"),
        ("M", "MS"),
        ("h", "h"),
        ("W-SUN", "W-MON"),
        ("W-WED", "W-THU"),
        ("15min", "15min"),
    ],
)
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("rows", [1, 8])
def test_periods_are_read_at_their_beginning(
    freq: str, found: str, indexed: bool, rows: int
) -> None:
    periods = pd.period_range("2024-03-01", periods=rows, freq=freq)
    frame = timed(periods)
    panel = read_panel(frame.set_index("when") if indexed else frame)
    assert list(panel.index) == list(periods.to_timestamp(how="start"))
    assert panel.freq == found
    items = pd.concat([frame.assign(item_id=name) for name in "ab"])
    again = read_panel(items, FrameSchema(target="load"))
    assert (again.freq, len(again)) == (found, 2)


@pytest.mark.parametrize("freq", ["Q-DEC", "Q-NOV", "Y-DEC", "Y-JUN", "2M", "2Q-JAN"])
@pytest.mark.parametrize("rows", [1, 6])
def test_periods_of_quarters_and_years_are_continued(freq: str, rows: int) -> None:
    periods = pd.period_range("2020-03-01", periods=rows, freq=freq)
    panel = read_panel(timed(periods).set_index("when"))
    assert list(panel.index) == list(periods.to_timestamp(how="start"))
    expected = (periods[-1:] + 1).to_timestamp(how="start")[0]
    assert pd.date_range(panel.index[-1], periods=2, freq=panel.freq)[1] == expected


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "Int64"])
def test_integer_time_is_counted(dtype: str) -> None:
    frame = long("a", "b").assign(timestamp=np.tile(np.arange(10, 20, 2), 2))
    frame = frame.astype({"timestamp": dtype})
    panel = read_panel(frame)
    assert (panel.freq, panel.index.dtype) == (2, np.dtype("int64"))
    assert list(panel.series(1).index) == [10, 12, 14, 16, 18]
    refused(frame.drop(index=7), "series 'b'")


def test_a_frame_without_time_is_counted_by_its_integer_index() -> None:
    frame = wide(a=range(6)).reset_index(drop=True)
    panel = read_panel(frame)
    assert (list(panel.index), panel.freq, panel.layout.indexed) == (list(range(6)), 1, True)
    panel = read_panel(frame.set_axis(range(10, 40, 5)).iloc[::-1])
    assert (list(panel.index), panel.freq) == (list(range(10, 40, 5)), 5)
    assert list(panel.values[:, 0]) == list(range(6))


@pytest.mark.parametrize("name", ["timestamp", "ds", "Month"])
def test_the_one_column_that_holds_time_is_found(name: str) -> None:
    for values in (days(), pd.to_datetime(days())):
        panel = read_panel(timed(values, name))
        assert (panel.layout.time_name, list(panel.labels)) == (name, ["load"])


def test_a_known_name_of_integers_is_time() -> None:
    panel = read_panel(timed(range(1990, 1995), "ds"))
    assert (list(panel.index), list(panel.labels)) == (list(range(1990, 1995)), ["load"])


def test_text_that_is_a_number_is_no_time() -> None:
    frame = timed(days()).assign(code=["1001", "1002", "1003", "1004", "1005"])
    assert read_panel(frame, FrameSchema(target="load")).layout.time_name == "when"


def test_text_that_reads_as_time_in_part_does_not_count_against_one_that_does() -> None:
    frame = timed(days()).assign(note=["2024-03-10", "none", "none", "none", "none"])
    assert read_panel(frame, FrameSchema(target="load")).layout.time_name == "when"


def test_two_columns_of_time_are_refused_until_one_is_named() -> None:
    frame = timed(days()).assign(read=pd.to_datetime(days(form="%Y-%m-%d 01:00")))
    # A column of stamps comes before one of text.
    assert read_panel(frame.assign(when=1.0)).layout.time_name == "read"
    both = frame.assign(when=pd.to_datetime(frame["when"]))
    refused(both, "more than one column that holds time", "'when', 'read'", "timestamp_column")
    texts = frame.astype({"read": str})
    refused(texts, "more than one column that holds time", target="load")
    schema = FrameSchema(timestamp_column="read", target="load")
    assert read_panel(texts, schema).layout.time_name == "read"
    long_frame = long("a").assign(ds=pd.date_range("2024", periods=5))
    refused(long_frame, "'timestamp', 'ds'", "timestamp_column=")


def test_the_index_of_a_wide_frame_comes_before_a_column_of_its_name() -> None:
    frame = wide().assign(timestamp=np.arange(6.0))
    assert list(read_panel(frame).labels) == ["load", "timestamp"]
    named = timed(days()).set_index("when")
    assert read_panel(named, FrameSchema(timestamp_column="when")).layout.indexed


def test_the_time_of_a_long_frame_may_stand_in_its_index() -> None:
    frame = long("a", "b").set_index("timestamp")
    panel = read_panel(frame)
    assert (len(panel), panel.layout.time_name, panel.layout.indexed) == (2, "timestamp", False)
    assert read_panel(frame.rename_axis(None)).layout.time_name == "timestamp"
    assert read_panel(frame.rename_axis("day")).layout.time_name == "day"


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pd.DataFrame({"a": [1.0, 2.0]}, index=[0.5, 1.5]), ("No time is found", "float64", "'a'")),
        (pd.DataFrame({"a": [1.0, 2.0]}, index=list("xy")), ("No time is found", "item_id")),
        (long("a")[["item_id", "target"]], ("No time is found", "a long frame", "timestamp")),
        (wide().set_axis(pd.timedelta_range("1h", periods=6)), ("No time is found", "timedelta")),
    ],
)
def test_frames_without_time_are_refused(frame: pd.DataFrame, words: tuple[str, ...]) -> None:
    refused(frame, *words)


@pytest.mark.parametrize(
    "form",
    [
        "%d/%m/%Y",
        "%m/%d/%Y",
        "%d.%m.%Y",
        "%d-%m-%Y %H:%M",
        "%m/%d/%Y %H:%M:%S",
        "%m/%d/%y",
        "%m/%d/%Y %I:%M %p",
        "%d/%m/%Y %I:%M:%S%p",
        "%d/%m/%YT%H:%M:%SZ",
    ],
)
@pytest.mark.parametrize("start", ["2024-01-05", "2024-01-25"])
def test_dates_of_one_meaning_are_read_without_a_guess(form: str, start: str) -> None:
    stamps = pd.date_range(start, periods=20, tz="UTC" if form.endswith("Z") else None)
    frame = timed([f"{stamp:{form}}" for stamp in stamps])
    assert list(read_panel(frame).index) == list(stamps)
    # Neither does it matter whether zeros stand before the numbers.
    bare = frame.assign(when=frame["when"].str.replace(r"\b0(\d)", r"\1", regex=True))
    assert list(read_panel(bare).index) == list(stamps)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (
            ["01/02/2024", "01/03/2024", "01/04/2024"],
            ("'01/02/2024'", "2024-01-02", "2024-02-01", "'%d/%m/%Y'", "'%m/%d/%Y'"),
        ),
        (["5.1.2024", "6.1.2024", "7.1.2024"], ("'5.1.2024'", "2024-05-01", "2024-01-05")),
        (["01/01/2024", "02/01/2024", "03/01/2024"], ("'02/01/2024'", "two ways")),
        (["01-02-24", "01-03-24", "01-04-24"], ("two ways", "pd.to_datetime(..., format=")),
        (["13-02-24", "14-02-24", "15-02-24"], ("two ways", "2024-02-13", "2013-02-24")),
        (
            ["01/02/2024 10:00", "01/02/2024 11:00", "01/02/2024 12:00"],
            ("two ways", "'%d/%m/%Y %H:%M'"),
        ),
    ],
)
def test_dates_of_two_meanings_are_refused(texts: list[str], words: tuple[str, ...]) -> None:
    refused(timed(texts), "Column 'when' of `X`", "two ways", *words)
    items = timed(texts).assign(item_id="a")
    refused(items, "Column 'when' of `X`", "two ways", target="load")
    # What the message advises works.
    with pytest.raises(DataError) as caught:
        read_panel(timed(texts))
    first, second = re.findall(r"\('(%[^']+)'\)", str(caught.value))
    for form in (first, second):
        stamps = pd.to_datetime(pd.Series(texts), format=form)
        assert list(read_panel(timed(stamps)).index) == list(stamps)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["soon"] * 5, ("cannot be read as time", "'soon'")),
        ([*days(4), "soon"], ("row 4 is 'soon'",)),
        # Pandas would take these for times of the day on which it is asked, or for a quarter.
        (["12:00", "13:00", "14:00"], ("without a guess", "'12:00'")),
        (["2024Q1", "2024Q2", "2024Q3"], ("without a guess", "'2024Q1'")),
        ([*days(4), "now"], ("'now' and 'today' are no time",)),
        ([*days(4), "2024-02-30"], ("row 4 is '2024-02-30'",)),
        (["13/01/2024", "14/01/2024", "01/15/2024"], ("cannot be read", "'01/15/2024'")),
        ([*days(4), "NaT"], ("row 4 is 'NaT'", "missing")),
        ([*days(4), None], ("missing", "row 4")),
        (
            ["2024-01-01T00:00+01:00"] * 4 + ["2024-07-01T00:00+02:00"],
            ("UTC offsets +01:00 and +02:00", "utc=True", "tz_convert"),
        ),
    ],
)
def test_text_that_cannot_be_read_is_named(texts: list[str], words: tuple[str, ...]) -> None:
    refused(timed(texts, "timestamp"), "Column 'timestamp' of `X`", *words)
    refused(long("a", rows=len(texts)).assign(timestamp=texts), "'timestamp'", *words)


def test_stamps_of_mixed_zones_are_refused() -> None:
    zones = [dt.timezone(dt.timedelta(hours=hour)) for hour in (1, 1, 2)]
    stamps = [dt.datetime(2024, 1, 1 + day, tzinfo=zone) for day, zone in enumerate(zones)]
    refused(timed(pd.Series(stamps, dtype=object)), "Column 'when'", "cannot be read as time")
