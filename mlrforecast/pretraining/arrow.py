"""Series in Arrow files, as GluonTS and the training scripts of Chronos read them."""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mlrforecast._core.atomic import write_whole
from mlrforecast._core.optional import import_optional
from mlrforecast.pretraining._checks import series as checked

__all__ = ["read_arrow", "write_arrow"]


def write_arrow(path: str | PathLike[str], series: Iterable[Any]) -> None:
    """Write series to an Arrow file: a row each, with ``start`` and ``target``.

    Parameters
    ----------
    path : path
        File to write or to replace; it appears whole or not at all.
    series : iterable of arrays of shape (T,)
        The series, written as float32. Their ``start`` is 2000-01-01: generated series have none.

    Raises
    ------
    MissingDependencyError
        If pyarrow is not installed.
    ValueError, TypeError
        If an entry is no series of finite values and NaN.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "series.arrow"
    >>> write_arrow(path, [np.arange(3), np.arange(2)])
    >>> [each.tolist() for each in read_arrow(path)]
    [[0.0, 1.0, 2.0], [0.0, 1.0]]
    """
    arrow = _arrow()
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        raise FileNotFoundError(
            f"`path` must be a file in a folder that exists, got {str(path)!r}."
        )
    rows = [checked(f"series[{n}]", each, np.float32) for n, each in enumerate(series)]
    for number, row in enumerate(rows):
        if not len(row):
            raise ValueError(f"`series[{number}]` must have at least one step, got none.")
    lengths = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    values = arrow.array(np.concatenate(rows) if rows else np.zeros(0, np.float32))
    target = arrow.LargeListArray.from_arrays(arrow.array(lengths), values)
    start = arrow.array(np.full(len(rows), np.datetime64("2000-01-01", "s")))
    table = arrow.table({"start": start, "target": target})
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    write_whole(path, sink.getvalue().to_pybytes())


def read_arrow(path: str | PathLike[str]) -> list[np.ndarray]:
    """Read the ``target`` of each row of an Arrow file.

    Parameters
    ----------
    path : path
        A file that :func:`write_arrow` or the ``ArrowWriter`` of GluonTS wrote.

    Returns
    -------
    list of ndarray of shape (T,), float32
        The series; NaN where a value is missing.

    Raises
    ------
    MissingDependencyError
        If pyarrow is not installed.
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no Arrow file of series.

    Examples
    --------
    >>> import tempfile
    >>> path = f"{tempfile.mkdtemp()}/series.arrow"
    >>> write_arrow(path, [[1.0, float("nan")]])
    >>> read_arrow(path)
    [array([ 1., nan], dtype=float32)]
    """
    arrow = _arrow()
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r} to read series from.")
    try:
        with arrow.memory_map(str(path)) as source:
            column = _opened(arrow, source).column("target")
            chunks = [_rows(chunk) for chunk in column.chunks]
    except (arrow.ArrowException, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{str(path)!r} must be an Arrow file with lists of numbers under 'target': {error}"
        ) from error
    return [row for chunk in chunks for row in chunk]


def _opened(arrow: Any, source: Any) -> Any:
    """Return the table of a file, or of a stream."""
    try:
        return arrow.ipc.open_file(source).read_all()
    except arrow.ArrowInvalid:
        source.seek(0)
        return arrow.ipc.open_stream(source).read_all()


def _rows(chunk: Any) -> list[np.ndarray]:
    """Return the lists of a chunk."""
    with np.errstate(over="ignore"):
        # Who uses the series refuses what is infinite.
        values = np.asarray(chunk.flatten().to_numpy(zero_copy_only=False), dtype=np.float32)
    lengths = np.array([0 if n is None else n for n in chunk.value_lengths().to_pylist()])
    ends = np.cumsum(lengths)
    return [values[end - n : end].copy() for end, n in zip(ends, lengths, strict=True)]


def _arrow() -> Any:
    arrow = import_optional("pyarrow", extra="parquet", purpose="An Arrow file")
    import_optional("pyarrow.ipc", extra="parquet", purpose="An Arrow file")
    return arrow
