"""The linear regression whose forecast is averaged with that of a trained network."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mlrforecast.data import WindowStore
from mlrforecast.models import EncoderForecaster

__all__ = ["solve_linear"]

SEASONS = (1, 2, 3, 7)
"""How many of the newest seasons the means are of that the regression by seasons reads."""
SEASONAL, NEWEST, OLDEST, COVARIATE, CALENDAR = 0.01, 0.05, 100.0, 0.2, 1.0
"""Penalties of a squared weight, in units of the mean square of a normalised value.

That of the regression by seasons is the same for all of its numbers. The older a step of the
context, the less it is expected to say beside them: its penalty rises evenly from that of the
newest step to that of the oldest one. The last are those of each number of a covariate and of the
calendar.
"""
ROUNDS = 2
"""Regressions of a kind, each with the weights that the errors of the one before give."""
FLOOR = 0.1
"""Added to the size of an error, so that no window counts for everything."""
NUM_WINDOWS, NUM_VALUES = 2**14, 2**25
"""Windows, and numbers of them that are held at once: 134 MB.

Neighbouring windows say nearly the same: more of them change little.
"""
_BATCH = 512


def solve_linear(
    model: EncoderForecaster,
    store: WindowStore,
    season_length: int,
    device: torch.device | None = None,
) -> None:
    """Find the linear map of a trained model, and give it the share that the configuration says.

    A ridge regression of what follows the contexts on the normalised contexts, their covariates and
    the calendar of the first step. What is penalised is the distance to a map that is there, the
    more, the older the step of the context: where a model learns on, to what its map was; otherwise
    to a regression of each step ahead on eleven numbers: the last value, the mean of all values at
    its phase of the season, the means of the newest 1, 2, 3 and 7 seasons, and the means of the
    newest 1, 2, 3, 7 and of all values at the phase of the step ahead. Where there is little to
    learn from, a forecast so stays near what repeats itself, and begins where the context ends.

    Windows count by the size of their values, and those with a missing step to forecast not at
    all. Each regression is solved twice, and windows count less the larger their errors were: what
    becomes small is the sum of the root mean square errors of windows, not of their squares, which
    a few windows that nothing foretells would rule. A model without such a map stays as it is, as
    does one of windows that say nothing.

    Parameters
    ----------
    model : EncoderForecaster
        The model after its last step; its map is changed in place.
    store : WindowStore
        The windows that it has learnt from. At most 16384 of them are read, evenly spread; fewer
        where their inputs and outputs would be more than 33 million numbers.
    season_length : int
        Steps of a season. One that is longer than the context counts as none.
    device : torch.device, optional
        Where to read them. Default: where the model is; it goes back there.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from mlrforecast.data import CovariateEncoding, read_panel
    >>> from mlrforecast.models import EncoderConfig
    >>> index = pd.date_range("2024-01-01", periods=1000, freq="h")
    >>> panel = read_panel(pd.DataFrame({"y": np.arange(1000) % 24}, index=index))
    >>> encoding = CovariateEncoding.fit(panel, calendar=False)
    >>> sizes = {"context_length": 96, "prediction_length": 24}
    >>> store = WindowStore(panel, encoding, min_context=16, **sizes)
    >>> model = EncoderForecaster(EncoderConfig(linear_share=0.99, loss="mae", **sizes))
    >>> solve_linear(model, store, season_length=24)
    >>> batch = store.gather(torch.arange(100))
    >>> bool((model.eval().forecast(batch)[0] - batch.future_target).abs().mean() < 0.5)
    True
    """
    if model.linear is None:
        return
    home = model.linear.weight.device
    model.to(device or home)
    try:
        weight = _regress(model, store, season_length)
    finally:
        model.to(home)
    if weight is not None:
        with torch.no_grad():
            model.linear.weight.copy_(weight)
        model.linear.share.fill_(model.config.linear_share)


@torch.inference_mode()
def _regress(model: EncoderForecaster, store: WindowStore, season_length: int) -> Tensor | None:
    """Return the map (F, I), or None where no window says anything."""
    assert model.linear is not None
    start = model.linear.weight.cpu().double().T
    size, steps = start.shape
    context_length = model.config.context_length
    device = next(model.parameters()).device
    limit = min(NUM_WINDOWS, NUM_VALUES // (size + steps))
    batches = [model.regression(batch.to(device)) for batch in store.evenly_spaced(_BATCH, limit)]
    if not any(bool((scale * complete).any()) for _, _, scale, complete in batches):
        return None
    last: Tensor | None = None
    if not start.any():
        numbers = _seasonal_numbers(context_length, steps, season_length)
        numbers = torch.nn.functional.pad(numbers, (0, size - context_length))
        for _ in range(ROUNDS):
            squares, products = _moments(batches, last)
            across = numbers @ squares @ numbers.mT + SEASONAL * torch.eye(numbers.shape[1])
            found = torch.linalg.solve(across, numbers @ products.T[..., None])
            last = start = (numbers.mT @ found)[..., 0].T
    penalties = torch.full((size,), COVARIATE, dtype=torch.float64)
    penalties[:context_length] = torch.linspace(OLDEST, NEWEST, context_length, dtype=torch.float64)
    penalties[size - model.config.num_calendar_features :] = CALENDAR
    for _ in range(ROUNDS):
        squares, products = _moments(batches, last)
        left = products - squares @ start
        last = start + torch.linalg.solve(squares + penalties.diag(), left)
    assert last is not None
    return last.T.to(batches[0][0])


def _seasonal_numbers(context_length: int, steps: int, season_length: int) -> Tensor:
    """Return how each of eleven numbers is read from a context, for each step: (F, 11, T)."""
    season = season_length if season_length <= context_length else 1
    age = torch.arange(context_length, 0, -1).expand(steps, context_length)
    own = (age + torch.arange(steps)[:, None]) % season == 0
    newest = [age <= count * season for count in SEASONS]
    levels = (age == 1, (age - 1) % season == 0, *newest)
    read = torch.stack((*levels, *(own & part for part in newest), own), dim=1).double()
    return read / read.sum(dim=-1, keepdim=True)


def _moments(
    batches: Sequence[tuple[Tensor, Tensor, Tensor, Tensor]], last: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return mean products of inputs with inputs (I, I) and outputs (I, F), weighted by a map."""
    inputs, outputs = batches[0][:2]
    squares = torch.zeros(inputs.shape[1], inputs.shape[1], dtype=torch.float64)
    products = torch.zeros(inputs.shape[1], outputs.shape[1], dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for inputs, outputs, scale, complete in batches:
        weights = scale * complete
        if last is not None:
            errors = outputs - inputs @ last.to(inputs)
            weights = weights / (errors.square().mean(dim=1, keepdim=True).sqrt() + FLOOR)
        weighted = (inputs * weights).T
        squares += (weighted @ inputs).cpu().double()
        products += (weighted @ outputs).cpu().double()
        total += weights.cpu().double().sum()
    return squares / total, products / total
