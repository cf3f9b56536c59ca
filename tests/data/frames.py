"""Small frames for the tests of reading, and a check of what is refused."""

from collections.abc import Hashable

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError
from mlrforecast.data import FrameSchema, read_panel


def wide(rows: int = 6, freq: str = "h", **columns: object) -> pd.DataFrame:
    index = pd.date_range("2024-01-01", periods=rows, freq=freq)
    return pd.DataFrame(columns or {"load": np.arange(rows, dtype=float)}, index=index)


def long(*items: object, rows: int = 5, freq: str = "D") -> pd.DataFrame:
    """Item number ``i`` holds ``100 i``, ``100 i + 1``, ..."""
    stamps = pd.date_range("2024-01-01", periods=rows, freq=freq)
    return pd.concat(
        [
            pd.DataFrame(
                {"item_id": item, "timestamp": stamps, "target": 100.0 * number + np.arange(rows)}
            )
            for number, item in enumerate(items)
        ],
        ignore_index=True,
    )


def altered(frame: pd.DataFrame, column: str, row: int, value: object) -> pd.DataFrame:
    frame = frame.copy()
    frame.loc[frame.index[row], column] = value
    return frame


def of_stamps(*stamps: str | pd.Timestamp) -> pd.DataFrame:
    index = pd.DatetimeIndex([pd.Timestamp(stamp) for stamp in stamps])
    return pd.DataFrame({"load": np.arange(len(stamps)) + 1.0}, index=index)


def refused(
    frame: object,
    *words: str,
    freq: str | int | None = None,
    argument: str = "X",
    **schema: Hashable,
) -> None:
    """Check that reading fails with a DataError that says each of the words."""
    with pytest.raises(DataError) as caught:
        read_panel(frame, FrameSchema(**schema), freq=freq, argument=argument)
    for word in words:
        assert word in str(caught.value)
