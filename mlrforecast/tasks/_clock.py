"""Time that training takes, without evaluations and checkpoints."""

import contextlib
import time
from collections.abc import Iterator

import torch

__all__ = ["Clock"]


class Clock:
    """A clock that stands still while something is done that is no training.

    Parameters
    ----------
    device : device
        Before the clock stops, all work that was sent there is waited for: it is training.

    Examples
    --------
    >>> clock = Clock(torch.device("cpu"))
    >>> with clock.paused():
    ...     before = clock.now()
    >>> clock.now() >= before
    True
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stopped = 0.0

    def now(self) -> float:
        """Return the seconds that the clock shows."""
        return time.monotonic() - self._stopped

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock for a block of code."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        begin = time.monotonic()
        try:
            yield
        finally:
            self._stopped += time.monotonic() - begin
