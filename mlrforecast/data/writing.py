"""Forecasts written back in the form, and with the library, of the frame that was given."""

from collections.abc import Hashable, Sequence
from types import ModuleType
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from jaxtyping import Float

from mlrforecast._core.errors import DataError, MissingDependencyError
from mlrforecast.data.frequency import future_stamps
from mlrforecast.data.panel import Layout, Panel

POINT = "point"


def write_forecast(
    panel: Panel,
    point: Float[np.ndarray, "S F C"],
    quantiles: Float[np.ndarray, "S F C Q"] | None = None,
    names: Sequence[str] | None = None,
) -> Any:
    """Write what follows the series of a panel as the frame was that the panel was read from.

    Parameters
    ----------
    panel : Panel
        What was forecast.
    point : ndarray of shape (S, F, C)
        Point forecast of each series.
    quantiles : ndarray of shape (S, F, C, Q), optional
        Quantiles, or samples.
    names : sequence of str, optional
        Their names, ``"0.9"`` for example, which become names of columns.

    Returns
    -------
    DataFrame, Series or ndarray
        - Wide, time in the index: the columns of the frame. With quantiles each becomes a group:
          ``forecast["load"]["point"]``, ``forecast["load"]["0.9"]``.
        - Wide, time in a column: that column, and those of the targets; with quantiles also
          ``"load_0.9"``. Where time is the number of the row, and there is no index, the targets
          alone.
        - Long: item, time and target, in columns or in the index as they were; with quantiles
          also ``"0.9"``.
        - Series: a Series; with quantiles a DataFrame of ``"point"`` and ``"0.9"``.
        - Array of shape (T,) or (T, C): an array of shape (F,) or (F, C); with quantiles the
          quantiles alone, of shape (F, Q) or (F, C, Q).

    Raises
    ------
    DataError
        If two columns of the forecast would have one name.
    MissingDependencyError
        If the library of the frame is not installed, as may be after loading a model.

    Examples
    --------
    >>> from mlrforecast.data import read_panel
    >>> panel = read_panel(pd.Series([1.0, 2.0, 3.0], name="load"))
    >>> write_forecast(panel, np.array([[[4.0], [5.0]]]))
    3    4.0
    4    5.0
    Name: load, dtype: float64
    """
    names = list(names or ())
    layout = panel.layout
    match layout.form:
        case "array":
            values = point[0] if quantiles is None else quantiles[0]
            return values[:, 0] if layout.flat else values
        case "long":
            frame = _long(panel, point, quantiles, names)
        case "series":
            return _series(panel, point, quantiles, names)
        case _ if layout.indexed and has_index(layout):
            frame = _wide(panel, point[0], None if quantiles is None else quantiles[0], names)
        case _:
            frame = _wide_in_columns(
                panel, point[0], None if quantiles is None else quantiles[0], names
            )
    return frame if layout.native == "pandas" else _native(frame, layout.native)


def has_index(layout: Layout) -> bool:
    """Tell whether what held a frame of a ``layout`` has an index, which may hold time.

    Examples
    --------
    >>> has_index(Layout(form="wide")), has_index(Layout(form="wide", native="polars"))
    (True, False)
    """
    if layout.native in ("pandas", "numpy"):
        return layout.native == "pandas"
    return nw.Implementation(layout.native).is_pandas_like()


def _stamps(panel: Panel, steps: int) -> pd.Index:
    """Return the stamps after every series."""
    return future_stamps(panel.index[panel.bounds[1:] - 1], panel.freq, steps)


def _index(panel: Panel, steps: int) -> pd.Index:
    """Return the stamps after the one series of a frame, as an index of a known frequency."""
    index = _stamps(panel, steps).rename(panel.layout.time_name)
    if not isinstance(index, pd.DatetimeIndex) or isinstance(panel.freq, int):
        return index
    try:
        return pd.DatetimeIndex(index, freq=panel.freq)
    except Exception:
        # Such as days at an hour that the clock of the zone leaves out once a year. Pandas 2 says
        # so with errors of pytz, which need not be there with pandas 3.
        return index


def _long(
    panel: Panel, point: np.ndarray, quantiles: np.ndarray | None, names: list[str]
) -> pd.DataFrame:
    layout, steps = panel.layout, point.shape[1]
    items, stamps = panel.labels.repeat(steps), _stamps(panel, steps)
    columns: list[tuple[Hashable, Any]] = [(layout.target_name, point[:, :, 0].reshape(-1))]
    if quantiles is not None:
        columns += [
            (name, quantiles[:, :, 0, number].reshape(-1)) for number, name in enumerate(names)
        ]
    if layout.indexed:
        index = pd.MultiIndex.from_arrays([items, stamps], names=[layout.id_name, layout.time_name])
        return _frame(columns).set_index(index)
    return _frame([(layout.id_name, items), (layout.time_name, stamps), *columns])


def _series(
    panel: Panel, point: np.ndarray, quantiles: np.ndarray | None, names: list[str]
) -> pd.Series | pd.DataFrame:
    index = _index(panel, point.shape[1])
    if quantiles is None:
        return pd.Series(point[0, :, 0], index=index, name=panel.layout.target_name)
    values = np.column_stack([point[0, :, 0], quantiles[0, :, 0]])
    return pd.DataFrame(values, index=index, columns=[POINT, *names])


def _wide(
    panel: Panel, point: np.ndarray, quantiles: np.ndarray | None, names: list[str]
) -> pd.DataFrame:
    """Write a forecast of shape (F, C), with quantiles (F, C, Q), with time in the index."""
    index = _index(panel, len(point))
    if quantiles is None:
        return pd.DataFrame(point, index=index, columns=panel.labels)
    values = np.concatenate([point[..., None], quantiles], axis=-1)
    columns = _with_level(panel.labels, [POINT, *names])
    return pd.DataFrame(values.reshape(len(point), -1), index=index, columns=columns)


def _wide_in_columns(
    panel: Panel, point: np.ndarray, quantiles: np.ndarray | None, names: list[str]
) -> pd.DataFrame:
    """Write a forecast of shape (F, C), with quantiles (F, C, Q), with time in a column."""
    columns: list[tuple[Hashable, Any]] = []
    if not panel.layout.indexed:
        columns.append((panel.layout.time_name, _stamps(panel, len(point))))
    for channel, label in enumerate(panel.labels.tolist()):
        columns.append((label, point[:, channel]))
        if quantiles is not None:
            columns += [
                (_suffixed(label, name), quantiles[:, channel, number])
                for number, name in enumerate(names)
            ]
    frame = _frame(columns)
    frame.columns = frame.columns.set_names(panel.labels.names)
    return frame


def _suffixed(label: Hashable, name: str) -> Hashable:
    """Return the name of a quantile of a column."""
    if isinstance(label, tuple):
        return (*label[:-1], f"{label[-1]}_{name}")
    return f"{label}_{name}"


def _frame(columns: list[tuple[Hashable, Any]]) -> pd.DataFrame:
    """Return a frame of columns, which must differ in their names."""
    named = dict(columns)
    if len(named) < len(columns):
        names = [name for name, _ in columns]
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(
            f"The forecast would have two columns named {twice!r}: one of the frame, and one of a "
            "quantile. Rename the one of the frame."
        )
    return pd.DataFrame(named)


def _with_level(labels: pd.Index, names: list[str]) -> pd.MultiIndex:
    """Return the columns with one more level below them."""
    if isinstance(labels, pd.MultiIndex):
        return pd.MultiIndex.from_tuples(
            [(*label, name) for label in labels for name in names], names=[*labels.names, None]
        )
    # Not from_product, which sorts the labels and so needs ones that can be compared.
    levels: list[Any] = [labels, names]
    codes: list[Any] = [
        np.repeat(np.arange(len(labels)), len(names)),
        np.tile(np.arange(len(names)), len(labels)),
    ]
    return pd.MultiIndex(levels, codes, names=[labels.name, None])


def _native(frame: pd.DataFrame, native: str) -> Any:
    """Return a frame as one of the library by the name that narwhals has for it."""
    library = nw.Implementation(native)
    namespace = _import(library)
    if library.is_pandas_like():
        return namespace.DataFrame(frame)
    columns = {str(name): _plain(frame[name]) for name in frame.columns}
    built: Any = nw.from_dict(columns, backend=namespace)
    changed = [_as_before(str(name), frame[name]) for name in frame.columns]
    return built.with_columns(*(column for column in changed if column is not None)).to_native()


def _import(library: nw.Implementation) -> ModuleType:
    try:
        return library.to_native_namespace()
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"The forecast goes into a frame of {library.value}, as the history was one, but "
            f"{error.name!r} is not installed. Install it with: pip install {library.value}"
        ) from error


def _plain(column: pd.Series) -> Any:
    """Return a column as an array or list that any library reads; stamps in UTC."""
    if getattr(column.dtype, "tz", None) is not None:
        return column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
    array = column.to_numpy()
    return column.tolist() if array.dtype == object else array


def _as_before(name: str, column: pd.Series) -> nw.Expr | None:
    """Return what makes of a plain column one of the type of the frame."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return nw.col(name).cast(nw.Categorical)
    zone = getattr(column.dtype, "tz", None)
    if zone is None:
        return None
    # Pandas writes "UTC+05:30" for what others call "+05:30".
    zone = str(zone).removeprefix("UTC") or "UTC"
    return nw.col(name).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
