"""Scalers against plain loops, and back again."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlrforecast.data.scaling import SCALINGS, scale_runs, scale_windows
from tests.data.panels import scaler

LENGTHS = st.lists(st.integers(1, 13), min_size=1, max_size=6)
each_scaling = pytest.mark.parametrize("scaling", SCALINGS)


def noise(count: int, missing: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    # Few different values: runs with equal quartiles, and constants, are among them.
    values = rng.integers(-2, 3, count) * 10.0 ** rng.integers(-2, 3)
    values[rng.random(count) < missing] = np.nan
    return values


@given(LENGTHS, st.sampled_from(SCALINGS), st.sampled_from([0.0, 0.4]), st.integers(0, 999))
@example([3, 1, 3], "robust", 0.9, 1)
def test_runs_are_scaled_as_a_loop_scales_them(
    lengths: list[int], scaling: str, missing: float, seed: int
) -> None:
    values = noise(sum(lengths), missing, seed)
    before = values.copy()
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    found = scale_runs(values, bounds, scaling)
    np.testing.assert_array_equal(values, before)
    for run, (first, end) in enumerate(pairwise(bounds)):
        loc, scale = scaler(values[first:end], scaling)
        # A mean of 0 may be off by the last digit of the largest value, 200.
        np.testing.assert_allclose(found.loc[run], loc, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(found.scale[run], scale, rtol=1e-12)
        expected = (values[first:end] - loc) / scale
        np.testing.assert_allclose(found.values[first:end], expected, rtol=1e-11, atol=1e-12)


@each_scaling
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 17, 2), (5, 2, 1), (2, 33, 3)])
def test_windows_are_scaled_one_by_one(scaling: str, shape: tuple[int, int, int]) -> None:
    values = np.random.default_rng(3).standard_normal(shape) * 1e3 + 7
    values[0, 1::3] = np.nan
    found = scale_windows(values, scaling)
    for window in range(shape[0]):
        for channel in range(shape[2]):
            loc, scale = scaler(values[window, :, channel], scaling)
            np.testing.assert_allclose(found.loc[window, 0, channel], loc, rtol=1e-12)
            np.testing.assert_allclose(found.scale[window, 0, channel], scale, rtol=1e-12)
        # To the bit, whatever else is in the batch.
        alone = scale_windows(values[window : window + 1], scaling)
        for part, whole in zip(alone, found, strict=True):
            np.testing.assert_array_equal(part[0], whole[window])


@each_scaling
@pytest.mark.parametrize("size", [1e-300, 1e-12, 1.0, 1e12, 1e293])
@pytest.mark.parametrize("level", [0.0, 1.0, 1e6])
def test_values_of_any_size_and_level_come_back(scaling: str, size: float, level: float) -> None:
    shape = level + np.random.default_rng(0).standard_normal(501)
    shape[::7] = np.nan
    values = size * shape
    found = scale_runs(values, np.array([0, len(values)]), scaling)
    back = found.values * found.scale + found.loc
    np.testing.assert_allclose(back, values, rtol=1e-12, atol=1e-12 * np.nanmax(np.abs(values)))
    # The same numbers in any unit.
    plain = scale_runs(shape, np.array([0, len(values)]), scaling)
    np.testing.assert_allclose(found.values, plain.values, rtol=1e-9, atol=1e-9)


@each_scaling
@pytest.mark.parametrize(
    ("values", "loc", "scale"),
    [
        ([0.1] * 9, 0.1, 1.0),
        ([1e12] * 7, 1e12, 1.0),
        ([-3.7e-300] * 3, -3.7e-300, 1.0),
        ([1e299] * 5, 1e299, 1.0),
        ([0.0] * 3, 0.0, 1.0),
        ([np.nan] * 9, 0.0, 1.0),
        ([np.nan] * 4 + [7.5] + [np.nan] * 4, 7.5, 1.0),
        ([np.nan, 2.0, 2.0, np.nan], 2.0, 1.0),
    ],
    ids=["0.1", "large", "tiny", "largest", "zeros", "nothing", "one value", "gaps"],
)
def test_values_without_spread(scaling: str, values: list[float], loc: float, scale: float) -> None:
    level = loc
    if scaling == "mean_abs":
        loc, scale = 0.0, abs(level) or 1.0
    # Next to others, of which nothing may spill over.
    runs = np.array([1.0, 5.0, *values, -4.0, np.nan, 9.0])
    bounds = np.array([0, 2, 2 + len(values), len(runs)])
    found = scale_runs(runs, bounds, scaling)
    assert (found.loc[1], found.scale[1]) == (loc, scale)
    own, missing = found.values[2 : 2 + len(values)], np.isnan(values)
    np.testing.assert_array_equal(np.isnan(own), missing)
    assert (own[~missing] == (np.sign(level) if scaling == "mean_abs" else 0.0)).all()


@each_scaling
def test_the_largest_values_are_scaled(scaling: str) -> None:
    values = np.resize([1e300, -1e300, 1e300], 12)
    found = scale_runs(values, np.array([0, 12]), scaling)
    assert np.isfinite(found.values).all()
    assert np.isfinite([found.loc, found.scale]).all()
    np.testing.assert_allclose(found.values * found.scale + found.loc, values, rtol=1e-12)


@each_scaling
def test_the_smallest_values_there_are_stay_finite(scaling: str) -> None:
    values = np.array([0.0, 5e-324, 0.0, 0.0, 1e-323])
    found = scale_runs(values, np.array([0, 5]), scaling)
    assert all(np.isfinite(part).all() for part in found)


@pytest.mark.parametrize("outlier", [1e12, 1e300])
def test_an_outlier_stays_within_float32_and_robust_ones_ignore_a_small_one(outlier: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(100)
    values[50] = outlier
    found = scale_runs(values, np.array([0, 100]), "robust")
    assert np.isfinite(np.square(found.values.astype(np.float32))).all()
    few = np.where(values == outlier, 40.0, values)
    loc, scale = scaler(np.delete(few, 50), "robust")
    robust = scale_runs(few, np.array([0, 100]), "robust")
    np.testing.assert_allclose([robust.loc[0], robust.scale[0]], [loc, scale], atol=0.05)
    assert scale_runs(few, np.array([0, 100]), "standard").scale[0] > 3


def test_a_spread_that_is_rounding_is_no_scale() -> None:
    """The quartiles of 0.1 + 0.2 and 0.3 differ in the last digit; half of the values do not."""
    values = np.array([0.3, 0.1 + 0.2] * 20 + [5.0, 6.0])
    found = scale_runs(values, np.array([0, len(values)]), "robust")
    assert found.scale[0] == pytest.approx(values.std())


@pytest.mark.usefixtures("own_errors")
def test_an_unknown_scaling_is_refused() -> None:
    with pytest.raises(ValueError, match="`scaling` must be one of standard, robust, mean_abs"):
        scale_runs(np.ones(3), np.array([0, 3]), "minmax")
