"""Objects that are read: Series, arrays, frames of other libraries, two levels in the index."""

import datetime as dt
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data import FrameSchema, read_panel
from tests.data.frames import long, refused, wide


class Subclass(pd.DataFrame):
    """A frame that checks what is done to it, as those of other libraries do."""

    @property
    def _constructor(self) -> Any:
        raise AssertionError("made anew")

    @property
    def _constructor_sliced(self) -> Any:
        raise AssertionError("cut")


@pytest.mark.parametrize("given", [None, [1.0], {"a": [1.0]}, "frame.csv", pd.Index([1.0])])
def test_what_is_no_frame_is_a_type_error(given: object) -> None:
    with pytest.raises(TypeError, match=f"`X` must be a DataFrame.*{type(given).__name__}"):
        read_panel(given)


@pytest.mark.parametrize("name", ["load", None, 3, ("a", 1)])
def test_a_series_is_a_frame_of_one_column(name: object) -> None:
    series = wide()["load"].rename(name)
    panel = read_panel(series)
    assert (panel.layout.form, panel.layout.target_name, len(panel)) == ("series", name, 1)
    np.testing.assert_array_equal(panel.values[:, 0], np.arange(6))
    pd.testing.assert_index_equal(panel.index, series.index)
    assert series.name == name


def test_a_series_may_count_its_rows_or_hold_periods() -> None:
    counted = read_panel(pd.Series([3.0, 1.0, 2.0]))
    assert (list(counted.index), counted.freq) == ([0, 1, 2], 1)
    monthly = read_panel(pd.Series(range(4), index=pd.period_range("2024-01", periods=4, freq="M")))
    assert (monthly.freq, str(monthly.index[3].date())) == ("MS", "2024-04-01")
    refused(pd.Series([True, False, True]), "must be numeric", "bool")
    refused(pd.Series([1.0, np.inf, 2.0]), "`X` is inf at 1")
    refused(pd.Series([], dtype=float), "empty", "0 rows")
    refused(long("a").set_index(["item_id", "timestamp"])["target"], "Series", ".to_frame()")


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "uint8"])
def test_arrays_are_counted(dtype: str) -> None:
    flat = read_panel(np.arange(5, dtype=dtype))
    assert (flat.layout.form, flat.layout.native, flat.layout.flat) == ("array", "numpy", True)
    assert (list(flat.index), flat.freq, flat.values.shape) == (list(range(5)), 1, (5, 1))
    array = np.arange(10, dtype=dtype).reshape(5, 2)
    panel = read_panel(array)
    assert (panel.layout.flat, list(panel.labels)) == (False, [0, 1])
    np.testing.assert_array_equal(panel.values, array)
    panel.values[:] = -1
    assert array[0, 1] == 1


def test_columns_of_an_array_may_be_covariates() -> None:
    array = np.arange(15.0).reshape(5, 3)
    panel = read_panel(array, FrameSchema(known_covariates=(1,)))
    assert (list(panel.labels), panel.known[0].name) == ([0, 2], 1)
    np.testing.assert_array_equal(panel.known[0].values, array[:, 1])
    assert list(read_panel(array, FrameSchema(target=2)).labels) == [2]
    refused(array, "no column 5", "`target`", target=5)


def test_what_a_mask_hides_is_missing() -> None:
    array = np.ma.masked_equal(np.array([1, 2, 9999, 4]), 9999)
    np.testing.assert_array_equal(read_panel(array).values[:, 0], [1, 2, np.nan, 4])


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.ones((2, 2, 2)), ("shape (2, 2, 2)",)),
        (np.array(1.0), ("shape ()",)),
        (np.ones(0), ("empty", "0 rows")),
        (np.ones((3, 0)), ("empty", "0 columns")),
        (np.array([True, False]), ("must be numeric", "bool")),
        (np.array(["a", "b"]), ("must be numeric",)),
        (np.array([1.0, None]), ("must be numeric", "object")),
        (np.ones(3) * 1j, ("must be numeric", "complex")),
        (np.zeros(3, dtype=[("a", float)]), ("one dtype",)),
        (np.array([1.0, np.inf]), ("column 0", "inf at 1")),
        (np.full((3, 2), [1.0, np.nan]), ("no observed value in column 1",)),
    ],
)
def test_arrays_that_are_no_series_are_refused(array: np.ndarray, words: tuple[str, ...]) -> None:
    refused(array, *words)


def test_a_subclass_of_a_frame_is_read_as_a_frame() -> None:
    assert list(read_panel(Subclass(wide())).labels) == ["load"]


@pytest.mark.parametrize("names", [("item_id", "timestamp"), (None, None), ("shop", "day")])
def test_items_and_time_may_be_levels_of_the_index(names: tuple[str | None, str | None]) -> None:
    frame = long("b", "a").set_index(["item_id", "timestamp"]).rename_axis(list(names))
    panel = read_panel(frame.iloc[[5, 0, 1, 6, 7, 2, 3, 8, 9, 4]])
    layout = panel.layout
    assert (layout.form, layout.indexed, panel.freq) == ("long", True, "D")
    assert (layout.id_name, layout.time_name, layout.target_name) == (*names, "target")
    assert list(panel.labels) == ["a", "b"]
    np.testing.assert_array_equal(panel.values[:, 0], [*range(100, 105), *range(5)])


@pytest.mark.parametrize("names", [("shop", "day"), ("shop", None)])
def test_levels_may_be_named_by_the_schema(names: tuple[str, str | None]) -> None:
    frame = long("b", "a").set_index(["item_id", "timestamp"]).rename_axis(list(names))
    frame = frame.rename(columns={"target": "sold"}).assign(other=1.0)
    schema = FrameSchema(id_column="shop", timestamp_column=names[1], target="sold")
    panel = read_panel(frame, schema)
    assert (panel.layout.indexed, list(panel.labels)) == (True, ["b", "a"])


def test_a_level_of_categories_and_one_of_integers_are_read() -> None:
    frame = long("b", "a").astype({"item_id": "category"}).assign(timestamp=[*range(5)] * 2)
    panel = read_panel(frame.set_index(["item_id", "timestamp"]))
    assert (panel.labels.dtype, panel.freq) == (frame["item_id"].dtype, 1)
    assert list(panel.labels) == ["b", "a"]


def test_levels_that_are_not_item_and_time_are_refused() -> None:
    frame = long("b", "a").set_index(["item_id", "timestamp"])
    refused(frame.swaplevel(), "item and the time, in this order", "swaplevel")
    refused(frame, "in this order", id_column="timestamp")
    refused(frame, "last level", timestamp_column="item_id")
    refused(frame.set_index(frame["target"] * 2, append=True), "3 levels", "reset_index")
    mixed = frame.assign(day=frame.index.get_level_values(1))
    refused(mixed, "items in the index", "reset_index", timestamp_column="day", target="target")
    missing = long("b", "a")
    missing.loc[3, "item_id"] = None
    refused(missing.set_index(["item_id", "timestamp"]), "first level", "missing in row 3")


LIBRARIES = ["polars", "pyarrow"]


def table(library: str) -> Callable[[dict[str, Any]], Any]:
    module: ModuleType = pytest.importorskip(library)
    return module.DataFrame if library == "polars" else module.table


@pytest.mark.parametrize("library", LIBRARIES)
def test_long_frames_of_other_libraries_are_read(library: str) -> None:
    make = table(library)
    stamps = [dt.datetime(2024, 1, 1 + day) for day in range(4)]
    frame = make(
        {
            "shop": ["b", "00a", "b", "00a", "b", "00a", "b", "00a"],
            "day": [stamp for stamp in stamps for _ in range(2)],
            "sold": [1, 10, None, 11, 3, 12, 4, 13],
            "open": [True, True, None, False, True, True, True, True],
            "kind": ["x", "y", "x", None, "x", "y", "x", "y"],
            "size": [1.5, 2.5] * 4,
        }
    )
    panel = read_panel(
        frame,
        FrameSchema(
            id_column="shop",
            timestamp_column="day",
            target="sold",
            past_covariates=("open",),
            known_covariates=("kind",),
            static_covariates=("size",),
        ),
    )
    layout = panel.layout
    assert (layout.form, layout.native, layout.indexed) == ("long", library, False)
    assert (layout.id_name, layout.time_name, layout.target_name) == ("shop", "day", "sold")
    assert panel.labels.tolist() == ["b", "00a"]
    np.testing.assert_array_equal(panel.values[:, 0], [1, np.nan, 3, 4, 10, 11, 12, 13])
    assert list(panel.index) == stamps * 2
    assert panel.past[0].categories == ("False", "True")
    np.testing.assert_array_equal(panel.past[0].values, [1, -1, 1, 1, 1, 0, 1, 1])
    np.testing.assert_array_equal(panel.known[0].values, [0, 0, 0, 0, 1, -1, 1, 1])
    np.testing.assert_array_equal(panel.static[0].values, [1.5, 2.5])


@pytest.mark.parametrize("library", LIBRARIES)
def test_wide_frames_of_other_libraries_are_read(library: str) -> None:
    make = table(library)
    dates = [dt.date(2024, 1, 1 + day) for day in range(4)]
    panel = read_panel(make({"a": [1.0, None, 3.0, 4.0], "date": dates, "b": [1, 2, 3, 4]}))
    assert (panel.layout.form, panel.layout.native, panel.layout.time_name) == (
        "wide",
        library,
        "date",
    )
    assert (list(panel.labels), panel.freq) == (["a", "b"], "D")
    np.testing.assert_array_equal(panel.values, [[1, 1], [np.nan, 2], [3, 3], [4, 4]])
    counted = read_panel(make({"a": [1.0, 2.0, 3.0]}))
    assert (list(counted.index), counted.layout.time_name) == ([0, 1, 2], None)
    text = read_panel(make({"ds": [str(date) for date in dates], "a": [1, 2, 3, 4]}))
    assert list(text.index) == list(panel.index)


@pytest.mark.parametrize("library", LIBRARIES)
def test_time_zones_of_other_libraries_are_kept(library: str) -> None:
    make = table(library)
    index = pd.date_range("2024-03-30", periods=72, freq="h", tz="Europe/Berlin")
    if library == "polars":
        import polars as pl

        stamps = pl.Series(index.tz_convert("UTC").tz_localize(None).to_pydatetime().tolist())
        stamps = stamps.dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin")
    else:
        import pyarrow as pa

        stamps = pa.array(index.to_pydatetime().tolist(), pa.timestamp("us", "Europe/Berlin"))
    panel = read_panel(make({"ds": stamps, "y": np.arange(72.0)}))
    assert (str(panel.index.tz), panel.freq) == ("Europe/Berlin", "h")
    assert list(panel.index) == list(index)


def test_categories_of_polars_are_categories() -> None:
    pl = pytest.importorskip("polars")
    for kind in (pl.Categorical, pl.Enum(["b", "a", "c"])):
        ids = pl.Series(["b", "a"] * 4, dtype=kind)
        frame = pl.DataFrame({"item_id": ids, "ds": [0, 0, 1, 1, 2, 2, 3, 3], "y": range(8)})
        panel = read_panel(frame)
        assert panel.labels.tolist() == ["b", "a"]
        assert isinstance(panel.labels.dtype, pd.CategoricalDtype)


def test_faults_of_frames_of_polars_are_named() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"ds": [1, 2, 3], "y": [1.0, 2.0, float("inf")]})
    refused(frame, "column 'y'", "inf at 3")
    refused(frame.with_columns(y=pl.lit("a")), "'y'", "must be numeric", "'a'")
    refused(frame.with_columns(y=[[1], [2], [3]]), "'y'", "must be numeric")
    refused(frame.clear(), "empty")
    refused(frame, "no column 'z'", "'ds', 'y'", target="z")
    refused(frame.with_columns(item_id=pl.Series(["a", None, "a"])), "'item_id'", "row 1")


def test_lazy_frames_are_refused_with_a_hint() -> None:
    pl = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=r"`history` is a lazy frame.*\.collect\(\)"):
        read_panel(pl.LazyFrame({"a": [1.0]}), argument="history")
    with pytest.raises(TypeError, match=r"got Series. It becomes one with .to_frame\(\)"):
        read_panel(pl.Series([1.0]))


def test_a_frame_of_narwhals_is_one_of_its_library() -> None:
    pl = pytest.importorskip("polars")
    import narwhals as nw

    frame = nw.from_native(pl.DataFrame({"ds": [1, 2, 3], "y": [1.0, 2.0, 3.0]}))
    assert read_panel(frame).layout.native == "polars"


def test_frames_of_polars_are_never_changed() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"ds": [1, 2, 3], "y": [1.0, 2.0, 3.0], "x": [1.0, 2.0, 3.0]})
    before = frame.clone()
    panel = read_panel(frame, FrameSchema(known_covariates=("x",)))
    panel.values[:] = -1
    panel.known[0].values[:] = -1
    assert frame.equals(before)


def test_a_frame_of_text_that_fails_is_a_data_error() -> None:
    with pytest.raises(DataError):
        read_panel(pd.DataFrame({"ds": ["a", "b"], "y": [1.0, 2.0]}))
