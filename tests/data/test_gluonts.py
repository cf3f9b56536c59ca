"""GluonTS entries as frames, without GluonTS: plain mappings hold all that is read."""

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data import FrameSchema, gluonts_to_long_frame, read_panel
from mlrforecast.data.gluonts import entry_columns, period_of_start, unfold_entries

HOUR = {"item_id": "b", "start": pd.Period("2024-01-31 22:00", "h"), "target": np.arange(3.0)}
OTHER = {"item_id": 7, "start": pd.Period("2024-02-29 23:00", "h"), "target": [None, 5]}
FEATURES = {
    "feat_dynamic_real": [[1, 2, 3, 4], [5, 6, 7, 8]],
    "feat_dynamic_cat": [[0, 1, 1, 0]],
    "past_feat_dynamic_real": [[9, 10, 11]],
    "past_feat_dynamic_cat": [["x", "y", "x"]],
    "feat_static_real": [0.5],
    "feat_static_cat": [3],
}
ALL = FrameSchema(
    past_covariates=("past_feat_dynamic_real_0", "past_feat_dynamic_cat_0"),
    known_covariates=("feat_dynamic_real_0", "feat_dynamic_real_1", "feat_dynamic_cat_0"),
    static_covariates=("feat_static_real_0", "feat_static_cat_0"),
)


def stamps(frame):
    return [str(stamp) for stamp in frame["timestamp"]]


def days(*starts):
    return [f"{start} 00:00:00" for start in starts]


def test_entries_become_a_long_frame_in_their_order():
    frame = gluonts_to_long_frame(iter([HOUR, OTHER]))
    assert list(frame.columns) == ["item_id", "timestamp", "target"]
    assert list(frame["item_id"]) == ["b", "b", "b", "7", "7"]
    assert stamps(frame)[1:4] == [
        "2024-01-31 23:00:00",
        "2024-02-01 00:00:00",
        "2024-02-29 23:00:00",
    ]
    np.testing.assert_array_equal(frame["target"], [0, 1, 2, np.nan, 5])


def test_an_absent_item_has_its_position():
    entries = [{"start": pd.Period("2024", "Y"), "target": [1.0], "item_id": None}] * 2
    assert list(gluonts_to_long_frame(entries)["item_id"]) == ["0", "1"]


@pytest.mark.parametrize(
    ("period", "freq", "expected"),
    [
        ("M", None, ("2024-01-01", "2024-02-01")),
        ("M", "M", ("2024-01-31", "2024-02-29")),
        ("M", "ME", ("2024-01-31", "2024-02-29")),
        ("M", "MS", ("2024-01-01", "2024-02-01")),
        ("Q-DEC", "Q", ("2024-03-31", "2024-06-30")),
        ("Q-OCT", None, ("2023-11-01", "2024-02-01")),
        ("Y-DEC", "Y", ("2024-12-31", "2025-12-31")),
        ("2D", None, ("2024-01-31", "2024-02-02")),
        ("W-SUN", None, ("2024-01-29", "2024-02-05")),
        ("W-SUN", "W", ("2024-02-04", "2024-02-11")),
        ("W-SUN", "W-MON", ("2024-01-29", "2024-02-05")),
    ],
)
def test_periods_are_stamped_as_the_frequency_has_it(period, freq, expected):
    entry = {"start": pd.Period("2024-01-31", period), "target": [1.0, 2.0]}
    assert stamps(gluonts_to_long_frame([entry], freq)) == days(*expected)


@pytest.mark.parametrize(
    ("start", "freq", "expected"),
    [
        ("2024-01-31 22:30", "H", ("2024-01-31 22:30:00", "2024-01-31 23:30:00")),
        (pd.Timestamp("2024-01-31"), "1D", days("2024-01-31", "2024-02-01")),
        (np.datetime64("2024-01-31"), "15T", ("2024-01-31 00:00:00", "2024-01-31 00:15:00")),
        ("2024-01-15", "M", days("2024-01-31", "2024-02-29")),
        ("2024-01-15", "MS", days("2024-01-01", "2024-02-01")),
        ("2024-01-01", "Q", days("2024-03-31", "2024-06-30")),
        ("2024-01-31", "W", days("2024-02-04", "2024-02-11")),
        (4, 3, ("4", "7")),
        (4, None, ("4", "5")),
        (pd.Period("1970-01-05", "D"), 1, ("4", "5")),
    ],
)
def test_starts_that_are_no_periods_are_counted_on_by_the_frequency(start, freq, expected):
    entry = {"start": start, "target": [1.0, 2.0]}
    assert stamps(gluonts_to_long_frame([entry], freq)) == list(expected)


def test_starts_of_different_series_and_lengths_stand_side_by_side():
    entries = [
        {"start": start, "target": [0.0] * length}
        for start, length in (("2024-01-31", 1), ("2024-03-31", 3), ("2023-11-30", 2))
    ]
    assert stamps(gluonts_to_long_frame(entries, "ME")) == days(
        "2024-01-31", "2024-03-31", "2024-04-30", "2024-05-31", "2023-11-30", "2023-12-31"
    )


def test_features_become_columns_that_hold_numbers_or_categories():
    frame = gluonts_to_long_frame([HOUR | FEATURES])
    assert list(frame["feat_dynamic_real_1"]) == [5, 6, 7]
    assert list(frame["feat_static_real_0"]) == [0.5] * 3
    assert list(frame["feat_static_cat_0"]) == [3] * 3
    assert list(frame["past_feat_dynamic_cat_0"]) == ["x", "y", "x"]
    categories = [name for name in frame if isinstance(frame[name].dtype, pd.CategoricalDtype)]
    assert categories == ["past_feat_dynamic_cat_0", "feat_dynamic_cat_0", "feat_static_cat_0"]


def test_every_feature_has_its_role_unless_one_is_named():
    frame, future, schema = unfold_entries([HOUR | FEATURES], FrameSchema(), find_roles=True)
    assert schema == ALL
    assert set(frame.columns) == {
        *("item_id", "timestamp", "target", *ALL.past_covariates),
        *ALL.known_covariates,
        *ALL.static_covariates,
    }
    assert list(future.columns) == ["item_id", "timestamp", *ALL.known_covariates]
    assert future.iloc[0, 2:].tolist() == [4, 8, 0]

    named = FrameSchema(known_covariates=("feat_dynamic_real_1",))
    frame, future, schema = unfold_entries([HOUR | FEATURES], named, find_roles=True)
    assert schema == named
    assert list(frame.columns) == ["item_id", "timestamp", "target", "feat_dynamic_real_1"]
    assert future["feat_dynamic_real_1"].tolist() == [8]


def test_the_future_ends_with_the_shortest_known_feature_of_an_entry():
    longer = HOUR | FEATURES | {"feat_dynamic_cat": [[0, 1, 1, 0, 0, 0]]}
    other = longer | {"item_id": "c", "feat_dynamic_real": np.ones((2, 3))}
    _, future, _ = unfold_entries([longer, other], ALL)
    assert list(future["item_id"]) == ["b"]
    assert future["timestamp"].astype(str).tolist() == ["2024-02-01 01:00"]


def test_a_panel_reads_entries_and_leaves_out_what_the_schema_does_not_name():
    entries = [HOUR | FEATURES, OTHER | FEATURES | {"feat_static_cat": [4]}]
    panel = read_panel(entries, FrameSchema(static_covariates=("feat_static_cat_0",)))
    assert panel.freq == "h"
    assert list(panel.labels) == ["b", "7"]
    assert panel.bounds.tolist() == [0, 3, 5]
    assert panel.static[0].categories == ("3", "4")
    assert panel.known == panel.past == ()
    everything = read_panel(entries, ALL)
    assert everything.known[1].values.tolist() == [5, 6, 7, 5, 6]
    assert everything.past[1].categories == ("x", "y")


def test_names_of_the_schema_are_those_of_the_frame():
    schema = FrameSchema(id_column="shop", timestamp_column="day", target="sold")
    frame, _, _ = unfold_entries([HOUR, OTHER], schema)
    assert list(frame.columns) == ["shop", "day", "sold"]
    assert read_panel([HOUR, OTHER], schema).layout.target_name == "sold"


BOTH = {"item_id": "b", "start": pd.Period("2024-01-01", "D"), "target": [[1, 2], [3, None]]}


def test_one_multivariate_entry_is_a_wide_frame():
    given = BOTH | {"feat_dynamic_real": [[7, 8, 9]], "feat_static_cat": [0]}
    frame, future, schema = unfold_entries([given], FrameSchema(), find_roles=True)
    assert list(frame.columns) == [0, 1, "feat_dynamic_real_0"]
    assert schema == FrameSchema(known_covariates=("feat_dynamic_real_0",))
    assert future.index.astype(str).tolist() == ["2024-01-03"]
    panel = read_panel([given], schema)
    assert panel.layout.form == "wide"
    np.testing.assert_array_equal(panel.values, [[1, 3], [2, np.nan]])
    named = FrameSchema(target=("north", "south"), freq="D")
    assert list(read_panel([given], named).labels) == ["north", "south"]


def test_channels_of_several_entries_are_series_with_the_features_of_their_entry():
    first = BOTH | {"feat_dynamic_real": [[7, 8, 9]], "feat_static_real": [0.5]}
    second = {"start": pd.Period("2024-01-05", "D"), "target": [5, 6, 7]}
    second |= {"feat_dynamic_real": [[1, 2, 3, 4]], "feat_static_real": [0.1]}
    frame, future, _ = unfold_entries([first, second], FrameSchema(), find_roles=True)
    assert list(frame["item_id"]) == ["b.0", "b.0", "b.1", "b.1", "1", "1", "1"]
    np.testing.assert_array_equal(frame["target"], [1, 2, 3, np.nan, 5, 6, 7])
    assert frame["feat_dynamic_real_0"].tolist() == [7, 8, 7, 8, 1, 2, 3]
    assert frame["feat_static_real_0"].tolist() == [0.5] * 4 + [0.1] * 3
    assert list(future["item_id"]) == ["b.0", "b.1", "1"]
    assert future["feat_dynamic_real_0"].tolist() == [9, 9, 4]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([HOUR, HOUR], "item_id 'b' occurs twice, again at entry 1"),
        ([{"item_id": "c", "target": [1.0]}], r"entry 0 \(item_id 'c'\) lacks start"),
        ([HOUR, {"start": pd.Period("2024", "h")}], r"entry 1 \(item_id '1'\) lacks target"),
        ([HOUR, 5], "entry 1 must be a mapping with start and target, got int"),
        ([HOUR | {"target": np.ones((2, 3, 1))}], r"'b' must have the shape .*\(2, 3, 1\)"),
        ([HOUR | {"target": []}], r"'b' must have the shape .* at least one value, got \(0,\)"),
        ([HOUR | {"target": ["one"]}], "target of item_id 'b' must hold numbers"),
        ([HOUR, OTHER | FEATURES], "same features, but item_id '7' has past_.* and 'b' has none"),
        (
            [HOUR | FEATURES, OTHER | FEATURES | {"feat_static_cat": [1, 2]}],
            "feat_static_cat of item_id '7' has 2 rows, and that of 'b' has 1",
        ),
        (
            [HOUR | {"feat_dynamic_real": [[1, 2]]}],
            "feat_dynamic_real of item_id 'b' has 2 values, but its target has 3",
        ),
        ([HOUR | {"feat_static_cat": [1.5]}], "feat_static_cat_0 must hold whole numbers.* 1.5"),
        ([HOUR | {"feat_static_cat": [[1]]}], r"feat_static_cat of item_id 'b' .*\(K,\), got"),
        (
            [HOUR, OTHER | {"start": pd.Period("2024", "D")}],
            "one frequency, but start of item_id 'b' has 'h' and that of '7' has 'D'",
        ),
        ([HOUR, OTHER | {"start": "2024"}], "one kind, but start of item_id 'b' is Period"),
        ([HOUR | {"start": "2024-01-01"}], "start of item_id 'b' is '2024-01-01'.* Pass freq"),
    ],
)
def test_entries_that_break_a_rule_are_named(entries, message):
    with pytest.raises(DataError, match=message):
        gluonts_to_long_frame(entries)


def test_no_entries_are_no_frame():
    with pytest.raises(DataError, match="at least one series, got none"):
        gluonts_to_long_frame([])


def test_an_integer_start_needs_an_integer_frequency():
    with pytest.raises(DataError, match="start of item_id '0' is the integer 4, but freq='h'"):
        gluonts_to_long_frame([{"start": 4, "target": [1]}], "h")


class Bundle:
    """What looks like GluonTS's pairs of inputs and labels."""

    input, label = (), ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "got list"),
        ([1.0, 2.0], "entries of GluonTS, got list"),
        (HOUR, "got dict"),
        (Bundle(), r"got Bundle. Pass its \.input"),
    ],
)
def test_what_yields_no_entries_is_no_frame(given, message):
    with pytest.raises(TypeError, match=message):
        read_panel(given)


def test_entries_that_can_be_read_once_are_read_whole():
    assert len(read_panel(iter([HOUR, OTHER]))) == 2


def test_periods_of_business_days_bring_no_warning_of_their_own():
    start = period_of_start("2024-01-05", "B")
    assert start.freqstr == "B"
    frame = gluonts_to_long_frame([{"start": start, "target": [1, 2, 3]}])
    assert stamps(frame) == days("2024-01-05", "2024-01-08", "2024-01-09")


def test_columns_of_features_are_counted_by_kind():
    assert entry_columns("static", [True, False, True]) == [
        *("feat_static_cat_0", "feat_static_real_0", "feat_static_cat_1"),
    ]


@pytest.mark.parametrize(
    ("start", "freq", "expected"),
    [
        (pd.Period("2024-01", "M"), "h", pd.Period("2024-01", "M")),
        (pd.Timestamp("2024-03-31"), "QE-DEC", pd.Period("2024Q1", "Q-DEC")),
        ("2024-01-01", "W-MON", pd.Period("2024-01-01", "W-SUN")),
        (np.int64(3), 2, pd.Period("1970-01-04", "2D")),
    ],
)
def test_starts_become_periods(start, freq, expected):
    found = period_of_start(start, freq)
    assert (found, found.freqstr) == (expected, expected.freqstr)


def test_a_frequency_without_periods_is_refused():
    with pytest.raises(ValueError, match="pandas has none of freq='BME'"):
        period_of_start("2024-01-31", "BME")


def test_static_categories_may_be_text() -> None:
    entries = [
        {"item_id": item, "start": pd.Period("2024", "D"), "target": [1, 2], "feat_static_cat": [c]}
        for item, c in (("a", "red"), ("b", "blue"))
    ]
    frame = gluonts_to_long_frame(entries)
    assert frame["feat_static_cat_0"].tolist() == ["red", "red", "blue", "blue"]
