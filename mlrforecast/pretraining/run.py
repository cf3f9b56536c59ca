"""One pretraining run: a configuration and series in, a model and its losses out."""

import copy
import dataclasses
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

import lightning.pytorch as pl
import numpy as np
import torch
from jaxtyping import Float
from lightning.pytorch.callbacks import Callback, TQDMProgressBar
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn

from mlrforecast._core.arguments import check_switch
from mlrforecast.pretraining._checks import above_zero, at_least, finite, share
from mlrforecast.pretraining._network import Block
from mlrforecast.pretraining.config import PretrainConfig
from mlrforecast.pretraining.model import QuantileModel, TokenModel, build_model
from mlrforecast.pretraining.pretrained import PretrainedModel
from mlrforecast.pretraining.windows import Windows
from mlrforecast.training import (
    Checkpoint,
    Progress,
    Silence,
    annealed,
    build_optimizer,
    isolated_seed,
    surroundings,
)
from mlrforecast.training.options import Precision, Schedule

__all__ = ["PretrainOptions", "PretrainRun", "pretrain"]

_CHECKPOINTS = 20
"""Checkpoints of a run."""

Sources: TypeAlias = Sequence[str | PathLike[str] | Sequence[Any]]


@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """How a model is pretrained.

    Parameters
    ----------
    max_steps, batch_size : int
        Optimiser steps, and windows a step over all devices.
    learning_rate, weight_decay : float
        Of AdamW.
    schedule : {"linear", "cosine", "constant"}
        How the learning rate goes on after the warm-up.
    warmup_steps : int
        Steps in which it rises from 0.
    gradient_clip : float, optional
        Largest norm of the gradient.
    min_past : int
        Least steps of a series before a forecast.
    drop_rate : float in [0, 1)
        Most of the steps that are read and are made missing values.
    precision : {"32-true", "bf16-mixed", "16-mixed"}
        Numbers that the network computes with; weights are float32.
    compile : bool
        Whether ``torch.compile`` makes the blocks of both stacks.
    seed : int
        Of the first weights, the windows and dropout.
    accelerator : {"auto", "cpu", "gpu", "mps"}
        Where to train.
    devices : int
        Devices that share the windows of each step, in a process each.
    progress : bool
        Whether to show a progress bar.

    Raises
    ------
    ValueError, TypeError
        If a field is out of its range.

    Examples
    --------
    The paper's setting:

    >>> options = PretrainOptions()
    >>> options.max_steps, options.batch_size, options.learning_rate, options.schedule
    (2000, 32, 0.001, 'linear')
    """

    max_steps: int = 2000
    batch_size: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: Schedule = "linear"
    warmup_steps: int = 0
    gradient_clip: float | None = 1.0
    min_past: int = 60
    drop_rate: float = 0.0
    precision: Precision = "32-true"
    compile: bool = False
    seed: int = 0
    accelerator: Literal["auto", "cpu", "gpu", "mps"] = "auto"
    devices: int = 1
    progress: bool = True

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size", "min_past", "devices"):
            at_least(1, name, getattr(self, name))
        for name in ("warmup_steps", "seed"):
            at_least(0, name, getattr(self, name))
        for name in ("learning_rate", "weight_decay"):
            if finite(name, getattr(self, name)) < 0:
                raise ValueError(f"`{name}` must be at least 0, got {getattr(self, name)!r}.")
        if self.gradient_clip is not None:
            above_zero("gradient_clip", self.gradient_clip)
        share("drop_rate", self.drop_rate)
        for name in ("compile", "progress"):
            check_switch(name, getattr(self, name))
        if self.seed >= 2**32:
            raise ValueError(f"`seed` must be below 2**32, got {self.seed}.")
        if self.batch_size % self.devices:
            raise ValueError(
                f"`batch_size` must be a multiple of `devices`={self.devices}, got "
                f"{self.batch_size}."
            )
        choices = {
            "schedule": ("linear", "cosine", "constant"),
            "precision": ("32-true", "bf16-mixed", "16-mixed"),
            "accelerator": ("auto", "cpu", "gpu", "mps"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"`{name}` must be one of {', '.join(allowed)}; got {getattr(self, name)!r}."
                )


@dataclass(frozen=True, eq=False)
class PretrainRun:
    """What came of a run.

    Parameters
    ----------
    model : PretrainedModel
        The trained model, on the CPU.
    losses : ndarray of shape (max_steps,), float32
        Loss of each step; with several devices that of the first one's windows.
    seconds : float
        Wall-clock time of training in this call.
    """

    model: PretrainedModel
    losses: Float[np.ndarray, " steps"]
    seconds: float


def pretrain(
    config: PretrainConfig,
    sources: Sources,
    options: PretrainOptions | None = None,
    *,
    weights: Sequence[float] | None = None,
    checkpoint_dir: str | PathLike[str] | None = None,
) -> PretrainRun:
    """Train a model of the Chronos family from the start, or go on where a run was interrupted.

    Parameters
    ----------
    config : PretrainConfig
        What the model consists of.
    sources : sequence of paths or of sequences of arrays of shape (T,)
        Arrow files (see :func:`write_arrow`), or series themselves.
    options : PretrainOptions, optional
        How it is trained. Default: the paper's setting.
    weights : sequence of float, optional
        How often windows are drawn from each source, relative to the others. Default: equally
        often.
    checkpoint_dir : path, optional
        Folder of checkpoints. A run that was interrupted goes on from there when it is started
        again with the same series and options, and one that has ended is done at once. Default:
        there are none.

    Returns
    -------
    PretrainRun
        The model and the loss of each step. On a CPU the same series and options give the same
        ones; on a GPU up to the order in which it adds. A run in ``"16-mixed"`` that goes on finds
        the scale of its gradients anew.

    Raises
    ------
    ValueError
        If no series is long enough, the weights do not fit, or there are not so many GPUs.
    FloatingPointError
        If the loss is no longer finite.
    ModelFileError
        If a checkpoint cannot be read.

    References
    ----------
    Ansari et al., "Chronos: Learning the Language of Time Series", 2024, arXiv 2403.07815;
    "Customizing the Inductive Biases of Softmax Attention using Structured Matrices", ICML 2025,
    arXiv 2509.07963, appendix on time series.

    Examples
    --------
    >>> from mlrforecast.pretraining import kernel_synth
    >>> config = PretrainConfig(
    ...     context_length=64, prediction_length=8, width=16, num_layers=1, num_tokens=64
    ... )
    >>> options = PretrainOptions(max_steps=3, batch_size=4, accelerator="cpu", progress=False)
    >>> run = pretrain(config, [kernel_synth(4, length=128)], options)
    >>> run.losses.shape
    (3,)
    """
    options = PretrainOptions() if options is None else options
    for name, given, kind in (
        ("config", config, PretrainConfig),
        ("options", options, PretrainOptions),
    ):
        if not isinstance(given, kind):
            raise TypeError(f"`{name}` must be a {kind.__name__}, got a {type(given).__name__}.")
    if options.accelerator == "gpu" and torch.cuda.device_count() < options.devices:
        raise ValueError(
            f"`accelerator`='gpu' with `devices`={options.devices} needs as many GPUs, and there "
            f"are {torch.cuda.device_count()}."
        )
    windows = Windows(
        sources,
        weights,
        context_length=config.context_length,
        prediction_length=config.prediction_length,
        min_past=options.min_past,
        drop_rate=options.drop_rate,
    )
    checkpoint = progress = None
    if checkpoint_dir is not None:
        checkpoint = Checkpoint(Path(checkpoint_dir), _digest(config, options, windows))
        checkpoint.prepare()
        progress = checkpoint.read()
    begin = time.monotonic()
    with isolated_seed(options.seed):
        module = _Module(build_model(config), options)
        if progress is not None:
            module.resume(progress)
        if module.steps < options.max_steps:
            _fit(module, windows, options, checkpoint)
    _check_losses(module, options)
    if checkpoint is not None and (progress is None or not progress.finished):
        checkpoint.write(Progress(module.state_tensors(), _numbers(options.max_steps, options)))
    module.cpu()
    # A copy is not compiled, and forecasts have shapes of all kinds.
    network = copy.deepcopy(module.network)
    return PretrainRun(PretrainedModel(network), module.losses.numpy(), time.monotonic() - begin)


def _check_losses(module: "_Module", options: PretrainOptions) -> None:
    """Check that training did not diverge: nothing is kept of such a run."""
    losses = module.losses.cpu().numpy()
    if not np.isfinite(losses).all():
        step = int(np.flatnonzero(~np.isfinite(losses))[0])
        raise FloatingPointError(
            f"Training diverged: the loss of step {step + 1} is {losses[step]}. Lower "
            f"`learning_rate` (it is {options.learning_rate:g})."
        )


class _Module(pl.LightningModule):
    """Train a network with AdamW on an annealed schedule."""

    losses: Tensor

    def __init__(self, network: TokenModel | QuantileModel, options: PretrainOptions) -> None:
        super().__init__()
        self.network, self.options = network, options
        self.steps = 0
        self.moments: dict[int, dict[str, Tensor]] = {}
        # A buffer: processes of their own give back tensors alone.
        self.register_buffer("losses", torch.zeros(options.max_steps))

    def resume(self, progress: Progress) -> None:
        """Go on where a run was."""
        self.load_state_dict(progress.part("module"))
        self.steps = int(progress.numbers["num_steps"])
        for name, value in progress.part("optimizer").items():
            number, key = name.split(".", 1)
            self.moments.setdefault(int(number), {})[key] = value

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the weights and the losses, as a checkpoint has them."""
        return {f"module.{name}": value for name, value in self.state_dict().items()}

    def on_train_start(self) -> None:
        """Compile the blocks, in the process that trains."""
        if not self.options.compile:
            return
        # Blocks are alike: one of each stack is compiled for all of them.
        for block in self.network.modules():
            if isinstance(block, Block):
                block.compile(dynamic=False)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed dropout by the step, so that a run that goes on draws what it would have drawn."""
        state = np.random.SeedSequence([self.options.seed, self.steps, self.global_rank])
        torch.manual_seed(int(state.generate_state(1)[0]))

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the loss of one batch."""
        loss: Tensor = self.network(*batch)
        self.losses[self.steps] = loss.detach()
        if self.options.progress:
            self.log("loss", loss, prog_bar=True, batch_size=len(batch[0]))
        return loss

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip: Lightning refuses to in mixed precision if an optimiser step is one kernel."""
        if self.options.gradient_clip is not None:
            nn.utils.clip_grad_norm_(
                self.network.parameters(), self.options.gradient_clip, foreach=True
            )

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return AdamW and the schedule, both at the step that was reached."""
        options, reached = self.options, self.steps
        optimizer = build_optimizer(
            self.network,
            learning_rate=options.learning_rate,
            weight_decay=options.weight_decay,
            # One kernel would take the scale off gradients that have been clipped with it.
            fused=options.precision != "16-mixed",
        )
        if self.moments:
            state = {n: {k: v.clone() for k, v in m.items()} for n, m in self.moments.items()}
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda step: annealed(
                reached + step,
                warmup_steps=options.warmup_steps,
                max_steps=options.max_steps,
                schedule=options.schedule,
            ),
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


class _Batches:
    """The batches that are still to come, whose number Lightning can show."""

    def __init__(self, windows: Windows, options: PretrainOptions, first: int) -> None:
        self.windows, self.options, self.first = windows, options, first

    def __len__(self) -> int:
        return self.options.max_steps - self.first

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        options = self.options
        rank = torch.distributed.get_rank() if options.devices > 1 else 0
        for step in range(self.first, options.max_steps):
            yield self.windows.draw(
                options.batch_size,
                seed=options.seed,
                step=step,
                share=slice(rank, None, options.devices),
            )


class _Keeper(Callback):
    """Count steps, write checkpoints, and stop what diverged."""

    def __init__(self, checkpoint: Checkpoint | None, options: PretrainOptions) -> None:
        self.checkpoint, self.options = checkpoint, options

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        """Count the step; a check of the losses and a checkpoint may be due."""
        assert isinstance(pl_module, _Module)
        pl_module.steps += 1
        interval = max(1, self.options.max_steps // _CHECKPOINTS)
        due = pl_module.steps % interval == 0 and pl_module.steps < self.options.max_steps
        if not due:
            return
        finite = bool(pl_module.losses.isfinite().all())
        if not trainer.strategy.reduce_boolean_decision(finite):
            # All processes stop at the same step; the losses say why.
            trainer.should_stop = True
            return
        if self.checkpoint is None or not trainer.is_global_zero:
            return
        tensors = pl_module.state_tensors()
        for number, moments in trainer.optimizers[0].state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{key}": value for key, value in moments.items()}
        self.checkpoint.write(Progress(tensors, _numbers(pl_module.steps, self.options)))


def _numbers(steps: int, options: PretrainOptions) -> dict[str, Any]:
    """Return what a checkpoint says beside its tensors."""
    return {"num_steps": steps, "finished": steps == options.max_steps}


def _fit(
    module: _Module, windows: Windows, options: PretrainOptions, checkpoint: Checkpoint | None
) -> None:
    """Let Lightning make the steps that are left."""
    batches = _Batches(windows, options, module.steps)
    callbacks: list[Callback] = [TQDMProgressBar(refresh_rate=10)] if options.progress else []
    callbacks.append(_Keeper(checkpoint, options))
    several: dict[str, Any] = {}
    if options.devices > 1:
        callbacks.insert(0, Silence())
        several["strategy"] = DDPStrategy(start_method="spawn", static_graph=True)
    with surroundings(options.devices):
        trainer = pl.Trainer(
            accelerator=options.accelerator,
            devices=options.devices,
            precision=options.precision,
            max_steps=len(batches),
            callbacks=callbacks,
            enable_progress_bar=options.progress,
            enable_model_summary=False,
            enable_checkpointing=False,
            logger=False,
            num_sanity_val_steps=0,
            **several,
        )
        trainer.fit(module, batches)


def _digest(config: PretrainConfig, options: PretrainOptions, windows: Windows) -> str:
    """Return a digest of all that determines a run; where it is made does not."""
    settings = dataclasses.asdict(options)
    for name in ("accelerator", "devices", "compile", "progress"):
        del settings[name]
    text = json.dumps([config.to_dict(), settings, windows.digest()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
