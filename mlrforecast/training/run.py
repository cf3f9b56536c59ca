"""One training run: a model and its windows in, the trained model out, nothing left behind."""

import re
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.multiprocessing.spawn import ProcessRaisedException
from torch.utils import deterministic

from mlrforecast.data import ForecastBatch, WindowStore
from mlrforecast.models import EncoderForecaster
from mlrforecast.nn import Encoder
from mlrforecast.training._keeper import Keeper, finished
from mlrforecast.training.checkpoint import Checkpoint, Progress
from mlrforecast.training.loggers import build_loggers
from mlrforecast.training.module import ForecastModule
from mlrforecast.training.options import TrainingOptions
from mlrforecast.training.surroundings import Silence, surroundings
from mlrforecast.training.team import Job, Place, Team
from mlrforecast.training.watch import Watch


class _Windows:
    """An iterable of the random batches that are still to come, whose length Lightning can show."""

    def __init__(self, store: WindowStore, options: TrainingOptions, first: int) -> None:
        self.store = store
        self.options = options
        self.first = first
        self.drawn: Generator[ForecastBatch, None, None] | None = None

    def __len__(self) -> int:
        return self.options.max_steps - self.first

    def __iter__(self) -> Iterator[ForecastBatch]:
        options = self.options
        rank = torch.distributed.get_rank() if options.devices > 1 else 0
        self.drawn = self.store.sample(
            options.batch_size,
            options.max_steps,
            seed=options.seed,
            first=self.first,
            share=slice(rank, None, options.devices),
        )
        return self.drawn

    def release(self) -> None:
        """Let go of the data: a trainer stays until cycles of references are collected."""
        del self.store
        if self.drawn is not None:
            self.drawn.close()


class _Batches:
    """The validation batches as one loader: Lightning takes a plain list for several loaders."""

    def __init__(self, store: WindowStore, options: TrainingOptions) -> None:
        self.batches = list(store.evenly_spaced(options.batch_size, 2048))

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[ForecastBatch]:
        return iter(self.batches)

    def release(self) -> None:
        """Let go of the data, as those of the training do."""
        self.batches.clear()


class _Bar(TQDMProgressBar):
    """Lightning's bar, on the error stream, where it does not mix with a program's output."""

    def __init__(self, first: int) -> None:
        super().__init__(refresh_rate=10)
        # A run counts in steps and has one epoch, so its number says nothing.
        self.title = f"Fitting from step {first}" if first else "Fitting"

    def init_train_tqdm(self) -> Tqdm:
        with redirect_stdout(sys.stderr):
            return super().init_train_tqdm()

    def init_validation_tqdm(self) -> Tqdm:
        with redirect_stdout(sys.stderr):
            return super().init_validation_tqdm()

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        super().on_train_epoch_start(trainer, *args)
        self.train_progress_bar.set_description(self.title)


def train(
    model: EncoderForecaster,
    store: WindowStore,
    options: TrainingOptions,
    *,
    validation: WindowStore | None = None,
    checkpoint: Checkpoint | None = None,
    watch: Watch | None = None,
    team: Team | None = None,
) -> int:
    """Train a model in place; runs in threads of one process take turns.

    Parameters
    ----------
    model : EncoderForecaster
        Left on the CPU in evaluation mode; holds the last weights (with ``ema_decay`` their
        average) or, with early stopping, those of the lowest validation loss.
    store : WindowStore
        Training windows.
    options : TrainingOptions
        How to train.
    validation : WindowStore, optional
        Windows of the validation loss; needed for early stopping.
    checkpoint : Checkpoint, optional
        Written twenty times in a run and at its end. If it is there already, the run goes on from
        it, to the same weights as one that was not interrupted.
    watch : Watch, optional
        What looks at the network in the course of the run; needs ``devices`` to be 1.
    team : Team, optional
        What starts the processes of the run; no ``watch`` looks at them. Default: those of
        several devices are started here.

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
    ModelFileError
        If the checkpoint cannot be read, or does not fit the model.

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
    assert watch is None or team is None
    progress = None
    if checkpoint is not None:
        checkpoint.prepare()
        progress = checkpoint.read()
    if checkpoint is not None and progress is not None and progress.finished:
        with _fitting(checkpoint):
            model.load_state_dict(progress.part("model"))
            num_steps = int(progress.numbers["num_steps"])
    else:
        job = Job(model, store, options, validation, checkpoint)
        if team is None:
            num_steps = _run(job, progress, watch=watch)
        else:
            num_steps, weights = team.train(job)
            model.load_state_dict(weights)
        if checkpoint is not None:
            checkpoint.write(finished(model.state_dict(), num_steps))
    model.cpu().eval()
    return num_steps


def train_share(job: Job, place: Place) -> tuple[int, dict[str, Tensor]]:
    """Train in one of the processes of a run that somebody else has started.

    Parameters
    ----------
    job : Job
        The run.
    place : Place
        This process.

    Returns
    -------
    int
        Optimiser steps that were made.
    dict of str to Tensor
        The weights, the same in every process.

    Raises
    ------
    FloatingPointError, ModelFileError
        As :func:`train`; the first one in every process.
    """
    num_steps = _run(job, place.progress, place=place)
    return num_steps, job.model.state_dict()


def _run(
    job: Job, progress: Progress | None, *, watch: Watch | None = None, place: Place | None = None
) -> int:
    """Train from the start, or from where a checkpoint was written."""
    model, options, checkpoint = job.model, job.options, job.checkpoint
    module = ForecastModule(model, options)
    stopper = None
    if options.early_stopping:
        patience = options.patience
        stopper = EarlyStopping("validation_loss", patience=patience, check_finite=False)
    keeper = Keeper(options, stopper, checkpoint, watch)
    if checkpoint is not None and progress is not None:
        with _fitting(checkpoint):
            keeper.resume(progress, module)
    if _has_ended(module, options, keeper):
        module.conclude()
        keeper.settle(module)
    else:
        _fit(module, _Windows(job.store, options, module.steps), keeper, job.validation, place)
    if not keeper.stopped and not options.early_stopping:
        module.check_converged()
    model.cpu()
    _check_finite(model)
    return int(module.num_steps)


def _has_ended(module: ForecastModule, options: TrainingOptions, keeper: Keeper) -> bool:
    """Tell whether no step is left to an interrupted run; every run makes one at least."""
    spent = module.steps > 0 and _left(options, keeper) <= 0
    return keeper.stopped or spent or module.steps == options.max_steps


def _fit(
    module: ForecastModule,
    windows: _Windows,
    keeper: Keeper,
    validation: WindowStore | None,
    place: Place | None,
) -> None:
    """Let Lightning make the steps that are left."""
    options = keeper.options
    batches = None if validation is None else _Batches(validation, options)
    # Before the last ones no further validation is due.
    validates = options.early_stopping and len(windows) >= options.interval
    with surroundings(options.devices), _repeatable(module):
        trainer = _trainer(keeper, place, first=windows.first, validates=validates)
        try:
            trainer.fit(module, windows, batches if validates else None)
        except ProcessRaisedException as error:
            raise _own_error(error) from error
        finally:
            windows.release()
            keeper.watch = None
            if batches is not None:
                batches.release()


def _trainer(keeper: Keeper, place: Place | None, *, first: int, validates: bool) -> pl.Trainer:
    """Return a trainer that writes nothing, and validates only where that decides something."""
    options = keeper.options
    callbacks: list[Callback] = [_Bar(first)] if options.progress else []
    if keeper.stopper is not None and validates:
        callbacks.append(keeper.stopper)
    callbacks.append(keeper)
    processes: dict[str, Any] = {"devices": options.devices}
    # Of a static graph, for windows without gaps leave a weight unused.
    if place is not None:
        strategy = place.strategy(static_graph=True)
        processes = {"devices": "auto", "strategy": strategy, "plugins": place.plugins}
        callbacks += place.callbacks
    elif options.devices > 1:
        callbacks.insert(0, Silence())
        processes["strategy"] = DDPStrategy(start_method="spawn", static_graph=True)
    return pl.Trainer(
        accelerator=options.accelerator,
        precision=options.precision,
        max_steps=options.max_steps - first,
        max_time=_limit(options, keeper),
        gradient_clip_val=options.gradient_clip,
        callbacks=callbacks,
        enable_progress_bar=options.progress,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=build_loggers(options),
        log_every_n_steps=max(1, options.max_steps // 200),
        num_sanity_val_steps=0,
        val_check_interval=options.interval if validates else None,
        check_val_every_n_epoch=None if validates else 1,
        **processes,
    )


def _limit(options: TrainingOptions, keeper: Keeper) -> timedelta | None:
    """Return how long Lightning may take; a step is made in any case."""
    if options.max_time is None:
        return None
    return timedelta(seconds=max(_left(options, keeper), 1e-3))


def _left(options: TrainingOptions, keeper: Keeper) -> float:
    """Return the seconds that a run may still take."""
    limit = float("inf") if options.max_time is None else options.max_time.total_seconds()
    return limit - keeper.seconds


@contextmanager
def _fitting(checkpoint: Checkpoint) -> Iterator[None]:
    """Say which file does not fit a model that it is loaded into."""
    try:
        yield
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = f"it does not fit the fit ({str(error).splitlines()[0]})"
        raise checkpoint.refusal(reason) from error


def _own_error(error: ProcessRaisedException) -> Exception:
    """Return the error that a process raised, where it is one that is promised."""
    found = re.findall(r"^FloatingPointError: (.*)$", str(error), flags=re.MULTILINE)
    return FloatingPointError(found[-1]) if found else error


def _check_finite(model: EncoderForecaster) -> None:
    """Refuse a model with weights that are no numbers."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise FloatingPointError(
                f"Training diverged: parameter {name!r} is not finite. Lower `learning_rate`."
            )


@contextmanager
def _repeatable(module: ForecastModule) -> Iterator[None]:
    """Have torch compute what repeats to the bit, on a GPU as well.

    A backbone of the user's may hold what cannot, and may do so.
    """
    lenient = not isinstance(module.model.backbone, Encoder)
    before = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    try:
        torch.use_deterministic_algorithms(True, warn_only=lenient)
        # It finds reads of memory that nobody wrote, at a cost; they are no question of order.
        deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
        deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]
