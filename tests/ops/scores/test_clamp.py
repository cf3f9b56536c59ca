"""The RMS clamp: its formula, its gradient, and that it never waits for the device."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from mlrforecast.ops import rms_clamp

fans = st.integers(1, 40)


def draw(*shape: int, size: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return size * torch.randn(*shape, generator=generator, dtype=torch.float64)


@given(fans, fans, st.sampled_from([0.0, 1e-3, 0.1, 1.0, 30.0]))
def test_is_the_formula(fan_in: int, fan_out: int, size: float) -> None:
    weight = draw(2, 3, 4, size=size)
    rms = math.sqrt(sum(w * w for w in weight.flatten().tolist()) / 24 + 1e-8)
    limit = math.sqrt(min(fan_in, fan_out)) / fan_in
    divisor = rms / limit if rms > limit else 1.0
    clamped = rms_clamp(weight, fan_in=fan_in, fan_out=fan_out)
    torch.testing.assert_close(clamped, weight / divisor, rtol=1e-13, atol=0)


def test_never_enlarges() -> None:
    weight = draw(3, 5, size=1e-3)
    assert torch.equal(rms_clamp(weight, fan_in=5, fan_out=3), weight)


def test_is_active_at_a_muP_start_of_narrow_levels() -> None:  # noqa: N802 - the name of the method
    """Width 256, 8 heads, ranks 16|8|4|4: divisors 1.41, 1.41, 1.41, 1, as published."""
    divisors = []
    for lvl, rank in enumerate((16, 8, 4, 4)):
        fan_in, fan_out = 256 // 2**lvl, 8 * rank
        weight = draw(2**lvl, fan_in, fan_out) / math.sqrt(fan_in)
        clamped = rms_clamp(weight, fan_in=fan_in, fan_out=fan_out)
        divisors.append((weight / clamped).mean().item())
    assert divisors == pytest.approx([2**0.5, 2**0.5, 2**0.5, 1], rel=0.01)


@pytest.mark.parametrize("size", [1e-2, 3.0])
def test_gradients_flow_through_the_rms(size: float) -> None:
    weight = draw(2, 3, size=size).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: rms_clamp(w, fan_in=3, fan_out=2), weight)
    upstream = draw(2, 3)
    (grad,) = torch.autograd.grad((upstream * rms_clamp(weight, fan_in=3, fan_out=2)).sum(), weight)
    if size > 1:
        # An active clamp makes the result blind to the size of the weight.
        assert (grad * weight).sum().abs() < 1e-7
    else:
        assert torch.equal(grad, upstream)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_is_taken_in_float32(dtype: torch.dtype) -> None:
    """In float16 the sum of squares would overflow, and 1e-8 vanish under a root at zero."""
    large = draw(64, 64, size=300.0).to(dtype)
    clamped = rms_clamp(large, fan_in=64, fan_out=64)
    assert clamped.dtype == dtype
    exact = rms_clamp(large.double(), fan_in=64, fan_out=64)
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(clamped.double(), exact, rtol=step, atol=1e-6)
    zero = torch.zeros(3, 3, dtype=dtype, requires_grad=True)
    rms_clamp(zero, fan_in=3, fan_out=3).sum().backward()
    assert zero.grad is not None
    assert torch.equal(zero.grad, torch.ones_like(zero))


def test_never_waits_for_the_device() -> None:
    """A fake tensor has no numbers: reading one on the host raises."""
    with FakeTensorMode():
        weight = torch.empty(4, 4, requires_grad=True)
        rms_clamp(weight, fan_in=4, fan_out=4).sum().backward()


@pytest.mark.compile
def test_compiles_as_one_graph() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda w: rms_clamp(w, fan_in=5, fan_out=3), fullgraph=True, backend="eager"
    )
    for size in (1e-3, 10.0):
        weight = draw(3, 5, size=size)
        torch.testing.assert_close(compiled(weight), rms_clamp(weight, fan_in=5, fan_out=3))


def test_bad_arguments(own_errors: None) -> None:
    weight = draw(2, 2)
    with pytest.raises(ValueError, match="`fan_in` must be at least 1, got 0"):
        rms_clamp(weight, fan_in=0, fan_out=1)
    with pytest.raises(TypeError, match=r"`fan_out` must be an integer, got 1\.5"):
        rms_clamp(weight, fan_in=1, fan_out=1.5)
    with pytest.raises(TypeError, match=r"`weight` must be a torch.Tensor, got a list"):
        rms_clamp([[1.0]], fan_in=1, fan_out=1)
