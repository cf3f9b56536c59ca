"""What every backend of multi-level attention must do; a backend subclasses the contract."""

import functools
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mlrforecast._core.errors import BackendError
from mlrforecast.ops import mlr_attention, standard_attention
from tests.ops.oracle import loop_attention

Case = dict[str, Any]

WHOLE = None
CASES: dict[str, Case] = {
    "T1": {"length": 1, "block_sizes": (WHOLE, 2, 1)},
    "T1-masked": {"length": 1, "block_sizes": (WHOLE, 2, 1), "masked": True, "causal": True},
    "T2-causal": {"length": 2, "block_sizes": (WHOLE, 2, 1), "causal": True},
    "T7-offset": {"length": 7, "block_sizes": (WHOLE, 6, 2), "offset": 5, "masked": True},
    "T63-shared": {
        "length": 63,
        "block_sizes": (WHOLE, 20, 5),
        "offset": 7,
        "causal": True,
        "masked": True,
        "divide_by_shared_levels": True,
    },
    "T64-no-whole-level": {
        "length": 64,
        "block_sizes": (32, 16, 8),
        "causal": True,
        "masked": True,
    },
    "T64-unshared-zero": {"length": 64, "block_sizes": (32, 16, 8), "unshared": "zero"},
    "T64-wide-values": {"length": 64, "block_sizes": (64, 32, 16), "value_width": 13},
    "T65-all-divisions": {
        "length": 65,
        "block_sizes": (WHOLE, 34, 17),
        "masked": True,
        "divide_by_shared_levels": True,
        "divide_by_num_levels": True,
    },
    "T65-identity": {
        "length": 65,
        "block_sizes": (50, 25, 5),
        "causal": True,
        "masked": True,
        "link": "identity",
    },
    "T127-repeated-level": {
        "length": 127,
        "block_sizes": (WHOLE, WHOLE, 9),
        "level_scale": "inverse_sqrt_rank",
    },
    "T127-equal-blocks": {
        "length": 127,
        "block_sizes": (WHOLE, 16, 16),
        "offset": 1,
        "causal": True,
        "level_scale": (0.5, 0.125, 2.0),
        "divide_by_shared_levels": True,
    },
    "T127-not-nested": {
        "length": 127,
        "block_sizes": (WHOLE, 50, 12),
        "offset": 3,
        "causal": True,
    },
    "T127-not-nested-shared": {
        "length": 127,
        "block_sizes": (100, 50, 12),
        "divide_by_shared_levels": True,
    },
    "T257-odd-blocks": {
        "length": 257,
        "block_sizes": (WHOLE, 77, 11),
        "offset": 19,
        "causal": True,
        "masked": True,
        "level_scale": "inverse_sqrt_width",
    },
    "T257-many-blocks": {"length": 257, "block_sizes": (WHOLE, 6, 2), "masked": True},
}
RANKS = (4, 2, 2)


def make_inputs(
    length: int,
    *,
    value_width: int = 5,
    masked: bool = False,
    dtype: torch.dtype = torch.float64,
    width: int = sum(RANKS),
    device: str = "cpu",
) -> tuple[list[Tensor], Tensor | None]:
    """Draw q, k, v of three sequences: left-padded, with holes, and without any real key."""
    generator = torch.Generator().manual_seed(length)
    shapes = [(3, 2, length, width)] * 2 + [(3, 2, length, value_width)]
    draws = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    tensors = [x.to(device, dtype).requires_grad_() for x in draws]
    if not masked:
        return tensors, None
    key_mask = torch.rand(3, length, generator=generator) > 0.4
    key_mask[0] = torch.arange(length) >= length // 3
    key_mask[2] = False
    return tensors, key_mask.to(device)


def with_gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Return the output and the gradients of a fixed weighted sum of it."""
    weights = torch.cos(torch.arange(out.numel(), dtype=torch.float64, device=out.device))
    loss = (out * weights.view(out.shape).to(out.dtype)).sum()
    return [out.detach(), *torch.autograd.grad(loss, inputs)]


def unpack(case: Case) -> tuple[list[Tensor], dict[str, Any]]:
    """Split a case into its tensors and the options of the call."""
    options = {key: value for key, value in case.items() if key in OPTIONS}
    inputs, key_mask = make_inputs(
        case["length"],
        value_width=case.get("value_width", 5),
        masked=case.get("masked", False),
    )
    return inputs, {"ranks": RANKS, "key_mask": key_mask} | options


OPTIONS = {
    "block_sizes",
    "offset",
    "causal",
    "level_scale",
    "divide_by_shared_levels",
    "divide_by_num_levels",
    "unshared",
    "link",
}


@functools.cache
def expected(name: str) -> list[Tensor]:
    """Compute the oracle's output and gradients of a case, once for all backends."""
    inputs, options = unpack(CASES[name])
    return with_gradients(loop_attention(*inputs, **options), inputs)


def relative_error(values: list[Tensor], exact: list[Tensor]) -> list[float]:
    """Return the error of each tensor relative to the size of the exact one."""
    pairs = zip(values, exact, strict=True)
    return [((a.double() - b.double()).norm() / b.double().norm()).item() for a, b in pairs]


def examples(count: int) -> settings:
    """Run ``count`` examples; one property runs in several classes, and without a database."""
    return settings(max_examples=count, suppress_health_check=[HealthCheck.differing_executors])


levels = st.tuples(
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(0, 9),
    st.booleans(),
)


def nested_options(drawn: tuple[int, int, int, int, bool]) -> tuple[int, dict[str, Any]]:
    """Turn a draw into a length and options: a whole level and two nested finer ones."""
    length, ratio, finest, offset, causal = drawn
    sizes = (None, ratio * finest, finest)
    return length, {"ranks": RANKS, "block_sizes": sizes, "offset": offset, "causal": causal}


class AttentionContract:
    """Subclass it with ``backend`` and the names of the cases that the backend must refuse."""

    backend: ClassVar[str]
    refuses: ClassVar[dict[str, str]] = {}

    def call(self, inputs: list[Tensor], **options: Any) -> Tensor:
        return mlr_attention(*inputs, backend=self.backend, **options)

    @pytest.mark.parametrize("name", CASES)
    def test_equals_the_loops(self, name: str) -> None:
        inputs, options = unpack(CASES[name])
        if name in self.refuses:
            with pytest.raises(BackendError, match=self.refuses[name]):
                self.call(inputs, **options)
            return
        for value, exact in zip(
            with_gradients(self.call(inputs, **options), inputs), expected(name), strict=True
        ):
            torch.testing.assert_close(value, exact, rtol=0, atol=1e-12)

    def test_a_row_without_keys_is_zero(self) -> None:
        inputs, key_mask = make_inputs(12, masked=True)
        out, *gradients = with_gradients(
            self.call(inputs, ranks=RANKS, key_mask=key_mask, causal=True), inputs
        )
        assert out.isfinite().all()
        assert (out[0, :, :4] == 0).all(), "queries before the first real key see nothing"
        assert (out[2] == 0).all()
        assert all((grad[2] == 0).all() for grad in gradients)
        assert (gradients[0][0, :, :4] == 0).all()

    @pytest.mark.parametrize("shared", [False, True])
    @pytest.mark.parametrize("causal", [False, True])
    def test_gradcheck(self, causal: bool, shared: bool) -> None:
        inputs, key_mask = make_inputs(9, value_width=3, masked=True)

        def run(*tensors: Tensor) -> Tensor:
            return self.call(
                list(tensors),
                ranks=RANKS,
                block_sizes=(None, 4, 2),
                offset=1,
                causal=causal,
                key_mask=key_mask,
                divide_by_shared_levels=shared,
            )

        assert torch.autograd.gradcheck(run, inputs, fast_mode=True)

    @examples(15)
    @given(st.integers(1, 70), st.booleans(), st.booleans())
    def test_one_level_is_standard_attention(self, length: int, causal: bool, masked: bool) -> None:
        inputs, key_mask = make_inputs(length, masked=masked)
        out = self.call(
            inputs,
            ranks=(8,),
            level_scale="inverse_sqrt_width",
            causal=causal,
            key_mask=key_mask,
        )
        standard = standard_attention(*inputs, causal=causal, key_mask=key_mask)
        torch.testing.assert_close(out, standard, rtol=0, atol=1e-12)

    @examples(10)
    @given(st.integers(1, 40), st.booleans())
    def test_whole_levels_are_one_dense_score(self, length: int, causal: bool) -> None:
        inputs, _ = make_inputs(length)
        scales = (0.5, 0.25, 2.0)
        out = self.call(
            inputs, ranks=RANKS, block_sizes=(None,) * 3, level_scale=scales, causal=causal
        )
        columns = torch.tensor(scales, dtype=torch.float64).repeat_interleave(torch.tensor(RANKS))
        dense = standard_attention(inputs[0] * columns, *inputs[1:], causal=causal, scale=1.0)
        torch.testing.assert_close(out, dense, rtol=0, atol=1e-12)

    @examples(25)
    @given(levels, st.data())
    def test_the_future_changes_nothing_in_the_past(self, drawn: Any, data: st.DataObject) -> None:
        length, options = nested_options(drawn)
        cut = data.draw(st.integers(0, length))
        inputs, _ = make_inputs(length)
        changed = [torch.cat([x[:, :, :cut], -3 * x[:, :, cut:] - 1], 2) for x in inputs]
        options |= {"causal": True}
        before, after = self.call(inputs, **options), self.call(changed, **options)
        torch.testing.assert_close(before[:, :, :cut], after[:, :, :cut], rtol=0, atol=1e-12)

    @examples(25)
    @given(levels, st.integers(1, 12))
    def test_left_padding_changes_nothing(self, drawn: Any, extra: int) -> None:
        length, options = nested_options(drawn)
        inputs, _ = make_inputs(length)
        # The real steps keep their place in the grid, which begins that much earlier.
        short = options | {"offset": options["offset"] + extra}
        filler = [torch.full_like(x[:, :, :1], 7.0).repeat(1, 1, extra, 1) for x in inputs]
        padded = [torch.cat(pair, 2) for pair in zip(filler, inputs, strict=True)]
        key_mask = torch.arange(extra + length).expand(3, -1) >= extra
        out = self.call(padded, key_mask=key_mask, **options)
        torch.testing.assert_close(
            out[:, :, extra:], self.call(inputs, **short), rtol=0, atol=1e-12
        )

    @examples(10)
    @given(levels, st.permutations(range(3)))
    def test_the_batch_may_be_permuted(self, drawn: Any, order: list[int]) -> None:
        length, options = nested_options(drawn)
        inputs, key_mask = make_inputs(length, masked=True)
        assert key_mask is not None
        out = self.call(inputs, key_mask=key_mask, **options)
        moved = self.call([x[order] for x in inputs], key_mask=key_mask[order], **options)
        torch.testing.assert_close(out[order], moved, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("shared", [False, True])
    @pytest.mark.parametrize("length", [63, 128, 257])
    def test_error_budget(self, length: int, shared: bool, dtype: torch.dtype) -> None:
        """Output and gradients err at most twice as much as PyTorch's own attention does."""
        self.check_error_budget(length, shared, dtype, "cpu")

    def check_error_budget(
        self, length: int, shared: bool, dtype: torch.dtype, device: str
    ) -> None:
        sizes = {"value_width": 32, "width": 32, "device": device}
        inputs, _ = make_inputs(length, dtype=dtype, **sizes)
        doubles = [x.detach().double().requires_grad_() for x in inputs]
        options = {
            "ranks": (16, 8, 8),
            "causal": True,
            "level_scale": "inverse_sqrt_width",
            "divide_by_shared_levels": shared,
        }
        out = with_gradients(self.call(inputs, **options), inputs)
        exact = with_gradients(mlr_attention(*doubles, backend="reference", **options), doubles)
        plain = with_gradients(standard_attention(*inputs, causal=True), inputs)
        plain_exact = with_gradients(standard_attention(*doubles, causal=True), doubles)
        errors = zip(relative_error(out, exact), relative_error(plain, plain_exact), strict=True)
        for name, (error, budget) in zip(("out", "dq", "dk", "dv"), errors, strict=True):
            assert error <= 2 * budget, f"{name}: {error:.2e} > 2 x {budget:.2e}"

    def test_leaves_its_inputs_and_the_random_state_alone(self) -> None:
        inputs, key_mask = make_inputs(20, masked=True)
        copies = [x.detach().clone() for x in inputs]
        state = torch.get_rng_state()
        self.call(inputs, ranks=RANKS, key_mask=key_mask, causal=True).sum().backward()
        assert torch.equal(state, torch.get_rng_state())
        assert all(torch.equal(x, copy) for x, copy in zip(inputs, copies, strict=True))

    def test_reads_no_uninitialised_memory(self) -> None:
        """In the deterministic mode PyTorch fills new memory with NaN."""
        inputs, key_mask = make_inputs(33, masked=True, dtype=torch.float32)
        was_on = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        try:
            results = with_gradients(self.call(inputs, ranks=RANKS, key_mask=key_mask), inputs)
        finally:
            torch.use_deterministic_algorithms(was_on)
        assert all(x.isfinite().all() for x in results)

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("name", CASES)
    def test_cuda_equals_the_loops(self, name: str, dtype: torch.dtype) -> None:
        inputs, options = unpack(CASES[name])
        if name in self.refuses:
            pytest.skip("refused on every device")
        cuda = [x.detach().to("cuda", dtype).requires_grad_() for x in inputs]
        key_mask = options.pop("key_mask")
        key_mask = None if key_mask is None else key_mask.cuda()
        values = with_gradients(self.call(cuda, key_mask=key_mask, **options), cuda)
        tolerance = 2e-5 if dtype == torch.float32 else 3e-2
        names = ("out", "dq", "dk", "dv")
        for key, value, exact in zip(names, values, expected(name), strict=True):
            error = (value.cpu().double() - exact).norm()
            # Gradients that are 0 by their nature, as at one step, are rounding errors of others.
            size = max(exact.norm(), expected(name)[0].norm())
            assert error <= tolerance * size, f"{key}: {error / size:.1e}"

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    @pytest.mark.parametrize("shared", [False, True])
    @pytest.mark.parametrize("length", [128, 257, 1024])
    def test_cuda_error_budget(self, length: int, shared: bool) -> None:
        self.check_error_budget(length, shared, torch.bfloat16, "cuda")
