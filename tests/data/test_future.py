"""The steps to be forecast: their stamps, the known covariates, and what is said to be missing."""

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlrforecast._core.errors import DataError
from mlrforecast.data import FrameSchema, Panel, extend_panel, read_panel

ROWS, STEPS = 8, 3
KNOWN = FrameSchema(known_covariates=("wind", "holiday"))


def wide(rows: int = ROWS + STEPS, start: str = "2024-01-01", **options: Any) -> pd.DataFrame:
    index = pd.date_range(start, periods=rows, **{"freq": "h"} | options)
    numbers = np.arange(float(rows))
    names = np.where(np.arange(rows) % 3 == 0, "yes", "no")
    return pd.DataFrame({"load": numbers, "wind": 100 + numbers, "holiday": names}, index=index)


def long(items: tuple[Hashable, ...] = ("b", "a"), lengths: tuple[int, ...] = (5, 8)) -> Any:
    """The history and what follows, for series of different ends."""
    wholes = [
        wide(length + STEPS, freq="D")
        .rename(columns={"load": "target"})
        .rename_axis("timestamp")
        .reset_index()
        .assign(item_id=pd.Series([item] * (length + STEPS), dtype=object))
        .assign(wind=lambda frame, number=number: frame["wind"] + 1000 * number)
        for number, (item, length) in enumerate(zip(items, lengths, strict=True))
    ]
    history = pd.concat([whole[:-STEPS] for whole in wholes], ignore_index=True)
    future = pd.concat([whole[-STEPS:] for whole in wholes], ignore_index=True)
    return history.infer_objects(), future.infer_objects()


def extended(frame: object, future: object = None, schema: FrameSchema = KNOWN) -> Panel:
    return extend_panel(read_panel(frame, schema), schema, STEPS, future)


def texts(panel: Panel, number: int) -> list[str | None]:
    covariate = panel.known[number]
    assert covariate.categories is not None
    return [None if code < 0 else covariate.categories[code] for code in covariate.values]


def refused(frame: object, future: object, *words: str, schema: FrameSchema = KNOWN) -> None:
    with pytest.raises(DataError) as caught:
        extended(frame, future, schema)
    for word in words:
        assert word in str(caught.value)


class TestStamps:
    @pytest.mark.parametrize(
        "options",
        [
            {"freq": "h"},
            {"freq": "15min", "tz": "Europe/Paris", "start": "2024-03-30 23:00"},
            {"freq": "D", "tz": "America/New_York", "start": "2024-10-30"},
            {"freq": "W-WED"},
            {"freq": "ME", "unit": "s"},
            {"freq": "2B"},
        ],
        ids=lambda options: options["freq"],
    )
    def test_time_goes_on(self, options: dict[str, Any]) -> None:
        frame = wide(12, **options)[["load"]]
        result = extended(frame[:9], schema=FrameSchema())
        assert result.index.equals(frame.index)
        assert result.index.dtype == frame.index.dtype
        assert result.bounds.tolist() == [0, 12]
        assert result.values[:9, 0].tolist() == frame["load"][:9].tolist()
        assert np.isnan(result.values[9:]).all()

    def test_integers_go_on(self) -> None:
        frame = wide()[["load"]].set_index(pd.Index(np.arange(7, 7 + 5 * (ROWS + STEPS), 5)))
        result = extended(frame[:ROWS], schema=FrameSchema())
        assert result.index.tolist() == frame.index.tolist()

    def test_each_series_goes_on_from_its_own_end(self) -> None:
        history, future = long()
        panel = read_panel(history, KNOWN)
        result = extend_panel(panel, KNOWN, STEPS, future)
        assert result.bounds.tolist() == [0, 8, 19]
        for item, (before, after) in enumerate(zip(panel, result, strict=True)):
            assert after.index[:-STEPS].equals(before.index)
            assert after.values[:-STEPS].tolist() == before.values.tolist()
            assert np.isnan(after.values[-STEPS:]).all()
            stamps = future["timestamp"][future["item_id"] == panel.labels[item]]
            assert after.index[-STEPS:].tolist() == stamps.tolist()

    def test_the_panel_is_left_alone(self) -> None:
        panel = read_panel(wide()[:ROWS], KNOWN)
        before = panel.values.copy(), panel.known[0].values.copy(), panel.index
        extend_panel(panel, KNOWN, STEPS, wide())
        assert np.array_equal(panel.values, before[0])
        assert np.array_equal(panel.known[0].values, before[1])
        assert panel.index is before[2]


class TestKnownCovariates:
    def test_values_stand_at_their_own_stamps(self) -> None:
        frame = wide()
        result = extended(frame[:ROWS], frame[ROWS:])
        assert result.known[0].values.tolist() == frame["wind"].tolist()
        assert texts(result, 1) == frame["holiday"].tolist()

    def test_past_covariates_are_missing_and_static_ones_stay(self) -> None:
        history, future = long()
        history = history.assign(sun=1.5, sky="blue", size=history["item_id"].map({"a": 1, "b": 2}))
        schema = FrameSchema(
            past_covariates=("sun", "sky"),
            known_covariates=("wind", "holiday"),
            static_covariates=("size",),
        )
        result = extended(history, future, schema)
        later = np.isnan(result.values[:, 0])
        assert later.sum() == 2 * STEPS
        assert np.array_equal(np.isnan(result.past[0].values), later)
        assert np.array_equal(result.past[1].values, np.where(later, -1, 0))
        assert result.static[0].values.tolist() == [2, 1]

    @pytest.mark.parametrize(
        "change",
        [
            lambda f: f.iloc[::-1],
            lambda f: f.drop(columns="target"),
            lambda f: f.assign(note="x", again=f["timestamp"]),
            lambda f: pd.concat([f, f.assign(item_id="other")]),
            lambda f: pd.concat([f, f.assign(timestamp=f["timestamp"] + pd.Timedelta("100D"))]),
            lambda f: f.astype({"item_id": pd.CategoricalDtype(["c", "a", "b"])}),
            lambda f: f.assign(timestamp=f["timestamp"].astype("M8[s]")),
            lambda f: f.assign(timestamp=f["timestamp"].dt.strftime("%Y-%m-%d")),
            lambda f: f.drop(columns="target").set_index(["item_id", "timestamp"]),
            lambda f: pl.from_pandas(f.astype({"item_id": str})),
        ],
        ids=[
            *["other order", "no target", "more columns", "more items", "more rows", "categories"],
            *["other unit", "text", "multi index", "polars"],
        ],
    )
    def test_only_what_is_needed_counts(self, change: Callable[[pd.DataFrame], Any]) -> None:
        history, future = long()
        schema = FrameSchema(
            target="target", timestamp_column="timestamp", known_covariates=("wind", "holiday")
        )
        expected = extended(history, future, schema)
        result = extended(history, change(future), schema)
        assert result.known[0].values.tolist() == expected.known[0].values.tolist()
        assert texts(result, 1) == texts(expected, 1)

    def test_new_categories_come_after_the_known_ones(self) -> None:
        frame = wide()
        frame.loc[frame.index[-1], "holiday"] = "a strike"
        panel = read_panel(frame[:ROWS], KNOWN)
        result = extend_panel(panel, KNOWN, STEPS, frame)
        assert result.known[1].categories == ("no", "yes", "a strike")
        assert result.known[1].values[:ROWS].tolist() == panel.known[1].values.tolist()
        assert texts(result, 1) == frame["holiday"].tolist()

    @pytest.mark.parametrize(
        "items",
        [(3, 1), ("000858", "858"), (("x", 1), ("x", 2)), (2.5, 1.5), (pd.Timestamp("2024"), "x")],
        ids=["int", "digits", "tuples", "float", "mixed"],
    )
    def test_items_of_any_kind(self, items: tuple[Hashable, ...]) -> None:
        history, future = long(items)
        result = extended(history, future.iloc[::-1])
        assert result.labels.tolist() == list(items)
        ahead = np.isnan(result.values[:, 0])
        assert result.known[0].values[ahead].tolist() == future["wind"].tolist()

    def test_another_zone_is_the_same_time(self) -> None:
        frame = wide(tz="Europe/Paris", start="2024-10-26 20:00")
        moved = frame.tz_convert("Asia/Tokyo")
        result = extended(frame[:ROWS], moved[ROWS:])
        assert result.known[0].values.tolist() == frame["wind"].tolist()
        assert str(result.index.tz) == "Europe/Paris"

    def test_a_stamp_within_a_step_is_another_one(self) -> None:
        frame = wide(freq="D", unit="s")
        moved = frame.set_index(frame.index.as_unit("ns") + pd.Timedelta("1ns"))
        refused(frame[:ROWS], moved, "lacks 3 of the 3 rows")

    def test_stamps_far_away_do_not_overflow(self) -> None:
        frame = wide(unit="ns")
        far = frame.copy()
        far.index = (
            far.index.as_unit("s")
            .to_series()
            .replace({far.index.as_unit("s")[0]: pd.Timestamp("5000-01-01")})
            .array
        )
        result = extended(frame[:ROWS], far)
        assert result.known[0].values.tolist() == frame["wind"].tolist()

    @pytest.mark.parametrize("library", [np.asarray, lambda f: pl.DataFrame(f.to_numpy())])
    def test_rows_without_an_index_follow_the_history(self, library: Callable[..., Any]) -> None:
        frame = wide()[["load", "wind"]]
        given = library(frame[:ROWS])
        name = 1 if isinstance(given, np.ndarray) else "column_1"
        target = 0 if isinstance(given, np.ndarray) else "column_0"
        schema = FrameSchema(target=target, known_covariates=(name,))
        # A model keeps the newest rows of a longer history.
        panel = read_panel(given, schema).tail(5)
        result = extend_panel(panel, schema, STEPS, library(frame[ROWS:]))
        assert result.known[0].values.tolist() == frame["wind"][3:].tolist()
        with pytest.raises(DataError, match=r"lacks 1 of the 3 rows .*: 10\."):
            extend_panel(panel, schema, STEPS, library(frame[ROWS:-1]))

    @given(st.data())
    def test_as_a_loop_finds_them(self, data: st.DataObject) -> None:
        history, future = long(
            ("u", "v", "w"), tuple(data.draw(st.lists(st.integers(3, 6), min_size=3, max_size=3)))
        )
        order = data.draw(st.permutations(range(len(future))))
        items = data.draw(st.permutations(["u", "v", "w"]))
        history = pd.concat([history[history["item_id"] == item] for item in items])
        result = extended(history, future.iloc[list(order)])
        values = future.set_index(["item_id", "timestamp"])["wind"]
        known = np.split(result.known[0].values, result.bounds[1:-1])
        for item, own, rows in zip(result.labels, result, known, strict=True):
            expected = [values[item, stamp] for stamp in own.index[-STEPS:]]
            assert rows[-STEPS:].tolist() == expected


class TestGaps:
    FILLED = FrameSchema(known_covariates=("wind", "holiday"), freq="D", fill="missing")

    def frame(self) -> pd.DataFrame:
        days = wide(16, freq="D")
        return days[days.index.day_of_week < 5]

    def test_a_step_that_is_skipped_is_missing(self) -> None:
        frame = self.frame()
        # Up to a Friday, and from the Monday after it.
        result = extended(frame[:5], frame[5:], self.FILLED)
        known = result.known[0].values[-STEPS:]
        assert np.isnan(known).tolist() == [True, True, False]
        assert known[-1] == frame["wind"].iloc[5]
        assert texts(result, 1)[-STEPS:] == [None, None, frame["holiday"].iloc[5]]

    def test_a_frame_that_ends_too_early_is_incomplete(self) -> None:
        frame = self.frame()
        refused(frame[:4], frame[4:5], "lacks 2 of the 3", "2024-01-06", schema=self.FILLED)

    def test_of_each_series_by_itself(self) -> None:
        history, future = long()
        middle = future.drop(index=[1, 4])
        schema = FrameSchema(known_covariates=("wind", "holiday"), fill="missing")
        result = extended(history, middle, schema)
        assert np.isnan(result.known[0].values).sum() == 2
        refused(history, middle.drop(index=2), "lacks 2 of the 6", "of series 'b'", schema=schema)


class TestErrors:
    def test_nothing_given(self) -> None:
        refused(
            wide()[:ROWS],
            None,
            "`future` is needed",
            "'wind', 'holiday'",
            "the 3 steps from 2024-01-01 08:00:00 to 2024-01-01 10:00:00",
        )
        history, _ = long()
        refused(history, None, "the 3 steps after each series (of series 'b': 2024-01-06")

    def test_given_for_nothing(self) -> None:
        frame = wide()[["load"]]
        refused(frame[:ROWS], frame, "there are no known covariates", schema=FrameSchema())

    def test_columns(self) -> None:
        frame = wide()
        refused(frame[:ROWS], frame.drop(columns="wind"), "`future` has no column 'wind'")
        history, future = long()
        refused(history, future.drop(columns="item_id"), "`future` is a wide frame")
        refused(wide(freq="D")[:ROWS], future, "`future` is a long frame", "'item_id'")

    def test_rows(self) -> None:
        frame = wide()
        refused(
            frame[:ROWS],
            frame[:-1],
            "lacks 1 of the 3 rows to be forecast: 2024-01-01 10:00:00.",
            "holds 2024-01-01 00:00:00 to 2024-01-01 09:00:00",
        )
        refused(frame[:ROWS], frame[:ROWS], "lacks 3 of the 3", "09:00:00, 2024-01-01 10:00:00.")
        history, future = long()
        refused(history, future.drop(index=1), "lacks 1 of the 6", "2024-01-07 00:00:00 of series")
        refused(
            history,
            future[future["item_id"] != "a"],
            "lacks 3 of the 6",
            "no row at all of 1 of 2 series: 'a'.",
        )

    def test_items_of_another_type(self) -> None:
        history, future = long((1, 2))
        refused(
            history,
            future.astype({"item_id": str}),
            "`future` has no item of the history",
            "such as '1'",
            "such as 1.",
        )

    def test_long_lists_are_cut(self) -> None:
        items = tuple(range(50))
        history, future = long(items, (4,) * 50)
        with pytest.raises(DataError) as caught:
            extended(history, future[future["item_id"] < 10])
        assert "lacks 120 of the 150" in str(caught.value)
        assert "40 of 50 series: 10, 11, 12, ..." in str(caught.value)
        assert len(str(caught.value)) < 500

    @pytest.mark.parametrize("column", ["wind", "holiday"])
    def test_values(self, column: str) -> None:
        frame = wide()
        frame.loc[frame.index[ROWS + 1], column] = None
        refused(
            frame[:ROWS],
            frame,
            f"lacks 1 value of known covariates: '{column}' at 2024-01-01 09:00:00.",
        )
        # Of rows that are not needed, values may be missing.
        frame = wide()
        frame.loc[frame.index[2], column] = None
        extended(wide()[:ROWS], frame)
        history, future = long()
        future.loc[3:, column] = None
        refused(history, future, "lacks 3 values", f"'{column}' at 2024-01-09 00:00:00 of series")

    def test_infinite_values(self) -> None:
        frame = wide()
        frame.loc[frame.index[-1], "wind"] = np.inf
        refused(frame[:ROWS], frame, "column 'wind' of `future` is inf at 2024-01-01 10:00:00")
        frame.loc[frame.index[[0, -1]], "wind"] = [np.inf, 1]
        extended(wide()[:ROWS], frame)

    def test_rows_that_are_there_twice(self) -> None:
        frame = wide()
        doubled = pd.concat([frame, frame[-1:].assign(wind=0.0)])
        refused(frame[:ROWS], doubled, "has the row 2024-01-01 10:00:00 more than once")
        history, future = long()
        refused(
            history,
            pd.concat([future, future[2:3]]),
            "the row 2024-01-08 00:00:00 of series 'b' more than once",
        )
        # Rows that are not needed may be.
        extended(frame[:ROWS], pd.concat([frame[:1], frame]))

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda f: f.tz_localize("UTC"), "stamps with a time zone (first: 2024-01-01 00:00"),
            (lambda f: f.reset_index(drop=True), "is integers (first: 0)"),
        ],
        ids=["zone", "integers"],
    )
    def test_time_of_another_kind(self, change: Callable[..., Any], words: str) -> None:
        refused(wide()[:ROWS], change(wide()), words, "that of the history is stamps without")

    def test_covariates_of_another_kind(self) -> None:
        frame = wide()
        for column, now, before in (
            ("wind", "categories", "numbers"),
            ("holiday", "numbers", "categories"),
        ):
            other = "x" if now == "categories" else 1.0
            refused(
                frame[:ROWS],
                frame.assign(**{column: other}),
                f"Covariate {column!r} holds {before} in the history, but {now} in `future`",
            )

    def test_the_argument_is_named(self) -> None:
        panel = read_panel(wide()[:ROWS], KNOWN)
        with pytest.raises(DataError, match="`ahead` is needed"):
            extend_panel(panel, KNOWN, STEPS, argument="ahead")
        with pytest.raises(TypeError, match="`ahead` must be a DataFrame"):
            extend_panel(panel, KNOWN, STEPS, [1, 2], argument="ahead")


def test_the_frame_is_left_alone() -> None:
    history, future = long()
    copy = future.copy()
    extended(history, future)
    pd.testing.assert_frame_equal(future, copy)


def test_integer_time_of_a_frame_without_an_index_is_read() -> None:
    history = pl.DataFrame({"timestamp": range(40), "y": np.arange(40.0), "k": np.arange(40.0)})
    schema = FrameSchema(timestamp_column="timestamp", known_covariates=("k",))
    panel = read_panel(history, schema)
    turned = pl.DataFrame({"timestamp": [42, 41, 40], "k": [2.0, 1.0, 0.0]})
    extended = extend_panel(panel, schema, 3, turned)
    assert extended.known[0].values[-3:].tolist() == [0, 1, 2]
    later = turned.with_columns(timestamp=pl.Series([900, 901, 902]))
    with pytest.raises(DataError, match="lacks 3 of the 3 rows"):
        extend_panel(panel, schema, 3, later)


def test_future_rows_are_put_together_as_those_of_the_history_were() -> None:
    index = pd.date_range("2024-01-01", periods=24 * 13, freq="h")
    frame = pd.DataFrame({"y": 1.0, "k": np.where(index.hour == 0, 100.0, 1.0)}, index=index)
    schema = FrameSchema(known_covariates=("k",), freq="D", resample="mean")
    panel = read_panel(frame[: 24 * 10], schema)
    extended = extend_panel(panel, schema, 3, frame[["k"]])
    np.testing.assert_array_equal(extended.known[0].values, 123 / 24)
