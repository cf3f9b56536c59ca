from typing import Any

import pytest
import torch
from torch import Tensor

from mlrforecast._core.errors import BackendError
from mlrforecast.ops import (
    explain_backend,
    mlr_attention,
    mlr_scores,
    mlr_window_attention,
    standard_attention,
)


def tensors(length: int = 12, width: int = 8, value_width: int = 4, **kwargs: Any) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    widths = (width, width, value_width)
    return [torch.randn(2, 2, length, w, generator=generator).to(**kwargs) for w in widths]


IDS = torch.arange(12).expand(3, -1) // 4
BOTH = {"block_ids": IDS, "query_block_ids": IDS}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": (4, 2)}, r"must sum to the head width R=8, got \(4, 2\) \(sum 6\)"),
        ({"unshared": "drop"}, "`unshared` must be one of mask, zero; got 'drop'"),
        ({"link": "relu"}, "`link` must be one of softmax, identity; got 'relu'"),
        ({"dropout_p": 1.0}, r"`dropout_p` must lie in \[0, 1\), got 1.0"),
        ({"offset": -2}, "`offset` must be at least 0"),
        ({"backend": "cuda"}, "one of auto, expanded, hierarchical, reference, triton; got 'cuda'"),
        ({"key_mask": torch.ones(2, 11, dtype=torch.bool)}, r"shape \(B, S\) = \(2, 12\)"),
        ({"key_mask": torch.ones(2, 12)}, "bool tensor"),
        ({"window": -1}, "`window` must be at least 0, got -1"),
        ({"block_ids": IDS, "block_sizes": (None, 4, 2)}, "only one"),
        ({"block_ids": IDS, "offset": 3}, "`offset` has no meaning with `block_ids`, got 3"),
        ({"block_ids": IDS[:, :11]}, r"shape \(num_levels, S\) = \(3, 12\) .* got \(3, 11\)"),
        ({"block_ids": IDS.expand(3, 3, 12)}, "one for each of the B=2 sequences, got 3"),
        ({"query_block_ids": IDS}, "`query_block_ids` .* got them without `block_ids`"),
        (BOTH | {"window": 2}, "`query_block_ids` .* got them with window=2"),
        (BOTH | {"causal": True}, "`causal` needs queries and keys of one sequence"),
        (BOTH | {"query_block_ids": IDS[:, 1:]}, r"\(num_levels, T\) = \(3, 12\) .*\(3, 11\)"),
        (BOTH | {"query_block_ids": IDS.float()}, r"must be integers .* got torch\.float32"),
        (BOTH | {"query_block_ids": IDS > 0}, r"must be integers .* got torch\.bool"),
        (BOTH | {"query_block_ids": IDS.expand(3, 3, 12)}, "`query_block_ids` must hold .*, got 3"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, own_errors: None) -> None:
    arguments = {"ranks": (4, 2, 2)} | options
    with pytest.raises(ValueError, match=message):
        mlr_attention(*tensors(), **arguments)
    with pytest.raises(ValueError, match=message):
        explain_backend(*tensors(), **arguments)


def test_bad_shapes(own_errors: None) -> None:
    q, k, v = tensors()
    for attend in (standard_attention, lambda *x: mlr_attention(*x, ranks=(4, 4))):
        with pytest.raises(ValueError, match=r"`q` must have the shape \(B, H, T, R\)"):
            attend(q, k[:, :, 1:], v)
        with pytest.raises(ValueError, match=r"`q` must have the shape \(B, H, T, R\)"):
            attend(q[0], k[0], v[0])
        with pytest.raises(ValueError, match="must not be empty"):
            attend(q[:, :, :0], k[:, :, :0], v[:, :, :0])
        with pytest.raises(TypeError, match="one floating-point dtype"):
            attend(q, k, v.double())


def test_more_queries_than_keys_need_block_ids_of_both(own_errors: None) -> None:
    q, k, v = tensors()
    k, v = k[:, :, 1:], v[:, :, 1:]
    for call in (mlr_attention, explain_backend):
        with pytest.raises(ValueError, match=r"T <= S, got T=12 and S=11\. .*`query_block_ids`"):
            call(q, k, v, ranks=(4, 2, 2))
    with pytest.raises(ValueError, match="T <= S, got T=12 and S=11"):
        mlr_scores(q, k, ranks=(4, 2, 2))
    with pytest.raises(ValueError, match="must divide those of `q`, H=2"):
        mlr_attention(q, *(x[:, [0, 0, 0]] for x in (k, v)), ranks=(4, 2, 2))


def test_wrong_types_are_named(own_errors: None) -> None:
    for options, name in (
        ({"block_ids": IDS.tolist()}, "block_ids"),
        ({"block_ids": IDS, "query_block_ids": IDS.tolist()}, "query_block_ids"),
    ):
        with pytest.raises(TypeError, match=f"`{name}` must be a torch.Tensor, got a list"):
            mlr_attention(*tensors(), ranks=(4, 2, 2), **options)
    for window in (None, 2.0, True):
        with pytest.raises(TypeError, match=f"`window` must be an integer, got {window}"):
            mlr_window_attention(*tensors(), ranks=(4, 2, 2), window=window)


def test_the_window_is_an_option_of_its_own_op() -> None:
    options = {"ranks": (4, 2, 2), "causal": True, "divide_by_shared_levels": True}
    out = mlr_window_attention(*tensors(), window=3, **options)
    assert torch.equal(out, mlr_attention(*tensors(), window=3, **options))
    assert not torch.equal(out, mlr_attention(*tensors(), **options))


def test_scores_check_the_width() -> None:
    q, k, _ = tensors()
    with pytest.raises(ValueError, match="must sum to the head width R=8"):
        mlr_scores(q, k, ranks=(4,))


def test_unknown_option() -> None:
    with pytest.raises(TypeError, match="rank"):
        explain_backend(*tensors(), rank=(4, 4))


@pytest.mark.parametrize(
    ("options", "backend", "message"),
    [
        ({"dropout_p": 0.1}, "hierarchical", "no dropout, and `dropout_p` is 0.1"),
        ({"link": "identity"}, "hierarchical", "softmax attention only"),
        ({"link": "identity"}, "expanded", "softmax attention only"),
        ({"block_sizes": (None, 5, 2)}, "hierarchical", r"nested blocks, .*=\(None, 5, 2\)"),
        ({"block_sizes": (8, 4, 2), "unshared": "zero"}, "hierarchical", "never meets them"),
    ],
)
def test_a_named_backend_raises_instead_of_falling_back(
    options: dict[str, Any], backend: Any, message: str
) -> None:
    arguments = {"ranks": (4, 2, 2)} | options
    with pytest.raises(BackendError, match=message):
        mlr_attention(*tensors(), backend=backend, **arguments)
    choice = explain_backend(*tensors(), **arguments)
    assert choice.name != backend
    assert backend in choice.refused


def test_blocks_that_cover_the_sequence_count_as_whole() -> None:
    """Sizes 40 and 30 do not nest, but over 12 steps both are the whole sequence."""
    choice = explain_backend(*tensors(), ranks=(4, 2, 2), block_sizes=(40, 30, 4), unshared="zero")
    assert set(choice.refused) <= {"triton"}


@pytest.mark.parametrize(
    ("length", "options", "expected"),
    [
        (64, {}, "reference"),
        (512, {}, "hierarchical"),
        (512, {"link": "identity"}, "reference"),
        (512, {"block_sizes": (None, 300, 200)}, "expanded"),
        (512, {"block_sizes": (None, 50, 3)}, "reference"),
    ],
)
def test_choice_on_the_cpu(length: int, options: dict[str, Any], expected: str) -> None:
    choice = explain_backend(*tensors(length), **({"ranks": (4, 2, 2)} | options))
    assert choice.name == expected
    assert choice.reason


@pytest.mark.parametrize(
    ("num_queries", "expected"), [(512, "hierarchical"), (100, "expanded"), (4, "reference")]
)
def test_choice_for_the_last_queries(num_queries: int, expected: str) -> None:
    q, k, v = tensors(512)
    choice = explain_backend(q[:, :, -num_queries:], k, v, ranks=(4, 2, 2), causal=True)
    assert choice.name == expected


def test_every_refusal_of_a_partition_is_explained() -> None:
    """The reasons are those of the call: nothing is said of what a call does not have."""
    options = {"ranks": (4, 2, 2), "block_ids": torch.arange(12).expand(2, 3, 12) % 5}
    reason = "it needs blocks on every level, and the coarsest has a window"
    refused = explain_backend(*tensors(), window=2, **options).refused
    assert {name: refused[name] for name in ("expanded", "hierarchical")} == {
        "expanded": reason,
        "hierarchical": reason,
    }
    reason = "it needs one partition for all sequences, and `block_ids` give each its own"
    refused = explain_backend(*tensors(), **options).refused
    assert refused["hierarchical"] == reason
    assert "expanded" not in refused


@pytest.mark.parametrize("backend", ["auto", "reference", "expanded", "hierarchical"])
def test_explanation_of_a_backend_asked_for(backend: Any) -> None:
    choice = explain_backend(*tensors(), ranks=(4, 2, 2), backend=backend)
    assert backend in ("auto", choice.name)


@pytest.mark.parametrize("backend", ["reference", "expanded"])
def test_dropout_keeps_the_mean(backend: Any, seeded: None) -> None:
    """Values of one give the sum of the weights: 1 on average, and not 1 in each row."""
    q, k, v = tensors(length=64)
    out = mlr_attention(q, k, torch.ones_like(v), ranks=(4, 2, 2), dropout_p=0.5, backend=backend)
    assert (out - 1).abs().max() > 0.1
    assert out.mean().item() == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("backend", ["reference", "expanded", "hierarchical"])
def test_follows_autocast(backend: Any) -> None:
    """Under autocast, a float32 q (from a norm) and a bfloat16 v (from a linear map) meet."""
    q, k, v = tensors()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = mlr_attention(q, k, v.bfloat16(), ranks=(4, 2, 2), backend=backend)
        standard = standard_attention(q, k, v.bfloat16())
    assert out.dtype == standard.dtype == torch.bfloat16
    exact = mlr_attention(q, k, v, ranks=(4, 2, 2), backend="reference")
    torch.testing.assert_close(out.float(), exact, rtol=0.05, atol=0.05)


def test_standard_attention_without_keys_is_zero() -> None:
    inputs = [x.requires_grad_() for x in tensors(dtype=torch.float64)]
    key_mask = torch.tensor([[False] * 12, [True] * 12])
    out = standard_attention(*inputs, causal=True, key_mask=key_mask)
    gradients = torch.autograd.grad(out.square().sum(), inputs)
    assert (out[0] == 0).all()
    assert all((grad[0] == 0).all() and grad.isfinite().all() for grad in gradients)


def test_standard_attention_is_the_formula() -> None:
    q, k, v = tensors(dtype=torch.float64)
    scores = (q @ k.mT) * 0.3
    future = torch.ones(12, 12, dtype=torch.bool).triu(1)
    exact = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
    torch.testing.assert_close(standard_attention(q, k, v, causal=True, scale=0.3), exact)


@pytest.mark.parametrize("backend", ["reference", "expanded", "hierarchical"])
def test_strided_inputs(backend: Any) -> None:
    """Heads cut out of (B, T, H * R) arrive as transposed views."""
    q, k, v = tensors(dtype=torch.float64)
    views = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    out = mlr_attention(*views, ranks=(4, 2, 2), backend=backend)
    torch.testing.assert_close(out, mlr_attention(q, k, v, ranks=(4, 2, 2), backend="reference"))


@pytest.mark.compile
@pytest.mark.parametrize("length", [30, 150])
def test_compiles_as_one_graph(length: int) -> None:
    """The matrix of a short sequence, and the operator of a longer one."""
    q, k, v = tensors(length)
    options = {"ranks": (4, 2, 2), "causal": True}
    compiled = torch.compile(
        lambda *x: mlr_attention(*x, **options), backend="aot_eager", fullgraph=True
    )
    torch.testing.assert_close(compiled(q, k, v), mlr_attention(q, k, v, **options))


@pytest.mark.compile
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("backend", ["auto", "reference", "expanded", "hierarchical"])
def test_compiled_code_knows_blocks_that_do_not_divide_the_length(backend: str) -> None:
    """Inductor's loops over `steps // 12` of 32 steps ended after 24."""
    q, k, v = tensors(32)
    options: dict[str, Any] = {"ranks": (4, 2, 2), "block_sizes": (48, 24, 12), "causal": True}
    compiled = torch.compile(lambda *x: mlr_attention(*x, backend=backend, **options))
    expected = mlr_attention(q, k, v, backend="reference", **options)
    torch.testing.assert_close(compiled(q, k, v), expected)


@pytest.mark.compile
@pytest.mark.parametrize("kind", ["shared", "batched", "window", "another sequence"])
def test_compiles_any_partition_as_one_graph_for_any_length(kind: str) -> None:
    torch._dynamo.reset()  # every kind counts its own compilations

    def attend(*x: Tensor, **options: Any) -> Tensor:
        return mlr_attention(*x, ranks=(4, 4), causal=kind in ("shared", "batched"), **options)

    compiled = torch.compile(attend, dynamic=True, fullgraph=True, backend="eager")
    for length in (9, 150):
        q, k, v = tensors(length)
        ids = torch.stack([torch.zeros(length), torch.arange(length) // 3]).long()
        options = {
            "shared": {"block_ids": ids},
            "batched": {"block_ids": ids.expand(2, -1, -1)},
            "window": {"window": 2},
            "another sequence": {"block_ids": ids, "query_block_ids": ids[:, :5]},
        }[kind]
        q = q[:, :, :5] if kind == "another sequence" else q
        torch.testing.assert_close(compiled(q, k, v, **options), attend(q, k, v, **options))
