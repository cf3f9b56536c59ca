"""From a panel to all that training reads; nothing else decides which rows that are."""

from typing import Any, NamedTuple

import numpy as np

from mlrforecast._core.errors import DataError
from mlrforecast.data import CovariateEncoding, Panel, WindowStore
from mlrforecast.estimators import _parameters
from mlrforecast.models import EncoderConfig
from mlrforecast.nn import DISTRIBUTIONS


class TrainingData(NamedTuple):
    """What a forecaster is trained on, and the configuration that fits it.

    Parameters
    ----------
    config : EncoderConfig
        The configuration of the network.
    encoding : CovariateEncoding
        How covariates are read, learnt from the training rows.
    store : WindowStore
        Windows of the training rows.
    validation : WindowStore or None
        Windows of the rows that are held back, if any are.
    num_rows : ndarray of int of shape (S,)
        Rows of each series that are trained on.
    """

    config: EncoderConfig
    encoding: CovariateEncoding
    store: WindowStore
    validation: WindowStore | None
    num_rows: np.ndarray


def prepare(
    panel: Panel,
    parameters: dict[str, Any],
    fixed: tuple[EncoderConfig, CovariateEncoding] | None = None,
) -> TrainingData:
    """Cut a panel into windows as the parameters say, or as a network that is there reads them."""
    if parameters["loss"] in DISTRIBUTIONS and DISTRIBUTIONS[parameters["loss"]].is_count:
        _check_counts(panel, parameters["loss"])
    longest = int(panel.lengths.max())
    if fixed is None:
        context_length, patch_length = _parameters.derive_lengths(parameters, longest)
    else:
        context_length, patch_length = fixed[0].context_length, fixed[0].patch_length
    training, validation = panel, None
    if parameters["early_stopping"]:
        training, validation = split_validation(
            panel,
            prediction_length=parameters["prediction_length"],
            context_length=context_length,
            patch_length=patch_length,
        )
    if fixed is None:
        encoding = CovariateEncoding.fit(training, calendar=parameters["calendar"])
        config = _parameters.to_config(parameters, longest, encoding)
    else:
        config, encoding = fixed
    return TrainingData(
        config,
        encoding,
        _windows(training, encoding, config),
        None if validation is None else _windows(validation, encoding, config),
        training.lengths,
    )


def split_validation(
    panel: Panel, *, prediction_length: int, context_length: int, patch_length: int
) -> tuple[Panel, Panel]:
    """Hold back the newest tenth of each series, at least one forecast, and the context before it.

    A series that would have no window left to train on keeps all its rows for training.
    """
    rows = panel.lengths
    tails = np.maximum(prediction_length, rows // 10)
    needed = tails + prediction_length + patch_length
    held = rows >= needed
    if not held.any():
        number = int(np.argmax(rows))
        raise DataError(
            f"Early stopping needs a series of {needed[number]} rows ({tails[number]} of them held "
            f"back), but {panel.owner(number)}{' is the longest and' * (len(panel) > 1)} has "
            f"{rows[number]}. Set early_stopping=False."
        )
    cuts = np.where(held, rows - tails, rows)
    validation = panel if held.all() else panel.select(np.flatnonzero(held))
    first = np.maximum(cuts[held] - context_length, 0)
    return panel.crop(np.zeros_like(rows), cuts), validation.crop(first, rows[held])


def _check_counts(panel: Panel, loss: str) -> None:
    """Refuse values that are no counts."""
    for part in panel.blocks(len(panel.values)):
        values = panel.values[part]
        wrong = np.argwhere((values < 0) | (np.floor(values) < values))
        if not len(wrong):
            continue
        row, channel = map(int, wrong[0])
        number = int(np.searchsorted(panel.bounds, part.start + row, side="right")) - 1
        raise DataError(
            f"loss={loss!r} needs counts, whole numbers from 0 on, but "
            f"{panel.label(number, channel)} holds {values[row, channel]:g} at "
            f"{panel.index[part.start + row]}. Choose another loss, such as 'quantile'."
        )


def _windows(panel: Panel, encoding: CovariateEncoding, config: EncoderConfig) -> WindowStore:
    """Return the windows of a panel; each has at least one patch of context."""
    return WindowStore(
        panel,
        encoding,
        context_length=config.context_length,
        prediction_length=config.prediction_length,
        min_context=config.patch_length,
        scaling=config.data_scaling,
    )
