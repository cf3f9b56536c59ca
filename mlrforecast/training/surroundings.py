"""What surrounds a run of Lightning: silence, a process to itself, and Ctrl-C as one knows it."""

import logging
import os
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch.callbacks import Callback

from mlrforecast.training.seeding import PROCESS_STATE

__all__ = ["Silence", "surroundings"]

_LOGGERS = (
    "lightning.pytorch",
    "lightning.fabric",
    "mlflow",
    "pytorch_lightning",
    "torch.multiprocessing.spawn",
)


class Silence(Callback):
    """Silence the processes of a run: it is unpickled where one begins, and nowhere else.

    Examples
    --------
    >>> import pickle
    >>> isinstance(pickle.loads(pickle.dumps([Silence])), list)
    True
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _silenced, ()


def _silenced() -> Silence:
    """Silence this process."""
    _hush()
    return Silence()


@contextmanager
def surroundings(devices: int) -> Iterator[None]:
    """Let Lightning train: quietly, one run of a process at a time, and leaving nothing behind.

    Parameters
    ----------
    devices : int
        Processes of the run; more than one get a temporary folder.

    Raises
    ------
    KeyboardInterrupt
        If the user stops the run: Lightning alone would end the interpreter.

    Examples
    --------
    >>> with surroundings(1):
    ...     pass
    """
    with PROCESS_STATE, _quiet(), _environment(devices), _interruptible():
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what Lightning says about itself; errors and the progress bar stay."""
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


@contextmanager
def _environment(devices: int) -> Iterator[None]:
    """Give the processes of a run a temporary folder that goes; restore what they share."""
    before = dict(os.environ)
    # Without a workspace of its own, cuBLAS may add in another order.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        if devices == 1:
            yield
            return
        with tempfile.TemporaryDirectory(prefix="mlrforecast-") as folder:
            os.environ["TMPDIR"] = folder
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C arrive as a KeyboardInterrupt: Lightning makes it an exit of the interpreter."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    finally:
        # Lightning ignores the signal from the first one on, and may leave it so.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
