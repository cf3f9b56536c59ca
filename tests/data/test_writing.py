"""Forecasts come back in the form, the library and the dtypes of the frame that was given."""

import sys
from collections.abc import Callable, Hashable
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal, assert_index_equal, assert_series_equal

from mlrforecast._core.errors import DataError
from mlrforecast.data import FrameSchema, Panel, read_panel, write_forecast

STEPS = 2
LEVELS = ("0.1", "0.75")


def forecast(panel: Panel, *, levels: bool = False) -> Any:
    """Write a forecast whose numbers tell series, step, channel and level."""
    shape = (len(panel), STEPS, panel.num_channels)
    point = np.arange(np.prod(shape), dtype=float).reshape(shape)
    if not levels:
        return write_forecast(panel, point)
    return write_forecast(panel, point, point[..., None] + np.array([-0.25, 0.25]), LEVELS)


def written(frame: object, *, levels: bool = False, **schema: Hashable) -> Any:
    return forecast(read_panel(frame, FrameSchema(**schema)), levels=levels)


def wide(columns: Any = ("a", "b"), **options: Any) -> pd.DataFrame:
    index = pd.date_range("2024-01-01", periods=5, name="date", **{"freq": "h"} | options)
    return pd.DataFrame(np.arange(10.0).reshape(5, 2), index=index, columns=columns)


def ahead(**options: Any) -> pd.DatetimeIndex:
    options = {"start": "2024-01-01", "freq": "h", "name": "date"} | options
    return pd.date_range(periods=5 + STEPS, **options)[5:]


def long(items: Any = ("z", "a"), **names: str) -> pd.DataFrame:
    """Series that end a day apart."""
    stamps = pd.date_range("2024-01-01", periods=7, freq="D")
    frame = pd.DataFrame(
        {
            "item_id": pd.Index(items).repeat([3, 4]),
            "timestamp": [*stamps[:3], *stamps[:4]],
            "target": np.arange(7.0),
        }
    )
    return frame.rename(columns=names)


class TestWide:
    @pytest.mark.parametrize(
        "columns",
        [
            pd.Index(["a", "b"], name="shop"),
            pd.Index([7, 3]),
            pd.Index(["a", 3], dtype=object),
            pd.CategoricalIndex(["a", "b"], categories=["b", "c", "a"]),
            pd.MultiIndex.from_tuples([("x", 1), ("x", 2)], names=["u", None]),
        ],
        ids=["named", "int", "mixed", "category", "levels"],
    )
    def test_columns_and_index_are_those_of_the_frame(self, columns: pd.Index) -> None:
        frame = written(wide(columns))
        assert_index_equal(frame.columns, columns)
        assert_index_equal(frame.index, ahead())
        assert frame.to_numpy().tolist() == [[0, 1], [2, 3]]
        with_levels = written(wide(columns), levels=True)
        assert with_levels.columns.names == [*columns.names, None]
        names = [label if isinstance(label, tuple) else (label,) for label in columns]
        assert with_levels.columns.tolist() == [
            (*name, level) for name in names for level in ("point", "0.1", "0.75")
        ]
        assert with_levels.to_numpy()[0].tolist() == [0, -0.25, 0.25, 1, 0.75, 1.25]
        assert_frame_equal(with_levels.xs("point", axis=1, level=-1), frame, check_names=False)

    @pytest.mark.parametrize("zone", ["Europe/Paris", "+05:30", "UTC"])
    @pytest.mark.parametrize("unit", ["s", "ns"])
    def test_zone_and_unit_stay(self, zone: str, unit: str) -> None:
        options = {"tz": zone, "unit": unit, "start": "2024-03-30 22:00"}
        index = pd.date_range(periods=5 + STEPS, freq="h", **options)
        assert_index_equal(written(wide().set_index(index[:5])).index, index[5:])

    def test_the_frequency_of_the_index_is_known(self) -> None:
        for freq in ("h", "W-WED", "QS-FEB", "2B", "ME"):
            index = written(wide(freq=freq)).index
            assert index.freq == pd.tseries.frequencies.to_offset(freq)
        # Pandas has no frequency for days whose hour is left out once a year.
        days = pd.date_range("2024-03-25 02:30", periods=5, freq="D", tz="Europe/Paris")
        index = written(wide().set_index(days)).index
        assert index.hour.tolist() == [2, 3]
        assert index.freq is None

    def test_integer_time(self) -> None:
        frame = wide().reset_index(drop=True)
        assert written(frame).index.tolist() == [5, 6]
        assert written(frame.set_index(np.arange(0, 50, 10))).index.tolist() == [50, 60]

    def test_time_in_a_column(self) -> None:
        frame = wide(pd.Index(["a", "b"], name="shop")).reset_index()
        expected = pd.DataFrame(
            {"date": ahead(), "a": [0.0, 2.0], "b": [1.0, 3.0]},
            columns=pd.Index(["date", "a", "b"], name="shop"),
        )
        assert_frame_equal(written(frame), expected)
        with_levels = written(frame, levels=True)
        assert list(with_levels) == ["date", "a", "a_0.1", "a_0.75", "b", "b_0.1", "b_0.75"]
        assert with_levels["b_0.75"].tolist() == [1.25, 3.25]

    def test_time_in_a_column_below_a_heading(self) -> None:
        frame = wide(pd.MultiIndex.from_tuples([("x", "u"), ("x", "v")])).reset_index()
        assert written(frame).columns.tolist() == [("date", ""), ("x", "u"), ("x", "v")]
        assert ("x", "v_0.1") in written(frame, levels=True)

    def test_names_that_would_clash(self) -> None:
        frame = wide(["a", "a_0.1"]).reset_index()
        assert list(written(frame)) == ["date", "a", "a_0.1"]
        with pytest.raises(DataError, match=r"two columns named 'a_0\.1'"):
            written(frame, levels=True)
        written(frame.set_index("date"), levels=True)
        with pytest.raises(DataError, match=r"two columns named '0\.1'"):
            written(long(target="0.1"), target="0.1", levels=True)


class TestLong:
    @pytest.mark.parametrize(
        "items",
        [
            ("z", "a"),
            ("000858", "858"),
            (3, 1),
            (2.5, 1.5),
            (3, "a"),
            pd.CategoricalIndex(["z", "a"], categories=["a", "b", "z"], ordered=True),
            pd.Index(["z", "a"], dtype="string"),
            pd.Index([3, 1], dtype="int8"),
            pd.Index([3, 1], dtype="Int64"),
            pd.DatetimeIndex(["2024-05-01", "2024-01-01"]),
            [True, False],
        ],
        ids=[
            *["text", "digits", "int", "float", "mixed", "category", "string", "int8", "nullable"],
            *["stamps", "bool"],
        ],
    )
    def test_items_keep_order_and_dtype(self, items: Any) -> None:
        frame = long(items)
        result = written(frame)
        assert list(result) == ["item_id", "timestamp", "target"]
        assert result["item_id"].tolist() == [
            item for item in frame["item_id"].unique().tolist() for _ in range(STEPS)
        ]
        assert result["item_id"].dtype == frame["item_id"].dtype
        days = pd.to_datetime(["2024-01-04", "2024-01-05", "2024-01-05", "2024-01-06"])
        assert result["timestamp"].tolist() == days.tolist()
        assert result["timestamp"].dtype == frame["timestamp"].dtype
        assert result["target"].tolist() == [0, 1, 2, 3]
        assert_index_equal(result.index, pd.RangeIndex(4))

    def test_names_and_levels(self) -> None:
        frame = long(item_id="unique_id", timestamp="ds", target="y")
        result = written(frame, levels=True)
        assert list(result) == ["unique_id", "ds", "y", "0.1", "0.75"]
        assert result["0.75"].tolist() == [0.25, 1.25, 2.25, 3.25]

    def test_items_and_time_in_the_index(self) -> None:
        frame = long().set_index(["item_id", "timestamp"])
        result = written(frame, levels=True)
        assert result.index.names == ["item_id", "timestamp"]
        assert list(result) == ["target", "0.1", "0.75"]
        flat = written(long(), levels=True)
        assert_frame_equal(result.reset_index(), flat)

    def test_covariates_and_other_columns_are_left_out(self) -> None:
        frame = long().assign(price=1.0, note="x")
        result = written(frame, target="target", past_covariates=("price",))
        assert list(result) == ["item_id", "timestamp", "target"]


class TestSeries:
    @pytest.mark.parametrize("name", ["load", 3, None])
    def test_is_a_series(self, name: Hashable) -> None:
        series = wide()["a"].rename(name)
        assert_series_equal(
            written(series), pd.Series([0.0, 1.0], index=ahead(), name=name, dtype=float)
        )

    def test_with_levels_is_a_frame(self) -> None:
        frame = written(wide()["a"], levels=True)
        assert list(frame) == ["point", "0.1", "0.75"]
        assert frame.iloc[1].tolist() == [1, 0.75, 1.25]
        assert_index_equal(frame.index, ahead())


class TestArrays:
    def test_shapes(self) -> None:
        values = wide().to_numpy()
        assert written(values).tolist() == [[0, 1], [2, 3]]
        assert written(values[:, 0]).tolist() == [0, 1]
        assert written(values[:, :1]).shape == (STEPS, 1)

    def test_quantiles_alone(self) -> None:
        values = wide().to_numpy()
        quantiles = written(values, levels=True)
        assert quantiles.shape == (STEPS, 2, 2)
        assert quantiles[1, 1].tolist() == [2.75, 3.25]
        assert written(values[:, 0], levels=True).tolist() == [[-0.25, 0.25], [0.75, 1.25]]

    def test_targets_of_an_array(self) -> None:
        assert written(wide().to_numpy(), target=1).shape == (STEPS, 1)


LIBRARIES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
class TestOtherLibraries:
    def back(self, result: Any, frame: Any) -> pd.DataFrame:
        assert type(result) is type(frame)
        return result.to_pandas()

    @pytest.mark.parametrize("zone", [None, "Europe/Paris", "UTC"])
    def test_wide(self, library: Callable[..., Any], zone: str | None) -> None:
        plain = wide(tz=zone).reset_index()
        frame = library(plain)
        for levels in (False, True):
            result = written(frame, levels=levels)
            expected = written(plain, levels=levels)
            assert_frame_equal(self.back(result, frame), expected, check_dtype=False)
            # The type of a column, with unit and zone.
            assert result["date"][:0].to_pandas().dtype == frame["date"][:0].to_pandas().dtype

    @pytest.mark.parametrize("items", [("z", "a"), (3, 1)], ids=["text", "int"])
    @pytest.mark.parametrize("dtype", [None, "category"])
    def test_long(self, library: Callable[..., Any], items: Any, dtype: str | None) -> None:
        plain = long(items)
        if dtype:
            plain["item_id"] = plain["item_id"].astype(str).astype(dtype)
        frame = library(plain)
        result = written(frame, levels=True)
        back = self.back(result, frame)
        assert list(back) == ["item_id", "timestamp", "target", "0.1", "0.75"]
        assert back["item_id"].tolist() == written(plain)["item_id"].tolist()
        assert back["timestamp"].tolist() == written(plain)["timestamp"].tolist()
        assert isinstance(back["item_id"].dtype, pd.CategoricalDtype) == bool(dtype)

    def test_without_time_there_is_none(self, library: Callable[..., Any]) -> None:
        frame = library(wide().reset_index(drop=True))
        assert list(self.back(written(frame), frame)) == ["a", "b"]
        names = list(self.back(written(frame, levels=True), frame))
        assert names == ["a", "a_0.1", "a_0.75", "b", "b_0.1", "b_0.75"]


def test_joins_with_what_came_to_be() -> None:
    """The forecast of a polars frame of categories can be joined to a frame like it."""
    frame = pl.from_pandas(long().astype({"item_id": "category"}))
    actual = frame.with_columns(pl.col("timestamp").dt.offset_by("2d"))
    joined = written(frame).join(actual, on=["item_id", "timestamp"])
    assert joined["target"].to_list() == [0, 1, 2, 3]
    assert joined["target_right"].to_list() == [1, 2, 5, 6]


def test_libraries_like_pandas_keep_their_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modin takes a DataFrame of pandas, with all it has."""

    class Frame:
        def __init__(self, frame: pd.DataFrame) -> None:
            self.frame = frame

    package, module = ModuleType("modin"), ModuleType("modin.pandas")
    module.DataFrame, module.__version__ = Frame, "1.0"
    package.pandas = module
    monkeypatch.setitem(sys.modules, "modin", package)
    monkeypatch.setitem(sys.modules, "modin.pandas", module)
    plain = read_panel(wide())
    layout = type(plain.layout)(form="wide", native="modin", time_name="date")
    panel = Panel(
        layout=layout,
        freq="h",
        labels=plain.labels,
        index=plain.index,
        values=plain.values,
        bounds=plain.bounds,
    )
    result = forecast(panel, levels=True)
    assert isinstance(result, Frame)
    assert_frame_equal(result.frame, forecast(plain, levels=True))
