"""How a model is trained."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeAlias

from mlrforecast.training.optim import Parametrization

__all__ = ["LoggerName", "Precision", "Schedule", "TrainingOptions"]

Precision: TypeAlias = Literal["32-true", "bf16-mixed", "16-mixed"]
"""Numbers that the network computes with in training, by Lightning's names."""

Schedule: TypeAlias = Literal["cosine", "linear", "constant"]
"""What the learning rate does after the warm-up."""

LoggerName: TypeAlias = Literal["csv", "tensorboard", "mlflow"]
"""Where losses are logged."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a model is trained.

    Parameters
    ----------
    max_steps, batch_size : int
        Optimiser steps, and windows a step over all devices.
    learning_rate, weight_decay : float
        Of AdamW, see :func:`build_optimizer`.
    parametrization : {"standard", "mup"}
        One learning rate for all parameters, or a rate for each as muP has it; the model is to
        be started by :func:`mlrforecast.nn.initialise_mup` then.
    schedule : {"cosine", "linear", "constant"}
        How the learning rate goes on after the warm-up: down to 0 in a half cosine or a straight
        line, or not.
    warmup_steps : int, optional
        Steps in which it rises from 0. Default: a tenth of all, at most 200.
    gradient_clip : float, optional
        Largest norm of the gradient.
    ema_decay : float, optional
        Decay of an exponential moving average of the weights, in (0, 1), which is validated and
        kept in place of the last weights.
    precision : {"32-true", "bf16-mixed", "16-mixed"}
        Numbers that the network computes with; weights are float32 always.
    compile : bool
        Whether ``torch.compile`` makes the training step.
    seed : int
        Seed of the draw of windows.
    accelerator : str
        ``"auto"``, ``"cpu"``, ``"gpu"``, ``"mps"``.
    devices : int
        Devices that share the windows of each step, in a process each.
    max_time : timedelta, optional
        Longest time; training stops at the end of the step in which it is reached.
    early_stopping : bool
        Whether to stop when the validation loss no longer falls, and keep the best weights.
    patience : int
        Validations without a better loss before stopping.
    logger : tuple of {"csv", "tensorboard", "mlflow"}
        Where losses and the learning rate are logged.
    log_dir : Path, optional
        Folder of the logs.
    progress : bool
        Whether to show a progress bar.

    Examples
    --------
    >>> TrainingOptions(max_steps=100, batch_size=32, learning_rate=1e-3).interval
    5
    """

    max_steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    parametrization: Parametrization = "standard"
    schedule: Schedule = "cosine"
    warmup_steps: int | None = None
    gradient_clip: float | None = 1.0
    ema_decay: float | None = None
    precision: Precision = "32-true"
    compile: bool = False
    seed: int = 0
    accelerator: str = "auto"
    devices: int = 1
    max_time: timedelta | None = None
    early_stopping: bool = False
    patience: int = 5
    logger: tuple[LoggerName, ...] = ()
    log_dir: Path | None = None
    progress: bool = True

    @property
    def interval(self) -> int:
        """Steps from one validation, and from one checkpoint, to the next."""
        return max(1, self.max_steps // 20)

    @property
    def rising_steps(self) -> int:
        """Steps of the warm-up."""
        return min(200, self.max_steps // 10) if self.warmup_steps is None else self.warmup_steps
