"""The thin Lightning shell around a model, and the schedule it trains on."""

import math

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor

from mlrforecast.data import ForecastBatch
from mlrforecast.models import EncoderForecaster
from mlrforecast.training.optim import Parametrization, build_optimizer


def annealed(step: int, *, warmup_steps: int, max_steps: int) -> float:
    """Return the learning-rate factor of a step: linear warm-up, then a half cosine to zero.

    Parameters
    ----------
    step : int
        Optimiser step, from 0.
    warmup_steps, max_steps : int
        Steps of the warm-up and of the whole run.

    Returns
    -------
    float
        Factor in (0, 1].

    Examples
    --------
    >>> [annealed(step, warmup_steps=2, max_steps=6) for step in (0, 1, 2, 4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    share = (step - warmup_steps) / max(max_steps - warmup_steps, 1)
    return 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


DIVERGED = 1000.0
"""A last loss of this many times the first, or the spread of the data, is no result."""


class ForecastModule(pl.LightningModule):
    """Train an :class:`~mlrforecast.models.EncoderForecaster` with AdamW on an annealed schedule.

    Parameters
    ----------
    model : EncoderForecaster
        The model; it is trained in place.
    learning_rate, weight_decay : float
        Of AdamW, see :func:`build_optimizer`.
    max_steps : int
        Optimiser steps of the whole run; the first tenth, at most 200, warms up.
    parametrization : {"standard", "mup"}
        One learning rate for all parameters, or a rate for each as muP has it.

    Examples
    --------
    >>> from mlrforecast.models import EncoderConfig
    >>> model = EncoderForecaster(EncoderConfig(context_length=32, prediction_length=8))
    >>> module = ForecastModule(model, learning_rate=1e-3, weight_decay=0.1, max_steps=100)
    >>> groups = module.configure_optimizers()["optimizer"].param_groups
    >>> [group["weight_decay"] for group in groups]
    [0.1, 0.0]
    """

    def __init__(
        self,
        model: EncoderForecaster,
        *,
        learning_rate: float,
        weight_decay: float,
        max_steps: int,
        parametrization: Parametrization = "standard",
    ) -> None:
        super().__init__()
        self.model = model
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_steps = max_steps
        self.parametrization: Parametrization = parametrization
        self.losses: tuple[Tensor, ...] = ()

    def training_step(self, batch: ForecastBatch) -> Tensor:
        """Return the loss of a batch; a FloatingPointError if there is none."""
        loss = self.model.loss(batch)
        if not torch.isfinite(loss):
            raise FloatingPointError(
                f"Training diverged: the loss is {loss.item()} in step {self.global_step}. Lower "
                f"`learning_rate` (it is {self.learning_rate:g})."
            )
        self.losses = (*self.losses[:1], loss.detach())
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def check_converged(self) -> None:
        """Raise a FloatingPointError if the last loss is out of all proportion to the first."""
        if not self.losses:
            return
        first, last = float(self.losses[0]), float(self.losses[-1])
        if last > DIVERGED * max(first, 1.0):
            raise FloatingPointError(
                f"Training diverged: the loss went from {first:.3g} to {last:.3g}. Lower "
                f"`learning_rate` (it is {self.learning_rate:g})."
            )

    def validation_step(self, batch: ForecastBatch) -> None:
        """Log the loss of a validation batch."""
        loss = self.model.loss(batch)
        self.log("validation_loss", loss, prog_bar=True, batch_size=len(batch.past_target))

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return AdamW and the schedule; only matrices decay."""
        optimizer = build_optimizer(
            self.model,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            parametrization=self.parametrization,
        )
        warmup_steps = min(200, self.max_steps // 10)
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda step: annealed(step, warmup_steps=warmup_steps, max_steps=self.max_steps),
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }
