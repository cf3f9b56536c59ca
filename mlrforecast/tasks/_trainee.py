"""What a task gives the engine that trains its runs."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mlrforecast.nn import initialise_mup
from mlrforecast.tasks._seeds import draw_seed
from mlrforecast.tasks._settings import TaskRun

__all__ = ["SequenceCost", "Trainee"]


class SequenceCost(NamedTuple):
    """What one sequence costs."""

    tokens: int
    """Tokens inside the model."""
    paper_flops: int
    """Of a forward pass, as the paper counts."""
    training_flops: int
    """Of the matrix products of a forward and a backward pass, 2 for each multiply-add."""


class Trainee(ABC):
    """A model in training, what it is trained on, and how it is scored.

    Parameters
    ----------
    run : TaskRun
        What determines it.
    model : Module
        The model, as it was built; under muP it is started anew.
    """

    def __init__(self, run: TaskRun, model: nn.Module) -> None:
        if run.parametrization == "mup":
            seed = draw_seed(run.seed, 0, "weights")
            generator = torch.Generator().manual_seed(seed)
            initialise_mup(model, generator=generator, zero_branches=run.zero_branches)
        self.run = run
        self.model = model

    def place(self, device: torch.device) -> None:
        """Bring the model, and what batches are made of, to a device."""
        self.model.to(device)

    @property
    def draws_on(self) -> torch.device:
        """Where batches are drawn, once the model has its place."""
        return next(self.model.parameters()).device

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold a step, the draw of its batch included.

        Nothing may wait for the device then, and no shape may depend on what was drawn.
        """
        return True

    @property
    def grows(self) -> bool:
        """Whether sequences are longer in some stages than in others."""
        return False

    def stage(self, step: int) -> Hashable:
        """Return what the shapes and constants of a step's batch depend on."""
        del step
        return None

    @abstractmethod
    def cost(self, stage: Hashable) -> SequenceCost:
        """Return what one sequence of a stage costs."""

    @abstractmethod
    def draw(
        self, stage: Hashable, batch_size: int, generator: torch.Generator
    ) -> tuple[Tensor, ...]:
        """Draw a batch."""

    @abstractmethod
    def loss(self, *batch: Tensor) -> Tensor:
        """Return the training loss of a batch."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Return scores on fresh data; ``"score"`` is the one that counts, and lower is better."""

    def conclude(self, scores: dict[str, list[float]]) -> dict[str, float]:
        """Return further scores of a run that has ended.

        Parameters
        ----------
        scores : dict of str to list of float
            Each score at each evaluation.
        """
        del scores
        return {}
