"""Training through Lightning: schedule, early stopping, checkpoints, seeding."""

from mlrforecast.training.checkpoint import Checkpoint, Progress
from mlrforecast.training.module import ForecastModule, annealed
from mlrforecast.training.optim import Parametrization, build_optimizer, mup_groups
from mlrforecast.training.options import TrainingOptions
from mlrforecast.training.run import train
from mlrforecast.training.seeding import isolated_seed

__all__ = [
    "Checkpoint",
    "ForecastModule",
    "Parametrization",
    "Progress",
    "TrainingOptions",
    "annealed",
    "build_optimizer",
    "isolated_seed",
    "mup_groups",
    "train",
]
