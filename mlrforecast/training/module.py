"""The thin Lightning shell around a model, and the schedule it trains on."""

import math
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from mlrforecast.data import ForecastBatch
from mlrforecast.models import EncoderForecaster
from mlrforecast.training.optim import build_optimizer
from mlrforecast.training.options import Schedule, TrainingOptions


def annealed(
    step: int, *, warmup_steps: int, max_steps: int, schedule: Schedule = "cosine"
) -> float:
    """Return the learning-rate factor of a step: a linear warm-up, then the schedule.

    Parameters
    ----------
    step : int
        Optimiser step, from 0.
    warmup_steps, max_steps : int
        Steps of the warm-up and of the whole run.
    schedule : {"cosine", "linear", "constant"}
        A half cosine or a straight line down to 0, or no change.

    Returns
    -------
    float
        Factor in (0, 1].

    Examples
    --------
    >>> [annealed(step, warmup_steps=2, max_steps=6) for step in (0, 1, 2, 4)]
    [0.5, 1.0, 1.0, 0.5]
    >>> [annealed(step, warmup_steps=2, max_steps=6, schedule="linear") for step in (2, 3, 4)]
    [1.0, 0.75, 0.5]
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    share = min((step - warmup_steps) / max(max_steps - warmup_steps, 1), 1.0)
    return 1.0 - share if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * share))


DIVERGED = 1000.0
"""A last loss of this many times the first, or the spread of the data, is no result."""


class ForecastModule(pl.LightningModule):
    """Train an :class:`~mlrforecast.models.EncoderForecaster` with AdamW on an annealed schedule.

    Parameters
    ----------
    model : EncoderForecaster
        The model; it is trained in place.
    options : TrainingOptions
        How.

    Attributes
    ----------
    steps : int
        Optimiser steps that were made, those of an earlier, interrupted process included.
    num_steps, losses : Tensor
        Steps, first and last loss of a run that has ended; they come back with the weights from
        the process that trained.
    averaged : AveragedModel or None
        The moving average of the weights, if there is to be one.

    Examples
    --------
    >>> from mlrforecast.models import EncoderConfig
    >>> model = EncoderForecaster(EncoderConfig(context_length=32, prediction_length=8))
    >>> options = TrainingOptions(
    ...     learning_rate=1e-3, weight_decay=0.1, max_steps=100, batch_size=8
    ... )
    >>> module = ForecastModule(model, options)
    >>> groups = module.configure_optimizers()["optimizer"].param_groups
    >>> [group["weight_decay"] for group in groups]
    [0.1, 0.0]
    """

    def __init__(self, model: EncoderForecaster, options: TrainingOptions) -> None:
        super().__init__()
        self.model = model
        self.options = options
        self.averaged: AveragedModel | None = None
        if options.ema_decay is not None:
            average = MovingAverage(options.ema_decay)
            self.averaged = AveragedModel(model, multi_avg_fn=average).requires_grad_(False)
        self.steps = 0
        self.num_steps: Tensor
        self.losses: Tensor
        self.register_buffer("num_steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("losses", torch.zeros(2))
        self.optimizer_state: dict[int, dict[str, Tensor]] = {}
        self.first_and_last: tuple[Tensor, ...] = ()
        self._loss: Callable[[ForecastBatch], Tensor] = model.loss

    @property
    def evaluated(self) -> EncoderForecaster:
        """The model that is validated: the average, if there is one."""
        model = self.model if self.averaged is None else self.averaged.module
        assert isinstance(model, EncoderForecaster)
        return model

    def on_fit_start(self) -> None:
        """Compile the step, where it will run."""
        if self.options.compile:
            self._loss = torch.compile(self.model.loss)

    def training_step(self, batch: ForecastBatch) -> Tensor:
        """Return the loss of a batch; a FloatingPointError if there is none."""
        loss = self._loss(batch)
        if not self._agree(bool(torch.isfinite(loss))):
            raise FloatingPointError(
                f"Training diverged: the loss is {loss.item()} in step {self.steps}. "
                f"Lower `learning_rate` (it is {self.options.learning_rate:g})."
            )
        self.first_and_last = (*self.first_and_last[:1], loss.detach())
        self._log("train_loss", loss, batch)
        if self.loggers:
            self.log_dict({"step": float(self.steps), "learning_rate": self._rate()})
        return loss

    def _agree(self, sound: bool) -> bool:
        """Tell whether all processes of a run are sound, so that they end together."""
        if self.options.devices == 1:
            return sound
        return self.trainer.strategy.reduce_boolean_decision(sound, all=True)

    def advance(self) -> None:
        """Count a step that was made, and move the average."""
        self.steps += 1
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)

    def conclude(self) -> None:
        """Note what came of the run."""
        self.num_steps.fill_(self.steps)
        if self.first_and_last:
            self.losses.copy_(self.stacked_losses())

    def stacked_losses(self) -> Tensor:
        """Return the first and the last loss, (2,); after an interruption they may be apart."""
        return torch.stack([self.first_and_last[0].cpu(), self.first_and_last[-1].cpu()])

    def check_converged(self) -> None:
        """Raise a FloatingPointError if the last loss is out of all proportion to the first."""
        first, last = self.losses.tolist()
        if last > DIVERGED * max(first, 1.0):
            raise FloatingPointError(
                f"Training diverged: the loss went from {first:.3g} to {last:.3g}. Lower "
                f"`learning_rate` (it is {self.options.learning_rate:g})."
            )

    def validation_step(self, batch: ForecastBatch) -> None:
        """Log the loss of a validation batch."""
        self._log("validation_loss", self.evaluated.loss(batch), batch)

    def _rate(self) -> float:
        optimizer = self.optimizers()
        assert isinstance(optimizer, LightningOptimizer)
        rate: float = optimizer.param_groups[0]["lr"]
        return rate

    def _log(self, name: str, loss: Tensor, batch: ForecastBatch) -> None:
        self.log(name, loss, prog_bar=True, batch_size=len(batch.past_target))

    def new_optimizer(self) -> torch.optim.AdamW:
        """Return the optimiser as it is before the first step."""
        options = self.options
        return build_optimizer(
            self.model,
            learning_rate=options.learning_rate,
            weight_decay=options.weight_decay,
            parametrization=options.parametrization,
            fused=options.precision == "32-true",
        )

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return AdamW and the schedule, both at the step that was reached; only matrices decay."""
        options = self.options
        optimizer = self.new_optimizer()
        if self.optimizer_state:
            # Copies: processes of one run are handed the same memory.
            state = {
                number: {key: value.clone() for key, value in moments.items()}
                for number, moments in self.optimizer_state.items()
            }
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        reached = self.steps
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda step: annealed(
                reached + step,
                warmup_steps=options.rising_steps,
                max_steps=options.max_steps,
                schedule=options.schedule,
            ),
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


class MovingAverage:
    """Move averages towards weights, in the first steps faster than ``decay`` says.

    Otherwise the weights of the start would weigh most in a short run.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay

    def __call__(self, averages: Any, weights: Any, num_averaged: Any) -> None:
        """Move ``averages`` in place, after ``num_averaged`` moves."""
        count = float(num_averaged)
        torch._foreach_lerp_(averages, weights, 1 - min(self.decay, (1 + count) / (10 + count)))
