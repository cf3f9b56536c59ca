"""The schedule and the optimiser."""

import math
from typing import Any

import pytest
import torch

from mlrforecast.models import EncoderConfig, EncoderForecaster
from mlrforecast.nn import mup_table
from mlrforecast.training import ForecastModule, TrainingOptions, annealed

pytestmark = pytest.mark.usefixtures("seeded")


def module_of(max_steps: int = 100, **options: Any) -> ForecastModule:
    model = EncoderForecaster(EncoderConfig(context_length=32, prediction_length=8))
    given = {"learning_rate": 0.01, "weight_decay": 0.3, "batch_size": 8}
    return ForecastModule(model, TrainingOptions(max_steps=max_steps, **given, **options))


@pytest.mark.parametrize(("warmup", "steps"), [(0, 10), (3, 20), (10, 100)])
def test_the_rate_rises_in_a_line_and_falls_as_a_cosine(warmup: int, steps: int) -> None:
    rates = [annealed(step, warmup_steps=warmup, max_steps=steps) for step in range(steps)]
    assert rates[:warmup] == pytest.approx([(step + 1) / warmup for step in range(warmup)])
    rest = steps - warmup
    cosine = [(1 + math.cos(math.pi * step / rest)) / 2 for step in range(rest)]
    assert rates[warmup:] == pytest.approx(cosine)
    assert min(rates) > 0
    assert rates[warmup] == 1.0


def test_the_rate_stays_zero_beyond_the_end() -> None:
    assert annealed(20, warmup_steps=2, max_steps=20) == pytest.approx(0)
    assert annealed(50, warmup_steps=2, max_steps=20) == pytest.approx(0)
    assert annealed(0, warmup_steps=1, max_steps=1) == 1.0


@pytest.mark.parametrize(("max_steps", "warmup"), [(5, 0), (100, 10), (10_000, 200)])
def test_the_first_tenth_warms_up_at_most_200_steps(max_steps: int, warmup: int) -> None:
    configured = module_of(max_steps).configure_optimizers()
    scheduler = configured["lr_scheduler"]["scheduler"]
    rate = scheduler.lr_lambdas[0]
    assert configured["lr_scheduler"]["interval"] == "step"
    assert [rate(step) for step in range(max_steps)].index(1.0) == max(warmup - 1, 0)
    assert rate(max_steps) == pytest.approx(0)


def test_only_matrices_decay() -> None:
    module = module_of()
    optimizer = module.configure_optimizers()["optimizer"]
    assert isinstance(optimizer, torch.optim.AdamW)
    decay = {
        id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]
    }
    names = dict(module.model.named_parameters())
    assert len(decay) == len(names)
    for name, parameter in names.items():
        one_dimensional = name.endswith("bias") or "norm" in name
        assert decay[id(parameter)] == (0.0 if one_dimensional else 0.3), name


def test_under_mup_each_parameter_has_its_own_rate_on_the_same_schedule() -> None:
    module = module_of(parametrization="mup")
    configured = module.configure_optimizers()
    groups = configured["optimizer"].param_groups
    first = annealed(0, warmup_steps=10, max_steps=100)
    rates = {id(p): group["lr"] / first for group in groups for p in group["params"]}
    rows = mup_table(module.model, learning_rate=0.01)
    assert len(rows) == len(rates)
    for row in rows:
        parameter = module.model.get_parameter(row.name)
        assert rates[id(parameter)] == pytest.approx(row.learning_rate), row.name
    assert len({group["lr"] for group in groups}) > 2
