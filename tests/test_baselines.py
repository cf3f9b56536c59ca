"""Floors against plain loops and hand numbers."""

import numpy as np
import pytest

from mlrforecast.baselines import profile_mean, repeat_last, seasonal_naive

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
