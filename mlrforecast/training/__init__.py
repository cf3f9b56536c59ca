"""Training through Lightning: schedule, early stopping, seeding."""

from mlrforecast.training.module import ForecastModule, annealed
from mlrforecast.training.optim import Parametrization, build_optimizer, mup_groups
from mlrforecast.training.run import TrainingOptions, train
from mlrforecast.training.seeding import isolated_seed

__all__ = [
    "ForecastModule",
    "Parametrization",
    "TrainingOptions",
    "annealed",
    "build_optimizer",
    "isolated_seed",
    "mup_groups",
    "train",
]
