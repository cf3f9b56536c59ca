"""Comparators agree with other libraries and plain loops, and see nothing but earlier points."""

import functools

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

from mlrforecast.tasks.in_context_regression import (
    Episodes,
    LinearRegression,
    averaging,
    baseline_loss,
    build_function,
    comparators,
    k_nearest_neighbours,
    least_squares,
    ridge,
    zero,
)


def episodes_of(name="relu_network", shape=(3, 14, 5), *, active=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return build_function(name).draw(*shape, active_dims=active, generator=generator)


def by_loops(episodes, predict):
    """Predictions by a function of earlier points, their values and a point, all of numpy."""
    xs, ys = (part.double().numpy() for part in episodes[:2])
    found = np.zeros(ys.shape)
    for episode in range(len(xs)):
        for at in range(1, ys.shape[1]):
            before = xs[episode, :at], ys[episode, :at]
            found[episode, at] = predict(*before, xs[episode, at])
    return torch.from_numpy(found)


def pseudo_inverse(xs, ys, point):
    return np.linalg.pinv(xs) @ ys @ point


def of_sklearn_ridge(xs, ys, point, penalty=0.1):
    return Ridge(alpha=penalty, fit_intercept=False).fit(xs, ys).predict(point[None])[0]


def of_sklearn_neighbours(xs, ys, point, k=3):
    model = KNeighborsRegressor(min(k, len(xs)), algorithm="brute")
    return model.fit(xs, ys).predict(point[None])[0]


def mean_product(xs, ys, point, dims=5):
    return dims * np.mean([y * x for x, y in zip(xs, ys, strict=True)], axis=0) @ point


@pytest.mark.parametrize(
    ("comparator", "oracle"),
    [
        (least_squares, pseudo_inverse),
        (ridge, of_sklearn_ridge),
        (
            functools.partial(ridge, penalty=2.0),
            functools.partial(of_sklearn_ridge, penalty=2.0),
        ),
        (k_nearest_neighbours, of_sklearn_neighbours),
        (
            functools.partial(k_nearest_neighbours, k=1),
            functools.partial(of_sklearn_neighbours, k=1),
        ),
        (averaging, mean_product),
        (zero, lambda xs, ys, point: 0.0),
    ],
)
def test_predictions_are_those_of_others(comparator, oracle):
    episodes = episodes_of()
    predictions = comparator(episodes)
    assert (predictions.dtype, predictions.device.type) == (torch.float64, "cpu")
    assert not predictions[:, 0].any()
    torch.testing.assert_close(predictions, by_loops(episodes, oracle), rtol=1e-8, atol=1e-8)


def test_least_squares_is_of_minimum_norm_whatever_the_rank():
    inactive = episodes_of(active=3)
    torch.testing.assert_close(least_squares(inactive), by_loops(inactive, pseudo_inverse))
    drawn = episodes_of(shape=(50, 14, 5))
    xs = drawn.xs.clone()
    xs[:, 1::2] = xs[:, ::2]
    repeated = Episodes(xs, drawn.ys, drawn.targets)
    torch.testing.assert_close(least_squares(repeated), by_loops(repeated, pseudo_inverse))


def test_least_squares_stay_exact_where_points_are_nearly_dependent():
    # Of 500 square systems some are ill-conditioned: predictions reach hundreds.
    episodes = episodes_of(shape=(500, 16, 8))
    xs, ys = episodes.xs.double(), episodes.ys.double()
    found = least_squares(episodes)
    for at in range(1, 16):
        solved = torch.linalg.lstsq(xs[:, :at], ys[:, :at, None], driver="gelsd").solution
        exact = (solved[..., 0] * xs[:, at]).sum(-1)
        torch.testing.assert_close(found[:, at], exact, rtol=1e-7, atol=1e-7)
    assert found.abs().max() > 100


@pytest.mark.parametrize("name", list(comparators))
def test_no_prediction_sees_its_own_value_or_what_comes_after(name):
    episodes = episodes_of()
    predictions = comparators[name](episodes)
    assert predictions.shape == episodes.ys.shape
    xs, ys = episodes.xs.clone(), episodes.ys.clone()
    # Least squares differ by rounding with where in memory their points lie.
    tolerance = {"rtol": 0, "atol": 1e-12}
    xs[:, 8:] += 1.0
    ys[:, 7:] += 1.0
    changed = comparators[name](Episodes(xs, ys, ys))
    torch.testing.assert_close(predictions[:, :8], changed[:, :8], **tolerance)
    assert (name == "zero") == torch.allclose(predictions, changed, **tolerance)


@pytest.mark.parametrize(("dims", "active"), [(6, 6), (6, 4)])
def test_least_squares_leaves_the_baseline_of_linear_functions(dims, active):
    episodes = episodes_of("linear_regression", (4000, 2 * dims, dims), active=active)
    errors = (least_squares(episodes) - episodes.targets).square()
    found, spread = errors.mean(0), errors.std(0) / len(errors) ** 0.5
    expected = [max(1 - seen / active, 0.0) for seen in range(2 * dims)]
    for mean, error, wanted in zip(found, spread, expected, strict=True):
        assert mean.item() == pytest.approx(wanted, abs=5 * error.item() + 1e-8)
    assert errors.mean().item() == pytest.approx(baseline_loss(2 * dims, active), rel=0.03)


def test_averaging_is_unbiased_also_where_few_dimensions_are_active():
    weights, points = torch.tensor([1.0, -2.0, 0.5, 0.0, 0.0]), 8
    xs = episodes_of("linear_regression", (40_000, points, 5), active=3).xs
    xs[:, -1] = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])
    last = averaging(Episodes(xs, xs @ weights, xs @ weights))[:, -1]
    error = last.std().item() / len(last) ** 0.5
    assert error < 0.03
    assert last.mean().item() == pytest.approx(-0.5, abs=5 * error)


def test_the_nearest_neighbour_is_the_answer_of_its_task():
    episodes = episodes_of("nearest_neighbour", (8, 40, 4))
    found = k_nearest_neighbours(episodes, k=1)
    assert torch.equal(found, episodes.targets.double())
    assert not torch.equal(k_nearest_neighbours(episodes), episodes.targets.double())


@pytest.mark.parametrize("name", list(comparators))
def test_one_point_is_predicted_as_0_and_gradients_are_left_alone(name):
    drawn = LinearRegression().draw(2, 1, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(comparators[name](drawn), torch.zeros(2, 1, dtype=torch.float64))
    xs = episodes_of().xs.requires_grad_()
    assert not comparators[name](Episodes(xs, xs[..., 0], xs[..., 0])).requires_grad


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ridge(episodes_of(), penalty=0), "`penalty` must be a finite number above 0, got"),
        (lambda: k_nearest_neighbours(episodes_of(), k=0), "`k` must be an integer of at least 1"),
        (lambda: comparators["lasso"], "Unknown comparator 'lasso'. Available: averaging, k_near"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
