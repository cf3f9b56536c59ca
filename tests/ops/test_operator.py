"""The hierarchical backend as one operator of PyTorch: compiled, exported, checkpointed."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mlrforecast.ops import explain_backend, mlr_attention
from tests.contracts.attention_cases import ragged_ids

OPTIONS: dict[str, Any] = {
    "ranks": (4, 2, 2),
    "causal": True,
    "level_scale": (1.0, 0.5, 0.5),
    "divide_by_shared_levels": True,
    "backend": "hierarchical",
}


def tensors(length: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)
    shapes = [(2, 4, length, 8), (2, 2, length, 8), (2, 2, length, 6)]
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor) -> Tensor:
        return mlr_attention(q, k, v, key_mask=key_mask, **OPTIONS)


def arguments(length: int) -> list[Tensor]:
    return [*tensors(length), torch.arange(length).expand(2, -1) % 5 != 2]


def with_gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    return [out.detach(), *torch.autograd.grad(out.square().sum(), inputs[:3])]


def compare(found: Tensor, exact: Tensor, inputs: list[Tensor]) -> None:
    pairs = zip(with_gradients(found, inputs), with_gradients(exact, inputs), strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a, b)


@pytest.mark.compile
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_as_one_graph_with_its_gradients(dynamic: bool) -> None:
    torch._dynamo.reset()
    module = Attention()
    compiled = torch.compile(module, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for length in (33, 150):
        inputs = arguments(length)
        compare(compiled(*inputs), module(*inputs), inputs)


@pytest.mark.compile
def test_is_taken_while_compiling() -> None:
    """A long sequence is no matrix of scores because it is compiled."""
    names = []

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return mlr_attention(q, k, v, ranks=(4, 2, 2), causal=True)

    def keep(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        names.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch._dynamo.reset()
    torch.compile(attend, fullgraph=True, backend=keep)(*tensors(400))
    assert any("hierarchical_attention" in name for name in names)


@pytest.mark.compile
def test_ids_are_refused_while_compiling_with_the_reason() -> None:
    q, k, v = tensors(400)
    reasons: list[str] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, ids: Tensor) -> Tensor:
        refused = explain_backend(q, k, v, ranks=(4, 2, 2), block_ids=ids).refused
        reasons.append(refused["hierarchical"])
        return mlr_attention(q, k, v, ranks=(4, 2, 2), block_ids=ids)

    torch._dynamo.reset()
    torch.compile(attend, fullgraph=True, backend="eager")(q, k, v, ragged_ids(400))
    assert reasons == ["torch.compile cannot trace whether `block_ids` nest without gaps"]


@pytest.mark.compile
def test_exports() -> None:
    inputs = arguments(50)
    program = torch.export.export(Attention(), tuple(inputs))
    compare(program.module()(*inputs), Attention()(*inputs), inputs)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_nothing(reentrant: bool) -> None:
    inputs = arguments(50)
    exact = torch.autograd.grad(Attention()(*inputs).square().sum(), inputs[:3])
    checkpoint(Attention(), *inputs, use_reentrant=reentrant).square().sum().backward()
    for x, grad in zip(inputs, exact, strict=False):
        torch.testing.assert_close(x.grad, grad)


def test_the_schema_and_the_fake_tensors_are_true() -> None:
    q, *others = (x.detach().double() for x in tensors(20))
    q, k, v = (x.requires_grad_() for x in (q, *(x.repeat(1, 2, 1, 1) for x in others)))
    key_mask = torch.arange(20).expand(2, -1) % 3 != 0
    options = ([4, 2, 2], [0, 8, 4], 3, 0.5, True, True)
    torch.library.opcheck(
        torch.ops.mlrforecast.hierarchical_attention.default, (q, k, v, key_mask, None, *options)
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_runs_within_a_graph_of_a_gpu() -> None:
    """A graph that was captured once gives the results of new inputs."""
    inputs = [x.detach().cuda().requires_grad_() for x in tensors(150)]
    found: list[Tensor] = []

    def step() -> None:
        found[:] = with_gradients(mlr_attention(*inputs, **OPTIONS), inputs)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    with torch.no_grad():
        for x in inputs:
            x.mul_(-0.5)
    graph.replay()
    kept = [x.clone() for x in found]
    step()
    for a, b in zip(kept, found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
