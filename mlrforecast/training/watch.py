"""What looks at a network while it is trained."""

from collections.abc import Callable
from dataclasses import dataclass

from mlrforecast.models import EncoderForecaster

__all__ = ["Watch"]


@dataclass(frozen=True)
class Watch:
    """Look at a network some times in the course of a run.

    Parameters
    ----------
    times : int
        Equal parts of the run; there is a look after each but the last, whose network is what the
        run returns.
    look : callable
        Is given a copy of the network, with averaged weights if there are any, on the CPU in
        evaluation mode. It must draw no random numbers; what it raises ends the run.

    Examples
    --------
    >>> watch = Watch(4, print)
    >>> [step for step in range(1, 11) if watch.is_due(step, 10)]
    [3, 5, 8]
    """

    times: int
    look: Callable[[EncoderForecaster], None]

    def is_due(self, step: int, max_steps: int) -> bool:
        """Tell whether a look is due.

        Parameters
        ----------
        step : int
            Steps that have been made.
        max_steps : int
            Steps of the run.
        """
        if step >= max_steps:
            return False
        parts = step * self.times // max_steps
        return parts > (step - 1) * self.times // max_steps
