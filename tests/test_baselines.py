"""Floors against plain loops and hand numbers."""

import numpy as np
import pytest

from mlrforecast.baselines import LinearBaseline, profile_mean, repeat_last, seasonal_naive

NAN = np.nan


def newest(values):
    """The last value that is not NaN, by a loop."""
    for value in reversed(values):
        if not np.isnan(value):
            return value
    return NAN


@pytest.fixture
def past():
    values = np.random.default_rng(5).normal(size=(3, 23, 2))
    values[0, -4:, 1] = values[1, ::3, 0] = values[2, :, 1] = NAN
    return values


@pytest.mark.parametrize("season_length", [1, 4, 7, 23])
@pytest.mark.parametrize("prediction_length", [1, 5, 30])
def test_seasonal_naive_equals_a_loop(past, season_length, prediction_length):
    found = seasonal_naive(past, prediction_length, season_length)
    assert found.shape == (3, prediction_length, 2)
    rows = past.shape[1]
    whole = rows - rows // season_length * season_length
    for n, f, c in np.ndindex(found.shape):
        same_phase = [
            past[n, t, c] for t in range(whole, rows) if (rows + f - t) % season_length == 0
        ]
        np.testing.assert_equal(found[n, f, c], newest(same_phase))


def test_repeat_last_takes_the_last_observed_value(past):
    found = repeat_last(past, 3)
    for n, c in np.ndindex(3, 2):
        np.testing.assert_equal(found[n, :, c], np.full(3, newest(past[n, :, c])))
    assert np.isnan(found[2, :, 1]).all()


@pytest.mark.parametrize(("season_length", "num_seasons"), [(1, 23), (4, 3), (7, 1), (7, 3)])
def test_profile_mean_equals_a_loop(past, season_length, num_seasons):
    found = profile_mean(past, 11, season_length, num_seasons)
    rows = past.shape[1]
    first = rows - season_length * num_seasons
    for n, f, c in np.ndindex(found.shape):
        same_phase = [
            past[n, t, c]
            for t in range(first, rows)
            if (rows + f - t) % season_length == 0 and not np.isnan(past[n, t, c])
        ]
        expected = sum(same_phase) / len(same_phase) if same_phase else NAN
        np.testing.assert_allclose(found[n, f, c], expected, atol=1e-14)


def test_hand_numbers():
    past = np.arange(1.0, 7.0).reshape(1, 6, 1)
    np.testing.assert_array_equal(seasonal_naive(past, 4, 3)[0, :, 0], [4, 5, 6, 4])
    np.testing.assert_array_equal(profile_mean(past, 4, 3, 2)[0, :, 0], [2.5, 3.5, 4.5, 2.5])
    np.testing.assert_array_equal(profile_mean(past, 2, 2, 2)[0, :, 0], [4, 5])


def test_the_past_is_left_alone_and_not_returned(past):
    before = past.copy()
    result = seasonal_naive(past, 23, 23)
    result[:] = 0.0
    np.testing.assert_array_equal(past, before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: repeat_last(p[0], 1), r"`past` must have the shape \[N, T, C\], got \(6, 1\)"),
        (lambda p: repeat_last(p, 0), "`prediction_length` must be at least 1, got 0"),
        (lambda p: repeat_last(p[:, :0], 1), "`past` must hold at least one row"),
        (lambda p: seasonal_naive(p, 1, 7), r"`season_length` must lie in \[1, 6\].*got 7"),
        (lambda p: profile_mean(p, 1, 2, 4), r"`num_seasons` must lie in \[1, 3\].*got 4"),
        (lambda p: profile_mean(p, 1, 2, 0), r"`num_seasons` must lie in \[1, 3\].*got 0"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.ones((1, 6, 1)))


def windows_of(values, context, steps):
    """All windows of rows ``[T, C]``: past and future."""
    starts = range(len(values) - context - steps + 1)
    past = np.stack([values[s : s + context] for s in starts])
    return past, np.stack([values[s + context : s + context + steps] for s in starts])


def recurrence(start, rows):
    """A series whose next value is ``1.2 x[-1] - 0.7 x[-2] + 0.5 x[-3]``; the weights sum to 1."""
    values = list(start)
    while len(values) < rows:
        values.append(1.2 * values[-1] - 0.7 * values[-2] + 0.5 * values[-3])
    return np.array(values)


def test_linear_recovers_a_known_recurrence():
    starts = np.random.default_rng(0).normal(size=(40, 2, 3))
    series = np.array([[recurrence(start, 9) for start in pair] for pair in starts])
    values = series.transpose(0, 2, 1)
    model = LinearBaseline(alpha=1e-10).fit(values[:30, :3], values[:30, 3:])
    # The first step by hand; the weight of the last value is arbitrary: it is taken off.
    np.testing.assert_allclose(model.weights_[0, :2], [0.5, -0.7], atol=1e-6)
    np.testing.assert_allclose(model.predict(values[30:, :3]), values[30:, 3:], atol=1e-5)


def test_linear_is_the_penalised_least_squares(past):
    before, after = past[:, :15], past[:, 15:]
    model = LinearBaseline(alpha=2.0).fit(before, after)
    rows, targets = [], []
    for n, c in np.ndindex(3, 2):
        window = before[n, :, c].copy()
        if np.isnan(window).all() or np.isnan(after[n, :, c]).any():
            continue
        for t in range(15):
            if np.isnan(window[t]):
                seen = window[:t][~np.isnan(window[:t])]
                window[t] = seen[-1] if len(seen) else before[n, ~np.isnan(before[n, :, c]), c][0]
        rows.append(window - window[-1])
        targets.append(after[n, :, c] - window[-1])
    assert len(rows) == 3  # of 6: futures with gaps and a channel never seen are left out
    rows, targets = np.array(rows), np.array(targets)
    penalty = 2.0 * np.mean(rows**2) * np.eye(15)
    expected = np.linalg.solve(rows.T @ rows + penalty, rows.T @ targets).T
    np.testing.assert_allclose(model.weights_, expected, atol=1e-10)


def test_linear_forecast_moves_with_the_unit_and_the_fit_does_not_depend_on_it(past):
    values = np.random.default_rng(1).normal(size=(60, 2)).cumsum(axis=0)
    before, after = windows_of(values, 8, 3)
    model = LinearBaseline().fit(before, after)
    forecast = model.predict(past[:2, :8])
    moved = model.predict(-40 * past[:2, :8] + 7)
    np.testing.assert_allclose(moved, -40 * forecast + 7, atol=1e-12)
    other = LinearBaseline().fit(1000 * before, 1000 * after)
    np.testing.assert_allclose(other.weights_, model.weights_, rtol=1e-9)
    stronger = LinearBaseline(alpha=100.0).fit(before, after)
    assert (stronger.weights_**2).sum() < (model.weights_**2).sum()


def test_linear_fills_what_is_missing():
    values = np.random.default_rng(1).normal(size=(60, 1)).cumsum(axis=0)
    model = LinearBaseline().fit(*windows_of(values, 5, 2))
    gaps = np.array([NAN, 2.0, NAN, 4.0, NAN]).reshape(1, 5, 1)
    filled = np.array([2.0, 2.0, 2.0, 4.0, 4.0]).reshape(1, 5, 1)
    np.testing.assert_array_equal(model.predict(gaps), model.predict(filled))
    assert np.isnan(model.predict(np.full((1, 5, 1), NAN))).all()


def test_linear_of_constant_series_repeats_the_last_value():
    model = LinearBaseline().fit(np.ones((3, 4, 1)), np.ones((3, 2, 1)))
    np.testing.assert_array_equal(model.predict(np.arange(4.0).reshape(1, 4, 1)), [[[3.0], [3.0]]])


@pytest.mark.parametrize(("context", "steps"), [(1, 1), (3, 1), (1, 4)])
def test_linear_of_single_rows_keeps_the_shape(past, context, steps):
    before, after = windows_of(np.arange(9.0)[:, None] ** 2, context, steps)
    model = LinearBaseline().fit(before, after)
    assert model.weights_.shape == (steps, context)
    assert model.predict(past[:, :context]).shape == (3, steps, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: LinearBaseline(alpha=0.0), "`alpha` must be above 0, got 0.0"),
        (lambda p: LinearBaseline(alpha=NAN), "`alpha` must be above 0, got nan"),
        (lambda p: LinearBaseline().fit(p[0], p), r"`past` must have the shape \[N, T, C\]"),
        (lambda p: LinearBaseline().fit(p, p[0]), r"`future` must have the shape \[N, F, C\]"),
        (lambda p: LinearBaseline().fit(p, p[:, :0]), "`future` must hold at least one row"),
        (
            lambda p: LinearBaseline().fit(p, np.ones((2, 6, 1))),
            r"`future` must have the windows and channels of `past` \(1, 6, 1\), got \(2, 6, 1\)",
        ),
        (
            lambda p: LinearBaseline().fit(p, p * NAN),
            "must hold a window with an observed past and a complete future, got none in 1 windows",
        ),
        (lambda p: LinearBaseline().predict(p), "must be fitted first"),
        (
            lambda p: LinearBaseline().fit(p, p).predict(p[:, :5]),
            "`past` must hold 6 rows as in the fit, got 5",
        ),
    ],
)
def test_linear_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.ones((1, 6, 1)))
