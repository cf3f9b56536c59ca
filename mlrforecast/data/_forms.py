"""Frames of any library, Series and arrays, each as a plain pandas DataFrame."""

from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data._entries import as_entries, entry_frames
from mlrforecast.data.panel import Layout
from mlrforecast.data.schema import FrameSchema

_PLAIN = FrameSchema()


def to_pandas(
    given: object, argument: str, schema: FrameSchema = _PLAIN
) -> tuple[pd.DataFrame, Layout]:
    """Return what was given as a DataFrame of unique columns, and how it looked.

    The DataFrame may share its values with the caller's. An array has the columns 0 to C - 1; a
    Series has one column, by its name; GluonTS entries have the columns that the schema names. The
    layout is that of a wide frame until it is known that the frame is a long one.
    """
    if isinstance(given, pd.DataFrame):
        # A subclass may check itself in every step, and flags may forbid what is done here.
        frame, layout = pd.DataFrame(given), Layout(form="wide")
    elif isinstance(given, pd.Series):
        frame = pd.DataFrame(given, copy=False).set_axis([given.name], axis=1)
        layout = Layout(form="series", target_name=given.name)
    elif isinstance(given, np.ndarray):
        frame, layout = _of_array(given, argument)
    elif (entries := as_entries(given)) is not None:
        frame, layout = entry_frames(entries, schema).frame, Layout(form="wide")
    else:
        frame, layout = _of_library(given, argument)
    doubled = frame.columns[frame.columns.duplicated()]
    if len(doubled):
        raise DataError(f"`{argument}` has more than one column named {doubled[0]!r}.")
    if frame.shape[0] == 0 or frame.shape[1] == 0:
        raise DataError(
            f"`{argument}` is empty: it has {frame.shape[0]} rows and {frame.shape[1]} columns."
        )
    return frame, layout


def _of_array(array: np.ndarray, argument: str) -> tuple[pd.DataFrame, Layout]:
    """Read an array as a wide frame whose time is the number of the row."""
    if array.ndim not in (1, 2) or array.dtype.names is not None:
        raise DataError(
            f"An array must have the shape (T,) or (T, C) and one dtype, but `{argument}` has the "
            f"shape {array.shape} and the dtype {array.dtype}."
        )
    if isinstance(array, np.ma.MaskedArray):
        array = np.ma.filled(array.astype(np.float64), np.nan)
    layout = Layout(form="array", native="numpy", flat=array.ndim == 1)
    return pd.DataFrame(np.asarray(array)), layout


def _of_library(given: object, argument: str) -> tuple[pd.DataFrame, Layout]:
    """Read a frame of any other library that narwhals knows."""
    frame: Any = nw.from_native(given, pass_through=True, allow_series=True)
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(
            f"`{argument}` is a lazy frame ({type(given).__name__}), which holds no rows yet. "
            "Collect it first, e.g. with .collect()."
        )
    if not isinstance(frame, nw.DataFrame):
        raise TypeError(_no_frame(given, frame, argument))
    layout = Layout(form="wide", native=frame.implementation.value)
    if frame.implementation.is_pandas_like():
        # Modin and its like have an index, which may hold the time.
        return pd.DataFrame(frame.to_pandas()), layout
    columns = {name: _of_column(frame.get_column(name)) for name in frame.columns}
    return pd.DataFrame(columns, index=pd.RangeIndex(len(frame))), layout


def _no_frame(given: object, read: object, argument: str) -> str:
    """Say that an argument is no frame, and how it becomes one."""
    hint = ""
    if isinstance(read, nw.Series):
        hint = " It becomes one with .to_frame()."
    elif type(given).__module__.startswith("scipy.sparse"):
        hint = " Sparse arrays are not supported: it becomes a dense one with .toarray()."
    elif hasattr(given, "train") and hasattr(given, "metadata"):
        hint = " Pass one of its data sets, .train or .test."
    elif hasattr(given, "input") and hasattr(given, "label"):
        hint = " Pass its .input."
    return (
        f"`{argument}` must be a DataFrame (of pandas, polars, pyarrow or another library that "
        "narwhals reads), a pandas Series, a numpy array or entries of GluonTS, got "
        f"{type(given).__name__}.{hint}"
    )


def _of_column(column: "nw.Series[Any]") -> Any:
    """Return a column as what pandas holds in its place; missing numbers become NaN."""
    dtype = column.dtype
    if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
        naive = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return pd.DatetimeIndex(naive.to_numpy()).tz_localize("UTC").tz_convert(dtype.time_zone)
    if isinstance(dtype, nw.Datetime):
        return column.to_numpy()
    if isinstance(dtype, nw.Date):
        return column.cast(nw.Datetime("us")).to_numpy()
    if isinstance(dtype, nw.Categorical | nw.Enum):
        return pd.Categorical(column.cast(nw.String).to_list())
    if dtype.is_integer() or dtype.is_float() or isinstance(dtype, nw.Boolean):
        return column.to_numpy()
    return pd.Series(column.to_list(), dtype=object)
