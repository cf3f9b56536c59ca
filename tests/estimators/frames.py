"""Small frames in both forms, and parameters of a forecaster that fits in a blink."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

PREDICTION, CONTEXT = 6, 24

TINY: dict[str, Any] = {
    "prediction_length": PREDICTION,
    "context_length": CONTEXT,
    "width": 8,
    "num_heads": 2,
    "num_layers": 1,
    "hidden_width": 8,
    "max_steps": 3,
    "batch_size": 16,
    "accelerator": "cpu",
    "progress": False,
}


def wide(
    rows: int = 120, columns: Sequence[Hashable] = ("a", "b"), freq: str = "h", seed: int = 0
) -> pd.DataFrame:
    """A noisy daily wave in each column, at levels and sizes of its own."""
    number = np.arange(len(columns))
    wave = np.sin(2 * np.pi * np.arange(rows)[:, None] / 24 + number)
    noise = np.random.default_rng(seed).normal(size=(rows, len(columns)))
    index = pd.date_range("2024-01-01", periods=rows, freq=freq, name="date")
    frame = pd.DataFrame(10 * number + (1 + number) * (wave + 0.1 * noise), index=index)
    return frame.set_axis(list(columns), axis=1)


def long(
    ids: Sequence[Hashable] = ("z", "b", "m"),
    rows: Sequence[int] = (80, 60, 70),
    names: tuple[str, str, str] = ("item_id", "timestamp", "target"),
) -> pd.DataFrame:
    """Series of different lengths that end at different stamps."""
    parts = []
    for number, (item, count) in enumerate(zip(ids, rows, strict=True)):
        values = wide(count, ("y",), seed=number)["y"] + 5 * number
        parts.append(
            pd.DataFrame({names[0]: item, names[1]: values.index, names[2]: values.to_numpy()})
        )
    return pd.concat(parts, ignore_index=True)
