"""An estimator whose trials note that they ran, and meet with a fault if they are told to."""

import os
from pathlib import Path
from typing import Any

from mlrforecast import MLRForecaster
from tests.tuning import small


def faulty(notes: Path, faults: dict[int, str], **parameters: Any) -> MLRForecaster:
    """Return an estimator whose trials are told apart by their ``seed``.

    Each run of a trial adds a line to the file ``notes / seed``, then meets with the fault of its
    seed: ``"raise"``, ``"kill"`` (its process, as when the machine has no memory left), ``"kill
    once"``, ``"memory"`` (there is none), ``"disk"`` (no file may grow), ``"nan"`` (its loss) or
    ``"haste"`` (its process is not waited for when it is given the next trial).

    The class is local, so that it travels to the workers, which cannot import the tests.
    """
    driver, folder = os.getpid(), str(notes)
    notes.mkdir(exist_ok=True)

    class Faulty(MLRForecaster):
        def check_parameters(self) -> None:
            import os
            import resource
            import signal

            super().check_parameters()
            if os.getpid() == driver:
                return
            path = f"{folder}/{self.seed}"
            before = os.path.exists(path)
            with open(path, "a") as file:
                file.write(f"{os.getpid()}\n")
            fault = faults.get(self.seed)
            if fault == "raise":
                raise ArithmeticError("planted")
            if fault == "kill" or (fault == "kill once" and not before):
                os.kill(os.getpid(), signal.SIGKILL)
            if fault == "haste":
                os.environ["TUNE_FUNCTION_THREAD_TIMEOUT_S"] = "0"
            if fault == "nan":
                self.learning_rate = 1e30
            if fault == "memory":
                limit = (2**30, resource.getrlimit(resource.RLIMIT_AS)[1])
                resource.setrlimit(resource.RLIMIT_AS, limit)
                bytearray(2**34)
            if fault == "disk":
                resource.setrlimit(
                    resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
                )

    return Faulty(**(small.forecaster().get_params() | parameters))


def runs(notes: Path) -> dict[int, int]:
    """Give how often each trial was run."""
    return {int(path.name): len(path.read_text().split()) for path in notes.iterdir()}
