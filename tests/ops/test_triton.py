"""The Triton kernels of attention: in the interpreter, on a GPU, and what they refuse."""

import dataclasses
import inspect
import re
from importlib.util import find_spec
from typing import Any, ClassVar

import pytest
import torch

from mlrforecast._core.errors import BackendError
from mlrforecast.ops import explain_backend, mlr_attention
from mlrforecast.ops.attention import dispatch, triton
from mlrforecast.ops.attention._case import AttentionCase
from tests.contracts.attention_cases import CASES as CONTRACT
from tests.contracts.attention_contract import AttentionContract, unpack
from tests.ops import triton_cases
from tests.ops.interpreter import run_interpreted
from tests.ops.triton_cases import CASES, CHECKS, TOLERANCES

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


def not_served(case: dict[str, Any]) -> bool:
    """Whether the kernels would not take a case even on a GPU."""
    inputs, options = unpack(case)
    with pytest.MonkeyPatch.context() as patch:
        on_any_gpu(patch)
        found = explain_backend(*(x.detach().float() for x in inputs), **options)
    return "triton" in found.refused


def on_any_gpu(patch: pytest.MonkeyPatch) -> None:
    """Let the kernels' checks take a CPU for a GPU."""
    patch.setattr(triton, "AVAILABLE", True)
    patch.setattr(triton, "_device_refusal", lambda case: None)


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    """Run all cases in Triton's interpreter, which must be chosen before Triton is imported."""
    return run_interpreted(triton_cases.__name__)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_kernels_equal_float64(name: str, interpreted: dict[str, Any]) -> None:
    result = interpreted[name]
    assert isinstance(result, float), result
    assert result <= TOLERANCES[CASES[name].get("dtype", "float64")]


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_the_operator(name: str, interpreted: dict[str, Any]) -> None:
    assert interpreted[name] == "ok", interpreted[name]


def call(
    length: int = 12, width: int = 8, dtype: torch.dtype = torch.float32, **options: Any
) -> str:
    """Return why the kernels do not take a call."""
    q, k, v = torch.ones(3, 1, 2, length, width, dtype=dtype)
    ranks = (width - 4, 2, 2)
    with pytest.raises(BackendError) as found:
        mlr_attention(q, k, v, ranks=ranks, backend="triton", **options)
    return str(found.value)


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    on_any_gpu(monkeypatch)


def test_it_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "AVAILABLE", True)
    assert "runs on a GPU of NVIDIA, and the tensors are on cpu" in call()
    monkeypatch.setattr(triton, "AVAILABLE", False)
    assert "it needs the package triton" in call()


@pytest.mark.parametrize(
    ("capability", "shared", "width", "message"),
    [
        ((7, 5), 64 * 1024, 8, r"compute capability 8.0, and this one has \(7, 5\)"),
        ((8, 9), 99 * 1024, 200, "heads of 200 columns want more shared memory"),
        ((8, 9), 99 * 1024, 128, None),
        ((9, 0), 227 * 1024, 256, None),
    ],
)
def test_it_needs_a_gpu_that_is_able(
    capability: tuple[int, int],
    shared: int,
    width: int,
    message: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.ones(1, 1, 4, width, dtype=torch.float16)
    inputs, options = [x, x, x], {"ranks": (width - 4, 4)}
    case = dataclasses.replace(case_of(inputs, options), device=torch.device("cuda"))
    monkeypatch.setattr(triton, "abilities", lambda device: (capability, shared))
    reason = triton._device_refusal(case)
    assert (reason is None) if message is None else re.search(message, reason or "")


def case_of(inputs: list[torch.Tensor], options: dict[str, Any]) -> AttentionCase:
    """Return a checked call."""
    signature = inspect.signature(mlr_attention).bind(*inputs, **options)
    signature.apply_defaults()
    arguments = {name: x for name, x in signature.arguments.items() if name != "backend"}
    return dispatch.build_case(**arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"link": "identity"}, "softmax attention only"),
        ({"window": 3}, "the coarsest has a window"),
        ({"block_sizes": (None, 5, 2)}, "needs nested blocks"),
        ({"block_sizes": (8, 4, 2), "unshared": "zero"}, "attended with score 0"),
        ({"block_ids": torch.arange(12).remainder(2).expand(3, 12)}, "blocks without gaps"),
        ({"width": 300}, "heads of at most 256 columns, got 300"),
        ({"dtype": torch.float64}, "no float64"),
    ],
)
def test_refusals(options: dict[str, Any], message: str, on_a_gpu: None) -> None:
    assert message in call(**options)


def test_auto_takes_it_on_a_gpu_in_half_precision(
    on_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = dispatch.build_case

    def build_on_gpu(*args: Any, **options: Any) -> AttentionCase:
        return dataclasses.replace(build(*args, **options), device=torch.device("cuda"))

    monkeypatch.setattr(dispatch, "build_case", build_on_gpu)
    x = torch.empty(1, 2, 512, 8)
    named = {
        dtype: explain_backend(*[x.to(dtype)] * 3, ranks=(4, 2, 2)).name
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    }
    assert named == {
        torch.bfloat16: "triton",
        torch.float16: "triton",
        torch.float32: "expanded",
        torch.float64: "expanded",
    }
    rough = x.bfloat16()
    assert explain_backend(rough[:, :, -9:], rough, rough, ranks=(4, 2, 2)).name == "expanded"
    assert explain_backend(rough[:, :, -99:], rough, rough, ranks=(4, 2, 2)).name == "triton"
    trained = x.bfloat16().requires_grad_()
    assert explain_backend(trained, trained, trained, ranks=(4, 2, 2)).name == "triton"


class TestOnGpu:
    """What the contract of all backends asks of a GPU; the rest of it the interpreter serves."""

    backend = "triton"
    call = AttentionContract.call
    check_error_budget = AttentionContract.check_error_budget
    refuses: ClassVar[dict[str, str]] = {
        name: "" for name, case in CONTRACT.items() if not_served(case)
    }
    test_cuda_equals_the_loops = AttentionContract.test_cuda_equals_the_loops
    test_cuda_error_budget = AttentionContract.test_cuda_error_budget
