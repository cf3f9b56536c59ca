"""The written rules by which a forecaster derives what was left open."""

from collections.abc import Sequence

import numpy as np

from mlrforecast._core.errors import DataError
from mlrforecast.data import Panel, Series
from mlrforecast.models import EncoderConfig

MAX_CONTEXT = 336
NUM_TOKENS = 20
MAX_PATCH = 16
MIN_STEPS, MAX_STEPS = 100, 2000


def derive_lengths(
    panel: Panel,
    prediction_length: int,
    context_length: int | None,
    patch_length: int | None,
) -> tuple[int, int]:
    """Return context and patch length.

    The context is a quarter of the longest series, at most 336 steps. A patch cuts it into about
    20 tokens and has at most 16 steps. A derived context is a whole number of patches.
    """
    longest = max(len(item.index) for item in panel.series)
    context = context_length or min(MAX_CONTEXT, max(1, (longest - prediction_length) // 4))
    patch = patch_length or min(MAX_PATCH, max(1, context // NUM_TOKENS))
    if context_length is None:
        context = max(1, context // patch) * patch
    if patch > context:
        raise ValueError(
            f"`patch_length` must be at most the context length {context}, got {patch}."
        )
    return context, patch


def derive_steps(num_windows: int) -> int:
    """Return the optimiser steps for so many windows: 2.5 times their square root, 100 to 2000.

    Little data is learned by heart in many steps. On folds inside the train and validation rows,
    about 120 steps are best for the 2,235 windows of the embedded series, and 300 to 600 for the
    57,463 of ETTh1 at horizon 96.
    """
    return int(min(MAX_STEPS, max(MIN_STEPS, round(2.5 * num_windows**0.5))))


def check_quantile_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """Return increasing levels in (0, 1) as a tuple."""
    given = tuple(float(level) for level in levels)
    if not given or not all(0 < level < 1 for level in given) or list(given) != sorted(set(given)):
        raise ValueError(f"`quantile_levels` must increase within (0, 1), got {given}.")
    return given


def split_validation(
    panel: Panel, config: EncoderConfig, *, hold_back: bool
) -> tuple[Panel, Panel | None]:
    """Hold back the newest tenth of each series, at least one forecast, if asked to."""
    if not hold_back:
        return panel, None
    training, validation = [], []
    for item in panel.series:
        rows = len(item.index)
        tail = max(config.prediction_length, rows // 10)
        if rows < tail + config.prediction_length + config.patch_length:
            raise DataError(
                f"Early stopping needs {tail + config.prediction_length + config.patch_length} "
                f"rows of every series, but {panel.label(item, 0)} has {rows}. "
                "Set early_stopping=False or leave it out."
            )
        training.append(Series(item.item_id, item.index[:-tail], item.values[:-tail]))
        validation.append(item.tail(tail + config.context_length))
    return (
        Panel(panel.form, panel.names, panel.freq, tuple(training)),
        Panel(panel.form, panel.names, panel.freq, tuple(validation)),
    )


def pad_context(values: np.ndarray, context_length: int) -> np.ndarray:
    """Return the newest ``context_length`` rows, padded with NaN on the old side if need be."""
    missing = max(0, context_length - len(values))
    return np.pad(values[-context_length:], ((missing, 0), (0, 0)), constant_values=np.nan)
