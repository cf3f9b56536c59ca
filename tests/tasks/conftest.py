"""Runs of tasks that take a moment."""

import pytest

from mlrforecast.tasks import Execution
from mlrforecast.tasks.in_context_regression import RegressionRun

SMALL = {
    "num_dims": 2,
    "width": 8,
    "num_heads": 1,
    "num_layers": 1,
    "batch_size": 8,
    "max_steps": 24,
    "warmup_steps": 4,
    "evaluate_every": 6,
    "curriculum_interval": 10,
    "evaluation_episodes": 16,
    "num_points": 12,
}
"""Settings of a regression with two stages of its curriculum, and a step between any two events."""


@pytest.fixture
def run():
    return RegressionRun(**SMALL)


@pytest.fixture
def cpu():
    return Execution(accelerator="cpu", progress=False)
