"""Reading frames: what is accepted, what is refused and how it is told."""

import re
import tracemalloc
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data import Panel, read_panel


def wide(rows: int = 6, freq: str = "h", **columns: object) -> pd.DataFrame:
    index = pd.date_range("2024-01-01", periods=rows, freq=freq)
    return pd.DataFrame(columns or {"load": np.arange(rows, dtype=float)}, index=index)


def long(*items: object, rows: int = 5, freq: str = "D") -> pd.DataFrame:
    """Item number ``i`` holds ``100 i``, ``100 i + 1``, ..."""
    stamps = pd.date_range("2024-01-01", periods=rows, freq=freq)
    return pd.concat(
        [
            pd.DataFrame(
                {"item_id": item, "timestamp": stamps, "target": 100.0 * number + np.arange(rows)}
            )
            for number, item in enumerate(items)
        ],
        ignore_index=True,
    )


def altered(frame: pd.DataFrame, column: str, row: int, value: object) -> pd.DataFrame:
    frame = frame.copy()
    frame.loc[frame.index[row], column] = value
    return frame


def of_stamps(*stamps: str | pd.Timestamp) -> pd.DataFrame:
    index = pd.DatetimeIndex([pd.Timestamp(stamp) for stamp in stamps])
    return pd.DataFrame({"load": np.arange(len(stamps)) + 1.0}, index=index)


def refused(frame: object, *words: str, **options: object) -> None:
    """Check that reading fails with a DataError that says each of the words."""
    with pytest.raises(DataError) as caught:
        read_panel(frame, **options)
    for word in words:
        assert word in str(caught.value)


def test_wide_values_and_names_are_those_of_the_frame() -> None:
    frame = wide(a=[1.0, 2, 3, 4, 5, 6], b=[6, 5, 4, 3, 2, 1])
    panel = read_panel(frame)
    assert (panel.form, panel.names, panel.freq) == ("wide", ("a", "b"), "h")
    assert panel.channels == ("a", "b")
    (series,) = panel.series
    assert series.item_id is None
    assert series.values.dtype == np.float64
    np.testing.assert_array_equal(series.values, [[1, 6], [2, 5], [3, 4], [4, 3], [5, 2], [6, 1]])
    pd.testing.assert_index_equal(series.index, frame.index)
    assert [panel.label(series, channel) for channel in (0, 1)] == ["column 'a'", "column 'b'"]


@pytest.mark.parametrize("names", [("item_id", "timestamp", "target"), ("unique_id", "ds", "y")])
def test_long_series_come_in_order_of_appearance(names: tuple[str, str, str]) -> None:
    frame = long("z", "a", "m").iloc[[4, 7, 0, 12, 1, 2, 3, 5, 6, 8, 9, 10, 11, 13, 14]]
    panel = read_panel(frame.set_axis(list(names), axis=1)[[names[2], names[0], names[1]]])
    assert (panel.form, panel.names, panel.freq) == ("long", names, "D")
    assert panel.channels == (names[2],)
    assert [item.item_id for item in panel.series] == ["z", "a", "m"]
    for number, item in enumerate(panel.series):
        np.testing.assert_array_equal(item.values[:, 0], 100 * number + np.arange(5))
        assert list(item.index) == list(pd.date_range("2024-01-01", periods=5))
    assert panel.label(panel.series[1], 0) == "series 'a'"


@pytest.mark.parametrize(
    ("items", "dtype", "label"),
    [
        (("b", "a"), object, "series 'b'"),
        (("b", "a"), "category", "series 'b'"),
        ((7, 3), "int64", "series 7"),
        ((7, 3), "category", "series 7"),
    ],
)
def test_ids_of_any_dtype(items: tuple[object, ...], dtype: str, label: str) -> None:
    frame = long(*items)
    frame["item_id"] = frame["item_id"].astype(dtype)
    panel = read_panel(frame)
    assert [item.item_id for item in panel.series] == list(items)
    assert panel.label(panel.series[0], 0) == label


def test_rows_in_any_order_are_sorted() -> None:
    frame = wide(50, "D", a=np.arange(50.0), b=-np.arange(50.0))
    shuffled = frame.iloc[np.random.default_rng(0).permutation(50)]
    (series,) = read_panel(shuffled).series
    np.testing.assert_array_equal(series.values, frame.to_numpy())
    assert read_panel(frame.iloc[::-1]).freq == "D"
    # A slice of a reversed frame carries the frequency -1h.
    (newest,) = read_panel(wide().iloc[::-1].iloc[:1], freq="h").series
    assert len(newest.index) == 1


@pytest.mark.parametrize(
    "values",
    [
        pd.array([1, None, 3, 4], dtype="Int64"),
        pd.array([1.0, None, 3.0, 4.0], dtype="Float64"),
        np.array([1, np.nan, 3, 4], dtype=np.float32),
        np.array([1, np.nan, 3, 4], dtype=np.float16),
    ],
    ids=["Int64", "Float64", "float32", "float16"],
)
def test_missing_values_of_any_numeric_dtype_become_nan(values: object) -> None:
    (series,) = read_panel(wide(4, a=values, b=np.arange(4, dtype=np.uint8))).series
    np.testing.assert_array_equal(series.values, [[1, 0], [np.nan, 1], [3, 2], [4, 3]])


def test_a_constant_is_accepted() -> None:
    assert (read_panel(wide(a=[0.1] * 6)).series[0].values == 0.1).all()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (list("abcdef"), ("Column 'a' must be numeric", "'a'")),
        ([Decimal(1)] * 6, ("object", "Decimal('1')", "pd.to_numeric")),
        ([True, False] * 3, ("got dtype bool", "first value", ".astype(float)")),
        (pd.array([True, None] * 3, dtype="boolean"), ("got dtype boolean",)),
        (np.arange(6) * 1j, ("got dtype complex128",)),
        (pd.Categorical(list("aabbcc")), ("got dtype category",)),
        (pd.timedelta_range("1h", periods=6), ("got dtype timedelta64",)),
        (pd.date_range("2024", periods=6), ("got dtype datetime64",)),
    ],
)
def test_columns_that_hold_no_numbers_are_refused(values: object, words: tuple[str, ...]) -> None:
    values = values[:6]
    refused(wide(ok=np.arange(6.0), a=values), "Column 'a'", *words)
    if not isinstance(values, pd.Categorical):
        frame = long("s", rows=6)
        frame["target"] = pd.Series(values)
        refused(frame, "Column 'target'", "must be numeric")


def test_an_object_column_of_numbers_is_refused() -> None:
    refused(wide(a=pd.Series([1.0, 2, 3, 4, 5, 6], dtype=object).array), "'a'", "dtype object")


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (wide(0), ("empty", "0 rows")),
        (wide()[[]], ("empty", "0 columns")),
        (long("a").iloc[:0], ("empty", "0 rows")),
        (pd.DataFrame({"a": [1.0, 2.0]}), ("neither known form", "int64", "'a'")),
        (long("a")[["item_id", "target"]], ("neither known form", "item_id", "unique_id")),
        (wide().to_period(), ("neither known form", "period[h]")),
        (long("a").assign(extra=1, more=2), ("not used", "'extra', 'more'", "item_id")),
        (
            altered(wide(), "load", 2, np.inf),
            ("column 'load'", "finite", "inf", "02:00", "1 in all"),
        ),
        (altered(long("a", "b"), "target", 7, -np.inf), ("series 'b'", "-inf", "2024-01-03")),
        (wide(a=[1.0] * 6, b=[np.nan] * 6), ("no observed value", "column 'b'")),
        (long("a", "b").assign(target=[1.0] * 5 + [np.nan] * 5), ("no observed", "series 'b'")),
        (altered(long("a", "b"), "timestamp", 6, pd.NaT), ("'timestamp'", "missing in row 6")),
        (altered(long("a", "b"), "item_id", 6, None), ("'item_id'", "missing in row 6")),
        (long("a").assign(timestamp=range(5)), ("'timestamp'", "numbers (int64", "pd.to_datetime")),
        (
            long("a").assign(timestamp=pd.Series(range(5), dtype=object)),
            ("'timestamp'", "holds numbers (object, first value 0)"),
        ),
        (long("a").assign(timestamp="soon"), ("'timestamp'", "cannot be read as time", "'soon'")),
        (long("a").assign(timestamp="13/01/2024"), ("'13/01/2024'", "dayfirst", "pd.to_datetime")),
        (
            long("a").assign(timestamp=["2024-01-01T00:00+01:00"] * 4 + ["2024-07-01T00:00+02:00"]),
            ("'timestamp'", "cannot be read as time", "pd.to_datetime"),
        ),
        (long("a").assign(timestamp=True), ("'timestamp'", "numbers (bool")),
    ],
)
def test_refusals_name_the_place_the_rule_and_the_value(
    frame: pd.DataFrame, words: tuple[str, ...]
) -> None:
    refused(frame, *words)
    if words[0] == "empty":
        refused(frame, "`history` is empty", argument="history")


def test_missing_stamps_of_a_wide_frame_are_refused() -> None:
    frame = wide()
    frame.index = frame.index.where(np.arange(6) != 4)
    refused(frame, "`X`", "missing in row 4")


def test_columns_of_one_name_are_refused() -> None:
    refused(wide(a=range(6), b=range(6)).set_axis(["a", "a"], axis=1), "more than one", "'a'")
    frame = pd.concat([long("s"), long("s")[["target"]]], axis=1)
    refused(frame, "more than one column named 'target'")


@pytest.mark.parametrize("frame", [None, [1.0], pd.Series([1.0]), np.ones((3, 1))])
def test_what_is_no_frame_is_a_type_error(frame: object) -> None:
    with pytest.raises(TypeError, match=f"`X` must be a pandas DataFrame.*{type(frame).__name__}"):
        read_panel(frame)


def test_duplicates_are_named() -> None:
    frame = pd.concat([wide(), wide().iloc[[2, 2, 4]]])
    refused(frame, "unique", "`X`", "2024-01-01 02:00:00", "3 too many")
    frame = long("a", "b")
    refused(pd.concat([frame, frame.iloc[[8]]]), "unique", "series 'b'", "2024-01-04", "1 too many")
    # The same stamps in two series are no duplicates.
    assert len(read_panel(frame).series) == 2


@pytest.mark.parametrize(
    ("stamps", "words"),
    [
        (
            ("2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 02:00", "2024-01-01 05:00"),
            ("gap", "02:00:00 is followed by 2024-01-01 05:00:00", "03:00:00 was", "asfreq('h')"),
        ),
        (
            ("2024-01-31", "2024-02-29", "2024-03-31", "2024-05-31", "2024-06-30"),
            ("gap", "2024-03-31 00:00:00 is followed by 2024-05-31", "2024-04-30", "'ME'"),
        ),
        (
            ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-03 12:00", "2024-01-04"),
            ("2024-01-03 12:00:00 after 2024-01-03 00:00:00", "before the next", "resample('D')"),
        ),
        (("2024-01-01", "2024-01-02", "2024-01-05"), ("No frequency", "3 rows", "3 regular")),
        (("2024-01-01", "2024-01-02"), ("No frequency", "2 rows")),
        (("2024-01-01",), ("No frequency", "1 rows")),
    ],
)
def test_irregular_stamps_are_refused(stamps: tuple[str, ...], words: tuple[str, ...]) -> None:
    # What comes before shows the frequency.
    freq = "ME" if "'ME'" in words else "D" if "before the next" in words else None
    before = () if freq is None else pd.date_range("2021", "2023-12-31", freq=freq)
    refused(of_stamps(*before, *stamps), "`X`", *words)


def test_a_gap_of_one_series_among_many_is_found() -> None:
    frame = long(*range(40), rows=30, freq="W-WED").drop(index=17 * 30 + 20)
    refused(frame, "series 17", "gap", "2024-05-15 00:00:00 is followed by 2024-05-29", "W-WED")


def test_series_of_another_frequency_is_found() -> None:
    daily, weekly = long("a", rows=30), long("b", rows=12, freq="W-MON")
    refused(pd.concat([daily, weekly]), "series 'b'", "gap", "frequency 'D'")
    hourly = long("b", rows=12, freq="h")
    refused(pd.concat([daily, hourly]), "series 'b'", "before the next step", "frequency 'D'")


def test_series_need_not_begin_together() -> None:
    frame = long("a", "b", rows=10)
    frame = frame.drop(index=[10, 11, 12])
    assert [len(item.index) for item in read_panel(frame).series] == [10, 7]
    # Every second month, one series in the even, one in the odd ones.
    shifted = long("a", "b", rows=10, freq="2MS")
    shifted.loc[10:, "timestamp"] += pd.DateOffset(months=1)
    assert read_panel(shifted).freq == "2MS"


def test_a_known_frequency_serves_series_of_one_and_two_rows() -> None:
    for rows in (1, 2):
        assert len(read_panel(wide(rows), freq="h").series[0].index) == rows
        frame = of_stamps("2024-01-31", "2024-02-29").iloc[:rows]
        assert read_panel(frame, freq="ME").freq == "ME"
    assert read_panel(long("a", "b", rows=1), freq="D").freq == "D"
    refused(of_stamps("2024-01-30"), "2024-01-30", "does not lie on the frequency 'ME'", freq="ME")
    # A short run may fit several frequencies.
    assert read_panel(of_stamps("2024-01-01", "2024-04-01", "2024-07-01"), freq="QS").freq == "QS"


def test_another_frequency_than_the_known_one_is_refused() -> None:
    refused(wide(10), "`X`", "frequency 'h'", "fitted on 'D'", freq="D")
    refused(long("a", rows=10), "series 'a'", "frequency 'D'", "fitted on 'h'", freq="h")


MAKERS: list[Callable[[], pd.DataFrame]] = [
    lambda: wide().iloc[::-1],
    lambda: wide(a=pd.array([1, None, 3, 4, 5, 6], dtype="Int64")),
    lambda: long("b", "a").iloc[::-1],
    lambda: altered(long("b", "a"), "target", 3, np.inf),
    lambda: long("a").assign(timestamp=lambda frame: frame["timestamp"].astype(str)),
]


@pytest.mark.parametrize("make", MAKERS)
def test_the_frame_is_never_changed(make: Callable[[], pd.DataFrame]) -> None:
    frame = make()
    copy, index_name = frame.copy(deep=True), frame.index.name
    freq = getattr(frame.index, "freq", None)
    try:
        panel = read_panel(frame)
    except DataError:
        panel = Panel("wide", (), "h", ())
    for item in panel.series:
        # Nothing that is later done to the series may reach the frame.
        item.values[:] = -1
    pd.testing.assert_frame_equal(frame, copy)
    assert frame.index.name == index_name
    assert getattr(frame.index, "freq", None) == freq


def test_text_stamps_are_read() -> None:
    frame = long("a")
    panel = read_panel(frame.assign(timestamp=frame["timestamp"].astype(str)))
    assert list(panel.series[0].index) == list(frame["timestamp"])


def test_tail_keeps_the_newest_rows() -> None:
    frame = pd.concat([long("a", rows=9), long("b", rows=3)])
    panel = read_panel(frame).tail(4)
    assert [len(item.values) for item in panel.series] == [4, 3]
    np.testing.assert_array_equal(panel.series[0].values[:, 0], [5, 6, 7, 8])
    assert str(panel.series[0].index[0].date()) == "2024-01-06"


def test_message_of_a_wide_column_quotes_its_name() -> None:
    with pytest.raises(DataError, match=re.escape("column ('a', 1)")):
        read_panel(wide(b=[1.0] * 6, a=[np.inf] * 6).set_axis([("b", 0), ("a", 1)], axis=1))


@pytest.mark.parametrize("freq", ["D", "ME"])
def test_many_series_are_checked_at_once(freq: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow check of one series is only for those that look wrong."""
    from mlrforecast.data import frequency

    seen = []
    check = frequency.check_regular
    monkeypatch.setattr(
        frequency, "check_regular", lambda *args: (seen.append(args[2]), check(*args))
    )
    frame = long(*range(300), rows=12, freq=freq)
    assert len(read_panel(frame).series) == 300
    assert seen == []
    with pytest.raises(DataError, match="series 200"):
        read_panel(frame.drop(index=200 * 12 + 5))
    assert seen == ["series 200"]


def test_memory_grows_with_the_rows_by_a_small_factor() -> None:
    rows = 400_000
    frame = wide(rows, "s", a=np.arange(float(rows)), b=np.ones(rows))
    tracemalloc.start()
    try:
        read_panel(frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One copy of the two columns of values, and another copy of one column for the checks.
    assert peak < 2 * frame.to_numpy().nbytes


@pytest.mark.parametrize("size", [1e308, 1.1e300])
def test_values_whose_differences_overflow_are_refused(size: float) -> None:
    sign = np.resize([1.0, -1.0], 6)
    refused(
        wide(a=np.ones(6), b=size * sign), "within -1e+300 and 1e+300", "column 'b'", "6 in all"
    )
    refused(altered(long("u", "v"), "target", 7, -size), "series 'v'", f"{-size}", "2024-01-03")
    assert len(read_panel(wide(b=1e300 * sign)).series) == 1


@pytest.mark.parametrize("item", [["a"], {"a": 1}, np.arange(2)], ids=["list", "dict", "array"])
def test_items_that_cannot_be_hashed_are_refused(item: object) -> None:
    frame = long("u", rows=4)
    frame["item_id"] = pd.Series([item] * 4, dtype=object)
    refused(frame, "Column 'item_id' of `X`", "hashable", ".astype(str)")
