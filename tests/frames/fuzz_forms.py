"""Forms that a table of series can take in a caller's hands: long and wide, of any library."""

import datetime
import enum
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow


class Shop(enum.Enum):
    """Ids that only Python knows."""

    FIRST = 1
    SECOND = 2
    THIRD = 3
    FOURTH = 4


IDS: dict[str, list[Any]] = {
    "letters": ["z", "b", "m", "a"],
    "numbers as text": ["000858", "0858", "858", "1e3"],
    "integers": [30, 2, 11, -1],
    "floats": [0.5, -1.0, 3.0, 2.25],
    "mixed": [7, "7", 1.5, None],
    "tuples": [("a", 1), ("a", 2), ("b", 1), ("b", 2)],
    "stamps": list(pd.date_range("2000-01-01", periods=4)),
    "enumeration": list(Shop),
    "empty text": ["", " ", "nan", "None"],
    "booleans": [True, False, True, False],
    "lists": [["a"], ["b"], ["c"], ["d"]],
}

LONG_NAMES: dict[str, tuple[Hashable, Hashable, Hashable]] = {
    "ours": ("item_id", "timestamp", "target"),
    "Nixtla": ("unique_id", "ds", "y"),
    "own": ("shop name", "when", "sold"),
    "numbers": (0, 1, 2),
    "tuples": (("key", "id"), ("key", "time"), ("value", "")),
    "of the output": ("item_id", "0.5", "point"),
}

WIDE_NAMES: dict[str, list[Hashable]] = {
    "plain": ["load", "price"],
    "numbers": [1, 0],
    "tuples": [("a", "x"), ("a", "y")],
    "odd": ["", None],
    "of roles": ["target", "y"],
    "of the output": ["point", "0.1"],
    "stamps": [pd.Timestamp("2024-01-01"), 2.5],
}


@dataclass
class Form:
    """How a table is to look: chosen once, for the frame of fit, of predict and of the future."""

    shape: str
    library: str = "pandas"
    ids: str = "letters"
    categorical: bool = False
    names: str = "ours"
    time: str = "stamps"
    covariates: tuple[str, ...] = ()
    oddity: str = "none"
    named: bool = False
    undeclared: bool = False
    extra: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def is_long(self) -> bool:
        return self.shape in ("long", "long index")

    @property
    def has_names(self) -> bool:
        """Whether the forecaster must be told the names of the columns."""
        return self.named or self.names in ("own", "numbers", "tuples", "of the output")

    def item_name(self) -> Hashable:
        return LONG_NAMES[self.names][0]

    def time_name(self) -> Hashable:
        return LONG_NAMES[self.names][1] if self.is_long else "when"

    def target_names(self) -> list[Hashable]:
        if self.is_long:
            return [LONG_NAMES[self.names][2]]
        return WIDE_NAMES[self.names][: 1 + self.extra]


def describe(form: Form, roles: dict[str, str]) -> dict[str, Any]:
    """Return what the forecaster is told of the columns."""
    told: dict[str, Any] = {}
    for name in form.covariates:
        told.setdefault(f"{roles[name]}_covariates", []).append(name)
    if form.is_long and form.has_names:
        if form.shape == "long":
            told |= {"id_column": form.item_name(), "timestamp_column": form.time_name()}
        told["target"] = form.target_names()[0]
    elif form.has_names and form.shape in ("wide", "wide column"):
        names = form.target_names()
        told["target"] = names[0] if len(names) == 1 else list(names)
        if form.shape == "wide column":
            told["timestamp_column"] = form.time_name()
    return told


def as_frame(table: pd.DataFrame, form: Form, *, with_target: bool = True) -> Any:
    """Return a table in a form."""
    stamps = TIMES[form.time](table["stamp"])
    columns: list[tuple[Hashable, pd.Series]] = []
    if form.is_long:
        columns.append((form.item_name(), _items(table["item"], form)))
        columns.append((form.time_name(), stamps))
    if with_target:
        own = ["target", *(f"more{number}" for number in range(form.extra))]
        columns += [
            (name, table[column]) for name, column in zip(form.target_names(), own, strict=True)
        ]
    columns += [(name, table[name]) for name in form.covariates]
    if form.undeclared:
        columns.append(("note", pd.Series("text of no role", index=table.index)))
    names = pd.Index([name for name, _ in columns], tupleize_cols=False, dtype=object)
    values = [column.set_axis(table.index, axis=0) for _, column in columns]
    frame = pd.concat(values, axis=1).set_axis(names, axis=1) if columns else table[[]]
    frame = _shaped(frame, stamps, form)
    frame = ODDITIES[form.oddity](frame) if isinstance(frame, pd.DataFrame) else frame
    return LIBRARIES[form.library](frame) if isinstance(frame, pd.DataFrame) else frame


def _items(numbers: pd.Series, form: Form) -> pd.Series:
    known = IDS[form.ids]
    cells = [None if pd.isna(number) else known[int(number)] for number in numbers]
    column = pd.Series(cells, index=numbers.index, dtype=object)
    if form.ids in ("letters", "numbers as text", "integers", "floats", "stamps", "booleans"):
        column = column.infer_objects()
    return column.astype("category") if form.categorical else column


def _shaped(frame: pd.DataFrame, stamps: pd.Series, form: Form) -> Any:
    """Bring time where the form has it."""
    if form.shape == "long":
        return frame
    if form.shape == "long index":
        return frame.set_index([form.item_name(), form.time_name()])
    if form.shape == "wide column":
        frame.insert(0, form.time_name(), stamps)
        return frame
    if form.shape == "array":
        values = frame.to_numpy()
        return values if form.extra else values[:, 0]
    frame = frame.set_axis(pd.Index(stamps, name="when"), axis=0)
    if form.shape == "series":
        return frame.iloc[:, 0]
    return frame


def _plain(stamps: pd.Series) -> pd.Series:
    return stamps


def _periods(stamps: pd.Series) -> pd.Series:
    naive = stamps.dt.tz_localize(None)
    step = "h" if (naive.dt.normalize() != naive).any() else "D"
    return naive.dt.to_period("M" if (naive.dt.day == 1).all() else step)


TIMES: dict[str, Callable[[pd.Series], pd.Series]] = {
    "stamps": _plain,
    "seconds": lambda stamps: stamps.dt.as_unit("s"),
    "nanoseconds": lambda stamps: stamps.dt.as_unit("ns"),
    "text": lambda stamps: stamps.astype(str),
    "ISO text": lambda stamps: stamps.map(lambda stamp: stamp.isoformat()),
    "day first": lambda stamps: stamps.dt.strftime("%d/%m/%Y %H:%M"),
    "month first": lambda stamps: stamps.dt.strftime("%m/%d/%Y %H:%M:%S"),
    "dates": lambda stamps: stamps.dt.date,
    "objects": lambda stamps: stamps.astype(object),
    "Python": lambda stamps: pd.Series(
        [stamp.to_pydatetime() for stamp in stamps], index=stamps.index, dtype=object
    ),
    "mixed": lambda stamps: pd.Series(
        [stamp if number % 2 else str(stamp) for number, stamp in enumerate(stamps)],
        index=stamps.index,
        dtype=object,
    ),
    "clock": lambda stamps: stamps.dt.time,
    "periods": _periods,
    "category": lambda stamps: stamps.astype("category"),
    "arrow": lambda stamps: stamps.astype(
        pd.ArrowDtype(pyarrow.timestamp("us", tz=stamps.dt.tz and str(stamps.dt.tz)))
    ),
    "epoch": lambda stamps: stamps.astype("int64"),
    "floats": lambda stamps: stamps.astype("int64").astype(float),
    "words": lambda stamps: stamps.map(lambda stamp: f"week of {stamp}"),
    "now": lambda stamps: stamps.astype(str).replace(stamps.astype(str).iloc[0], "now"),
}


class OwnFrame(pd.DataFrame):
    """A subclass, as geopandas and AutoGluon have them."""

    @property
    def _constructor(self) -> Callable[..., "OwnFrame"]:
        return OwnFrame


def _flagged(frame: pd.DataFrame) -> pd.DataFrame:
    frame.attrs["source"] = "a meter"
    return frame.set_flags(allows_duplicate_labels=False)


def _read_only(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns whose memory may not be written to."""
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, place]
        if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf":
            values = column.to_numpy().copy()
            values.setflags(write=False)
            frame[name] = pd.Series(values, index=frame.index, copy=False)
    return frame


def _doubled_column(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([frame, frame.iloc[:, -1:]], axis=1)


def _column_levels(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.set_axis(pd.MultiIndex.from_product([["top"], list(frame.columns)]), axis=1)


ODDITIES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "none": lambda frame: frame,
    "subclass": OwnFrame,
    "flags": _flagged,
    "read-only": _read_only,
    "column twice": _doubled_column,
    "levels of columns": _column_levels,
    "index from 100": lambda frame: (
        frame.set_axis(range(100, 100 + len(frame)), axis=0)
        if isinstance(frame.index, pd.RangeIndex)
        else frame
    ),
    "index doubled": lambda frame: (
        frame.set_axis(np.zeros(len(frame), int), axis=0)
        if isinstance(frame.index, pd.RangeIndex)
        else frame
    ),
    "no columns": lambda frame: frame.iloc[:, :0],
    "three levels": lambda frame: frame.set_axis(
        pd.MultiIndex.from_arrays([range(len(frame))] * 3), axis=0
    ),
}


def _of_polars(frame: pd.DataFrame) -> Any:
    return polars.DataFrame({str(name): _cells(frame[name]) for name in frame.columns})


def _of_arrow(frame: pd.DataFrame) -> Any:
    return pyarrow.table({str(name): _cells(frame[name]) for name in frame.columns})


def _cells(column: pd.Series) -> Any:
    """The values of a column as another library takes them, zones included."""
    if column.dtype.kind == "M":
        return [None if stamp is pd.NaT else stamp.to_pydatetime() for stamp in column]
    return [None if cell is pd.NaT else cell for cell in column.tolist()]


LIBRARIES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "polars": _of_polars,
    "polars, lazy": lambda frame: _of_polars(frame).lazy(),
    "pyarrow": _of_arrow,
}

NO_FRAMES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "text": lambda: "data.csv",
    "dictionary": lambda: {"target": [1.0, 2.0]},
    "list": lambda: [1.0, 2.0, 3.0],
    "scalar": lambda: np.float64(3.0),
    "array without axes": lambda: np.array(3.0),
    "cube": lambda: np.zeros((4, 3, 2)),
    "array of text": lambda: np.array(["a", "b", "c"]),
    "array of objects": lambda: np.array([1.0, None, "x"], dtype=object),
    "array of stamps": lambda: np.arange("2024-01", "2024-06", dtype="datetime64[M]"),
    "structured array": lambda: np.zeros(5, dtype=[("a", float), ("b", int)]),
    "masked array": lambda: np.ma.masked_less(np.arange(20.0), 2.0),
    "complex array": lambda: np.ones(20) + 1j,
    "array of bool": lambda: np.arange(20) > 3,
    "empty array": lambda: np.zeros((0, 2)),
    "array without columns": lambda: np.zeros((5, 0)),
    "matrix in Fortran order": lambda: np.asfortranarray(np.random.default_rng(0).random((20, 2))),
    "float32 array": lambda: np.random.default_rng(0).random(20).astype("float32"),
    "empty frame": pd.DataFrame,
    "empty series": lambda: pd.Series([], dtype=float),
    "index alone": lambda: pd.date_range("2024-01-01", periods=9),
    "group-by": lambda: pd.DataFrame({"a": [1, 1], "b": [1.0, 2.0]}).groupby("a"),
    "date": lambda: datetime.date(2024, 1, 1),
    "class": lambda: pd.DataFrame,
}
