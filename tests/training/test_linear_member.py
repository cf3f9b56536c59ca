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


SEASON = 5


def eleven_numbers(past: np.ndarray, ahead: int, season: int) -> list[float]:
    """Return what the regression by seasons reads for one step, the first of which is 0 ahead."""
    own = [past[-age] for age in range(1, len(past) + 1) if (age + ahead) % season == 0]
    return [
        past[-1],
        past[::-season].mean(),
        *(past[-count * season :].mean() for count in (1, 2, 3, 7)),
        *(float(np.mean(own[:count])) for count in (1, 2, 3, 7)),
        float(np.mean(own)),
    ]


def by_season(
    pasts: np.ndarray, futures: np.ndarray, weights: np.ndarray, season: int
) -> np.ndarray:
    """Forecast each step from eleven numbers, by weighted ridge regressions."""
    forecasts = []
    for ahead in range(futures.shape[1]):
        numbers = np.array([eleven_numbers(past, ahead, season) for past in pasts])
        weighted = numbers.T * weights
        penalty = 0.01 * weights.sum() * np.eye(11)
        found = np.linalg.solve(weighted @ numbers + penalty, weighted @ futures[:, ahead])
        forecasts.append([eleven_numbers(column, ahead, season) @ found for column in np.eye(12)])
    return np.array(forecasts).T


def ridge(
    store: WindowStore,
    windows: torch.Tensor,
    *,
    start: np.ndarray | None = None,
    season: int = SEASON,
) -> np.ndarray:
    """Solve the regressions in numpy, drawn to the regression by seasons or to what is given."""
    batch = store.gather(windows)
    pasts = batch.past_target[..., 0].double().numpy()
    means, scales = pasts.mean(axis=1, keepdims=True), pasts.std(axis=1, keepdims=True)
    inputs = pasts = (pasts - means) / scales
    futures = (batch.future_target[..., 0].double().numpy() - means) / scales
    penalties = [0.05 + 99.95 * (11 - step) / 11 for step in range(12)]
    if batch.known_covariates is not None:
        known = batch.known_covariates.flatten(1).double().numpy()
        inputs = np.hstack([pasts, known])
        penalties += [0.2] * known.shape[1]
    if batch.calendar is not None:
        first = batch.calendar[:, 0].double().numpy()
        inputs = np.hstack([inputs, first])
        penalties += [1.0] * first.shape[1]
    weights = scales[:, 0]

    def weights_by(found: np.ndarray) -> np.ndarray:
        errors = np.sqrt(np.square(futures - inputs @ found).mean(axis=1))
        return np.asarray(scales[:, 0] / (errors + 0.1))

    if start is None:
        start = np.zeros((inputs.shape[1], 4))
        for _ in range(2):
            start[:12] = by_season(pasts, futures, weights, season)
            weights = weights_by(start)
    for _ in range(2):
        weighted = inputs.T * weights
        left = weighted @ (futures - inputs @ start)
        squares = weighted @ inputs + weights.sum() * np.diag(penalties)
        found = start + np.linalg.solve(squares, left)
        weights = weights_by(found)
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
    solve_linear(model.train(), store, SEASON)
    assert model.training
    check_solved(model, ridge(store, torch.arange(len(store))))
    after = state_of(model)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"linear.weight", "linear.share"}


def test_no_more_numbers_are_held_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    store, model = store_of(walk()), model_of()
    # 12 inputs and 4 outputs a window.
    monkeypatch.setattr(linear_member, "NUM_VALUES", 16 * 40 + 15)
    solve_linear(model, store, SEASON)
    spread = np.linspace(0, len(store) - 1, 40).round()
    check_solved(model, ridge(store, torch.from_numpy(spread).long()))


def test_a_map_that_is_there_is_what_the_penalty_draws_to() -> None:
    model, few = model_of(), store_of(walk(17))
    assert model.linear is not None
    model.linear.weight.data.normal_()
    start = model.linear.weight.double().numpy().T
    solve_linear(model, few, SEASON)
    check_solved(model, ridge(few, torch.arange(len(few)), start=start))


# Of a season of one step, a context has more than the seven that some means are of.
@pytest.mark.parametrize(("season", "counted"), [(1, 1), (12, 12), (13, 1)])
def test_a_season_longer_than_the_context_counts_as_none(season: int, counted: int) -> None:
    store, model = store_of(walk()), model_of()
    solve_linear(model, store, season)
    check_solved(model, ridge(store, torch.arange(len(store)), season=counted))


def test_windows_with_a_missing_step_to_forecast_do_not_count() -> None:
    values = walk()
    values[-1] = np.nan
    store, model = store_of(values), model_of()
    solve_linear(model, store, SEASON)
    check_solved(model, ridge(store, torch.arange(len(store) - 1)))


def test_the_map_reads_covariates() -> None:
    known = np.random.default_rng(1).normal(size=300)
    store = store_of(walk() + 3 * known, known)
    model = model_of(known_cardinalities=(0, 0))
    solve_linear(model, store, SEASON)
    check_solved(model, ridge(store, torch.arange(len(store))))


def test_the_map_reads_the_calendar_of_the_first_step() -> None:
    known = np.random.default_rng(1).normal(size=300)
    store = store_of(walk() + np.sin(np.arange(300) / 24 * 2 * np.pi) + known, known, calendar=True)
    batch = store.gather(torch.arange(1))
    assert batch.calendar is not None
    features = batch.calendar.shape[-1]
    model = model_of(known_cardinalities=(0, 0), num_calendar_features=features)
    solve_linear(model, store, SEASON)
    assert model.linear is not None
    assert model.linear.weight[:, -features:].abs().max() > 0.01
    check_solved(model, ridge(store, torch.arange(len(store))))


def test_a_regression_of_too_many_numbers_is_left_out() -> None:
    sizes = {"context_length": 100, "patch_length": 50, "patch_stride": 50}
    assert model_of(**sizes, past_cardinalities=(0,) * 39).linear is not None
    assert model_of(**sizes, past_cardinalities=(0,) * 40).linear is None


@pytest.mark.parametrize("values", [np.ones(300), np.arange(5.0)], ids=["constant", "too short"])
def test_windows_that_say_nothing_leave_the_model_as_it_is(values: np.ndarray) -> None:
    model = model_of()
    before = state_of(model)
    solve_linear(model, store_of(values), SEASON)
    assert all(torch.equal(before[name], weight) for name, weight in state_of(model).items())


@pytest.mark.parametrize("fields", [{"linear_share": 0.0}, {"loss": "negative_binomial"}])
def test_a_model_without_a_map_and_one_of_counts_stay_as_they_are(fields: Any) -> None:
    model = model_of(**fields)
    before = state_of(model)
    solve_linear(model, store_of(np.abs(walk()).round()), SEASON)
    assert model.linear is None
    assert all(torch.equal(before[name], weight) for name, weight in state_of(model).items())
