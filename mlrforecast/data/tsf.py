"""Files of the Monash archive (``.tsf``): a header, then a series a line."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError

__all__ = ["TsfData", "parse_tsf", "read_tsf"]

# What a file calls a step, as pandas writes it.
_FREQUENCIES = {
    "yearly": "YS",
    "quarterly": "QS",
    "monthly": "MS",
    "weekly": "W",
    "daily": "D",
    "hourly": "h",
    "half_hourly": "30min",
    "10_minutes": "10min",
    "minutely": "min",
    "4_seconds": "4s",
}
# The same in months, from the first of one, or in seconds.
_STEPS = {
    "YS": (12, "M"),
    "QS": (3, "M"),
    "MS": (1, "M"),
    "W": (604800, "s"),
    "D": (86400, "s"),
    "h": (3600, "s"),
    "30min": (1800, "s"),
    "10min": (600, "s"),
    "min": (60, "s"),
    "4s": (4, "s"),
}
# Time stamps of pandas end in this year.
_END = np.datetime64("2262-01-01", "s")
_KINDS = ("string", "numeric", "date")
_NAME, _START = "series_name", "start_timestamp"
_OURS = ("item_id", "timestamp", "target")
_MISSING = "?"


@dataclass(frozen=True, eq=False)
class TsfData:
    """What a file of the Monash archive holds.

    Attributes
    ----------
    frame : DataFrame
        Columns ``item_id`` (str), ``timestamp``, ``target`` (float64, NaN where missing), then
        one for each further attribute, the same in all rows of a series. Time stamps are the
        start of each year, quarter, month or step; a file without start dates, or with times that
        have no frequency, has the numbers of the rows in their place, from 0 on.
    freq : str or int
        Step between the rows of a series, as pandas writes it, or 1.
    season_frequency : str
        The same as the file says it, also without start dates; empty if it says nothing.
    prediction_length : int or None
        Rows to forecast, if the file names them.
    attributes : tuple of str
        Columns of ``frame`` beyond the first three.
    comments : str
        Comment lines of the header.
    """

    frame: pd.DataFrame
    freq: str | int
    season_frequency: str
    prediction_length: int | None
    attributes: tuple[str, ...]
    comments: str


@dataclass(frozen=True)
class _Header:
    """Lines of a file before its data."""

    attributes: tuple[tuple[str, str], ...]
    frequency: str
    horizon: int | None
    comments: str


def read_tsf(path: str | os.PathLike[str], *, encoding: str | None = None) -> TsfData:
    """Read a file of the Monash archive.

    Parameters
    ----------
    path : path
        The file; ``~`` is expanded.
    encoding : str, optional
        Of its text; bytes that it does not have are replaced. Default: UTF-8 if the file is that,
        else cp1252, as most files of the archive are.

    Returns
    -------
    TsfData

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    DataError
        If the file breaks a rule of the format; the message names the line.

    Examples
    --------
    >>> import tempfile
    >>> text = '''# Two shops
    ... @relation shops
    ... @attribute series_name string
    ... @attribute start_timestamp date
    ... @frequency daily
    ... @horizon 1
    ... @data
    ... T1:2024-01-01 00-00-00:3,?,2
    ... T2:2024-01-02 00-00-00:5,4
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "shops.tsf"
    ...     _ = path.write_text(text)
    ...     data = read_tsf(path)
    >>> data.freq, data.prediction_length
    ('D', 1)
    >>> data.frame
      item_id  timestamp  target
    0      T1 2024-01-01     3.0
    1      T1 2024-01-02     NaN
    2      T1 2024-01-03     2.0
    3      T2 2024-01-02     5.0
    4      T2 2024-01-03     4.0
    """
    file = Path(os.path.expanduser(path))
    return parse_tsf(file.read_bytes(), where=str(file), encoding=encoding)


def parse_tsf(content: bytes, *, where: str, encoding: str | None = None) -> TsfData:
    """Read the content of a file of the Monash archive.

    Parameters
    ----------
    content : bytes
        The content.
    where : str
        Name of the file, for messages.
    encoding : str, optional
        As for :func:`read_tsf`.

    Returns
    -------
    TsfData

    Raises
    ------
    DataError
        As for :func:`read_tsf`.

    Examples
    --------
    >>> parse_tsf(b"no header", where="mine.tsf")
    Traceback (most recent call last):
    ...
    mlrforecast._core.errors.DataError: mine.tsf, line 1: expected a comment or a line that begins \
with '@', got 'no header'
    """
    lines = enumerate(_decoded(content, encoding).splitlines(), start=1)
    header = _read_header(lines, where)
    starts: list[str] = []
    columns: dict[str, list[str]] = {name: [] for name, _ in header.attributes}
    series: list[np.ndarray] = []
    for number, line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        *given, values = line.split(":")
        if len(given) != len(columns):
            raise DataError(
                f"{where}, line {number}: expected {len(columns)} attributes "
                f"({', '.join(columns)}) and values, divided by ':', got {line[:60]!r}"
            )
        for name, value in zip(columns, given, strict=True):
            columns[name].append(value)
        series.append(_values(values, f"{where}, line {number}"))
    if not series:
        raise DataError(f"{where} holds no series after the line @data")
    starts = columns.pop(_START, [])
    names = columns.pop(_NAME, [f"T{number}" for number in range(1, len(series) + 1)])
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{where}: the series {double!r} occurs twice")
    lengths = np.array([len(values) for values in series])
    freq, stamps = _stamps(starts, names, lengths, header.frequency, where)
    frame = {
        "item_id": np.repeat(np.array(names, dtype=object), lengths),
        "timestamp": stamps,
        "target": np.concatenate(series),
    }
    kinds = dict(header.attributes)
    for name, texts in columns.items():
        frame[name] = np.repeat(_attribute(texts, kinds[name], name, where), lengths)
    return TsfData(
        frame=pd.DataFrame(frame),
        freq=freq,
        season_frequency=_FREQUENCIES.get(header.frequency, ""),
        prediction_length=header.horizon,
        attributes=tuple(columns),
        comments=header.comments,
    )


def _decoded(content: bytes, encoding: str | None) -> str:
    """Return the text of a file."""
    if encoding is None:
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            encoding = "cp1252"
    return content.decode(encoding, errors="replace")


def _read_header(lines: Iterator[tuple[int, str]], where: str) -> _Header:
    """Read up to the line ``@data``."""
    attributes: list[tuple[str, str]] = []
    frequency, horizon, comments = "", None, []
    for number, line in lines:
        place = f"{where}, line {number}"
        words = line.split()
        if not words:
            continue
        if line.startswith("#"):
            comments.append(line.lstrip("#").strip())
            continue
        if not line.startswith("@"):
            raise DataError(
                f"{place}: expected a comment or a line that begins with '@', got {line[:60]!r}"
            )
        tag = words[0].lower()
        if tag == "@data":
            return _Header(tuple(attributes), frequency, horizon, "\n".join(comments))
        if tag == "@attribute":
            if len(words) != 3 or words[2] not in _KINDS:
                raise DataError(
                    f"{place}: an attribute needs a name and a kind of {_KINDS}, got {line[:60]!r}"
                )
            if words[1] in {*_OURS, *(name for name, _ in attributes)}:
                raise DataError(
                    f"{place}: an attribute must have a name of its own, none of "
                    f"{', '.join(_OURS)}, got {words[1]!r}"
                )
            attributes.append((words[1], words[2]))
        elif tag == "@frequency":
            frequency = words[1].lower() if len(words) == 2 else ""
            if frequency not in _FREQUENCIES:
                raise DataError(
                    f"{place}: the frequency must be one of {', '.join(_FREQUENCIES)}, "
                    f"got {line[:60]!r}"
                )
        elif tag == "@horizon":
            if len(words) != 2 or not words[1].isdigit() or int(words[1]) < 1:
                raise DataError(f"{place}: the horizon must be a count, got {line[:60]!r}")
            horizon = int(words[1])
    raise DataError(f"{where} has no line @data: it was cut short or is no .tsf file")


def _values(text: str, place: str) -> np.ndarray:
    """Read the values of a series."""
    cells = [cell.strip() for cell in text.split(",")]
    try:
        values = np.array([np.nan if cell == _MISSING else float(cell) for cell in cells])
    except ValueError as error:
        raise DataError(f"{place}: values must be numbers or '?': {error}") from error
    return values


def _attribute(texts: list[str], kind: str, name: str, where: str) -> np.ndarray:
    """Return an attribute of all series as numbers, dates or texts."""
    if kind == "string":
        return np.array(texts, dtype=object)
    try:
        if kind == "numeric":
            return np.array([float(text) for text in texts])
        return _dates(texts).to_numpy()
    except ValueError as error:
        raise DataError(f"{where}: attribute {name!r} must be {kind}: {error}") from error


def _dates(texts: list[str]) -> pd.DatetimeIndex:
    """Read dates such as ``2024-01-31 12-00-00``, hours divided by dashes."""
    return pd.DatetimeIndex(pd.to_datetime(texts, format="%Y-%m-%d %H-%M-%S"))


def _stamps(
    starts: list[str], names: list[str], lengths: np.ndarray, frequency: str, where: str
) -> tuple[str | int, np.ndarray]:
    """Return the step, and the time of every row."""
    firsts = np.cumsum(lengths) - lengths
    steps = np.arange(lengths.sum()) - np.repeat(firsts, lengths)
    if not starts or not frequency:
        return 1, steps
    try:
        first = _dates(starts)
    except ValueError as error:
        wrong = next(name for name, text in zip(names, starts, strict=True) if not _is_date(text))
        raise DataError(
            f"{where}: the start of series {wrong!r} must be a date such as "
            f"'2024-01-31 00-00-00': {error}"
        ) from error
    freq = _FREQUENCIES[frequency]
    count, unit = _STEPS[freq]
    begins = first.to_numpy("M8[s]").astype(f"M8[{unit}]").astype(np.int64)
    if unit == "M":
        begins -= begins % count
    places = np.repeat(begins, lengths) + count * steps
    times = places.astype(f"M8[{unit}]").astype("M8[s]")
    if (late := times >= _END).any():
        number = int(np.searchsorted(firsts, np.argmax(late), side="right")) - 1
        raise DataError(
            f"{where}: series {names[number]!r} must end before the year {_END.item().year}, but "
            f"from {starts[number]} on it has {lengths[number]} steps of {freq!r}"
        )
    if freq == "W":
        days = sorted(set(first.day_name().str[:3].str.upper()))
        freq = f"W-{days[0]}" if len(days) == 1 else "7D"
    return freq, times.astype("M8[ns]")


def _is_date(text: str) -> bool:
    try:
        _dates([text])
    except ValueError:
        return False
    return True
