"""Attention over few steps on a CPU against PyTorch's own, and when it is taken."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mlrforecast.ops import explain_backend, mlr_attention, standard_attention
from mlrforecast.ops.attention import _fused, _short


def tensors(*, batch: int = 5, queries: int = 9, keys: int = 9, width: int = 4) -> list[Tensor]:
    """Return queries, keys and values of three heads, laid out as a layer makes them."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(queries, width), (keys, width), (keys, 6)]
    return [
        torch.randn(batch, steps, 3, columns, generator=generator, dtype=torch.float64)
        .transpose(1, 2)
        .requires_grad_()
        for steps, columns in shapes
    ]


def with_gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), inputs)]


@pytest.mark.parametrize("part", [1, 500, 2**18])
@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (1, 2), (7, 16), (16, 7)])
@pytest.mark.parametrize("masked", [None, "all", "each"])
def test_equals_the_kernel(
    part: int, queries: int, keys: int, masked: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_short, "PART", part)
    inputs = tensors(queries=queries, keys=keys)
    visible = None
    if masked is not None:
        batch = {"all": 1, "each": 5}[masked]
        generator = torch.Generator().manual_seed(1)
        visible = torch.rand(batch, 1, queries, keys, generator=generator) < 0.5
        visible[..., 0] = True
    exact = scaled_dot_product_attention(*inputs, attn_mask=visible, scale=0.7)
    out = _short.short_attention(*inputs, visible, scale=0.7)
    assert out.transpose(1, 2).is_contiguous()
    for found, expected in zip(
        with_gradients(out, inputs), with_gradients(exact, inputs), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_scores_of_any_size_leave_numbers() -> None:
    q, k, v = tensors(width=2)
    out = _short.short_attention(1e4 * q, 1e4 * k, v, None, scale=1.0)
    exact = scaled_dot_product_attention(1e4 * q, 1e4 * k, v, scale=1.0)
    torch.testing.assert_close(out, exact, rtol=0, atol=1e-6)
    gradients = torch.autograd.grad(out.sum(), (q, k, v))
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_many_short_narrow_heads_are_short() -> None:
    cpu, single = torch.device("cpu"), torch.float32
    assert _short.is_short(256, 21, 21, 8, single, cpu)
    assert not _short.is_short(4, 21, 21, 8, single, cpu)
    assert not _short.is_short(256, 21, 21, 16, single, cpu)
    assert not _short.is_short(256, 129, 129, 8, single, cpu)
    assert not _short.is_short(1024, 128, 1, 8, single, cpu)
    assert not _short.is_short(256, 21, 21, 8, torch.bfloat16, cpu)
    assert not _short.is_short(256, 21, 21, 8, single, torch.device("cuda"))


def test_standard_attention_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The public op gives the same with and without it, causal and with rows that see nothing."""
    inputs = [
        torch.randn(64, 4, 21, 8, generator=torch.Generator().manual_seed(s)) for s in (0, 1, 2)
    ]
    key_mask = torch.rand(64, 21, generator=torch.Generator().manual_seed(3)) < 0.5
    key_mask[0] = False
    calls = []
    attend = _short.short_attention

    def counted(*arguments: Tensor | None, scale: float) -> Tensor:
        calls.append(scale)
        return attend(*arguments, scale=scale)  # type: ignore[arg-type]

    monkeypatch.setattr(_short, "short_attention", counted)
    for options in ({}, {"causal": True}, {"key_mask": key_mask}):
        monkeypatch.setattr(_short, "MIN_SCORES", 2**16)
        short = standard_attention(*inputs, **options)  # type: ignore[arg-type]
        monkeypatch.setattr(_short, "MIN_SCORES", 2**40)
        kernel = standard_attention(*inputs, **options)  # type: ignore[arg-type]
        torch.testing.assert_close(short, kernel, rtol=0, atol=1e-5)
    assert len(calls) == 3
    assert bool((short[0] == 0).all())


def test_multi_level_attention_over_few_steps_takes_it() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 4, 21, 8, generator=generator)
    assert explain_backend(x, x, x, ranks=(4, 2, 2)).name == "expanded"
    assert explain_backend(x, x, x, ranks=(4, 2, 2), dropout_p=0.1).name == "reference"
    assert explain_backend(x[:1], x[:1], x[:1], ranks=(4, 2, 2)).name == "reference"
    exact = mlr_attention(x, x, x, ranks=(4, 2, 2), backend="reference")
    torch.testing.assert_close(mlr_attention(x, x, x, ranks=(4, 2, 2)), exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_have_gradients(masked: bool) -> None:
    """A penalty on a gradient reaches the inputs, as it does through PyTorch's own products."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(16, 4, 40, 4, generator=generator, dtype=torch.float64) for _ in range(3)
    )
    visible = torch.rand(16, 1, 1, 40, generator=generator) < 0.7 if masked else None
    found = []
    for attend in (_short.short_attention, plain_attention):
        x = q.clone().requires_grad_()
        out = attend(x, k, v, visible, scale=0.5)
        (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        slope.square().sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-10)
    assert found[0].abs().max() > 1e-3


def plain_attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, *, scale: float
) -> Tensor:
    scores = scale * q @ k.mT
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("queries", [9, 4])
@pytest.mark.parametrize("masked", [None, "causal", "rows"])
def test_a_table_equals_the_kernel(queries: int, masked: str | None) -> None:
    """With every gradient; a row that sees nothing is 0."""
    causal = masked == "causal" and queries == 9
    inputs = tensors(queries=queries)
    visible = torch.ones(5, 1, queries, 9, dtype=torch.bool)
    if masked == "causal":
        visible = visible.tril(9 - queries)
    elif masked == "rows":
        visible[:, :, ::2, 3:] = False
        visible[1, :, 1] = False
    non_empty = visible.any(-1, keepdim=True)
    mask = visible | ~non_empty
    exact = scaled_dot_product_attention(*inputs, attn_mask=mask, scale=0.7) * non_empty
    given = None if causal or masked is None else visible
    out = _fused._attend_with(_fused._table_attention, *inputs, given, causal=causal, scale=0.7)
    for found, expected in zip(
        with_gradients(out, inputs), with_gradients(exact, inputs), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
