"""A run that several processes make together, on other machines perhaps."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import Strategy
from torch import Tensor

from mlrforecast.data import WindowStore
from mlrforecast.models import EncoderForecaster
from mlrforecast.training.checkpoint import Checkpoint, Progress
from mlrforecast.training.options import TrainingOptions

__all__ = ["Job", "Place", "Team"]


@dataclass(frozen=True, eq=False)
class Job:
    """What is trained, on what, and how; all processes of a run are given the same.

    Parameters
    ----------
    model : EncoderForecaster
        With its first weights; it is trained in place.
    store : WindowStore
        Training windows.
    options : TrainingOptions
        How to train.
    validation : WindowStore, optional
        Windows of the validation loss.
    checkpoint : Checkpoint, optional
        Where the first process writes how far the run is.
    """

    model: EncoderForecaster
    store: WindowStore
    options: TrainingOptions
    validation: WindowStore | None = None
    checkpoint: Checkpoint | None = None


class Place(NamedTuple):
    """One of the processes of a run, which somebody else has started.

    Parameters
    ----------
    strategy : callable
        Returns how Lightning works together with the other ones, from settings of its DDPStrategy.
    plugins : list
        What tells Lightning which of them this one is.
    callbacks : list of Callback
        What looks on.
    progress : Progress or None
        How far an interrupted run was, the same for all of them.
    """

    strategy: Callable[..., Strategy]
    plugins: list[Any]
    callbacks: list[Callback]
    progress: Progress | None


class Team(ABC):
    """What starts the processes of a run, wherever they are."""

    @abstractmethod
    def train(self, job: Job) -> tuple[int, dict[str, Tensor]]:
        """Have the processes of a run train.

        Parameters
        ----------
        job : Job
            The run, of which each process makes a share
            (:func:`mlrforecast.training.run.train_share`).

        Returns
        -------
        int
            Optimiser steps that were made.
        dict of str to Tensor
            The trained weights.
        """
