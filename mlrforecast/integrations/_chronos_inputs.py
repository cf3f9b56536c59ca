"""What pipelines of Chronos are given, as a forecaster takes it."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset
from torch import Tensor

from mlrforecast._core.arguments import real_numbers
from mlrforecast._core.errors import DataError


def context_rows(inputs: Any, context_length: int) -> list[np.ndarray]:
    """Return the newest steps of each context, from the first that holds a value on."""
    if isinstance(inputs, Tensor | np.ndarray):
        if inputs.ndim not in (1, 2):
            raise ValueError(
                "`inputs` must have the shape (B, T) or (T,), a row for each series, got "
                f"{tuple(inputs.shape)}."
            )
        rows: Any = inputs if inputs.ndim == 2 else inputs[None]
    elif isinstance(inputs, list | tuple):
        rows = inputs
    else:
        raise TypeError(
            f"`inputs` must be a tensor or a list of tensors, got a {type(inputs).__name__}."
        )
    if not len(rows):
        raise ValueError("`inputs` must hold at least one context, got none.")
    return [_row(row, number, context_length) for number, row in enumerate(rows)]


def _row(given: Any, number: int, context_length: int) -> np.ndarray:
    """Return one context as float64."""
    if isinstance(given, Tensor):
        given = given.detach().cpu()
        given = (given if given.is_complex() else given.double()).numpy()
    row = real_numbers(f"inputs[{number}]", given, np.float64)
    if row.ndim != 1 or not len(row):
        raise ValueError(
            f"`inputs[{number}]` must have the shape (T,) with at least one step, got {row.shape}."
        )
    first = max(len(row) - context_length, 0)
    row = row[first:]
    if len(infinite := np.flatnonzero(np.isinf(row))):
        raise DataError(
            f"`inputs[{number}]` must be finite or NaN, got {row[infinite[0]]} at step "
            f"{first + infinite[0]}."
        )
    seen = ~np.isnan(row)
    if not seen.any():
        raise DataError(
            f"`inputs[{number}]` must hold a value in the newest {len(row)} steps, got NaN alone."
        )
    # What comes before is padding, of which nothing is known.
    return row[int(seen.argmax()) :]


def level_list(levels: Any) -> list[Any]:
    """Return quantile levels as a list; the forecaster checks each."""
    if isinstance(levels, str) or not isinstance(levels, Iterable):
        raise TypeError(f"`quantile_levels` must be a sequence such as (0.1, 0.9), got {levels!r}.")
    return list(levels)


def first_stamp(freq: str | int) -> pd.Timestamp | int:
    """Return a time at which contexts without stamps may begin; nothing is read of it."""
    if isinstance(freq, int):
        return 0
    return pd.Timestamp(to_offset(freq).rollforward(pd.Timestamp("1900-01-01")))


def device_option(device_map: Any) -> str:
    """Return the accelerator that a device of transformers is."""
    name = str(device_map)
    known = {"auto": "auto", "cpu": "cpu", "cuda": "gpu", "cuda:0": "gpu", "mps": "mps"}
    if name not in known:
        raise ValueError(f"`device_map` must be one of {', '.join(known)}, got {device_map!r}.")
    return known[name]
