"""What every backend of multi-level attention must do; a backend subclasses the contract."""

import dataclasses
import functools
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mlrforecast._core.errors import BackendError
from mlrforecast.ops import explain_backend, mlr_attention, standard_attention
from tests.contracts.attention_cases import BATCH, CASES, RANKS, make_inputs, ragged_ids, unpack
from tests.ops.oracle import loop_attention


def with_gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Return the output and the gradients of a fixed weighted sum of it."""
    weights = torch.cos(torch.arange(out.numel(), dtype=torch.float64, device=out.device))
    loss = (out * weights.view(out.shape).to(out.dtype)).sum()
    return [out.detach(), *torch.autograd.grad(loss, inputs)]


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


@dataclasses.dataclass(frozen=True)
class Problem:
    """A drawn call: nested sizes, ragged ids of some kind, or sizes with a window."""

    length: int
    sizes: tuple[int | None, ...]
    offset: int
    kind: str
    window: int | None
    causal: bool
    shared: bool

    @property
    def has_ids(self) -> bool:
        return self.kind != "sizes"

    def ids(self, seed: int = 0) -> Tensor:
        return ragged_ids(self.length, self.kind, seed)

    def options(self, **changes: Any) -> dict[str, Any]:
        blocks: dict[str, Any] = {"block_sizes": self.sizes, "offset": self.offset}
        if self.has_ids:
            blocks = {"block_ids": self.ids()}
        switches = {"causal": self.causal, "divide_by_shared_levels": self.shared}
        return {"ranks": RANKS, "window": self.window} | blocks | switches | changes


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Draw a length and a whole level over nested sizes, or another partition."""
    ratio, finest = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    kinds = ("sizes", "sizes", "nested", "parted", "crossing", "gaps", "batch")
    return Problem(
        length=draw(st.integers(1, 40)),
        sizes=(None, ratio * finest, finest),
        offset=draw(st.integers(0, 9)),
        kind=draw(st.sampled_from(kinds)),
        window=draw(st.one_of(st.none(), st.none(), st.integers(0, 12))),
        causal=draw(st.booleans()),
        shared=draw(st.booleans()),
    )


class AttentionContract:
    """Subclass it with ``backend`` and the names of the cases that the backend must refuse."""

    backend: ClassVar[str]
    refuses: ClassVar[dict[str, str]] = {}

    def call(self, inputs: list[Tensor], **options: Any) -> Tensor:
        return mlr_attention(*inputs, backend=self.backend, **options)

    def attend(self, inputs: list[Tensor], **options: Any) -> Tensor:
        """Call the backend, or the one that serves in its place where it refuses."""
        refused = self.backend in explain_backend(*inputs, **options).refused
        return mlr_attention(*inputs, backend="auto" if refused else self.backend, **options)

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

    @examples(15)
    @given(st.integers(1, 40), st.booleans(), st.integers(-9, 9), st.booleans())
    def test_equal_block_ids_are_one_dense_score(
        self, length: int, causal: bool, label: int, each: bool
    ) -> None:
        inputs, key_mask = make_inputs(length, masked=True)
        scales = (0.5, 0.25, 2.0)
        ids = torch.full((BATCH, 3, length) if each else (3, length), label)
        options = {"causal": causal, "key_mask": key_mask}
        out = self.attend(inputs, ranks=RANKS, block_ids=ids, level_scale=scales, **options)
        columns = torch.tensor(scales, dtype=torch.float64).repeat_interleave(torch.tensor(RANKS))
        dense = standard_attention(inputs[0] * columns, *inputs[1:], scale=1.0, **options)
        torch.testing.assert_close(out, dense, rtol=0, atol=1e-12)

    @examples(20)
    @given(problems(), st.integers(1, 9), st.booleans())
    def test_block_ids_of_sizes_are_block_sizes(
        self, problem: Problem, coarsest: int, parted: bool
    ) -> None:
        problem = dataclasses.replace(problem, kind="sizes")
        sizes = (coarsest * (problem.sizes[1] or 1) if parted else None, *problem.sizes[1:])
        steps = torch.arange(problem.length) + problem.offset
        ids = torch.stack([steps * 0 if size is None else steps // size for size in sizes])
        inputs, _ = make_inputs(problem.length)
        out = self.attend(inputs, **problem.options(block_sizes=sizes))
        # Labels may be any: here they run backwards, with gaps.
        options = problem.options(block_ids=7 - 3 * ids)
        del options["block_sizes"], options["offset"]
        torch.testing.assert_close(self.attend(inputs, **options), out, rtol=0, atol=1e-12)

    @examples(30)
    @given(problems(), st.booleans(), st.data())
    def test_the_last_queries_are_rows_of_the_whole(
        self, problem: Problem, masked: bool, data: st.DataObject
    ) -> None:
        num_queries = data.draw(st.integers(1, problem.length))
        (q, k, v), key_mask = make_inputs(problem.length, masked=masked)
        options = problem.options(key_mask=key_mask)
        whole = self.attend([q, k, v], **options)
        last = self.attend([q[:, :, -num_queries:], k, v], **options)
        torch.testing.assert_close(last, whole[:, :, -num_queries:], rtol=0, atol=1e-12)

    @examples(20)
    @given(problems(), st.integers(1, 40))
    def test_queries_of_the_same_steps_by_their_block_ids(
        self, problem: Problem, num_queries: int
    ) -> None:
        """A step of another sequence in the blocks of step i attends as step i does."""
        kind = problem.kind if problem.has_ids else "parted"
        problem = dataclasses.replace(problem, kind=kind, causal=False, window=None)
        (q, k, v), _ = make_inputs(problem.length)
        options, ids = problem.options(), problem.ids()
        steps = torch.arange(num_queries) * 7 % problem.length
        other = self.attend([q[:, :, steps], k, v], query_block_ids=ids[..., steps], **options)
        whole = self.attend([q, k, v], **options)
        torch.testing.assert_close(other, whole[:, :, steps], rtol=0, atol=1e-12)

    @examples(30)
    @given(problems(), st.data())
    def test_the_future_changes_nothing_in_the_past(
        self, problem: Problem, data: st.DataObject
    ) -> None:
        cut = data.draw(st.integers(0, problem.length))
        inputs, _ = make_inputs(problem.length)
        changed = [torch.cat([x[:, :, :cut], -3 * x[:, :, cut:] - 1], 2) for x in inputs]
        options = problem.options(causal=True)
        later = dict(options)
        if problem.has_ids:
            ids = problem.ids()
            later["block_ids"] = torch.cat([ids[..., :cut], problem.ids(seed=9)[..., cut:]], -1)
        before, after = self.attend(inputs, **options), self.attend(changed, **later)
        torch.testing.assert_close(before[:, :, :cut], after[:, :, :cut], rtol=0, atol=1e-12)

    @examples(30)
    @given(problems(), st.integers(1, 12))
    def test_left_padding_changes_nothing(self, problem: Problem, extra: int) -> None:
        inputs, _ = make_inputs(problem.length)
        padded = short = problem.options()
        if problem.has_ids:
            filler = problem.ids()[..., :1].expand(*problem.ids().shape[:-1], extra)
            padded = padded | {"block_ids": torch.cat([filler, problem.ids()], -1)}
        else:
            # The real steps keep their place in the grid, which begins that much earlier.
            short = short | {"offset": problem.offset + extra}
        fillers = [torch.full_like(x[:, :, :1], 7.0).repeat(1, 1, extra, 1) for x in inputs]
        longer = [torch.cat(pair, 2) for pair in zip(fillers, inputs, strict=True)]
        key_mask = torch.arange(extra + problem.length).expand(BATCH, -1) >= extra
        out = self.attend(longer, key_mask=key_mask, **padded)
        torch.testing.assert_close(
            out[:, :, extra:], self.attend(inputs, **short), rtol=0, atol=1e-12
        )

    @examples(15)
    @given(problems(), st.permutations(range(BATCH)))
    def test_the_batch_may_be_permuted(self, problem: Problem, order: list[int]) -> None:
        inputs, key_mask = make_inputs(problem.length, masked=True)
        assert key_mask is not None
        options = problem.options()
        out = self.attend(inputs, key_mask=key_mask, **options)
        if problem.kind == "batch":
            options["block_ids"] = options["block_ids"][order]
        moved = self.attend([x[order] for x in inputs], key_mask=key_mask[order], **options)
        torch.testing.assert_close(out[order], moved, rtol=0, atol=1e-12)

    @examples(15)
    @given(problems(), st.sampled_from([1, 2]), st.booleans(), st.data())
    def test_grouped_heads_are_repeated_heads(
        self, problem: Problem, num_kv_heads: int, masked: bool, data: st.DataObject
    ) -> None:
        heads = {"num_heads": 4, "num_kv_heads": num_kv_heads}
        heads["num_queries"] = data.draw(st.integers(1, problem.length))
        (q, k, v), key_mask = make_inputs(problem.length, masked=masked, **heads)
        options = problem.options(key_mask=key_mask)
        repeated = [x.repeat_interleave(4 // num_kv_heads, 1) for x in (k, v)]
        torch.testing.assert_close(
            self.attend([q, k, v], **options),
            self.attend([q, *repeated], **options),
            rtol=0,
            atol=1e-12,
        )

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
