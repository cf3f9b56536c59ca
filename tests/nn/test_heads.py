"""Forecasts and losses of the heads against loops in numpy."""

from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mlrforecast.nn import PointHead, QuantileHead

pytestmark = pytest.mark.usefixtures("seeded")

TOKENS, WIDTH, FUTURE = 4, 8, 6
LEVELS = (0.1, 0.5, 0.9)


def quantile_head(levels: tuple[float, ...] = LEVELS, **options: float) -> QuantileHead:
    return QuantileHead(TOKENS, WIDTH, FUTURE, quantile_levels=levels, **options).eval()


def error_loop(
    point: np.ndarray, target: np.ndarray, observed: np.ndarray, power: int, weight: float
) -> float:
    """Mean error over observed steps, and over the Fourier coefficients written out."""
    total, count, spectrum = 0.0, 0, []
    for b in range(len(point)):
        error = []
        for step in range(FUTURE):
            error.append((point[b, step] - target[b, step]) if observed[b, step] else 0.0)
            total += abs(error[-1]) ** power
            count += observed[b, step]
        for f in range(FUTURE // 2 + 1):
            wave = np.exp(-2j * np.pi * f * np.arange(FUTURE) / FUTURE)
            spectrum.append(abs(np.sum(wave * error) / np.sqrt(FUTURE)) ** power)
    return (1 - weight) * total / max(count, 1) + weight * float(np.mean(spectrum))


def pinball_loop(
    quantiles: np.ndarray, target: np.ndarray, observed: np.ndarray, levels: tuple[float, ...]
) -> float:
    losses = []
    for b, step in np.argwhere(observed):
        for number, level in enumerate(levels):
            short = target[b, step] - quantiles[b, step, number]
            losses.append(level * short if short >= 0 else (level - 1) * short)
    return float(np.mean(losses)) if losses else 0.0


def case(masked: bool) -> tuple[Tensor, Tensor, Tensor | None, np.ndarray]:
    encoded, target = torch.randn(3, TOKENS, WIDTH), torch.randn(3, FUTURE)
    observed = torch.rand(3, FUTURE) > 0.4 if masked else None
    everywhere = np.ones((3, FUTURE), dtype=bool)
    return encoded, target, observed, everywhere if observed is None else observed.numpy()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("power", [1, 2])
def test_point_loss_is_the_loop(power: int, weight: float, masked: bool) -> None:
    head = PointHead(TOKENS, WIDTH, FUTURE, power=power, frequency_weight=weight).eval()
    encoded, target, observed, seen = case(masked)
    forecast = head(encoded)
    found = head.loss(forecast, target, observed).item()
    expected = error_loop(forecast[0].detach().numpy(), target.numpy(), seen, power, weight)
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("levels", [LEVELS, (0.2, 0.7), (0.6, 0.8, 0.95), (0.5,)])
@pytest.mark.parametrize("weight", [0.0, 0.8])
def test_quantile_loss_is_the_loop(levels: tuple[float, ...], weight: float, masked: bool) -> None:
    head = quantile_head(levels, frequency_weight=weight)
    encoded, target, observed, seen = case(masked)
    point, quantiles = head(encoded)
    assert quantiles is not None
    expected = error_loop(point.detach().numpy(), target.numpy(), seen, 1, weight)
    expected += pinball_loop(quantiles.detach().numpy(), target.numpy(), seen, levels)
    found = head.loss((point, quantiles), target, observed).item()
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["point", "quantile"])
def test_what_was_not_observed_does_not_matter(kind: str) -> None:
    head = quantile_head(frequency_weight=0.8)
    if kind == "point":
        head = PointHead(TOKENS, WIDTH, FUTURE, power=2, frequency_weight=0.8).eval()
    encoded, target, observed, _ = case(masked=True)
    assert observed is not None
    losses, gradients = [], []
    for filler in (0.0, 1e6):
        head.zero_grad()
        loss = head.loss(head(encoded), target.where(observed, filler), observed)
        loss.backward()
        losses.append(loss.item())
        gradients.append([parameter.grad.clone() for parameter in head.parameters()])
    assert losses[0] == losses[1]
    for first, second in zip(*gradients, strict=True):
        assert torch.equal(first, second)
    # And what was observed does.
    assert head.loss(head(encoded), target + 1, observed).item() != losses[0]


def test_nothing_observed_costs_nothing() -> None:
    head = quantile_head(frequency_weight=0.8)
    encoded, target, _, _ = case(masked=False)
    loss = head.loss(head(encoded), target, torch.zeros(3, FUTURE, dtype=torch.bool))
    assert loss.item() == 0
    loss.backward()
    assert all((p.grad == 0).all() for p in head.parameters())


def test_the_point_forecast_is_a_linear_map_of_all_tokens() -> None:
    head = PointHead(TOKENS, WIDTH, FUTURE).eval()
    encoded = torch.randn(3, TOKENS, WIDTH)
    point, quantiles = head(encoded)
    expected = encoded.reshape(3, -1) @ head.point.weight.T + head.point.bias
    torch.testing.assert_close(point, expected)
    assert quantiles is None


@given(
    levels=st.lists(st.integers(1, 99), min_size=1, max_size=9, unique=True),
    size=st.sampled_from([1e-3, 1.0, 1e3]),
    seed=st.integers(0, 1000),
)
def test_quantiles_never_cross(levels: list[int], size: float, seed: int) -> None:
    chosen = tuple(level / 100 for level in sorted(levels))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = quantile_head(chosen)
        point, quantiles = head(size * torch.randn(3, TOKENS, WIDTH))
    assert quantiles is not None
    assert quantiles.shape == (3, FUTURE, len(chosen))
    assert (quantiles.diff(dim=-1) >= 0).all()
    for number, level in enumerate(chosen):
        if level == 0.5:
            assert torch.equal(quantiles[..., number], point)
        elif level < 0.5:
            assert (quantiles[..., number] <= point).all()
        else:
            assert (quantiles[..., number] >= point).all()


def test_the_spread_does_not_pull_the_median() -> None:
    head = quantile_head()
    encoded, target, _, _ = case(masked=False)
    head.loss(head(encoded), target).backward()
    with_spread = head.point.weight.grad.clone()
    head.zero_grad()
    PointHead.loss(head, head(encoded), target).backward()
    torch.testing.assert_close(with_spread, head.point.weight.grad)
    head.zero_grad()
    head.loss(head(encoded), target).backward()
    assert head.spread is not None
    assert head.spread.weight.grad.abs().sum() > 0


def test_training_the_head_finds_the_quantiles() -> None:
    """A target that is normal around 2: the trained levels are its quantiles."""
    head = QuantileHead(1, 2, 1, quantile_levels=(0.1, 0.5, 0.8))
    optimizer = torch.optim.Adam(head.parameters(), lr=0.03)
    target = 2 + torch.randn(4000, 1)
    encoded = torch.ones(4000, 1, 2)
    for _ in range(300):
        optimizer.zero_grad()
        head.loss(head(encoded), target).backward()
        optimizer.step()
    _, quantiles = head(encoded[:1])
    expected = torch.quantile(target, torch.tensor([0.1, 0.5, 0.8]))
    torch.testing.assert_close(quantiles.detach().flatten(), expected, atol=0.05, rtol=0)


def test_an_untrained_spread_is_normal_with_half_a_standard_deviation() -> None:
    levels = (0.05, 0.3, 0.5, 0.9)
    head = QuantileHead(2, 3, 4, quantile_levels=levels)
    point, quantiles = head(torch.randn(5, 2, 3))
    expected = torch.tensor([NormalDist(0, 0.5).inv_cdf(level) for level in levels])
    torch.testing.assert_close(
        quantiles - point.unsqueeze(-1), expected.expand(5, 4, 4), atol=1e-5, rtol=0
    )


def test_a_given_centre_moves_the_point_and_all_quantiles() -> None:
    head, encoded, added = quantile_head(), torch.randn(3, TOKENS, WIDTH), torch.randn(3, FUTURE)
    point, quantiles = head(encoded)
    moved, all_moved = head(encoded, head.centre(encoded) + added)
    torch.testing.assert_close(moved, point + added)
    torch.testing.assert_close(all_moved, quantiles + added.unsqueeze(-1))
    plain = PointHead(TOKENS, WIDTH, FUTURE)
    torch.testing.assert_close(plain(encoded, added)[0], added)
