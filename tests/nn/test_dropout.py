"""Dropout: its share, its scale, its gradient, and where its draws come from."""

import pytest
import torch

from mlrforecast.nn import Dropout

pytestmark = pytest.mark.usefixtures("seeded")


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.9, 0.99999])
def test_a_share_is_dropped_and_the_rest_grows(share: float) -> None:
    torch.manual_seed(0)
    out = Dropout(share)(torch.ones(300, 1001))
    dropped = float((out == 0).float().mean())
    assert dropped == pytest.approx(share, abs=4 * (share * (1 - share) / out.numel()) ** 0.5)
    # A share is a multiple of 2**-16, and what stays grows by the share that really does.
    assert out.max().item() == pytest.approx(1 / (1 - share), rel=0.4 if share > 0.9 else 1e-4)
    assert out.mean().item() == pytest.approx(
        1, abs=4 * ((out.max().item() - 1) / out.numel()) ** 0.5
    )
    # Neighbours, which share a random number of 64 bits, are dropped independently.
    both = ((out[:, :-1] == 0) & (out[:, 1:] == 0)).float().mean()
    assert float(both) == pytest.approx(share**2, abs=0.005)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_any_number_of_entries(count: int) -> None:
    assert Dropout(0.5)(torch.ones(count)).shape == (count,)


def test_the_gradient_has_the_same_mask() -> None:
    x = torch.randn(50, 7, requires_grad=True, generator=torch.Generator().manual_seed(0))
    out = Dropout(0.3)(x)
    out.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(out, x * x.grad)


def test_nothing_is_drawn_where_nothing_is_dropped() -> None:
    x = torch.ones(3)
    state = torch.get_rng_state()
    assert Dropout(0.5).eval()(x) is x
    assert bool((Dropout(0.0)(x) == x).all())
    assert bool((Dropout(1.0)(x) == 0).all())
    assert bool((torch.get_rng_state() == state).all())


def test_the_global_seed_decides() -> None:
    x = torch.ones(100)
    torch.manual_seed(3)
    first = Dropout(0.5)(x)
    torch.manual_seed(3)
    assert bool((Dropout(0.5)(x) == first).all())
    assert not bool((Dropout(0.5)(x) == first).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes_are_kept(dtype: torch.dtype) -> None:
    assert Dropout(0.5)(torch.ones(10, dtype=dtype)).dtype == dtype
