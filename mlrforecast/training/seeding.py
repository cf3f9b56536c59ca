"""Random numbers of a run, kept apart from everybody else's."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

PROCESS_STATE = threading.RLock()
"""Held while random generators, filters of warnings or levels of loggers are swapped."""


@contextmanager
def isolated_seed(seed: int) -> Iterator[None]:
    """Seed python, numpy and torch for a block of code, and put their states back after it.

    The generators belong to the process, so one thread at a time is in such a block; others wait.

    Parameters
    ----------
    seed : int
        Seed of every generator inside the block, 0 to 2**32 - 1.

    Examples
    --------
    >>> before = torch.get_rng_state()
    >>> with isolated_seed(7):
    ...     first = torch.rand(1)
    >>> with isolated_seed(7):
    ...     assert torch.rand(1) == first
    >>> assert bool((torch.get_rng_state() == before).all())
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with PROCESS_STATE:
        # The legacy generator of numpy is global, so it is the one to be kept apart.
        python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
        try:
            with torch.random.fork_rng(devices=devices):
                random.seed(seed)
                np.random.seed(seed)  # noqa: NPY002
                torch.manual_seed(seed)
                yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002
