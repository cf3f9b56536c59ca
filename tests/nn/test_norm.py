"""Instance normalisation against numpy in float64."""

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
