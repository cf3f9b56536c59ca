"""What is kept of a run while it goes on: the best weights, and a checkpoint to go on from."""

import dataclasses
import math
import time
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping
from torch import Tensor

from mlrforecast.training.checkpoint import Checkpoint, Progress
from mlrforecast.training.module import ForecastModule
from mlrforecast.training.options import TrainingOptions
from mlrforecast.training.watch import Watch

STOPPER = ("wait_count", "stopped_epoch", "patience")
"""What early stopping remembers beside its best loss."""


class Keeper(Callback):
    """Count steps, average weights, keep the best ones, and write checkpoints.

    Parameters
    ----------
    options : TrainingOptions
        How the run is made.
    stopper : EarlyStopping, optional
        What ends the run early; it must come before this callback.
    checkpoint : Checkpoint, optional
        Where to write.
    watch : Watch, optional
        What looks at the network; checkpoints are written before it does, and at no other time.
    """

    def __init__(
        self,
        options: TrainingOptions,
        stopper: EarlyStopping | None,
        checkpoint: Checkpoint | None,
        watch: Watch | None = None,
    ) -> None:
        self.options = options
        self.stopper = stopper
        self.checkpoint = checkpoint
        self.watch = watch
        self.best_loss = math.inf
        self.best: dict[str, Tensor] = {}
        self.seconds = 0.0
        self.stopped = False
        self._begin = 0.0
        self._random: dict[str, Tensor] = {}
        self._scaler: dict[str, Any] = {}

    def resume(self, progress: Progress, module: ForecastModule) -> None:
        """Set a fresh module, and this callback, to where a run was."""
        numbers = progress.numbers
        module.load_state_dict(progress.part("module"))
        module.steps = _checked_steps(numbers["num_steps"], self.options.max_steps)
        module.first_and_last = tuple(progress.tensors["losses"])
        module.optimizer_state = _checked_moments(progress.part("optimizer"), module)
        self.best, self.best_loss = progress.part("best"), float(numbers["best_loss"])
        self.seconds, self.stopped = float(numbers["seconds"]), bool(numbers["stopped"])
        self._random, self._scaler = progress.part("random"), dict(numbers["scaler"])
        torch.Generator().set_state(self._random["cpu"][0].clone())
        if self.stopper is not None:
            state = {name: int(numbers[name]) for name in STOPPER}
            self.stopper.load_state_dict(state | {"best_score": progress.tensors["best_score"]})

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock, log the options, and seed the processes of one run apart."""
        self._begin = time.monotonic()
        settings = dataclasses.asdict(self.options)
        for logger in trainer.loggers:
            logger.log_hyperparams({name: _plain(value) for name, value in settings.items()})
        if trainer.world_size > 1:
            torch.manual_seed(self.options.seed + trainer.global_rank)
        if self._scaler:
            trainer.precision_plugin.load_state_dict(self._scaler)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Go on with the random numbers of an interrupted run."""
        if self._random:
            _set_random_states(self._random, trainer.global_rank, pl_module.device)
            self._random = {}

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        """Count the step; where nothing is validated, a checkpoint may be due."""
        assert isinstance(pl_module, ForecastModule)
        pl_module.advance()
        if self.watch is not None:
            if self.watch.is_due(pl_module.steps, self.options.max_steps):
                self._write(trainer, pl_module)
                self.watch.look(deepcopy(pl_module.evaluated).cpu().eval())
        elif not self.options.early_stopping and pl_module.steps % self.options.interval == 0:
            self._write(trainer, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the weights if they are the best ones so far; a checkpoint is due."""
        assert isinstance(pl_module, ForecastModule)
        loss = float(trainer.callback_metrics["validation_loss"])
        if loss < self.best_loss:
            state = pl_module.evaluated.state_dict()
            self.best_loss = loss
            self.best = deepcopy(dict(state))
        if self.watch is None:
            self._write(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the module with its final weights, in the process that trains."""
        assert isinstance(pl_module, ForecastModule)
        pl_module.conclude()
        self.settle(pl_module)

    def settle(self, module: ForecastModule) -> None:
        """Give the model the best weights, or the averaged ones."""
        if self.best:
            module.model.load_state_dict(self.best)
        elif module.averaged is not None:
            module.model.load_state_dict(module.averaged.module.state_dict())

    def _write(self, trainer: pl.Trainer, module: ForecastModule) -> None:
        """Write a checkpoint; all processes take part, the first one writes."""
        if self.checkpoint is None:
            return
        random = _random_states(trainer, module.device)
        if not trainer.is_global_zero:
            return
        tensors = {f"module.{name}": value for name, value in module.state_dict().items()}
        tensors["losses"] = module.stacked_losses()
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        tensors |= {f"random.{name}": value for name, value in random.items()}
        for number, moments in trainer.optimizers[0].state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{key}": value for key, value in moments.items()}
        numbers: dict[str, Any] = {
            "finished": False,
            "num_steps": module.steps,
            "seconds": self.seconds + time.monotonic() - self._begin,
            "best_loss": self.best_loss,
            "stopped": trainer.should_stop,
            "scaler": trainer.precision_plugin.state_dict(),
        }
        if self.stopper is not None:
            state = self.stopper.state_dict()
            numbers |= {name: int(state[name]) for name in STOPPER}
            tensors["best_score"] = state["best_score"]
        self.checkpoint.write(Progress(tensors, numbers))


def _plain(value: Any) -> Any:
    """Return a setting as a number or as text, which any file can hold."""
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _checked_steps(steps: Any, max_steps: int) -> int:
    """Return how many steps were made, which must be a number of steps of the run."""
    if isinstance(steps, bool) or not isinstance(steps, int) or not 0 < steps <= max_steps:
        raise ValueError(f"its number of steps is {steps!r}")
    return steps


def _checked_moments(
    tensors: Mapping[str, Tensor], module: ForecastModule
) -> dict[int, dict[str, Tensor]]:
    """Return the state of the optimiser by parameter, which must have the parameters' shapes."""
    groups = module.new_optimizer().param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, key = name.split(".", 1)
        if value.ndim and value.shape != parameters[int(number)].shape:
            raise ValueError(f"{name!r} of its optimiser has the shape {tuple(value.shape)}")
        state.setdefault(int(number), {})[key] = value
    return state


def finished(model_state: Mapping[str, Tensor], num_steps: int) -> Progress:
    """Return what is kept of a run that has ended."""
    tensors = {f"model.{name}": value for name, value in model_state.items()}
    return Progress(tensors, {"finished": True, "num_steps": num_steps})


def _random_states(trainer: pl.Trainer, device: torch.device) -> dict[str, Tensor]:
    """Return the states of the generators of every process, a row each."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    if trainer.world_size == 1:
        return {name: state.unsqueeze(0) for name, state in states.items()}
    return {name: _gather(state.to(device), trainer.world_size) for name, state in states.items()}


def _gather(state: Tensor, count: int) -> Tensor:
    """Return the tensors of all processes as rows."""
    gathered = [torch.empty_like(state) for _ in range(count)]
    torch.distributed.all_gather(gathered, state)
    return torch.stack(gathered).cpu()


def _set_random_states(states: Mapping[str, Tensor], rank: int, device: torch.device) -> None:
    """Set the generators of a process; those of another kind of device stay seeded."""
    # Clones, for torch reads the memory from its start, whatever row it is given.
    torch.set_rng_state(states["cpu"][rank].clone())
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"][rank].clone(), device)
    if device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"][rank].clone())
