"""Multi-level attention by the Triton kernels, in Triton's interpreter, against float64.

Triton reads ``TRITON_INTERPRET`` when it is imported, so this runs in a process of its own. It
prints the largest error of each case.
"""

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mlrforecast.ops import mlr_attention
from mlrforecast.ops.attention import _launches
from tests.contracts.attention_cases import CASES as CONTRACT
from tests.contracts.attention_contract import expected, unpack, with_gradients

# Of the cases that every backend must serve, those that take no more than seconds here.
NAMES = (
    "T1", "T1-masked", "T2-causal", "T7-offset", "T63-shared", "T64-no-whole-level",
    "T64-wide-values", "T65-ids-parted", "T33-one-key-head", "T33-two-key-heads", "T1-ids",
    "T37-ids", "T37-ids-causal-shared", "T23-ids-batch", "T23-ids-batch-shared", "T1-of-37",
    "T1-of-37-masked-shared", "T5-of-37", "T5-of-37-bidirectional", "T5-of-37-ids",
    "T7-of-23-ids-batch",
)  # fmt: skip
LENGTHS = (1, 7, 63, 64, 65, 127, 129, 321)
DTYPES = {"float32": torch.float32, "float16": torch.float16}
TOLERANCES = {"float64": 1e-6, "float32": 2e-6, "float16": 4e-3}

CASES: dict[str, dict[str, Any]] = {name: {"contract": name} for name in NAMES}
CASES |= {
    f"{name}-described": {"contract": name, "described": True}
    for name in ("T64-wide-values", "T5-of-37")
}
CASES |= {
    f"{length}-{dtype}-{'causal' if causal else 'bidirectional'}": {
        "length": length,
        "dtype": dtype,
        "causal": causal,
    }
    for length in LENGTHS
    for dtype, causal in (("float32", True), ("float16", False))
}
CASES |= {
    "129-one-level": {"length": 129, "dtype": "float32", "causal": True, "ranks": (8,)},
    # Blocks begin at tiles of keys, but not of the queries, which are the last steps.
    "37-of-64": {"length": 64, "num_queries": 37, "dtype": "float32", "causal": True},
}
# Blocks are whole tiles: all of them in one loop, each with the levels that it shares.
CASES |= {
    f"{length}-flat-{'causal' if causal else 'bidirectional'}": {
        "length": length,
        "dtype": "float32",
        "causal": causal,
        "ranks": (8, 4, 4),
    }
    for length, causal in ((128, True), (128, False), (100, True))
}


def main() -> None:
    """Run every case and check, and print what came of each."""
    found: dict[str, Any] = {}
    for name, run in [(name, lambda case=case: error(case)) for name, case in CASES.items()]:
        found[name] = outcome(run)
    for check in CHECKS:
        found[check.__name__] = outcome(check)
    json.dump(found, sys.stdout)


def outcome(run: Callable[[], Any]) -> Any:
    """Return what a call returns, "ok" for nothing, or where it failed."""
    try:
        result = run()
    except Exception:
        return traceback.format_exc()[-1500:]
    return "ok" if result is None else result


def error(case: dict[str, Any]) -> float:
    """Return the largest error of the output and the gradients."""
    with_engine = _launches._has_copy_engine
    if case.get("described"):
        _launches._has_copy_engine = lambda device: True
    usual = _launches._INTERPRETED
    try:
        if "contract" in case:
            inputs, options = unpack(CONTRACT[case["contract"]])
            exact = expected(case["contract"])
        else:
            # A larger tile, for the number of tiles is what takes time here.
            size = 64 if case["length"] > 128 or case["length"] == 127 else 16
            _launches._INTERPRETED = usual._replace(rows=size, columns=size)
            inputs, options, exact = drawn(case)
        out = mlr_attention(*inputs, backend="triton", **options)
        got = with_gradients(out, inputs)
    finally:
        _launches._has_copy_engine, _launches._INTERPRETED = with_engine, usual
    return max(
        float((value.double() - truth).norm() / max(truth.norm(), exact[0].norm()))
        for value, truth in zip(got, exact, strict=True)
    )


def drawn(case: dict[str, Any]) -> tuple[list[Tensor], dict[str, Any], list[Tensor]]:
    """Return inputs, options and what float64 makes of them."""
    generator = torch.Generator().manual_seed(case["length"])
    ranks = case.get("ranks", (6, 3, 2, 1))
    shape = (1, 1, case["length"], sum(ranks))
    rough = [
        torch.randn(shape, generator=generator).to(DTYPES[case["dtype"]]).requires_grad_()
        for _ in range(3)
    ]
    options = {"ranks": ranks, "causal": case["causal"], "divide_by_shared_levels": True}
    if case["length"] == 100:
        options["block_sizes"] = (None, 64, 32)
    rough[0] = rough[0].detach()[:, :, -case.get("num_queries", case["length"]) :].requires_grad_()
    exact = [x.detach().double().requires_grad_() for x in rough]
    out = mlr_attention(*exact, backend="reference", **options)
    return rough, options, with_gradients(out, exact)


def problem(length: int = 20, **options: Any) -> tuple[list[Tensor], dict[str, Any]]:
    """Return a small problem of two levels."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, 2, length, 8, generator=generator).requires_grad_() for _ in range(3)]
    return inputs, {"ranks": (5, 3), "backend": "triton"} | options


def dropout_is_drawn_by_place_and_has_its_gradient() -> None:
    """One seed gives one mask, which the gradient knows; the mean of the weights stays."""
    (q, k, _), options = problem(24, dropout_p=0.3, causal=True)
    v = torch.eye(24).expand(1, 2, 24, 24).clone().requires_grad_()
    torch.manual_seed(3)
    weights = mlr_attention(q, k, v, **options)
    torch.manual_seed(3)
    assert torch.equal(weights, mlr_attention(q, k, v, **options))
    torch.manual_seed(4)
    assert not torch.equal(weights, mlr_attention(q, k, v, **options))
    whole = mlr_attention(q, k, v.detach(), ranks=(5, 3), causal=True, backend="reference")
    keep = torch.where(whole > 0, weights / whole, 0).detach().round(decimals=3)
    assert set(keep.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).round(decimals=3).item()}
    share = (keep[whole > 0] == 0).double().mean().item()
    assert 0.25 < share < 0.35, share
    slopes = torch.randn(weights.shape, generator=torch.Generator().manual_seed(1))
    got = torch.autograd.grad(weights, (q, k, v), slopes)
    exact = torch.autograd.grad((whole * (keep > 0) / 0.7) @ v, (q, k, v), slopes)
    for value, truth in zip(got, exact, strict=True):
        torch.testing.assert_close(value, truth, rtol=1e-4, atol=1e-5)


def equal_calls_are_equal_to_the_last_bit() -> None:
    """No sum depends on which program comes first."""
    inputs, options = problem(50, causal=True)
    first, second = (with_gradients(mlr_attention(*inputs, **options), inputs) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def the_operator_passes_the_checks_of_torch() -> None:
    """Fake tensors, schema and autograd registration."""
    (q, k, v), _ = problem()
    arguments = (q, k, v, None, None, None, [5, 3], [0.2, 0.1], [0, 10], 0, [], True, False, 0.0)
    torch.library.opcheck(torch.ops.mlrforecast.mlr_attention, arguments)


def it_compiles_into_one_graph() -> None:
    """Forward and backward; the gradients are those of the call as it is."""
    inputs, options = problem(20, causal=True, block_sizes=(None, 7))
    compiled = torch.compile(
        lambda q, k, v: mlr_attention(q, k, v, **options), fullgraph=True, backend="aot_eager"
    )
    got = with_gradients(compiled(*inputs), inputs)
    for value, truth in zip(
        got, with_gradients(mlr_attention(*inputs, **options), inputs), strict=True
    ):
        torch.testing.assert_close(value, truth)


def it_exports() -> None:
    """As one operator of the graph."""

    class Attend(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return mlr_attention(q, k, v, **options)

    inputs, options = problem(20, causal=True)
    program = torch.export.export(Attend(), tuple(x.detach() for x in inputs))
    graphs = [str(part.graph) for part in program.graph_module.modules() if hasattr(part, "graph")]
    assert any("mlrforecast.mlr_attention" in graph for graph in graphs)
    torch.testing.assert_close(program.module()(*inputs), mlr_attention(*inputs, **options))


def a_checkpoint_gives_the_same_gradients() -> None:
    """What is computed again is the same, dropout included."""
    inputs, options = problem(20, dropout_p=0.2)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return mlr_attention(q, k, v, **options)

    torch.manual_seed(5)
    plain = with_gradients(attend(*inputs), inputs)
    torch.manual_seed(5)
    again = with_gradients(checkpoint(attend, *inputs, use_reentrant=False), inputs)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


def a_second_derivative_raises() -> None:
    """It is never silently missing."""
    inputs, options = problem()
    out = mlr_attention(*inputs, **options)
    (slope,) = torch.autograd.grad((out**2).sum(), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        slope.sum().backward()


def no_buffer_of_all_pairs_is_made() -> None:
    """Everything that is allocated grows with T, not with T x T."""
    sizes: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            for x in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(x, Tensor):
                    sizes.append(x.numel())
            return result

    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, 1, 300, 4, generator=generator).requires_grad_() for _ in range(3)]
    usual = _launches._INTERPRETED
    _launches._INTERPRETED = usual._replace(rows=64, columns=64)
    try:
        with Watch():
            mlr_attention(*inputs, ranks=(2, 2), causal=True, backend="triton").sum().backward()
    finally:
        _launches._INTERPRETED = usual
    assert max(sizes) < 300 * 60, max(sizes)


CHECKS = (
    dropout_is_drawn_by_place_and_has_its_gradient,
    equal_calls_are_equal_to_the_last_bit,
    the_operator_passes_the_checks_of_torch,
    it_compiles_into_one_graph,
    it_exports,
    a_checkpoint_gives_the_same_gradients,
    a_second_derivative_raises,
    no_buffer_of_all_pairs_is_made,
)

if __name__ == "__main__":
    main()
