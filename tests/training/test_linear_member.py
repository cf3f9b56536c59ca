"""The linear member is the ridge regression of what follows a context on the context."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from mlrforecast.data import CovariateEncoding, FrameSchema, WindowStore, read_panel
from mlrforecast.models import EncoderConfig, EncoderForecaster
from mlrforecast.training import linear_member, solve_linear

pytestmark = pytest.mark.usefixtures("seeded")

SIZES = {"context_length": 12, "prediction_length": 4}


def store_of(
    values: np.ndarray, known: np.ndarray | None = None, calendar: bool = False
) -> WindowStore:
    index = pd.date_range("2024-01-01", periods=len(values), freq="h")
    frame = pd.DataFrame({"y": values}, index=index)
    schema = FrameSchema()
    if known is not None:
        frame["known"] = known
        schema = FrameSchema(known_covariates=("known",))
    panel = read_panel(frame, schema)
    encoding = CovariateEncoding.fit(panel, calendar=calendar)
    return WindowStore(panel, encoding, min_context=2, **SIZES)


def model_of(**fields: Any) -> EncoderForecaster:
    sizes = {"linear_share": 0.5, "patch_length": 2, "patch_stride": 2} | SIZES
    return EncoderForecaster(EncoderConfig(**sizes | fields))


def walk(rows: int = 300) -> np.ndarray:
    return np.random.default_rng(0).normal(size=rows).cumsum()


def ridge(store: WindowStore, windows: torch.Tensor, effect: float = 0.0) -> np.ndarray:
    """Solve the regressions window by window, in numpy."""
    batch = store.gather(windows)
    known = torch.zeros(len(windows), 0)
    if batch.known_covariates is not None:
        known = batch.known_covariates.flatten(1)
    size = 12 + known.shape[1]
    pairs = []
    for past, future, covariates in zip(
        batch.past_target[..., 0].double().numpy(),
        batch.future_target[..., 0].double().numpy(),
        known.double().numpy(),
        strict=True,
    ):
        inputs = np.append((past - past.mean()) / past.std(), covariates)
        outputs = (future - past.mean()) / past.std() - effect
        pairs.append((inputs, outputs, past.std()))
    weights, found = [scale for _, _, scale in pairs], np.zeros((size, 4))
    ages = [(11 - step) / 11 for step in range(12)]
    penalties = np.diag([0.05 + 2 * age for age in ages] + [0.2] * known.shape[1])
    for _ in range(3):
        squares, products = sum(weights) * penalties, np.zeros((size, 4))
        for weight, (inputs, outputs, _) in zip(weights, pairs, strict=True):
            squares += weight * np.outer(inputs, inputs)
            products += weight * np.outer(inputs, outputs)
        found = np.linalg.solve(squares, products)
        errors = [np.sqrt(np.mean((outputs - inputs @ found) ** 2)) for inputs, outputs, _ in pairs]
        weights = [pair[2] / (error + 0.1) for pair, error in zip(pairs, errors, strict=True)]
    return found


def check_solved(model: EncoderForecaster, expected: np.ndarray) -> None:
    assert model.linear is not None
    assert model.linear.share == 0.5
    assert np.allclose(model.linear.weight.numpy(), expected.T, atol=1e-4)


def state_of(model: EncoderForecaster) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.state_dict().items()}


@pytest.mark.parametrize("loss", ["quantile", "mae", "mse", "normal", "student_t"])
def test_the_map_solves_the_regression_and_the_network_stays(loss: str) -> None:
    store, model = store_of(walk()), model_of(loss=loss)
    before = state_of(model)
    solve_linear(model.train(), store)
    assert model.training
    check_solved(model, ridge(store, torch.arange(len(store))))
    after = state_of(model)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"linear.weight", "linear.share"}


def test_no_more_numbers_are_held_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    store, model = store_of(walk()), model_of()
    # 12 inputs and 4 outputs a window.
    monkeypatch.setattr(linear_member, "NUM_VALUES", 16 * 40 + 15)
    solve_linear(model, store)
    spread = np.linspace(0, len(store) - 1, 40).round()
    check_solved(model, ridge(store, torch.from_numpy(spread).long()))


def test_a_map_that_is_there_is_what_the_penalty_draws_to() -> None:
    model, few = model_of(), store_of(walk(17))
    assert model.linear is not None
    model.linear.weight.data.normal_()
    start = model.linear.weight.double()
    solve_linear(model, few)
    batch = few.gather(torch.arange(len(few)))
    inputs, outputs, scale, _ = (part.double() for part in model.regression(batch))
    weights, found = scale, start.T
    for _ in range(3):
        weighted = (inputs * weights).T
        penalty = weights.sum() * torch.linspace(2.05, 0.05, 12, dtype=torch.float64).diag()
        left = weighted @ (outputs - inputs @ start.T)
        found = start.T + torch.linalg.solve(weighted @ inputs + penalty, left)
        errors = (outputs - inputs @ found).square().mean(dim=1, keepdim=True).sqrt()
        weights = scale / (errors + 0.1)
    assert torch.allclose(model.linear.weight.double(), found.T, atol=1e-4)


def test_windows_with_a_missing_step_to_forecast_do_not_count() -> None:
    values = walk()
    values[-1] = np.nan
    store, model = store_of(values), model_of()
    solve_linear(model, store)
    check_solved(model, ridge(store, torch.arange(len(store) - 1)))


def test_the_map_reads_covariates() -> None:
    known = np.random.default_rng(1).normal(size=300)
    store = store_of(walk() + 3 * known, known)
    model = model_of(known_cardinalities=(0, 0))
    solve_linear(model, store)
    check_solved(model, ridge(store, torch.arange(len(store))))


def test_the_map_learns_what_the_calendar_leaves() -> None:
    store = store_of(walk(), calendar=True)
    batch = store.gather(torch.arange(1))
    assert batch.calendar is not None
    model = model_of(num_calendar_features=batch.calendar.shape[-1])
    assert model.calendar_effect is not None
    torch.nn.init.constant_(model.calendar_effect.out.bias, 0.7)
    solve_linear(model, store)
    check_solved(model, ridge(store, torch.arange(len(store)), effect=0.7))


def test_a_regression_of_too_many_numbers_is_left_out() -> None:
    sizes = {"context_length": 100, "patch_length": 50, "patch_stride": 50}
    assert model_of(**sizes, past_cardinalities=(0,) * 39).linear is not None
    assert model_of(**sizes, past_cardinalities=(0,) * 40).linear is None


@pytest.mark.parametrize("values", [np.ones(300), np.arange(5.0)], ids=["constant", "too short"])
def test_windows_that_say_nothing_leave_the_model_as_it_is(values: np.ndarray) -> None:
    model = model_of()
    before = state_of(model)
    solve_linear(model, store_of(values))
    assert all(torch.equal(before[name], weight) for name, weight in state_of(model).items())


@pytest.mark.parametrize("fields", [{"linear_share": 0.0}, {"loss": "negative_binomial"}])
def test_a_model_without_a_map_and_one_of_counts_stay_as_they_are(fields: Any) -> None:
    model = model_of(**fields)
    before = state_of(model)
    solve_linear(model, store_of(np.abs(walk()).round()))
    assert model.linear is None
    assert all(torch.equal(before[name], weight) for name, weight in state_of(model).items())
