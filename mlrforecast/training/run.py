"""One training run: a model and its windows in, the trained model out, nothing left behind."""

import logging
import math
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm
from torch import Tensor

from mlrforecast.data import ForecastBatch, WindowStore
from mlrforecast.models import EncoderForecaster
from mlrforecast.training.module import ForecastModule
from mlrforecast.training.optim import Parametrization
from mlrforecast.training.seeding import PROCESS_STATE

_LOGGERS = ("lightning.pytorch", "lightning.fabric", "pytorch_lightning")


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a model is trained.

    Parameters
    ----------
    max_steps, batch_size : int
        Optimiser steps, and windows a step.
    learning_rate, weight_decay : float
        Of AdamW, see :func:`build_optimizer`.
    parametrization : {"standard", "mup"}
        One learning rate for all parameters, or a rate for each as muP has it; the model is to
        be started by :func:`mlrforecast.nn.initialise_mup` then.
    gradient_clip : float
        Largest norm of the gradient.
    seed : int
        Seed of the draw of windows.
    accelerator : str
        ``"auto"``, ``"cpu"``, ``"gpu"``, ``"mps"``.
    max_time : timedelta, optional
        Longest time; training stops at the end of the step in which it is reached.
    early_stopping : bool
        Whether to stop when the validation loss no longer falls, and keep the best weights.
    patience : int
        Validations without a better loss before stopping.
    progress : bool
        Whether to show a progress bar.
    """

    max_steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    parametrization: Parametrization = "standard"
    gradient_clip: float = 1.0
    seed: int = 0
    accelerator: str = "auto"
    max_time: timedelta | None = None
    early_stopping: bool = False
    patience: int = 5
    progress: bool = True


class _Windows:
    """An iterable of random batches whose length Lightning can show."""

    def __init__(self, store: WindowStore, options: TrainingOptions) -> None:
        self.store = store
        self.options = options

    def __len__(self) -> int:
        return self.options.max_steps

    def __iter__(self) -> Iterator[ForecastBatch]:
        return self.store.sample(
            self.options.batch_size, self.options.max_steps, seed=self.options.seed
        )


class _Batches:
    """The validation batches as one loader: Lightning takes a plain list for several loaders."""

    def __init__(self, store: WindowStore, options: TrainingOptions) -> None:
        self.batches = list(store.evenly_spaced(options.batch_size, 2048))

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[ForecastBatch]:
        return iter(self.batches)


class _Bar(TQDMProgressBar):
    """Lightning's bar, on the error stream, where it does not mix with a program's output."""

    def init_train_tqdm(self) -> Tqdm:
        with redirect_stdout(sys.stderr):
            return super().init_train_tqdm()

    def init_validation_tqdm(self) -> Tqdm:
        with redirect_stdout(sys.stderr):
            return super().init_validation_tqdm()

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        super().on_train_epoch_start(trainer, *args)
        # A run counts in steps and has one epoch, so its number says nothing.
        self.train_progress_bar.set_description("Fitting")


class _BestWeights(Callback):
    """Keep the weights of the lowest validation loss in memory."""

    def __init__(self) -> None:
        self.loss = math.inf
        self.state: dict[str, Tensor] | None = None

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        loss = float(trainer.callback_metrics["validation_loss"])
        if not trainer.sanity_checking and loss < self.loss:
            self.loss = loss
            self.state = {
                name: value.detach().clone() for name, value in pl_module.state_dict().items()
            }


def train(
    model: EncoderForecaster,
    store: WindowStore,
    options: TrainingOptions,
    *,
    validation: WindowStore | None = None,
) -> int:
    """Train a model in place; runs in threads of one process take turns.

    Parameters
    ----------
    model : EncoderForecaster
        Left on the CPU in evaluation mode; holds the last weights, or with early stopping those
        of the lowest validation loss.
    store : WindowStore
        Training windows.
    options : TrainingOptions
        How to train.
    validation : WindowStore, optional
        Windows of the validation loss; needed for early stopping.

    Returns
    -------
    int
        Optimiser steps that were made.

    Raises
    ------
    FloatingPointError
        If training diverged: the loss or a weight is no longer finite, or the loss of the last
        step is out of all proportion.
    KeyboardInterrupt
        If the user stopped it; the model is left half trained.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from mlrforecast.data import CovariateEncoding, read_panel
    >>> from mlrforecast.models import EncoderConfig
    >>> index = pd.date_range("2024-01-01", periods=100, freq="h")
    >>> panel = read_panel(pd.DataFrame({"load": np.arange(100) % 24}, index=index))
    >>> encoding = CovariateEncoding.fit(panel, calendar=False)
    >>> lengths = {"context_length": 32, "prediction_length": 8}
    >>> store = WindowStore(panel, encoding, **lengths, min_context=16)
    >>> model = EncoderForecaster(EncoderConfig(**lengths))
    >>> options = TrainingOptions(max_steps=3, batch_size=4, learning_rate=1e-3, progress=False)
    >>> train(model, store, options)
    3
    """
    assert validation is not None or not options.early_stopping
    module = ForecastModule(
        model,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        max_steps=options.max_steps,
        parametrization=options.parametrization,
    )
    best = _BestWeights()
    with PROCESS_STATE, _quiet():
        trainer = _trainer(options, best)
        batches = None if validation is None else _Batches(validation, options)
        with _interruptible():
            trainer.fit(module, _Windows(store, options), batches)
    if best.state is not None:
        module.load_state_dict(best.state)
    else:
        module.check_converged()
    model.cpu().eval()
    _check_finite(model)
    return int(trainer.global_step)


def _trainer(options: TrainingOptions, best: _BestWeights) -> pl.Trainer:
    """Return a trainer that writes nothing, and validates only where that decides something."""
    stops = options.early_stopping
    callbacks: list[Callback] = [_Bar(refresh_rate=10)] if options.progress else []
    if stops:
        patience = options.patience
        callbacks += [best, EarlyStopping("validation_loss", patience=patience, check_finite=False)]
    return pl.Trainer(
        accelerator=options.accelerator,
        devices=1,
        max_steps=options.max_steps,
        max_time=options.max_time,
        gradient_clip_val=options.gradient_clip,
        callbacks=callbacks,
        enable_progress_bar=options.progress,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
        num_sanity_val_steps=0,
        val_check_interval=max(1, options.max_steps // 20) if stops else None,
        check_val_every_n_epoch=None if stops else 1,
    )


def _check_finite(model: EncoderForecaster) -> None:
    """Refuse a model with weights that are no numbers."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise FloatingPointError(
                f"Training diverged: parameter {name!r} is not finite. Lower `learning_rate`."
            )


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


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what Lightning says about itself; errors and the progress bar stay."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        # Hints about loader workers, log steps and unused accelerators: advice on choices that
        # are made here, which a caller could not act on.
        warnings.filterwarnings("ignore", module=r"lightning\.")
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
