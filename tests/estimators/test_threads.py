"""Fits in threads: what they share is the process, and it must not show."""

import logging
import random
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch

from mlrforecast import MLRForecaster
from tests.estimators.frames import TINY, wide


def weights(seed: int) -> torch.Tensor:
    fitted = MLRForecaster(**TINY | {"seed": seed}).fit(wide())
    return torch.cat([value.flatten() for value in fitted.model_.state_dict().values()])


def test_fits_in_threads_equal_those_one_after_the_other(capfd) -> None:
    alone = [weights(seed) for seed in range(4)]
    level = logging.getLogger("lightning.pytorch").level
    filters, state = list(warnings.filters), random.getstate()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(weights, range(4)))
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(alone[0], alone[1])
    assert logging.getLogger("lightning.pytorch").level == level
    assert warnings.filters == filters
    assert random.getstate() == state
    assert capfd.readouterr() == ("", "")
