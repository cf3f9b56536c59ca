"""What every score of an attention layer must do; a score subclasses the contract by its name."""

from typing import Any, ClassVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mlrforecast.nn import LayerCache, StructuredAttention, attentions, option_names
from mlrforecast.ops import attention_ops

WIDTH, NUM_HEADS, NUM_STEPS = 12, 4, 13


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw numbers without touching the global generator."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def fill(layer: torch.nn.Module) -> torch.nn.Module:
    """Give every parameter, norms included, numbers of its own."""
    with torch.no_grad():
        for at, parameter in enumerate(layer.parameters()):
            spread = 0.5 if parameter.ndim > 1 else 0.1
            shift = 1.0 if parameter.ndim == 1 else 0.0
            parameter.copy_(shift + spread * draw(*parameter.shape, seed=at + 1))
    return layer


def examples(count: int) -> settings:
    """Run ``count`` examples; one property runs in several classes, and draws need the fixture."""
    checks = [HealthCheck.differing_executors, HealthCheck.function_scoped_fixture]
    return settings(max_examples=count, suppress_health_check=checks)


def close(value: Tensor, exact: Tensor, atol: float = 1e-11) -> None:
    torch.testing.assert_close(value, exact, rtol=0, atol=atol)


@pytest.mark.usefixtures("seeded")
class ScoreContract:
    """Subclass it with the score's ``name``, options, and what it can do.

    ``cached`` holds options with which blocks and windows stay in place as the sequence grows.
    ``period`` is a number of steps by which the score may be shifted without a change.
    """

    name: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    cached: ClassVar[dict[str, Any]] = {}
    period: ClassVar[int] = 1
    crosses: ClassVar[bool] = True
    """Whether it can compare steps of two sequences."""

    def layer(self, *, dtype: torch.dtype = torch.float64, **changes: Any) -> StructuredAttention:
        settings = {"attention": self.name, "bias": False, **self.options, **changes}
        if not attentions[self.name].takes_qk_norm:
            settings.pop("qk_norm", None)
        layer = StructuredAttention(WIDTH, NUM_HEADS, **settings).double()
        fill(layer)
        return layer.to(dtype).eval()

    def expected(self, layer: StructuredAttention, x: Tensor, mask: Tensor) -> Tensor:
        """Return the output of the layer for the boolean ``mask`` (B, T, T), by plain loops.

        ``mask`` is what causality and padding allow; the oracle adds the score's own limits.
        """
        raise NotImplementedError

    def mask(self, length: int, *, causal: bool, key_mask: Tensor | None, batch: int) -> Tensor:
        mask = torch.ones(batch, length, length, dtype=torch.bool)
        if causal:
            mask = mask.tril()
        return mask if key_mask is None else mask & key_mask[:, None, :]

    # What it computes.

    @pytest.mark.parametrize("qk_norm", [False, True])
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("length", [1, 2, 7, 13])
    def test_equals_the_loops(self, length: int, causal: bool, qk_norm: bool) -> None:
        layer = self.layer(causal=causal, qk_norm=qk_norm)
        x = draw(2, length, WIDTH).requires_grad_()
        mask = self.mask(length, causal=causal, key_mask=None, batch=2)
        inputs = [x, *layer.parameters()]
        weights = draw(2, length, WIDTH, seed=99)
        out, exact = layer(x), self.expected(layer, x, mask)
        close(out, exact)
        got, wanted = (
            torch.autograd.grad((y * weights).sum(), inputs, materialize_grads=True)
            for y in (out, exact)
        )
        for value, gradient in zip(got, wanted, strict=True):
            close(value, gradient, 1e-10)

    @pytest.mark.parametrize("causal", [False, True])
    def test_padded_keys_are_not_attended(self, causal: bool) -> None:
        layer = self.layer(causal=causal)
        key_mask = draw(3, NUM_STEPS, seed=5) > 0
        key_mask[0, 0] = False
        key_mask[2] = False
        x = draw(3, NUM_STEPS, WIDTH)
        mask = self.mask(NUM_STEPS, causal=causal, key_mask=key_mask, batch=3)
        out = layer(x, key_mask)
        close(out, self.expected(layer, x, mask))
        assert (out[2] == 0).all(), "a sequence without any real step"
        # What stands at a padded step changes no real one.
        moved = torch.where(key_mask[..., None], x, -7.0)
        real = key_mask[..., None].expand_as(out)
        close(layer(moved, key_mask)[real], out[real])

    def test_gradcheck(self) -> None:
        layer = self.layer(causal=True, qk_norm=True)
        x = draw(1, 5, WIDTH).requires_grad_()
        assert torch.autograd.gradcheck(layer, (x,), fast_mode=True)

    @examples(10)
    @given(st.integers(1, NUM_STEPS), st.data())
    def test_the_future_changes_nothing_in_the_past(self, length: int, data: Any) -> None:
        layer = self.layer(causal=True)
        cut = data.draw(st.integers(0, length))
        x = draw(2, length, WIDTH)
        changed = torch.cat([x[:, :cut], -3 * x[:, cut:] - 1], 1)
        close(layer(x)[:, :cut], layer(changed)[:, :cut])

    @pytest.mark.parametrize("causal", [False, True])
    def test_left_padding_changes_nothing(self, causal: bool) -> None:
        layer = self.layer(causal=causal)
        extra = self.period * 3
        x = draw(2, NUM_STEPS, WIDTH)
        padded = torch.cat([torch.full((2, extra, WIDTH), 7.0, dtype=x.dtype), x], 1)
        key_mask = torch.arange(extra + NUM_STEPS).expand(2, -1) >= extra
        close(layer(padded, key_mask)[:, extra:], layer(x))

    @examples(5)
    @given(st.permutations(range(3)))
    def test_the_batch_may_be_permuted(self, order: list[int]) -> None:
        layer = self.layer()
        x = draw(3, NUM_STEPS, WIDTH)
        close(layer(x)[order], layer(x[order]))

    def test_a_switch_that_the_score_does_not_read_is_refused(self) -> None:
        options = {"attention": self.name, "qk_norm": True, **self.options}
        if attentions[self.name].takes_qk_norm:
            layer = StructuredAttention(WIDTH, NUM_HEADS, **options)
            plain = StructuredAttention(WIDTH, NUM_HEADS, **{**options, "qk_norm": False})
            assert layer.state_dict().keys() > plain.state_dict().keys()
        else:
            with pytest.raises(ValueError, match=r"has no option `qk_norm`; .*by `key_norm`"):
                StructuredAttention(WIDTH, NUM_HEADS, **options)

    # Heads.

    @pytest.mark.parametrize("num_kv_heads", [1, 2])
    @pytest.mark.parametrize("causal", [False, True])
    def test_grouped_heads_share_keys_and_values(self, num_kv_heads: int, causal: bool) -> None:
        # The clamp of weights depends on how many heads read one input.
        clamp = {"clamp": False} if "clamp" in option_names(attentions[self.name]) else {}
        grouped = self.layer(causal=causal, num_kv_heads=num_kv_heads, **clamp)
        full = self.layer(causal=causal, **clamp)
        share_heads(grouped, full)
        x = draw(2, NUM_STEPS, WIDTH)
        close(grouped(x), full(x))
        assert sum(p.numel() for p in grouped.parameters()) < sum(
            p.numel() for p in full.parameters()
        )

    def test_heads_of_one_group_differ(self) -> None:
        layer = self.layer(num_kv_heads=1)
        x = draw(1, NUM_STEPS, WIDTH)
        q, k = layer.score.queries(x), layer.score.keys(x)
        v = layer.value(x).unflatten(-1, (1, -1)).transpose(1, 2)
        out = layer.score.attend(q, k, v, causal=False, key_mask=None, dropout_p=0.0)
        assert (out[:, 0] - out[:, 1]).abs().max() > 1e-3

    # Positions.

    @pytest.mark.parametrize("causal", [False, True])
    def test_rotary_positions_count_distances_only(self, causal: bool) -> None:
        """Shifted by whole periods behind padding, a sequence is encoded as before."""
        layer = self.layer(causal=causal, rotary=True)
        shift = self.period * 2
        x = draw(2, NUM_STEPS, WIDTH)
        padded = torch.cat([torch.zeros(2, shift, WIDTH, dtype=x.dtype), x], 1)
        key_mask = torch.arange(shift + NUM_STEPS).expand(2, -1) >= shift
        out = layer(x)
        close(layer(padded, key_mask)[:, shift:], out)
        assert (out - self.layer(causal=causal)(x)).abs().max() > 1e-3, "rotary changed nothing"

    # Another sequence.

    def test_cross_attention_where_it_is_defined(self) -> None:
        layer = self.layer()
        x, context = draw(2, 5, WIDTH), draw(2, 9, WIDTH, seed=1)
        if not self.crosses:
            with pytest.raises(ValueError, match=r"`context`.*compares places"):
                layer(x, context=context)
            return
        key_mask = torch.arange(9).expand(2, -1) < 7
        out = layer(x, key_mask, context=context)
        # The same as self-attention over both, the steps of x attended by none.
        both = torch.cat([context, x], 1)
        joint_mask = torch.cat([key_mask, torch.zeros(2, 5, dtype=torch.bool)], 1)
        close(out, layer(both, joint_mask)[:, 9:])

    # Step by step.

    @pytest.mark.parametrize("rotary", [False, True])
    @pytest.mark.parametrize("num_kv_heads", [None, 2])
    @examples(6)
    @given(chunks=st.lists(st.integers(1, 6), min_size=1, max_size=9), padded=st.booleans())
    def test_steps_equal_the_whole(
        self, chunks: list[int], padded: bool, num_kv_heads: int | None, rotary: bool
    ) -> None:
        layer = self.layer(causal=True, rotary=rotary, num_kv_heads=num_kv_heads, **self.cached)
        length = sum(chunks)
        x = draw(2, length, WIDTH)
        key_mask = torch.arange(length).expand(2, -1) >= torch.tensor([[0], [length // 2]])
        key_mask = key_mask if padded else None
        whole = layer(x, key_mask)
        cache, start = LayerCache(layer.score), 0
        for chunk in chunks:
            now = slice(start, start + chunk)
            mask = None if key_mask is None else key_mask[:, now]
            close(layer(x[:, now], mask, cache=cache), whole[:, now])
            start += chunk
        assert cache.length == length

    def test_a_step_without_a_mask_is_real(self) -> None:
        layer = self.layer(causal=True, **self.cached)
        x = draw(2, 9, WIDTH)
        key_mask = torch.arange(9).expand(2, -1) >= torch.tensor([[0], [3]])
        whole = layer(x, key_mask)
        # Once any step is padding, the mask goes on with real steps.
        for masked in ((True, False, False), (True, True, False)):
            cache, parts = LayerCache(layer.score), []
            for at, told in zip((0, 4, 8), masked, strict=True):
                now = slice(at, at + 4)
                parts.append(layer(x[:, now], key_mask[:, now] if told else None, cache=cache))
            close(torch.cat(parts, 1), whole)
        late = torch.ones(2, 9, dtype=torch.bool)
        late[1, 7] = False
        cache = LayerCache(layer.score)
        parts = [layer(x[:, :4], cache=cache), layer(x[:, 4:], late[:, 4:], cache=cache)]
        close(torch.cat(parts, 1), layer(x, late))

    def test_a_cache_keeps_what_is_read_and_no_more(self) -> None:
        layer = self.layer(causal=True, **self.cached)
        cache = LayerCache(layer.score)
        for at, count in enumerate([7, 9, *[1] * 10]):
            layer(draw(2, count, WIDTH, seed=at), cache=cache)
            for keys, reach in zip(cache.keys, layer.score.reaches(), strict=True):
                assert keys.shape[2] == cache.length - reach.first(cache.length)
            tensors = [*cache.keys, cache.values]
            assert cache.num_bytes == sum(x.numel() * 8 for x in tensors)
            for x in tensors:
                assert x.untyped_storage().nbytes() == x.numel() * 8, "it holds on to what it drops"

    def test_a_cache_needs_a_causal_layer_and_one_batch(self) -> None:
        layer = self.layer(**self.cached)
        with pytest.raises(ValueError, match="`cache` is for causal"):
            layer(draw(1, 2, WIDTH), cache=LayerCache(layer.score))
        layer = self.layer(causal=True, **self.cached)
        cache = LayerCache(layer.score)
        layer(draw(2, 2, WIDTH), cache=cache)
        with pytest.raises(ValueError, match="2 sequences"):
            layer(draw(3, 2, WIDTH), cache=cache)
        with pytest.raises(ValueError, match="`cache` was made for another layer"):
            self.layer(causal=True, **self.cached)(draw(2, 2, WIDTH), cache=cache)

    @pytest.mark.usefixtures("own_errors")
    def test_a_call_that_fails_leaves_the_cache_as_it_was(self) -> None:
        layer = self.layer(causal=True, **self.cached)
        cache = LayerCache(layer.score)
        x = draw(2, 9, WIDTH)
        layer(x[:, :4], cache=cache)
        for wrong in (torch.ones(2, 4, dtype=torch.bool), torch.ones(2, 5)):
            with pytest.raises(ValueError, match="`key_mask` must be a bool tensor of shape"):
                layer(x[:, 4:], wrong, cache=cache)
        assert cache.length == 4
        close(layer(x[:, 4:], cache=cache), layer(x)[:, 4:])

    # The rest.

    def test_dropout_drops_weights_in_training_only(self) -> None:
        layer = self.layer(attention_dropout=0.5)
        x = draw(2, NUM_STEPS, WIDTH)
        close(layer(x), self.layer()(x))
        layer.train()
        assert (layer(x) - layer(x)).abs().max() > 1e-3

    def test_biases_belong_to_every_map_and_norm(self) -> None:
        layer = StructuredAttention(WIDTH, NUM_HEADS, attention=self.name, **self.options)
        assert {"value.bias", "output.bias"} <= dict(layer.named_parameters()).keys()
        assert not [n for n, _ in self.layer(qk_norm=True).named_parameters() if "bias" in n]

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_low_precision_stays_close(self, dtype: torch.dtype) -> None:
        """At most twice as far from float64 as a layer of standard attention."""
        x = draw(4, NUM_STEPS, WIDTH)

        def error(layer: StructuredAttention, name: str, options: dict[str, Any]) -> float:
            exact = layer(x)
            low = StructuredAttention(WIDTH, NUM_HEADS, attention=name, bias=False, **options)
            low.load_state_dict(layer.state_dict())
            value = low.to(dtype)(x.to(dtype)).double()
            return ((value - exact).norm() / exact.norm()).item()

        plain = StructuredAttention(WIDTH, NUM_HEADS, attention="standard", bias=False).double()
        budget = error(fill(plain), "standard", {})
        assert error(self.layer(), self.name, self.options) <= 2 * budget

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("causal", [False, True])
    def test_cuda_equals_the_cpu(self, causal: bool, dtype: torch.dtype) -> None:
        """Output and gradients, with padding, grouped heads, rotary positions and norms."""
        options = {"causal": causal, "num_kv_heads": 2, "rotary": True, "qk_norm": True}
        layer = self.layer(**options)
        x = draw(2, 37, WIDTH)
        key_mask = torch.arange(37).expand(2, -1) >= torch.tensor([[0], [20]])
        exact = with_input_gradient(layer, x, key_mask)
        # bfloat16 rounds more than the GPU adds, so there the CPU sets what is allowed.
        here = with_input_gradient(self.layer(dtype=dtype, **options), x.to(dtype), key_mask)
        there = self.layer(dtype=dtype, **options).cuda()
        values = with_input_gradient(there, x.to("cuda", dtype), key_mask.cuda())
        for value, cpu, wanted in zip(values, here, exact, strict=True):
            allowed = max(1e-5 * wanted.norm(), 2 * (cpu.double() - wanted).norm())
            assert (value.cpu().double() - wanted).norm() <= allowed

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    def test_cuda_steps_equal_the_whole(self) -> None:
        layer = self.layer(dtype=torch.float32, causal=True, rotary=True, **self.cached).cuda()
        x = draw(2, 37, WIDTH, dtype=torch.float32).cuda()
        cache = LayerCache(layer.score)
        parts = [layer(part, cache=cache) for part in x.split([20, 1, 1, 9, 6], 1)]
        whole = layer(x)
        assert (torch.cat(parts, 1) - whole).abs().max() <= 1e-5 * whole.abs().max()

    def test_one_name_everywhere(self) -> None:
        assert self.name in attentions
        assert self.name in attention_ops
        assert set(self.options) <= set(option_names(attentions[self.name]))

    def test_an_unknown_option_is_refused(self) -> None:
        with pytest.raises(ValueError, match=f"attention='{self.name}' has no option `colour`"):
            StructuredAttention(WIDTH, NUM_HEADS, attention=self.name, colour="red")

    def test_defaults_serve_any_length(self) -> None:
        layer = StructuredAttention(WIDTH, NUM_HEADS, attention=self.name)
        for length in (1, 2, 37):
            assert layer(torch.zeros(1, length, WIDTH)).shape == (1, length, WIDTH)


def with_input_gradient(
    layer: StructuredAttention, x: Tensor, key_mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the output and the gradient of a fixed weighted sum of it."""
    x = x.detach().requires_grad_()
    out = layer(x, key_mask)
    weights = draw(*out.shape, seed=77).to(out.device, out.dtype)
    (gradient,) = torch.autograd.grad((out * weights).sum(), x)
    return out.detach(), gradient


def share_heads(grouped: StructuredAttention, full: StructuredAttention) -> None:
    """Copy the parameters, those of shared heads once for each query head that reads them."""
    state = full.state_dict()
    groups = grouped.score.heads.num_kv_heads
    for name, value in grouped.state_dict().items():
        if value.shape != state[name].shape:
            (axis,) = [
                at
                for at, n in enumerate(value.shape)
                if n * NUM_HEADS == state[name].shape[at] * groups and n != state[name].shape[at]
            ]
            heads = value.unflatten(axis, (groups, -1))
            value = heads.repeat_interleave(NUM_HEADS // groups, axis).flatten(axis, axis + 1)
        state[name] = value
    full.load_state_dict(state)
