"""Gaps, irregular stamps and frequencies, as far as reading hands them on."""

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data import FrameSchema, read_panel
from tests.data.frames import long, refused, wide


def test_absent_rows_become_missing_where_that_is_asked_for() -> None:
    frame = long("a", "b", rows=8).assign(n=1.0, kind="x", group="g").drop(index=[3, 12, 13])
    refused(frame, "series 'a'", "2024-01-03", "fill=", target="target")
    schema = FrameSchema(
        past_covariates=("n",),
        known_covariates=("kind",),
        static_covariates=("group",),
        fill="missing",
    )
    panel = read_panel(frame.sample(frac=1, random_state=0).sort_values("item_id"), schema)
    np.testing.assert_array_equal(panel.lengths, [8, 8])
    a, b = np.arange(8.0), 100 + np.arange(8.0)
    a[3], b[[4, 5]] = np.nan, np.nan
    np.testing.assert_array_equal(panel.values[:, 0], [*a, *b])
    missing = np.isnan(panel.values[:, 0])
    np.testing.assert_array_equal(np.isnan(panel.past[0].values), missing)
    np.testing.assert_array_equal(panel.known[0].values == -1, missing)
    assert panel.known[0].values.dtype == np.dtype("int64")
    assert len(panel.static[0].values) == 2
    zero = read_panel(frame, FrameSchema(target="target", fill="zero"))
    np.testing.assert_array_equal(zero.values[:, 0], np.nan_to_num(panel.values[:, 0]))


def test_irregular_stamps_are_brought_onto_a_frequency_where_that_is_asked_for() -> None:
    clock = ["00:00", "00:20", "00:50", "01:10", "02:05", "02:05", "03:00"]
    stamps = pd.to_datetime([f"2024-01-01 {time}" for time in clock])
    frame = pd.DataFrame({"load": [1.0, 2, 3, 10, 5, 7, 4]}, index=stamps)
    panel = read_panel(frame, FrameSchema(resample="mean", freq="h"))
    np.testing.assert_array_equal(panel.values[:, 0], [2, 10, 6, 4])
    assert panel.freq == "h"
    total = read_panel(frame, FrameSchema(resample="sum"), freq="h")
    np.testing.assert_array_equal(total.values[:, 0], [6, 10, 12, 4])
    free = read_panel(frame, FrameSchema(resample="mean"))
    assert isinstance(free.freq, str)
    assert len(free.index) >= 4


def test_a_sum_beyond_the_largest_value_is_refused() -> None:
    frame = wide(4, "30min", load=[9e299, 9e299, 1, 1])
    refused(frame, "within -1e+300", "column 'load'", freq="h", resample="sum")


@pytest.mark.parametrize(("written", "read"), [("H", "h"), ("60min", "h"), ("h", "h")])
def test_a_frequency_may_be_written_in_old_ways(written: str, read: str) -> None:
    panel = read_panel(wide(2), FrameSchema(freq=written))
    assert pd.tseries.frequencies.to_offset(panel.freq) == pd.tseries.frequencies.to_offset(read)
    with pytest.raises(ValueError, match="`freq`"):
        read_panel(wide(), FrameSchema(freq="often"))


def test_the_fitted_frequency_comes_before_that_of_the_schema() -> None:
    frame = wide(5, "2h")
    assert read_panel(frame, FrameSchema(freq="h", fill="missing"), freq="2h").freq == "2h"
    filled = read_panel(frame, FrameSchema(fill="missing"), freq="h")
    np.testing.assert_array_equal(np.isnan(filled.values[:, 0]), [False, True] * 4 + [False])


def test_time_and_frequency_are_of_one_kind() -> None:
    refused(wide(), "integer", freq=2)
    refused(wide().reset_index(drop=True), "'h'", freq="h")
    counted = read_panel(wide().reset_index(drop=True), FrameSchema(freq=1))
    assert counted.freq == 1


def test_one_row_of_integer_time_says_that_a_frequency_is_missing() -> None:
    refused(np.ones(1), "`X`", "frequency")
    assert read_panel(np.ones(1), freq=1).freq == 1


def test_gaps_of_integer_time_are_named() -> None:
    frame = pd.DataFrame({"a": np.arange(5.0)}, index=[0, 1, 2, 4, 5])
    refused(frame, "gap", "2 is followed by 4")
    panel = read_panel(frame, FrameSchema(fill="missing"))
    np.testing.assert_array_equal(panel.values[:, 0], [0, 1, 2, np.nan, 3, 4])


def test_a_panel_without_its_items_is_not_told_to_join_its_series() -> None:
    frame = long("a", "b").rename(columns={"item_id": "shop"})
    refused(frame, "id_column=", target="target")
    doubled = pd.concat([wide(9), wide(9).iloc[-1:]])
    with pytest.raises(DataError) as caught:
        read_panel(doubled)
    assert "id_column" not in str(caught.value)


def test_integers_that_are_dates_are_no_count() -> None:
    days = pd.date_range("2024-01-20", periods=60).strftime("%Y%m%d").astype(int)
    frame = pd.DataFrame({"ds": days, "y": np.arange(60.0)})
    refused(frame, "20240120", "%Y%m%d")
    counted = read_panel(pd.DataFrame({"ds": 20_000_100 + np.arange(60), "y": np.arange(60.0)}))
    assert counted.freq == 1


def test_a_column_that_counts_the_years_is_no_target() -> None:
    frame = pd.DataFrame({"year": range(1950, 1990), "gdp": np.ones(40)})
    refused(frame, "'year'", "timestamp_column=")
    assert list(read_panel(frame, FrameSchema(target=("year",))).labels) == ["year"]
    panel = read_panel(frame, FrameSchema(timestamp_column="year"))
    assert (panel.freq, list(panel.labels), panel.index[0]) == (1, ["gdp"], 1950)
    frame["year"] = [*range(39), 50]
    assert list(read_panel(frame).labels) == ["year", "gdp"]
