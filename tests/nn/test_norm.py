"""Instance normalisation against numpy in float64."""

from typing import Any

import numpy as np
import pytest
import torch

from mlrforecast.nn import instance_normalise


def windows(masked: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    generator = torch.Generator().manual_seed(0)
    x = 3 + 2 * torch.randn(5, 30, generator=generator)
    if not masked:
        return x, None
    observed = torch.rand(5, 30, generator=generator) > 0.3
    return x * observed, observed


@pytest.mark.parametrize("masked", [False, True])
def test_it_is_what_numpy_computes(masked: bool) -> None:
    x, observed = windows(masked)
    values = x.double().numpy()
    if observed is not None:
        values = np.where(observed.numpy(), values, np.nan)
    loc = np.nanmean(values, axis=1, keepdims=True)
    scale = np.nanstd(values, axis=1, keepdims=True)
    found = instance_normalise(x, observed)
    np.testing.assert_allclose(found.loc, loc, rtol=1e-5)
    np.testing.assert_allclose(found.scale, scale, rtol=1e-5)
    np.testing.assert_allclose(found.values, np.nan_to_num((values - loc) / scale), atol=1e-5)
    if observed is not None:
        assert (found.values[~observed] == 0).all()


def test_a_full_mask_is_no_mask() -> None:
    x, _ = windows(False)
    for plain, masked in zip(
        instance_normalise(x), instance_normalise(x, torch.ones_like(x, dtype=bool)), strict=True
    ):
        torch.testing.assert_close(plain, masked, rtol=0, atol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("value", [0.0, 0.1, -0.7316, 1e-20, 123456.789])
def test_a_constant_is_exactly_zero_and_comes_back(value: float, masked: bool) -> None:
    x = torch.full((1, 336), value)
    observed = None
    if masked:
        observed = torch.arange(336)[None] % 3 > 0
        x = x * observed
    found = instance_normalise(x, observed)
    assert (found.values == 0).all()
    assert found.scale.item() == 0
    assert found.loc.item() == torch.tensor(value).item()


def test_windows_without_spread() -> None:
    observed = torch.zeros(2, 6, dtype=torch.bool)
    observed[1, 2] = True
    found = instance_normalise(torch.tensor([[0.0] * 6, [0, 0, 5, 0, 0, 0]]), observed)
    assert (found.values == 0).all()
    assert found.loc.flatten().tolist() == [0.0, 5.0]
    assert found.scale.flatten().tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("size", "shift"), [(1e-12, 0.0), (1e12, 0.0), (2.0, 50.0)])
def test_units_do_not_matter(size: float, shift: float) -> None:
    x, _ = windows(False)
    found = instance_normalise(size * x + shift)
    torch.testing.assert_close(found.values, instance_normalise(x).values, rtol=0, atol=1e-4)


def test_a_small_spread_on_a_high_level_survives() -> None:
    """Steps of one unit in the last place, which a mean in float32 would swallow."""
    x = torch.tensor([[1.0, 1.0 + 2**-23] * 40])
    found = instance_normalise(x)
    torch.testing.assert_close(found.values, torch.tensor([[-1.0, 1.0] * 40]), atol=1e-4, rtol=0)


# The other scalings.

SCALINGS = ("standard", "robust", "mean_abs")
CASES = ("plain", "masked", "ties", "spike", "intermittent", "odd")


def case(name: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Windows of float64 of several lengths and shapes."""
    generator = torch.Generator().manual_seed(1)
    length = 7 if name == "odd" else 40
    x = 3 + 2 * torch.randn(6, length, generator=generator, dtype=torch.float64)
    if name == "ties":
        x = x.round()
    if name == "spike":
        x[:, 5] = 1e3
    if name == "intermittent":
        x = x * (torch.rand(6, length, generator=generator) > 0.8)
    if name not in ("masked", "odd"):
        return x, None
    observed = torch.rand(6, length, generator=generator) > 0.4
    # One value, two values, all values.
    observed[0] = torch.arange(length) == 2
    observed[1] = torch.arange(length) % 4 == 1
    observed[2] = True
    return x * observed, observed


def by_numpy(x: torch.Tensor, observed: torch.Tensor | None, scaling: str) -> tuple[Any, Any]:
    """Location and scale of each window, of its observed values alone."""
    rows = []
    for row in range(len(x)):
        values = x[row].numpy() if observed is None else x[row][observed[row]].numpy()
        loc, scale = values.mean(), values.std()
        if scaling == "mean_abs":
            loc, scale = 0.0, np.abs(values).mean()
        if scaling == "robust":
            lower, loc, upper = np.quantile(values, [0.25, 0.5, 0.75])
            scale = (upper - lower) / 1.3489795003921634 if upper > lower else scale
        rows.append((loc, scale))
    loc, scale = np.array(rows).T[..., None]
    return loc, scale


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("scaling", SCALINGS)
def test_every_scaling_is_what_numpy_computes(scaling: Any, name: str, dtype: torch.dtype) -> None:
    x, observed = case(name)
    loc, scale = by_numpy(x, observed, scaling)
    found = instance_normalise(x.to(dtype), observed, scaling)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    np.testing.assert_allclose(found.loc, loc, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.scale, scale, rtol=tolerance, atol=tolerance)
    values = (x.numpy() - loc) / np.where(scale > 0, scale, 1.0)
    if observed is not None:
        values = values * observed.numpy()
    np.testing.assert_allclose(found.values, values, rtol=tolerance, atol=10 * tolerance)
    back = found.values * found.scale + found.loc
    there = torch.ones_like(back, dtype=torch.bool) if observed is None else observed
    np.testing.assert_allclose(back[there], x[there], rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["plain", "masked", "spike", "odd"])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_gradients_of_every_scaling(scaling: Any, name: str) -> None:
    x, observed = case(name)
    if observed is not None:
        # Of a single value the scale is 0 and nothing is smooth.
        x, observed = x[1:], observed[1:]
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: instance_normalise(x, observed, scaling), (x,))


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("value", [0.0, 0.1, -5.0, 1e12])
@pytest.mark.parametrize("masked", [False, True])
def test_constants_and_empty_windows_have_finite_values_and_gradients(
    scaling: Any, value: float, masked: bool
) -> None:
    x = torch.full((2, 30), value)
    observed = None
    if masked:
        observed = torch.arange(30)[None].repeat(2, 1) % 3 > 0
        observed[1] = False
        x = x * observed
    x.requires_grad_()
    found = instance_normalise(x, observed, scaling)
    sum(part.sum() for part in found).backward()
    assert torch.isfinite(x.grad).all()
    values, loc, scale = (part.detach()[0] for part in found)
    if scaling == "mean_abs":
        assert loc.item() == 0
        assert scale.item() == pytest.approx(abs(value))
        there = torch.ones(30, dtype=torch.bool) if observed is None else observed[0]
        expected = torch.full((30,), np.sign(value)) * there
        torch.testing.assert_close(values, expected.float())
    else:
        assert (values == 0).all()
        assert (loc.item(), scale.item()) == (torch.tensor(value).item(), 0.0)
    if masked:
        assert all((part.detach()[1] == 0).all() for part in found)


def test_robust_does_not_feel_a_spike() -> None:
    x, _ = case("plain")
    spiked = x.clone()
    spiked[:, 3] = 1e6
    plain, robust = (instance_normalise(y, None, "robust") for y in (x, spiked))
    assert (robust.scale / plain.scale).max() < 1.5
    assert ((robust.loc - plain.loc).abs() / plain.scale).max() < 0.5


def test_what_is_missing_plays_no_part() -> None:
    x, observed = case("masked")
    assert observed is not None
    for scaling in SCALINGS:
        for row in range(len(x)):
            alone = instance_normalise(x[row][observed[row]][None], None, scaling)
            found = instance_normalise(x[row : row + 1], observed[row : row + 1], scaling)
            torch.testing.assert_close(found.loc, alone.loc)
            torch.testing.assert_close(found.scale, alone.scale)
            torch.testing.assert_close(found.values[:, observed[row]], alone.values)


@pytest.mark.usefixtures("own_errors")
def test_an_unknown_scaling_is_named() -> None:
    with pytest.raises(ValueError, match=r"`scaling` must be one of standard, .*, got 'max'"):
        instance_normalise(torch.zeros(1, 3), None, "max")
