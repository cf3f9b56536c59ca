"""The linear regression whose forecast is averaged with that of a trained network."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mlrforecast.data import WindowStore
from mlrforecast.models import EncoderForecaster

__all__ = ["solve_linear"]

NEWEST, OLDEST, COVARIATE = 0.05, 2.05, 0.2
"""Penalties of a squared weight, in units of the mean square of a normalised value.

The older a step of the context, the less it is expected to say: its penalty rises evenly from that
of the newest step to that of the oldest one. Each covariate has one penalty.
"""
ROUNDS = 3
"""Regressions, each with the weights that the errors of the one before give."""
FLOOR = 0.1
"""Added to the size of an error, so that no window counts for everything."""
NUM_WINDOWS, NUM_VALUES = 2**14, 2**25
"""Windows, and numbers of them that are held at once: 134 MB.

Neighbouring windows say nearly the same: more of them change little.
"""
_BATCH = 512


def solve_linear(
    model: EncoderForecaster, store: WindowStore, device: torch.device | None = None
) -> None:
    """Find the linear map of a trained model, and give it the share that the configuration says.

    A ridge regression on the normalised contexts and their covariates of what follows them, less
    what the network has learnt that the calendar adds. Windows count by the size of their values,
    and those with a missing step to forecast not at all. It is solved three times, and windows
    count less the larger their errors were: what becomes small is the sum of the root mean square
    errors of windows, not of their squares, which a few windows that nothing foretells would rule.
    What is penalised is the distance to the map that is there: to 0 at first, and to what it was
    where a model learns on; the more, the older the step of the context. A model without such a
    map stays as it is, as does one of windows that say nothing.

    Parameters
    ----------
    model : EncoderForecaster
        The model after its last step; its map is changed in place.
    store : WindowStore
        The windows that it has learnt from. At most 16384 of them are read, evenly spread; fewer
        where their inputs and outputs would be more than 33 million numbers.
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
    >>> solve_linear(model, store)
    >>> batch = store.gather(torch.arange(100))
    >>> bool((model.eval().forecast(batch)[0] - batch.future_target).abs().mean() < 0.5)
    True
    """
    if model.linear is None:
        return
    home = model.linear.weight.device
    was_training = model.training
    model.eval().to(device or home)
    try:
        weight = _regress(model, store)
    finally:
        model.train(was_training).to(home)
    if weight is not None:
        with torch.no_grad():
            model.linear.weight.copy_(weight)
        model.linear.share.fill_(model.config.linear_share)


@torch.inference_mode()
def _regress(model: EncoderForecaster, store: WindowStore) -> Tensor | None:
    """Return the map (F, I), or None where no window says anything."""
    assert model.linear is not None
    earlier = model.linear.weight.cpu().double()
    device = next(model.parameters()).device
    # Read once for all rounds: the network goes over each of them.
    limit = min(NUM_WINDOWS, NUM_VALUES // sum(earlier.shape))
    batches = [model.regression(batch.to(device)) for batch in store.evenly_spaced(_BATCH, limit)]
    found: Tensor | None = None
    for _ in range(ROUNDS):
        found = _regress_once(batches, model.config.context_length, earlier, found)
        if found is None:
            return None
    return found


def _regress_once(
    batches: Sequence[tuple[Tensor, Tensor, Tensor, Tensor]],
    context_length: int,
    earlier: Tensor,
    last: Tensor | None,
) -> Tensor | None:
    """Return the map (F, I) that is drawn to an ``earlier`` one, with weights by the ``last``."""
    steps, size = earlier.shape
    squares = torch.zeros(size, size, dtype=torch.float64)
    products = torch.zeros(size, steps, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for inputs, outputs, scale, complete in batches:
        weights = scale * complete
        if last is not None:
            errors = outputs - inputs @ last.T
            weights = weights / (errors.square().mean(dim=1, keepdim=True).sqrt() + FLOOR)
        weighted = (inputs * weights).T
        squares += (weighted @ inputs).cpu().double()
        products += (weighted @ outputs).cpu().double()
        total += weights.cpu().double().sum()
    if total == 0:
        return None
    penalties = torch.full((size,), COVARIATE, dtype=torch.float64)
    penalties[:context_length] = torch.linspace(OLDEST, NEWEST, context_length, dtype=torch.float64)
    penalty = total * penalties.diag()
    start = earlier.T
    solution = start + torch.linalg.solve(squares + penalty, products - squares @ start)
    found: Tensor = solution.T.to(batches[0][0])
    return found
