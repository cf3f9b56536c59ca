"""Reading frames: values, items and order; what is refused and how it is told."""

import contextlib
import copy
import re
import tracemalloc
import warnings
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data import FrameSchema, read_panel
from tests.data.frames import altered, long, of_stamps, refused, wide


def test_wide_values_and_names_are_those_of_the_frame() -> None:
    frame = wide(a=[1.0, 2, 3, 4, 5, 6], b=[6, 5, 4, 3, 2, 1])
    panel = read_panel(frame)
    assert (panel.layout.form, panel.layout.native, panel.layout.indexed) == (
        "wide",
        "pandas",
        True,
    )
    assert (list(panel.labels), panel.freq, len(panel)) == (["a", "b"], "h", 1)
    assert panel.values.dtype == np.float64
    np.testing.assert_array_equal(panel.values, [[1, 6], [2, 5], [3, 4], [4, 3], [5, 2], [6, 1]])
    pd.testing.assert_index_equal(panel.index, frame.index)
    np.testing.assert_array_equal(panel.bounds, [0, 6])


@pytest.mark.parametrize("item", ["item_id", "unique_id"])
@pytest.mark.parametrize("time", ["timestamp", "ds"])
@pytest.mark.parametrize("target", ["target", "y"])
def test_long_series_come_in_order_of_appearance(item: str, time: str, target: str) -> None:
    frame = long("z", "a", "m").iloc[[4, 7, 0, 12, 1, 2, 3, 5, 6, 8, 9, 10, 11, 13, 14]]
    panel = read_panel(frame.set_axis([item, time, target], axis=1)[[target, item, time]])
    layout = panel.layout
    assert (layout.form, layout.indexed, panel.freq) == ("long", False, "D")
    assert (layout.id_name, layout.time_name, layout.target_name) == (item, time, target)
    assert list(panel.labels) == ["z", "a", "m"]
    for number, series in enumerate(panel):
        np.testing.assert_array_equal(series.values[:, 0], 100 * number + np.arange(5))
        assert list(series.index) == list(pd.date_range("2024-01-01", periods=5))


@pytest.mark.parametrize(
    ("items", "dtype"),
    [
        (("b", "a"), object),
        (("b", "a"), "str"),
        (("b", "a"), "string"),
        (("b", "a"), "category"),
        (("000858", "00858"), object),
        (("000858", "00858"), "category"),
        ((7, 3), "int64"),
        ((7, 3), "uint8"),
        ((7, 3), "Int64"),
        ((7, 3), "category"),
        ((7, "3"), object),
        ((0.5, 0.25), "float64"),
        ((True, False), "bool"),
        ((("a", 1), ("a", 2)), object),
        ((pd.Timestamp("2024"), pd.Timestamp("2023")), "datetime64[ns]"),
    ],
)
def test_ids_of_any_dtype_come_back_unchanged(items: tuple[object, ...], dtype: str) -> None:
    frame = pd.concat([long(0), long(1)], ignore_index=True)
    frame["item_id"] = pd.Series([items[0]] * 5 + [items[1]] * 5, dtype=dtype)
    panel = read_panel(frame.iloc[[0, 5, 1, 6, 2, 7, 3, 8, 4, 9]])
    assert panel.labels.tolist() == list(items)
    assert panel.labels.dtype == frame["item_id"].dtype
    np.testing.assert_array_equal(panel.series(1).values[:, 0], np.arange(5))
    assert panel.owner(0) == f"series {items[0]!r}"


def test_categories_that_no_row_has_are_no_series() -> None:
    frame = long("b", "a")
    frame["item_id"] = pd.Categorical(frame["item_id"], categories=["x", "a", "b", "y"])
    panel = read_panel(frame)
    assert panel.labels.tolist() == ["b", "a"]
    assert list(panel.labels.categories) == ["x", "a", "b", "y"]


def test_rows_in_any_order_are_sorted() -> None:
    frame = wide(50, "D", a=np.arange(50.0), b=-np.arange(50.0))
    shuffled = frame.iloc[np.random.default_rng(0).permutation(50)]
    np.testing.assert_array_equal(read_panel(shuffled).values, frame.to_numpy())
    assert read_panel(frame.iloc[::-1]).freq == "D"
    # A slice of a reversed frame carries the frequency -1h.
    assert len(read_panel(wide().iloc[::-1].iloc[:1], freq="h").index) == 1


@pytest.mark.parametrize("seed", range(3))
def test_covariates_move_with_their_rows(seed: int) -> None:
    frame = long("a", "b", "c", rows=20)
    frame["number"] = frame["target"] * 2
    frame["kind"] = np.where(frame["target"] % 2 == 0, "even", "odd")
    frame["group"] = frame["item_id"].str.upper()
    schema = FrameSchema(
        past_covariates=("number",), known_covariates=("kind",), static_covariates=("group",)
    )
    panel = read_panel(frame.sample(frac=1, random_state=seed), schema)
    values = panel.values[:, 0]
    np.testing.assert_array_equal(panel.past[0].values, values * 2)
    assert panel.known[0].categories == ("even", "odd")
    np.testing.assert_array_equal(panel.known[0].values, values % 2)
    (group,) = panel.static
    assert [group.categories[code] for code in group.values] == [
        label.upper() for label in panel.labels
    ]


@pytest.mark.parametrize(
    "values",
    [
        pd.array([1, None, 3, 4], dtype="Int64"),
        pd.array([1.0, None, 3.0, 4.0], dtype="Float64"),
        np.array([1, np.nan, 3, 4], dtype=np.float32),
        np.array([1, np.nan, 3, 4], dtype=np.float16),
        np.array([1, np.nan, 3, 4], dtype=np.longdouble),
        pd.arrays.SparseArray([1, np.nan, 3, 4]),
    ],
    ids=["Int64", "Float64", "float32", "float16", "longdouble", "sparse"],
)
def test_missing_values_of_any_numeric_dtype_become_nan(values: object) -> None:
    panel = read_panel(wide(4, a=values, b=np.arange(4, dtype=np.uint8)))
    np.testing.assert_array_equal(panel.values, [[1, 0], [np.nan, 1], [3, 2], [4, 3]])


@pytest.mark.parametrize("kind", ["int64", "uint8", "float", "double"])
def test_missing_values_of_pyarrow_dtypes_become_nan(kind: str) -> None:
    pytest.importorskip("pyarrow")
    frame = wide(4, a=pd.array([1, None, 3, 4], dtype=f"{kind}[pyarrow]"))
    np.testing.assert_array_equal(read_panel(frame).values[:, 0], [1, np.nan, 3, 4])


def test_large_integers_and_constants_are_accepted() -> None:
    assert (read_panel(wide(a=[0.1] * 6)).values == 0.1).all()
    assert (read_panel(wide(a=[2**62 + 1] * 6)).values == float(2**62)).all()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (list("abcdef"), ("Column 'a'", "must be numeric", "'a'")),
        ([Decimal(1)] * 6, ("object", "Decimal('1')", "pd.to_numeric")),
        ([True, False] * 3, ("got dtype bool", "first value", ".astype(float)")),
        (pd.array([True, None] * 3, dtype="boolean"), ("got dtype boolean",)),
        (np.arange(6) * 1j, ("got dtype complex128",)),
        (pd.Categorical(list("aabbcc")), ("got dtype category",)),
        (pd.Categorical([1, 1, 2, 2, 3, 3]), ("got dtype category",)),
        (pd.timedelta_range("1h", periods=6), ("got dtype timedelta64",)),
        (pd.date_range("2024", periods=6), ("got dtype datetime64",)),
        (pd.period_range("2024", periods=6, freq="D"), ("got dtype period",)),
        (pd.Series([1.0, 2, 3, 4, 5, 6], dtype=object).array, ("dtype object",)),
    ],
)
def test_targets_that_hold_no_numbers_are_refused(values: object, words: tuple[str, ...]) -> None:
    refused(wide(ok=np.arange(6.0), a=values), "Column 'a'", *words)
    frame = long("s", rows=6)
    frame["target"] = values
    refused(frame, "Column 'target'", "must be numeric")
    refused(wide(ok=np.arange(6.0), a=values), "Column 'a'", "must be numeric", target=("a",))


def test_decimals_of_pyarrow_are_refused_as_well() -> None:
    pa = pytest.importorskip("pyarrow")
    values = pd.array([Decimal(1)] * 6, dtype=pd.ArrowDtype(pa.decimal128(5, 2)))
    refused(wide(a=values), "Column 'a'", "must be numeric", "decimal128")


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (wide(0), ("empty", "0 rows")),
        (wide()[[]], ("empty", "0 columns")),
        (long("a").iloc[:0], ("empty", "0 rows")),
        (
            altered(wide(), "load", 2, np.inf),
            ("column 'load'", "finite", "inf", "02:00", "1 in all"),
        ),
        (altered(long("a", "b"), "target", 7, -np.inf), ("series 'b'", "-inf", "2024-01-03")),
        (wide(a=[1.0] * 6, b=[np.nan] * 6), ("no observed value", "column 'b'")),
        (long("a", "b").assign(target=[1.0] * 5 + [np.nan] * 5), ("no observed", "series 'b'")),
        (altered(long("a", "b"), "timestamp", 6, pd.NaT), ("'timestamp'", "missing", "row 6")),
        (altered(long("a", "b"), "item_id", 6, None), ("'item_id'", "missing in row 6")),
        (
            long("a").assign(timestamp=pd.Series(range(5), dtype=object)),
            ("'timestamp'", "holds numbers (object, first value 0)"),
        ),
        (
            long("a").assign(timestamp=np.arange(5.0)),
            ("'timestamp'", "holds numbers (float64, first value 0.0)"),
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
    refused(frame, "`X`", "row 4", "missing")


def test_columns_of_one_name_are_refused() -> None:
    refused(wide(a=range(6), b=range(6)).set_axis(["a", "a"], axis=1), "more than one", "'a'")
    frame = pd.concat([long("s"), long("s")[["target"]]], axis=1)
    refused(frame, "more than one column named 'target'")


def test_duplicates_are_named() -> None:
    frame = pd.concat([wide(), wide().iloc[[2, 2, 4]]])
    refused(frame, "`X`", "2024-01-01 02:00:00")
    frame = long("a", "b")
    refused(pd.concat([frame, frame.iloc[[8]]]), "series 'b'", "2024-01-04")
    # The same stamps in two series are no duplicates.
    assert len(read_panel(frame)) == 2


def test_a_gap_of_one_series_among_many_is_found() -> None:
    frame = long(*range(40), rows=30, freq="W-WED").drop(index=17 * 30 + 20)
    refused(frame, "series 17", "gap", "2024-05-15")


def test_series_of_another_frequency_is_found() -> None:
    daily, weekly = long("a", rows=30), long("b", rows=12, freq="W-MON")
    refused(pd.concat([daily, weekly]), "series 'b'", "gap", "'D'")
    hourly = long("b", rows=12, freq="h")
    refused(pd.concat([daily, hourly]), "series 'b'", "'D'")


def test_series_need_not_begin_together() -> None:
    frame = long("a", "b", rows=10)
    np.testing.assert_array_equal(read_panel(frame.drop(index=[10, 11, 12])).lengths, [10, 7])
    # Every second month, one series in the even, one in the odd ones.
    shifted = long("a", "b", rows=10, freq="2MS")
    shifted.loc[10:, "timestamp"] += pd.DateOffset(months=1)
    assert read_panel(shifted).freq == "2MS"


def test_a_known_frequency_serves_series_of_one_and_two_rows() -> None:
    for rows in (1, 2):
        assert len(read_panel(wide(rows), freq="h").index) == rows
        assert read_panel(wide(rows), FrameSchema(freq="h")).freq == "h"
        frame = of_stamps("2024-01-31", "2024-02-29").iloc[:rows]
        assert read_panel(frame, freq="ME").freq == "ME"
    assert read_panel(long("a", "b", rows=1), freq="D").freq == "D"
    refused(of_stamps("2024-01-30"), "2024-01-30", "'ME'", freq="ME")
    # A short run may fit several frequencies.
    assert read_panel(of_stamps("2024-01-01", "2024-04-01", "2024-07-01"), freq="QS").freq == "QS"


def test_another_frequency_than_the_known_one_is_refused() -> None:
    refused(wide(10), "`X`", "'h'", "'D'", freq="D")
    refused(long("a", rows=10), "series 'a'", "'D'", "'h'", freq="h")


def with_flags(frame: pd.DataFrame) -> pd.DataFrame:
    frame.attrs["source"] = "meter"
    frame.flags.allows_duplicate_labels = False
    return frame


MAKERS: list[Callable[[], pd.DataFrame]] = [
    wide,
    lambda: wide(a=np.arange(6.0), b=np.arange(6)),
    lambda: wide().iloc[::-1],
    lambda: wide(a=pd.array([1, None, 3, 4, 5, 6], dtype="Int64")),
    lambda: wide().rename_axis("when"),
    lambda: with_flags(wide(a=np.arange(6.0), n=np.ones(6))),
    lambda: with_flags(long("b", "a").iloc[::-1]),
    lambda: long("b", "a").assign(n=1.0),
    lambda: long("b", "a").astype({"item_id": "category"}),
    lambda: altered(long("b", "a"), "target", 3, np.inf),
    lambda: long("a").assign(timestamp=lambda frame: frame["timestamp"].astype(str)),
    lambda: long("a", "b").set_index(["item_id", "timestamp"]),
    lambda: wide().to_period("h"),
    lambda: wide().reset_index(drop=True),
]


@pytest.mark.parametrize("make", MAKERS)
def test_the_frame_is_never_changed_and_never_shared(make: Callable[[], pd.DataFrame]) -> None:
    frame = make()
    schema = FrameSchema(known_covariates=("n",) if "n" in frame else ())
    before = frame.copy(deep=True)
    attrs, names = copy.deepcopy(frame.attrs), list(frame.index.names)
    unique, freq = frame.flags.allows_duplicate_labels, getattr(frame.index, "freq", None)
    try:
        panel = read_panel(frame, schema)
    except DataError:
        pass
    else:
        # Nothing that is later done to the panel may reach the frame.
        panel.values[:] = -1
        for covariate in panel.known:
            covariate.values[:] = -1
        panel.index.name = "other"
        panel.labels.name = "other"
    pd.testing.assert_frame_equal(frame, before, check_freq=True)
    assert (frame.attrs, list(frame.index.names)) == (attrs, names)
    assert frame.columns.name == before.columns.name
    assert frame.flags.allows_duplicate_labels == unique
    assert getattr(frame.index, "freq", None) == freq


@pytest.mark.parametrize("make", MAKERS)
def test_nothing_is_warned_of(make: Callable[[], pd.DataFrame]) -> None:
    frame = make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.suppress(DataError):
            read_panel(frame, FrameSchema(known_covariates=("n",) if "n" in frame else ()))
    assert caught == []


def test_message_of_a_wide_column_quotes_its_name() -> None:
    with pytest.raises(DataError, match=re.escape("column ('a', 1)")):
        read_panel(wide(b=[1.0] * 6, a=[np.inf] * 6).set_axis([("b", 0), ("a", 1)], axis=1))


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
    assert len(read_panel(wide(b=1e300 * sign))) == 1
    frame = wide(a=np.ones(6), n=size * sign)
    refused(frame, "within -1e+300", "column 'n'", known_covariates=("n",))


@pytest.mark.parametrize("item", [["a"], {"a": 1}, np.arange(2)], ids=["list", "dict", "array"])
def test_items_that_cannot_be_hashed_are_refused(item: object) -> None:
    frame = long("u", rows=4)
    frame["item_id"] = pd.Series([item] * 4, dtype=object)
    refused(frame, "Column 'item_id' of `X`", "hashable", ".astype(str)")


@pytest.mark.parametrize("other", [True, 1.0])
def test_items_that_python_holds_to_be_equal_are_not_joined(other: object) -> None:
    frame = long("a", "b", rows=5)
    frame["item_id"] = pd.Series([1] * 5 + [other] * 5, dtype=object)
    refused(frame, "count as one item", repr(other))


def test_an_infinite_static_covariate_is_refused() -> None:
    frame = long("a", "b").assign(size=np.inf)
    refused(frame, "'size'", "inf", static_covariates=("size",))
