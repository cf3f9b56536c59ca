"""The csv files of the M4 competition: a series a row, training and test part apart."""

import io

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError

__all__ = ["parse_m4"]


def parse_m4(train: bytes, test: bytes) -> pd.DataFrame:
    r"""Join the training and the test file of one frequency.

    Parameters
    ----------
    train, test : bytes
        Content of the two csv files: a header, then the name of a series and its values, in the
        training file followed by empty cells up to the longest.

    Returns
    -------
    DataFrame
        Columns ``item_id`` (str), ``timestamp`` (int, the number of the row from 0 on, since the
        files hold no time) and ``target`` (float64).

    Raises
    ------
    DataError
        If the files name other series, or a value is missing inside a series.

    Examples
    --------
    >>> parse_m4(b"V1,V2,V3\nH1,1,2\nH2,3,", b"V1,V2\nH1,5\nH2,6")
      item_id  timestamp  target
    0      H1          0     1.0
    1      H1          1     2.0
    2      H1          2     5.0
    3      H2          0     3.0
    4      H2          1     6.0
    """
    names, past = _read(train, "training")
    others, future = _read(test, "test")
    if not names.equals(others):
        number = int(np.argmax(names != others)) if len(names) == len(others) else -1
        found = f"{names[number]!r} and {others[number]!r}" if number >= 0 else ""
        raise DataError(
            "The training and the test file of M4 must name the same series in the same order, "
            f"got {len(names)} and {len(others)} series" + (f", {found}" if found else "")
        )
    lengths = (~np.isnan(past)).sum(axis=1)
    inside = np.arange(past.shape[1]) < lengths[:, None]
    if np.isnan(past[inside]).any() or np.isnan(future).any():
        gaps = (np.isnan(past) & inside).any(axis=1) | np.isnan(future).any(axis=1)
        raise DataError(f"Series {names[int(np.argmax(gaps))]!r} of M4 lacks a value inside")
    values = np.concatenate([past, future], axis=1)
    kept = np.concatenate([inside, np.ones(future.shape, dtype=bool)], axis=1)
    lengths = kept.sum(axis=1)
    firsts = np.cumsum(lengths) - lengths
    return pd.DataFrame(
        {
            "item_id": np.repeat(names.to_numpy(object), lengths),
            "timestamp": np.arange(lengths.sum()) - np.repeat(firsts, lengths),
            "target": values[kept],
        }
    )


def _read(content: bytes, part: str) -> tuple[pd.Index, np.ndarray]:
    """Read one file: names of the series, and their values with NaN in empty cells."""
    try:
        frame = pd.read_csv(io.BytesIO(content), index_col=0)
        return frame.index.astype(str), frame.to_numpy(np.float64)
    except ValueError as error:
        raise DataError(f"The {part} file of M4 is no csv of numbers: {error}") from error
