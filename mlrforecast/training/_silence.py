"""Silence about what Lightning says of itself, in this process and in those that it starts."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch.callbacks import Callback

_LOGGERS = (
    "lightning.pytorch",
    "lightning.fabric",
    "mlflow",
    "pytorch_lightning",
    "torch.multiprocessing.spawn",
)


class Silence(Callback):
    """Silence the processes of a run: it is unpickled where one begins, and nowhere else."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _silenced, ()


def _silenced() -> Silence:
    """Silence this process."""
    _hush()
    return Silence()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what Lightning says about itself; errors and the progress bar stay.

    Examples
    --------
    >>> with quiet():
    ...     logging.getLogger("lightning.fabric").warning("advice")
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        try:
            _hush()
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _hush() -> None:
    """Silence what Lightning says about itself in this process."""
    # Hints about loader workers, log steps, unused accelerators and compilers: advice on choices
    # that are made here, which a caller could not act on.
    warnings.filterwarnings("ignore", module=r"(lightning|torch)\.")
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
