"""Training through Lightning: schedule, early stopping, checkpoints, seeding."""

from mlrforecast.training.checkpoint import Checkpoint, Progress
from mlrforecast.training.linear_member import solve_linear
from mlrforecast.training.memory import (
    MemoryEstimate,
    available_memory,
    check_memory,
    estimate_memory,
    find_batch_size,
)
from mlrforecast.training.module import ForecastModule, annealed
from mlrforecast.training.optim import Parametrization, build_optimizer, mup_groups
from mlrforecast.training.options import Schedule, TrainingOptions
from mlrforecast.training.run import train
from mlrforecast.training.seeding import isolated_seed
from mlrforecast.training.surroundings import Silence, surroundings
from mlrforecast.training.watch import Watch

__all__ = [
    "Checkpoint",
    "ForecastModule",
    "MemoryEstimate",
    "Parametrization",
    "Progress",
    "Schedule",
    "Silence",
    "TrainingOptions",
    "Watch",
    "annealed",
    "available_memory",
    "build_optimizer",
    "check_memory",
    "estimate_memory",
    "find_batch_size",
    "isolated_seed",
    "mup_groups",
    "solve_linear",
    "surroundings",
    "train",
]
