"""Reading of the real files, and what is expected of a forecast of any of them."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError

SMALL: dict[str, Any] = {
    "prediction_length": 12,
    "context_length": 48,
    "width": 8,
    "num_heads": 2,
    "num_layers": 1,
    "hidden_width": 8,
    "max_steps": 2,
    "batch_size": 16,
    "accelerator": "cpu",
    "progress": False,
}


def forecaster(**parameters: Any) -> MLRForecaster:
    """A forecaster that fits in a blink, with what a user would say of a frame."""
    return MLRForecaster(**SMALL | parameters)


def refusal(frame: pd.DataFrame, *words: str, **parameters: Any) -> str:
    """Check that a frame is refused with an error that says each word; return the message."""
    with pytest.raises(DataError) as caught:
        forecaster(**parameters).fit(frame)
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


def check_wide(
    forecast: pd.DataFrame, columns: list[Hashable], expected: pd.Index, time: str | None = None
) -> None:
    """Check the columns, the stamps and the numbers of a wide forecast.

    ``time`` names the column of the stamps; without it they stand in the index.
    """
    numbers = forecast if time is None else forecast.drop(columns=time)
    assert list(numbers.columns) == columns
    assert np.isfinite(numbers.to_numpy()).all()
    stamps = forecast.index if time is None else pd.Index(forecast[time])
    assert stamps.dtype.kind == expected.dtype.kind
    assert list(stamps) == list(expected)


def check_long(
    forecast: pd.DataFrame,
    frame: pd.DataFrame,
    freq: str,
    steps: int,
    names: tuple[str, str, str] = ("unique_id", "ds", "y"),
) -> None:
    """Check the items, the stamps after the last row of each, and the numbers."""
    item, time, target = names
    assert list(forecast.columns)[:3] == list(names)
    assert np.isfinite(forecast[target].to_numpy()).all()
    last = frame.assign(**{time: pd.to_datetime(frame[time])}).groupby(item, sort=False)[time].max()
    assert list(dict.fromkeys(forecast[item])) == list(last.index)
    assert forecast[item].dtype == frame[item].dtype
    for number, (name, stamp) in enumerate(last.items()):
        own = forecast.iloc[number * steps : (number + 1) * steps]
        assert set(own[item]) == {name}
        assert list(own[time]) == list(pd.date_range(stamp, periods=steps + 1, freq=freq)[1:])


def read_tsf(path: Path) -> tuple[pd.DataFrame, str, int | None]:
    """Read a file of the Monash repository: a long frame, its frequency by name, its horizon."""
    names: list[str] = []
    facts: dict[str, str] = {}
    parts = []
    # The comments are not valid UTF-8.
    lines = iter(path.read_text(encoding="cp1252").splitlines())
    for line in lines:
        if line.startswith("@attribute"):
            names.append(line.split()[1])
        elif line.startswith("@data"):
            break
        elif line.startswith("@"):
            key, _, value = line[1:].partition(" ")
            facts[key] = value
    for line in lines:
        *cells, values = line.split(":")
        given = dict(zip(names, cells, strict=True))
        start = pd.to_datetime(given.pop("start_timestamp"), format="%Y-%m-%d %H-%M-%S")
        target = [np.nan if cell == "?" else float(cell) for cell in values.split(",")]
        index = pd.date_range(start, periods=len(target), freq=STEPS[facts["frequency"]])
        assert index[0] == start
        parts.append(pd.DataFrame({"item_id": given.pop("series_name"), "timestamp": index}))
        parts[-1] = parts[-1].assign(target=target, **given)
    horizon = int(facts["horizon"]) if "horizon" in facts else None
    return pd.concat(parts, ignore_index=True), facts["frequency"], horizon


# Each series of these files starts on a Sunday, or at the beginning of its period.
STEPS = {"daily": "D", "weekly": "W-SUN", "monthly": "MS", "quarterly": "QS", "yearly": "YS"}
