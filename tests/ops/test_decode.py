"""The fused step of a generation: its kernel against the loop, and what it refuses."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch

from mlrforecast._core.errors import BackendError
from mlrforecast.ops import mlr_step_attention
from mlrforecast.ops.attention import decode
from tests.ops import decode_cases
from tests.ops.decode_cases import CASES, CHECKS, LEVELS, caches, draw, error, exact, tolerance
from tests.ops.interpreter import run_interpreted

HAS_TRITON = find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    """Run all cases in Triton's interpreter, which must be chosen before Triton is imported."""
    return run_interpreted(decode_cases.__name__)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_equals_the_loop(name: str, interpreted: dict[str, Any]) -> None:
    result = interpreted[name]
    assert isinstance(result, float), result
    assert result <= tolerance(CASES[name])


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_the_operator(name: str, interpreted: dict[str, Any]) -> None:
    assert interpreted[name] == "ok", interpreted[name]


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "bound"),
    [(torch.float32, 2e-6), (torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)],
)
def test_the_kernel_on_a_gpu(dtype: torch.dtype, bound: float) -> None:
    found = {}
    for name, case in CASES.items():
        found[name] = error(case | {"dtype": dtype, "value_dtype": dtype}, "cuda")
    assert {name: size for name, size in found.items() if not size <= bound} == {}


@pytest.mark.gpu
@torch.no_grad()
def test_auto_takes_the_kernel_on_a_gpu_and_compiles_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mlrforecast.ops.attention import _decode_kernels

    monkeypatch.setattr(decode, "_num_splits", lambda *sizes: 2)
    compiled = set()
    for length in range(100, 164):
        drawn = draw({"levels": "nested", "length": length, "dtype": torch.bfloat16}, "cuda")
        keys, v, _ = caches(drawn, "exact")
        sizes = LEVELS["nested"]["block_sizes"]
        mlr_step_attention(drawn["q"], keys, v, length=length, block_sizes=sizes)
        (known, *_), *_ = _decode_kernels.attend.device_caches.values()
        compiled.add(len(known))
    assert len(compiled) == 1


def arguments(length: int = 9, num_queries: int = 1, **changes: Any) -> dict[str, Any]:
    drawn = draw({"levels": "not-nested", "length": length, "dtype": torch.float32})
    keys, v, _ = caches(drawn, "longer")
    q = drawn["q"].expand(-1, -1, num_queries, -1)
    return {
        "q": q,
        "keys": keys,
        "v": v,
        "length": length,
        "block_sizes": LEVELS["not-nested"]["block_sizes"],
    } | changes


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel's checks pass a CPU, as in the interpreter."""
    monkeypatch.setattr(decode, "AVAILABLE", True)
    monkeypatch.setattr(decode, "INTERPRETED", True)


def step(**options: Any) -> torch.Tensor:
    positional = [options.pop(name) for name in ("q", "keys", "v")]
    return mlr_step_attention(*positional, **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_queries": 2}, "it attends from one newest step, and there are 2"),
        ({"v": torch.zeros(2, 1, 9, 300)}, "at most 256 columns, got 300"),
        ({"v": torch.zeros(2, 1, 9, 4).requires_grad_()}, "it has no gradients"),
        ({"q": torch.zeros(2, 1, 1, 9, dtype=torch.float64)}, "of one dtype, and `q` is .*float64"),
    ],
)
@pytest.mark.usefixtures("served")
def test_what_the_kernel_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BackendError, match=f"'triton' cannot serve this call: .*{message}"):
        step(**arguments(**changes), backend="triton")


def test_it_refuses_a_cpu_and_says_so() -> None:
    reason = "it runs on a GPU" if HAS_TRITON else "it needs the package triton"
    with pytest.raises(BackendError, match=reason):
        step(**arguments(), backend="triton")


def test_it_refuses_to_run_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "AVAILABLE", False)
    with pytest.raises(BackendError, match="it needs the package triton"):
        step(**arguments(), backend="triton")


@pytest.mark.usefixtures("served")
def test_float64_and_integers_are_refused_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    given = arguments()
    q, keys, v = given["q"].double(), [k.double() for k in given["keys"]], given["v"].double()
    assert decode.decode_refusal(q, keys, v) is None
    monkeypatch.setattr(decode, "INTERPRETED", False)
    monkeypatch.setattr(torch.Tensor, "device", torch.device("cuda"))
    assert "float16, bfloat16 and float32" in str(decode.decode_refusal(q, keys, v))


@pytest.mark.usefixtures("served")
def test_without_recorded_gradients_an_input_may_require_them() -> None:
    given = arguments()
    q, keys, v = given["q"], given["keys"], given["v"].requires_grad_()
    with torch.no_grad():
        assert decode.decode_refusal(q, keys, v) is None
    assert decode.decode_refusal(q, keys, v) is not None


def test_auto_takes_the_reference_on_a_cpu_with_its_gradients() -> None:
    given = arguments()
    given["v"].requires_grad_()
    out, plain = step(**given), step(**given, backend="reference")
    assert torch.equal(out, plain)
    assert torch.autograd.grad(out.sum(), given["v"])[0].abs().sum() > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": "cuda"}, "`backend` must be one of auto, reference, triton; got 'cuda'"),
        ({"unshared": "all"}, "`unshared` must be one of mask, zero; got 'all'"),
        ({"key_mask": torch.ones(2, 8, dtype=torch.bool)}, "`key_mask` must be a bool tensor"),
        ({"q": torch.zeros(3, 1, 1, 9)}, "`q` and `v` must be of one batch, got 3 and 2"),
    ],
)
@pytest.mark.usefixtures("own_errors")
def test_bad_arguments(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        step(**(arguments() | changes))


@pytest.mark.parametrize("kind", ["longer", "spare"])
def test_the_reference_takes_what_caches_hold(kind: str) -> None:
    drawn = draw({"levels": "window", "length": 70})
    keys, v, _ = caches(drawn, kind)
    options = {name: value for name, value in drawn["options"].items() if name != "ranks"}
    out = mlr_step_attention(drawn["q"], keys, v, length=70, **options)
    torch.testing.assert_close(out, exact(drawn), rtol=0, atol=1e-12)


def test_a_level_counts_for_no_more_than_it_kept() -> None:
    begins = decode._begins(100, 60, [60, 20, 4], [0, 32, 8], None)
    assert begins == [0, 56, 56]
    assert decode._begins(100, 60, [10, 20, 4], [0, 32, 8], 70) == [50, 56, 56]


def test_the_numbers_of_a_step_are_never_compiled_in() -> None:
    odd = decode._odd(range(100))
    assert all(number % 16 and number != 1 for number in odd)
    assert [(number - 3) >> 1 for number in odd] == list(range(100))


@pytest.mark.parametrize(
    ("programs", "tiles", "low", "high"),
    [(16, 512, 14, 17), (32, 128, 7, 9), (1, 512, 110, 128), (1, 4, 2, 2), (1, 1, 1, 1)],
)
def test_a_single_request_fills_the_gpu(programs: int, tiles: int, low: int, high: int) -> None:
    assert low <= decode._num_splits(programs, tiles, 2 * 132) <= high
    assert decode._num_splits(4 * 132 * 2, tiles, 2 * 132) == 1
