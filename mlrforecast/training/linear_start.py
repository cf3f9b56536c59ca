"""Where the straight way from a context to a forecast starts: at a ridge regression."""

import torch
from torch import Tensor

from mlrforecast.data import ForecastBatch, WindowStore
from mlrforecast.models import EncoderForecaster
from mlrforecast.nn import instance_normalise
from mlrforecast.nn.distributions import DISTRIBUTIONS

__all__ = ["start_linear"]

MIN_FORECASTS = 500
"""Forecasts that do not overlap: fewer teach no level.

On folds inside the train and validation rows of ETTh1 and ETTh2 this start was ahead at horizons 24
and 96, with 2400 and 600 of them. At 336, with 170, the network then learnt the levels of the
training months by heart.
"""
PENALTY = 0.2
"""Of a squared weight, in units of the mean square of a normalised value."""
NUM_WINDOWS = 2**14
"""Neighbouring windows say nearly the same: more of them change little."""
_BATCH = 512


def start_linear(model: EncoderForecaster, store: WindowStore) -> None:
    """Start the linear map of a model at what a ridge regression finds, and its head at zero.

    From there the network learns what a linear map of the context leaves. Windows count by the
    size of their values, and those with a missing step to forecast not at all. A model without such
    a map, one of counts, one of windows that say nothing, and one of fewer windows than 500 times
    the steps of a forecast stay as they are.

    Parameters
    ----------
    model : EncoderForecaster
        The model before its first step; it is changed in place.
    store : WindowStore
        Windows to learn from, at most 16384 of them, evenly spread.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from mlrforecast.data import CovariateEncoding, read_panel
    >>> from mlrforecast.models import EncoderConfig
    >>> index = pd.date_range("2024-01-01", periods=12_500, freq="h")
    >>> panel = read_panel(pd.DataFrame({"y": np.arange(12_500) % 24}, index=index))
    >>> encoding = CovariateEncoding.fit(panel, calendar=False)
    >>> sizes = {"context_length": 96, "prediction_length": 24}
    >>> store = WindowStore(panel, encoding, min_context=16, **sizes)
    >>> model = EncoderForecaster(EncoderConfig(linear_skip=True, loss="mae", **sizes))
    >>> start_linear(model, store)
    >>> batch = store.gather(torch.arange(100))
    >>> bool((model.eval().forecast(batch)[0] - batch.future_target).abs().mean() < 0.03)
    True
    """
    config = model.config
    is_count = config.loss in DISTRIBUTIONS and DISTRIBUTIONS[config.loss].is_count
    if model.linear_skip is None or is_count:
        return
    size, steps = config.context_length + 1, config.prediction_length
    if len(store) < MIN_FORECASTS * steps:
        return
    squares = torch.zeros(size, size, dtype=torch.float64)
    products = torch.zeros(size, steps, dtype=torch.float64)
    for batch in store.evenly_spaced(_BATCH, NUM_WINDOWS):
        inputs, outputs, weights = _regression(model, batch)
        weighted = (inputs * weights).T
        squares += (weighted @ inputs).double()
        products += (weighted @ outputs).double()
    total = squares[-1, -1]
    if total == 0:
        return
    penalty = PENALTY * total * torch.eye(size, dtype=torch.float64)
    solution = torch.linalg.solve(squares + penalty, products).float()
    with torch.no_grad():
        model.linear_skip.map.weight.copy_(solution[:-1].T)
        model.head.point.weight.zero_()
        model.head.point.bias.copy_(solution[-1])


def _regression(model: EncoderForecaster, batch: ForecastBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Return normalised contexts beside a column of ones, what follows them, and weights (B, 1)."""
    past, future = batch.past_target[..., 0], batch.future_target[..., 0]
    observed = None if batch.past_observed is None else batch.past_observed[..., 0]
    normal = instance_normalise(past, observed, model.config.scaling)
    weights = normal.scale
    if batch.future_observed is not None:
        weights = weights * batch.future_observed[..., 0].all(dim=1, keepdim=True)
    outputs = (future - normal.loc) / normal.scale.where(normal.scale > 0, 1.0)
    return torch.cat([normal.values, torch.ones_like(weights)], dim=1), outputs, weights
