"""What the op of every score must do; the test of an op subclasses the contract."""

import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mlrforecast.ops import attention_ops

Tensors = dict[str, Tensor]

BATCH, NUM_HEADS, NUM_KV_HEADS, VALUE_WIDTH = 3, 4, 2, 3
# (T, S, causal, masked). T > S is for scores without positions.
CASES = {
    "T1": (1, 1, False, False),
    "T1-causal-masked": (1, 1, True, True),
    "T2-causal": (2, 2, True, False),
    "T2-of-7-causal": (2, 7, True, True),
    "T7": (7, 7, False, True),
    "T7-causal": (7, 7, True, False),
    "T1-of-7-causal": (1, 7, True, True),
    "T3-of-7": (3, 7, False, False),
    "T63-causal-masked": (63, 63, True, True),
    "T65": (65, 65, False, False),
    "T5-of-65-causal": (5, 65, True, False),
    "T9-to-7": (9, 7, False, True),
}
GROUP = NUM_HEADS // NUM_KV_HEADS
EXACT = {"rtol": 0, "atol": 1e-10}


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw float64 numbers that float32 holds too, so that a cast changes no input."""
    return torch.randn(*shape, generator=generator).double()


def make_mask(num_keys: int) -> Tensor:
    """Hide the first third of one sequence, single steps of another, all of the last."""
    mask = torch.ones(BATCH, num_keys, dtype=torch.bool)
    mask[0, : num_keys // 3] = False
    mask[1, 1::3] = False
    mask[2] = False
    return mask


def with_gradients(out: Tensor, inputs: Tensors) -> Tensors:
    """Return the output and the gradients of a fixed weighted sum of it."""
    weights = torch.cos(torch.arange(out.numel(), dtype=torch.float64, device=out.device))
    loss = (out * weights.view(out.shape).to(out.dtype)).sum()
    gradients = torch.autograd.grad(loss, list(inputs.values()))
    return {"out": out.detach()} | dict(zip(inputs, gradients, strict=True))


def squared_errors(values: Tensors, exact: Tensors) -> dict[str, float]:
    """Return the squared error of each tensor relative to the size of the exact one."""
    return {
        key: ((values[key].double() - x).norm() / x.norm().clamp(min=1e-30)).square().item()
        for key, x in exact.items()
    }


def examples(count: int) -> settings:
    """Run ``count`` examples; one property runs in several classes, and without a database."""
    return settings(max_examples=count, suppress_health_check=[HealthCheck.differing_executors])


class AttentionOpContract:
    """Subclass it once for each name in ``attention_ops``."""

    name: ClassVar[str]
    positional: ClassVar[bool] = False
    """Whether the score reads where a step stands, and so needs T <= S."""
    extra_cases: ClassVar[dict[str, tuple[int, int, bool, bool]]] = {}
    step_tensors: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]] = (("q",), ("k", "v"))
    """Tensors with an axis of query steps, and of key steps, each the last but one."""

    error_budget: ClassVar[float] = 2
    """How many times the error of plain PyTorch the op's may be."""

    zero_gradients: ClassVar[tuple[str, ...]] = ()
    """Tensors whose gradient is 0 by its nature, so that all of it is rounding error."""

    def draw(self, num_queries: int, num_keys: int) -> Tensors:
        """Draw the differentiable inputs of ``BATCH`` sequences with grouped heads."""
        raise NotImplementedError

    def repeated(self, tensors: Tensors) -> Tensors:
        """Give every query head its own copy of the keys and values that it reads."""
        raise NotImplementedError

    def call(self, tensors: Tensors, **options: Any) -> Tensor:
        """Call the op."""
        raise NotImplementedError

    def loops(self, tensors: Tensors, **options: Any) -> Tensor:
        """Call the oracle with ``causal`` and ``key_mask``."""
        raise NotImplementedError

    def plain(self, tensors: Tensors) -> Tensor:
        """Attend causally by plain PyTorch in the dtype of the tensors: the error budget."""
        raise NotImplementedError

    # Helpers of the tests below.

    def attend(self, tensors: Tensors, **options: Any) -> Tensor:
        assert attention_ops[self.name].__name__ == f"{self.name}_attention"
        return self.call(tensors, **options)

    def cut(self, tensors: Tensors, queries: slice, keys: slice) -> Tensors:
        """Keep some of the query steps and some of the key steps."""
        parts = dict(zip(self.step_tensors, (queries, keys), strict=True))
        return tensors | {n: tensors[n][..., s, :] for names, s in parts.items() for n in names}

    def all_cases(self) -> Iterator[tuple[str, tuple[int, int, bool, bool]]]:
        yield from (CASES | self.extra_cases).items()

    @functools.cache  # noqa: B019 - one instance a test, and the oracle is slow
    def expected(self, case: tuple[int, int, bool, bool]) -> Tensors:
        tensors, options = self.problem(case)
        return with_gradients(self.loops(tensors, **options), tensors)

    def problem(self, case: tuple[int, int, bool, bool]) -> tuple[Tensors, dict[str, Any]]:
        num_queries, num_keys, causal, masked = case
        tensors = {n: x.requires_grad_() for n, x in self.draw(num_queries, num_keys).items()}
        return tensors, {"causal": causal, "key_mask": make_mask(num_keys) if masked else None}

    # What every op must do.

    def test_equals_the_loops(self) -> None:
        for name, case in self.all_cases():
            tensors, options = self.problem(case)
            if self.positional and case[0] > case[1]:
                with pytest.raises(ValueError, match=r"T must not exceed S|T <= S"):
                    self.attend(tensors, **options)
                continue
            values = with_gradients(self.attend(tensors, **options), tensors)
            for key, exact in self.expected(case).items():
                torch.testing.assert_close(
                    values[key], exact, **EXACT, msg=lambda m, n=f"{name}, {key}": f"{n}: {m}"
                )

    def test_queries_that_are_no_last_steps_are_refused(self) -> None:
        with pytest.raises(ValueError, match="T <= S"):
            self.attend(self.draw(8, 7), causal=True)

    def test_a_row_without_keys_is_zero(self) -> None:
        tensors, options = self.problem((7, 7, True, True))
        values = with_gradients(self.attend(tensors, **options), tensors)
        assert all(x.isfinite().all() for x in values.values())
        assert (values["out"][2] == 0).all()
        assert (values["out"][0, :, :2] == 0).all()
        for name in {n for names in self.step_tensors for n in names}:
            assert (values[name][2] == 0).all(), name

    @examples(12)
    @given(st.integers(1, 40), st.data())
    def test_the_future_changes_nothing(self, length: int, data: st.DataObject) -> None:
        cut = data.draw(st.integers(0, length))
        tensors = self.draw(length, length)
        changed = dict(tensors)
        for name in {n for names in self.step_tensors for n in names}:
            x = tensors[name]
            changed[name] = torch.cat([x[..., :cut, :], -3 * x[..., cut:, :] - 1], -2)
        before, after = (self.attend(x, causal=True) for x in (tensors, changed))
        torch.testing.assert_close(before[..., :cut, :], after[..., :cut, :], **EXACT)

    @examples(12)
    @given(st.integers(1, 40), st.integers(1, 9), st.booleans(), st.booleans())
    def test_padding_changes_nothing(
        self, length: int, extra: int, causal: bool, left: bool
    ) -> None:
        """Left padding for every score; at the end only where a key's place is not read."""
        left = left or self.positional or causal
        tensors = self.draw(length + extra, length + extra)
        real = slice(extra, None) if left else slice(length)
        key_mask = torch.zeros(BATCH, length + extra, dtype=torch.bool)
        key_mask[:, real] = True
        options = self.grid_begins(extra if left else 0)
        padded = self.attend(tensors, key_mask=key_mask, causal=causal, **options)
        out = self.attend(self.cut(tensors, real, real), causal=causal)
        torch.testing.assert_close(padded[..., real, :], out, **EXACT)

    def grid_begins(self, step: int) -> dict[str, Any]:
        """Return the options by which a score with a grid of blocks begins it at a step."""
        del step
        return {}

    @examples(6)
    @given(st.integers(1, 40), st.permutations(range(BATCH)), st.booleans())
    def test_the_batch_may_be_permuted(self, length: int, order: list[int], causal: bool) -> None:
        tensors, key_mask = self.draw(length, length), make_mask(length)
        names = {n for names in self.step_tensors for n in names}
        moved = {n: x[order] if n in names else x for n, x in tensors.items()}
        out = self.attend(tensors, causal=causal, key_mask=key_mask)
        out_moved = self.attend(moved, causal=causal, key_mask=key_mask[order])
        torch.testing.assert_close(out[order], out_moved, **EXACT)

    @examples(12)
    @given(st.integers(1, 40), st.booleans(), st.booleans(), st.data())
    def test_grouped_heads_are_repeated_heads(
        self, length: int, causal: bool, masked: bool, data: st.DataObject
    ) -> None:
        num_queries = data.draw(st.integers(1, length))
        tensors = self.draw(num_queries, length)
        options = {"causal": causal, "key_mask": make_mask(length) if masked else None}
        out = self.attend(self.repeated(tensors), **options)
        torch.testing.assert_close(self.attend(tensors, **options), out, **EXACT)

    @examples(12)
    @given(st.integers(1, 150), st.booleans(), st.booleans(), st.data())
    def test_the_last_queries_are_rows_of_the_whole(
        self, length: int, causal: bool, masked: bool, data: st.DataObject
    ) -> None:
        num_queries = data.draw(st.integers(1, length))
        tensors = self.draw(length, length)
        options = {"causal": causal, "key_mask": make_mask(length) if masked else None}
        part = self.cut(tensors, slice(-num_queries, None), slice(None))
        out = self.attend(tensors, **options)[..., -num_queries:, :]
        torch.testing.assert_close(self.attend(part, **options), out, **EXACT)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("longest", [63, 150])
    def test_error_budget(self, longest: int, dtype: torch.dtype) -> None:
        """Output and gradients err little more than those of plain PyTorch in the same dtype.

        Over several draws: the error of a single short gradient is a matter of luck.
        """
        total = {kind: Counter[str]() for kind in ("op", "plain")}
        for length in range(longest - 6, longest + 1):
            rounded = {n: x.to(dtype) for n, x in self.draw(length, length).items()}
            low = {n: x.clone().requires_grad_() for n, x in rounded.items()}
            high = {n: x.double().requires_grad_() for n, x in rounded.items()}
            exact = with_gradients(self.attend(high, causal=True), high)
            values = {"op": self.attend(low, causal=True), "plain": self.plain(low)}
            for kind, out in values.items():
                total[kind].update(squared_errors(with_gradients(out, low), exact))
        for key in total["op"].keys() - set(self.zero_gradients):
            error, budget = (total[kind][key] ** 0.5 for kind in ("op", "plain"))
            limit = self.error_budget * budget
            assert error <= limit, f"{key}: {error:.2e} > {self.error_budget} x {budget:.2e}"

    def test_plain_is_the_same_function(self) -> None:
        tensors = self.draw(33, 33)
        torch.testing.assert_close(self.plain(tensors), self.attend(tensors, causal=True), **EXACT)

    def test_float16_is_finite_and_close(self) -> None:
        tensors, options = self.problem((63, 63, True, True))
        half = {n: x.detach().half() for n, x in tensors.items()}
        out = self.attend(half, **options)
        assert out.dtype == torch.float16
        torch.testing.assert_close(
            out.double(), self.attend(tensors, **options), rtol=0.02, atol=0.02
        )

    def test_follows_autocast(self) -> None:
        tensors = {n: x.float() for n, x in self.draw(20, 20).items()}
        plain = self.attend(tensors, causal=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = self.attend(tensors, causal=True)
        assert out.dtype == torch.bfloat16
        torch.testing.assert_close(out.float(), plain, rtol=0.05, atol=0.05)

    def test_dropout_drops_weights_and_scales_the_rest(self, seeded: None) -> None:
        """Values of the identity show the weights themselves."""
        tensors = self.draw(16, 16)
        unit = torch.eye(16, dtype=torch.float64).expand(BATCH, NUM_KV_HEADS, -1, -1)
        weights = self.attend(tensors | {"v": unit}, causal=True)
        dropped = self.attend(tensors | {"v": unit}, causal=True, dropout_p=0.5)
        self.check_dropped(dropped, weights)
        with pytest.raises(ValueError, match=r"`dropout_p` must lie in \[0, 1\), got 1.0"):
            self.attend(tensors, dropout_p=1.0)

    def check_dropped(self, dropped: Tensor, weights: Tensor) -> None:
        kept = dropped != 0
        seen = weights != 0
        assert 0.4 < kept[seen].double().mean() < 0.6
        torch.testing.assert_close(dropped, 2 * weights * kept, **EXACT)

    def test_leaves_its_inputs_and_the_random_state_alone(self) -> None:
        tensors, options = self.problem((20, 20, True, True))
        copies = {n: x.detach().clone() for n, x in tensors.items()}
        state = torch.get_rng_state()
        self.attend(tensors, **options).sum().backward()
        assert torch.equal(state, torch.get_rng_state())
        assert all(torch.equal(tensors[n], copy) for n, copy in copies.items())

    def test_reads_no_uninitialised_memory(self) -> None:
        """In the deterministic mode PyTorch fills new memory with NaN."""
        tensors, options = self.problem((150, 150, True, True))
        was_on = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        try:
            values = with_gradients(self.attend(tensors, **options), tensors)
        finally:
            torch.use_deterministic_algorithms(was_on)
        assert all(x.isfinite().all() for x in values.values())

    @pytest.mark.compile
    def test_compiles_as_one_graph_for_any_length(self) -> None:
        torch._dynamo.reset()  # every op counts its own compilations
        compiled = torch.compile(
            lambda tensors: self.call(tensors, causal=True),
            dynamic=True,
            fullgraph=True,
            backend="eager",
        )
        for length in (9, 12):
            tensors = self.draw(length, length)
            torch.testing.assert_close(
                compiled(tensors), self.attend(tensors, causal=True), **EXACT
            )

    def test_what_is_no_fitting_tensor_is_named(self, own_errors: None) -> None:
        tensors = self.draw(7, 7)
        for name in {n for names in self.step_tensors for n in names}:
            with pytest.raises(TypeError, match=f"`{name}` must be a torch.Tensor, got a list"):
                self.call(tensors | {name: [1.0]})
            with pytest.raises(ValueError, match=f"`{name}`"):
                self.call(tensors | {name: tensors[name][..., 0, :]})
            with pytest.raises(ValueError, match=r"must not be empty|must have the shape"):
                self.call(tensors | {name: tensors[name][..., :0, :]})
        with pytest.raises(ValueError, match=r"`key_mask` must be a bool tensor .* \(3, 7\)"):
            self.call(tensors, key_mask=torch.ones(BATCH, 8, dtype=torch.bool))
        with pytest.raises(ValueError, match="must divide"):
            self.call(tensors | {"v": tensors["v"][:, [0, 0, 0]]} | self.odd_keys(tensors))

    def odd_keys(self, tensors: Tensors) -> Tensors:
        """Return keys of three heads, where the op takes keys."""
        return {"k": tensors["k"][:, [0, 0, 0]]} if "k" in tensors else {}

    @pytest.mark.gpu
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_cuda_equals_the_loops(self, dtype: torch.dtype) -> None:
        for name, case in self.all_cases():
            if self.positional and case[0] > case[1]:
                continue
            tensors, options = self.problem(case)
            cuda = {n: x.detach().to("cuda", dtype).requires_grad_() for n, x in tensors.items()}
            mask = options["key_mask"]
            options["key_mask"] = None if mask is None else mask.cuda()
            values = with_gradients(self.attend(cuda, **options), cuda)
            tolerance = 1e-10 if dtype == torch.float64 else 2e-4
            for key, exact in self.expected(case).items():
                torch.testing.assert_close(
                    values[key].cpu().double(),
                    exact,
                    rtol=tolerance,
                    atol=tolerance,
                    msg=lambda m, n=f"{name}, {key}": f"{n}: {m}",
                )


class DotContract(AttentionOpContract):
    """Ops that are given queries and keys."""

    width = 5

    def draw(self, num_queries: int, num_keys: int) -> Tensors:
        generator = torch.Generator().manual_seed(100 * num_queries + num_keys)
        return {
            "q": normal(generator, BATCH, NUM_HEADS, num_queries, self.width),
            "k": normal(generator, BATCH, NUM_KV_HEADS, num_keys, self.width),
            "v": normal(generator, BATCH, NUM_KV_HEADS, num_keys, VALUE_WIDTH),
        }

    def repeated(self, tensors: Tensors) -> Tensors:
        return tensors | {n: tensors[n].repeat_interleave(GROUP, 1) for n in ("k", "v")}
