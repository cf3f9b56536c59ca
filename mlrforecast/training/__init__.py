"""Training through Lightning: schedule, early stopping, seeding."""

from mlrforecast.training.module import ForecastModule, annealed
from mlrforecast.training.run import TrainingOptions, train
from mlrforecast.training.seeding import isolated_seed

__all__ = ["ForecastModule", "TrainingOptions", "annealed", "isolated_seed", "train"]
