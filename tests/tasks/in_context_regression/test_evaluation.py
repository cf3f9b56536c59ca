"""Evaluation: fresh episodes, the same for everyone, and honest errors."""

import numpy as np
import pytest
import torch

from mlrforecast.tasks._seeds import draw_seed
from mlrforecast.tasks.in_context_regression import (
    LinearRegression,
    NearestNeighbour,
    evaluate,
    evaluation_episodes,
    least_squares,
    zero,
)


def batches_of(function=None, *, points=5, num_episodes=10, batch_size=4, **options):
    return list(
        evaluation_episodes(
            function or LinearRegression(),
            points,
            3,
            num_episodes=num_episodes,
            batch_size=batch_size,
            **options,
        )
    )


def test_batches_hold_all_episodes_and_no_two_are_the_same():
    batches = batches_of(active_dims=2)
    assert [tuple(batch.xs.shape) for batch in batches] == [(4, 5, 3), (4, 5, 3), (2, 5, 3)]
    assert len(torch.cat([batch.xs for batch in batches]).flatten(1).unique(dim=0)) == 10
    assert not any(batch.xs[..., 2:].any() for batch in batches)


def test_the_same_arguments_give_the_same_episodes_and_another_seed_others():
    first, again, other = batches_of(), batches_of(), batches_of(seed=1)
    for a, b, c in zip(first, again, other, strict=True):
        assert torch.equal(a.xs, b.xs)
        assert not torch.equal(a.xs, c.xs)
    assert torch.equal(batches_of(num_episodes=4)[0].xs, first[0].xs)


def test_batches_are_drawn_for_evaluation_and_never_for_training():
    evaluated = [batch.xs for batch in batches_of()]
    for purpose, is_same in (("evaluation", True), ("training", False)):
        for step, xs in enumerate(evaluated):
            generator = torch.Generator().manual_seed(draw_seed(0, step, purpose))
            drawn = LinearRegression().draw(len(xs), 5, 3, generator=generator)
            assert torch.equal(drawn.xs, xs) == is_same


def test_wrong_arguments_are_told_at_once():
    for name in ("num_episodes", "batch_size"):
        with pytest.raises(ValueError, match=f"`{name}` must be an integer of at least 1, got 0"):
            evaluation_episodes(LinearRegression(), 5, 3, **{name: 0})
    with pytest.raises(ValueError, match="`seed` must be an integer of at least 0, got -1"):
        evaluation_episodes(LinearRegression(), 5, 3, seed=-1)


def test_errors_are_means_over_episodes_with_their_standard_errors():
    batches = batches_of()
    table = evaluate(lambda episodes: episodes.ys * 0.5 + 1, batches)
    assert list(table.columns) == ["point", "error", "standard_error"]
    assert list(table["point"]) == [0, 1, 2, 3, 4]
    targets = np.concatenate([batch.targets.double().numpy() for batch in batches])
    squared = (targets * 0.5 + 1 - targets) ** 2
    np.testing.assert_allclose(table["error"], squared.mean(0), rtol=1e-5)
    expected = squared.std(0, ddof=1) / np.sqrt(10)
    np.testing.assert_allclose(table["standard_error"], expected, rtol=1e-5)


def test_the_target_and_not_the_value_is_what_counts():
    batches = batches_of(NearestNeighbour())
    assert not evaluate(lambda episodes: episodes.targets, batches)["error"].any()
    assert (evaluate(lambda episodes: episodes.ys, batches)["error"] > 0.1).all()


def test_how_batches_are_cut_does_not_matter():
    (whole,) = batches_of(batch_size=10)
    halves = [type(whole)(*(part[rows] for part in whole)) for rows in (slice(3), slice(3, None))]
    one, two = evaluate(least_squares, [whole]), evaluate(least_squares, halves)
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)


def test_standard_errors_are_of_the_right_size():
    # The mean over 200 episodes misses its expectation by about its standard error.
    tables = [
        evaluate(zero, batches_of(num_episodes=200, batch_size=200, seed=seed))
        for seed in range(60)
    ]
    off = np.stack([(table["error"] - 1) / table["standard_error"] for table in tables])
    assert 0.8 < np.sqrt((off**2).mean()) < 1.3


def test_models_are_called_without_gradients():
    weight = torch.ones((), requires_grad=True)

    def predict(episodes):
        assert not torch.is_grad_enabled()
        return episodes.ys * weight

    assert not evaluate(predict, batches_of())["error"].any()


@pytest.mark.parametrize(
    ("predict", "batches", "message"),
    [
        (lambda e: e.ys[:, :-1], batches_of(), r"the shape \(4, 5\), got \(4, 4\)"),
        (zero, [], "`batches` must hold at least two episodes, got 0"),
        (zero, batches_of(num_episodes=1), "`batches` must hold at least two episodes, got 1"),
        (zero, batches_of() + batches_of(points=6), "must have 5 points each, as the first one, g"),
    ],
)
def test_errors(predict, batches, message):
    with pytest.raises(ValueError, match=message):
        evaluate(predict, batches)
