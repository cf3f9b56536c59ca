"""The linear map starts at the ridge regression of what follows a context on the context."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from mlrforecast.data import CovariateEncoding, WindowStore, read_panel
from mlrforecast.models import EncoderConfig, EncoderForecaster
from mlrforecast.training import start_linear

pytestmark = pytest.mark.usefixtures("seeded")

SIZES = {"context_length": 12, "prediction_length": 4}


def store_of(values: np.ndarray) -> WindowStore:
    index = pd.date_range("2024-01-01", periods=len(values), freq="h")
    panel = read_panel(pd.DataFrame({"y": values}, index=index))
    encoding = CovariateEncoding.fit(panel, calendar=False)
    return WindowStore(panel, encoding, min_context=2, **SIZES)


def model_of(**fields: Any) -> EncoderForecaster:
    return EncoderForecaster(
        EncoderConfig(
            **{"linear_skip": True, "patch_length": 2, "patch_stride": 2} | SIZES | fields
        )
    )


def walk(rows: int = 2100) -> np.ndarray:
    return np.random.default_rng(0).normal(size=rows).cumsum()


def ridge(store: WindowStore, windows: torch.Tensor) -> np.ndarray:
    """Solve the regression window by window, in numpy; the last row is the constant."""
    batch = store.gather(windows)
    squares, products = np.zeros((13, 13)), np.zeros((13, 4))
    for past, future in zip(
        batch.past_target[..., 0].double().numpy(),
        batch.future_target[..., 0].double().numpy(),
        strict=True,
    ):
        inputs = np.append((past - past.mean()) / past.std(), 1.0)
        squares += past.std() * np.outer(inputs, inputs)
        products += past.std() * np.outer(inputs, (future - past.mean()) / past.std())
    return np.linalg.solve(squares + 0.2 * squares[-1, -1] * np.eye(13), products)


def check_start(model: EncoderForecaster, expected: np.ndarray) -> None:
    assert model.linear_skip is not None
    weight = model.linear_skip.map.weight.detach().numpy()
    assert np.allclose(weight, expected[:-1].T, atol=1e-4)
    assert not model.head.point.weight.any()
    assert np.allclose(model.head.point.bias.detach().numpy(), expected[-1], atol=1e-4)


@pytest.mark.parametrize("loss", ["quantile", "mae", "mse", "normal", "student_t"])
def test_the_map_solves_the_regression_and_the_head_is_silent(loss: str) -> None:
    store, model = store_of(walk()), model_of(loss=loss)
    start_linear(model, store)
    check_start(model, ridge(store, torch.arange(len(store))))


def test_windows_with_a_missing_step_to_forecast_do_not_count() -> None:
    values = walk()
    values[-1] = np.nan
    store, model = store_of(values), model_of()
    start_linear(model, store)
    check_start(model, ridge(store, torch.arange(len(store) - 1)))


@pytest.mark.parametrize(
    "values",
    [np.ones(2100), walk(2010), np.arange(5.0)],
    ids=["constant", "499 forecasts", "too short"],
)
def test_windows_that_say_nothing_leave_the_model_as_it_is(values: np.ndarray) -> None:
    model = model_of()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    start_linear(model, store_of(values))
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


@pytest.mark.parametrize("fields", [{"linear_skip": False}, {"loss": "negative_binomial"}])
def test_a_model_without_a_map_and_one_of_counts_stay_as_they_are(fields: Any) -> None:
    model = model_of(**fields)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    start_linear(model, store_of(np.abs(walk()).round()))
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
