"""Distributions of a head and the head itself, against scipy."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from mlrforecast.nn.distributions import (
    DISTRIBUTIONS,
    NegativeBinomialOutput,
    NormalOutput,
    StudentTOutput,
)
from mlrforecast.nn.heads import DistributionHead

BATCH, STEPS = 5, 4
NAMES = tuple(DISTRIBUTIONS)
LEVELS = np.array([1e-6, 0.01, 0.1, 0.37, 0.5, 0.8, 0.975, 0.999999])


def parameters_of(name: str, seed: int = 0) -> np.ndarray:
    """Plausible parameters of shape (B, F, P) in float64, of very different sizes."""
    random = np.random.default_rng(seed)
    size = 10.0 ** random.uniform(-2, 4, (BATCH, STEPS))
    if name == "negative_binomial":
        return np.stack([size, 10.0 ** random.uniform(-3, 1, size.shape)], axis=-1)
    columns = [random.normal(size=size.shape) * size, size]
    if name == "student_t":
        columns.append(2 + random.exponential(10, size.shape))
    return np.stack(columns, axis=-1)


def frozen(name: str, parameters: np.ndarray) -> Any:
    """The same distributions in scipy, of shape (B, F)."""
    if name == "normal":
        return stats.norm(parameters[..., 0], parameters[..., 1])
    if name == "student_t":
        return stats.t(parameters[..., 2], parameters[..., 0], parameters[..., 1])
    mean, dispersion = parameters[..., 0], parameters[..., 1]
    return stats.nbinom(1 / dispersion, 1 / (1 + dispersion * mean))


def context_units(scale: float = 1.0, loc: float = 0.0) -> tuple[Tensor, Tensor]:
    return torch.full((BATCH, 1), loc).double(), torch.full((BATCH, 1), scale).double()


@pytest.mark.parametrize("name", NAMES)
def test_log_prob_is_that_of_scipy(name: str) -> None:
    parameters = parameters_of(name)
    scipy = frozen(name, parameters)
    mass = scipy.logpmf if name == "negative_binomial" else scipy.logpdf
    for level in LEVELS:
        actual = scipy.ppf(level)
        found = DISTRIBUTIONS[name].log_prob(torch.tensor(parameters), torch.tensor(actual))
        np.testing.assert_allclose(found, mass(actual), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_quantiles_are_those_of_scipy(name: str) -> None:
    parameters = parameters_of(name, seed=1)
    found = DISTRIBUTIONS[name].quantiles(parameters, LEVELS)
    assert found.shape == (BATCH, STEPS, len(LEVELS))
    scipy = frozen(name, parameters[:, :, None])
    size = parameters[..., 1:2] if name != "negative_binomial" else 1.0
    np.testing.assert_allclose(found / size, scipy.ppf(LEVELS) / size, rtol=1e-9, atol=1e-9)
    assert (np.diff(found, axis=-1) >= 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_quantiles_of_levels_of_each_step(name: str) -> None:
    parameters = parameters_of(name, seed=2)
    levels = np.random.default_rng(0).uniform(0.01, 0.99, (STEPS, 3))
    output = DISTRIBUTIONS[name]
    found = output.quantiles(parameters, levels)
    for step in range(STEPS):
        np.testing.assert_array_equal(
            found[:, step], output.quantiles(parameters[:, step], levels[step])
        )


@pytest.mark.parametrize("name", NAMES)
def test_the_point_forecast_is_the_mean(name: str) -> None:
    parameters = parameters_of(name, seed=3)
    point = DISTRIBUTIONS[name].point(torch.tensor(parameters))
    np.testing.assert_allclose(point, frozen(name, parameters).mean(), rtol=1e-9)


@pytest.mark.parametrize("name", ["normal", "negative_binomial"])
def test_the_spread_is_the_standard_deviation(name: str) -> None:
    parameters = parameters_of(name, seed=4)
    found = DISTRIBUTIONS[name].spread(parameters)
    np.testing.assert_allclose(found, frozen(name, parameters).std(), rtol=1e-9)


def test_the_spread_of_a_student_t_is_its_scale() -> None:
    parameters = parameters_of("student_t")
    np.testing.assert_array_equal(StudentTOutput().spread(parameters), parameters[..., 1])


@pytest.mark.parametrize("name", ["normal", "student_t"])
def test_rescale_maps_quantiles(name: str) -> None:
    parameters, output = parameters_of(name), DISTRIBUTIONS[name]
    random = np.random.default_rng(5)
    loc, scale = random.normal(size=(BATCH, 1)), random.uniform(0.1, 9, (BATCH, 1))
    before = parameters.copy()
    found = output.quantiles(output.rescale(parameters, loc, scale), LEVELS)
    expected = output.quantiles(parameters, LEVELS) * scale[..., None] + loc[..., None]
    size = (parameters[..., 1] * scale)[..., None]
    np.testing.assert_allclose(found / size, expected / size, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(parameters, before)


def test_rescale_leaves_counts_as_they_are_or_missing() -> None:
    parameters, output = parameters_of("negative_binomial"), NegativeBinomialOutput()
    loc, scale = np.zeros((BATCH, 1)), np.ones((BATCH, 1))
    np.testing.assert_array_equal(output.rescale(parameters, loc, scale), parameters)
    scale[1], loc[3] = np.nan, np.nan
    found = output.rescale(parameters, loc, scale)
    assert np.isnan(found[[1, 3]]).all()
    np.testing.assert_array_equal(found[[0, 2, 4]], parameters[[0, 2, 4]])
    quantiles = output.quantiles(found, LEVELS)
    assert np.isnan(quantiles[[1, 3]]).all()
    assert np.isfinite(quantiles[[0, 2, 4]]).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 50.0])
def test_parameters_are_allowed_whatever_the_network_says(name: str, size: float) -> None:
    output = DISTRIBUTIONS[name]
    raw = torch.randn(BATCH, STEPS, 1 + len(output.starts), generator=torch.Generator())
    for factor in (1.0, 100.0):
        parameters = output.parameters(
            factor * raw,
            torch.randn(BATCH, 1, generator=torch.Generator()),
            size * torch.ones(BATCH, 1),
        )
        assert parameters.shape == raw.shape
        assert torch.isfinite(parameters).all()
        assert (parameters[..., 1] > 0).all()
        if name == "student_t":
            assert (parameters[..., 2] >= 2).all()
        if name == "negative_binomial":
            assert (parameters[..., 0] > 0).all()


def test_parameters_are_in_the_unit_of_the_series() -> None:
    raw = torch.tensor([[[0.5, 0.54]]], dtype=torch.float64)
    mean, deviation = NormalOutput().parameters(
        raw, torch.tensor([[7.0]]).double(), torch.tensor([[3.0]]).double()
    )[0, 0]
    assert mean == pytest.approx(8.5)
    assert deviation == pytest.approx(3 * np.log1p(np.exp(0.54)) + 0.01)
    count = NegativeBinomialOutput().parameters(
        torch.tensor([[[0.5, 0.0]]], dtype=torch.float64),
        torch.tensor([[400.0]]).double(),
        torch.tensor([[3.0]]).double(),
    )[0, 0]
    assert count[0] == pytest.approx(401.5)


def head_of(name: str) -> DistributionHead:
    torch_state = torch.get_rng_state()
    torch.manual_seed(0)
    head = DistributionHead(3, 8, STEPS, distribution=name)
    torch.set_rng_state(torch_state)
    return head


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", [0.0, 1.0, 1e4])
@pytest.mark.parametrize("jump", [0.0, 1.0, 1e4])
def test_gradients_are_finite_after_constant_contexts(name: str, level: float, jump: float) -> None:
    head = head_of(name)
    encoded = torch.zeros(BATCH, 3, 8, requires_grad=True)
    forecast = head.rescale(head(encoded), torch.full((BATCH, 1), level), torch.zeros(BATCH, 1))
    loss = head.loss(forecast, torch.full((BATCH, STEPS), level + jump))
    loss.backward()
    assert torch.isfinite(loss)
    for gradient in (encoded.grad, *(weight.grad for weight in head.parameters())):
        assert gradient is not None
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_minus_the_mean_log_likelihood_of_observed_steps(name: str) -> None:
    head = head_of(name).double()
    encoded = torch.linspace(-1, 1, BATCH * 24, dtype=torch.float64).reshape(BATCH, 3, 8)
    loc, scale = context_units(scale=2.0, loc=9.0)
    point, parameters = head.rescale(head(encoded), loc, scale)
    target = torch.arange(BATCH * STEPS).reshape(BATCH, STEPS).double()
    observed = target % 3 != 0
    scipy = frozen(name, parameters.detach().numpy())
    mass = scipy.logpmf if name == "negative_binomial" else scipy.logpdf
    expected = -mass(target.numpy())
    everything = head.loss((point, parameters), target)
    assert everything.item() == pytest.approx(expected.mean())
    some = head.loss((point, parameters), target.where(observed, 0.0), observed)
    assert some.item() == pytest.approx(expected[observed.numpy()].mean())
    assert head.loss((point, parameters), target, torch.zeros_like(observed)).item() == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_given_centre_is_the_location(name: str) -> None:
    head = head_of(name)
    encoded, added = torch.ones(BATCH, 3, 8), torch.arange(STEPS).float().repeat(BATCH, 1)
    _, raw = head(encoded)
    moved, all_moved = head(encoded, added)
    torch.testing.assert_close(moved, added)
    torch.testing.assert_close(all_moved[..., 0], added)
    assert torch.equal(all_moved[..., 1:], raw[..., 1:])
    assert torch.equal(raw[..., 1:], torch.tensor(head.output.starts).expand(BATCH, STEPS, -1))


def test_float32_counts_keep_the_digits_of_large_ones() -> None:
    parameters = torch.tensor([[[3e6, 1e-3]]])
    target = torch.tensor([[3.1e6]])
    found = NegativeBinomialOutput().log_prob(parameters, target)
    assert found.dtype == torch.float32
    expected = frozen("negative_binomial", parameters.double().numpy()).logpmf(3.1e6)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
