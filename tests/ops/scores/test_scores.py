"""The dense scores: against loops, against each other, and their rules."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mlrforecast.ops import (
    MLBTC,
    BlockLevel,
    BlockTensorTrain,
    bilinear_attention,
    bilinear_btt_attention,
    bilinear_btt_scores,
    bilinear_keys,
    bilinear_mlr_attention,
    bilinear_mlr_features,
    bilinear_mlr_scores,
    bilinear_scores,
    btt_matrix,
    dot_scores,
    global_window_scores,
    logit_factor,
    sliding_window_attention,
    standard_attention,
    window_mask,
)
from mlrforecast.ops.matrices import matrices
from mlrforecast.ops.scores.bilinear import is_narrow
from tests.ops.scores import oracle
from tests.ops.scores.attention_op_contract import normal

EXACT = {"rtol": 0, "atol": 1e-11}
LENGTHS = st.integers(1, 20)
D, H, G = 12, 4, 2


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def stacked(score: oracle.RowScores, num_heads: int, num_queries: int) -> Tensor:
    """Call an oracle for every head and query: (B, H, T, S)."""
    rows = [[score(h, t) for t in range(num_queries)] for h in range(num_heads)]
    return torch.stack([torch.stack(head, 1) for head in rows], 1)


def inputs(num_queries: int, num_keys: int) -> tuple[Tensor, Tensor]:
    draw = generator(num_queries)
    return normal(draw, 2, num_queries, D), normal(draw, 2, num_keys, D)


def mlr_weights(heads: int, seed: int = 1) -> list[Tensor]:
    """Levels of 1, 3 and 4 blocks, ranks 3, 2 and 1."""
    draw = generator(seed)
    return [normal(draw, p, D // p, heads * r) for p, r in ((1, 3), (3, 2), (4, 1))]


def softmax_attention(scores: Tensor, v: Tensor) -> Tensor:
    return scores.softmax(-1) @ v.repeat_interleave(scores.shape[1] // v.shape[1], 1)


@given(LENGTHS, LENGTHS)
def test_dot_scores(num_queries: int, num_keys: int) -> None:
    draw = generator(num_queries)
    q, k = normal(draw, 2, H, num_queries, 5), normal(draw, 2, G, num_keys, 5)
    exact = stacked(oracle.dot_rows(q, k, 5**-0.5), H, num_queries)
    torch.testing.assert_close(dot_scores(q, k), exact, **EXACT)
    torch.testing.assert_close(dot_scores(q, k, scale=-3.0), exact * 5**0.5 * -3, **EXACT)


@given(LENGTHS, LENGTHS)
def test_global_window_scores(num_queries: int, num_keys: int) -> None:
    draw = generator(num_queries)
    q, k = normal(draw, 2, H, num_queries, 5), normal(draw, 2, G, num_keys, 5)
    everywhere, near = global_window_scores(q, k, ranks=(3, 2), scales=(2.0, 0.5))
    exact = stacked(oracle.dot_rows(q[..., :3], k[..., :3], 2.0), H, num_queries)
    torch.testing.assert_close(everywhere, exact, **EXACT)
    exact = stacked(oracle.dot_rows(q[..., 3:], k[..., 3:], 0.5), H, num_queries)
    torch.testing.assert_close(near, exact, **EXACT)
    default, _ = global_window_scores(q, k, ranks=(3, 2))
    torch.testing.assert_close(default, everywhere / 2 / 3**0.5, **EXACT)


@given(LENGTHS, LENGTHS, st.integers(0, 25), st.booleans())
def test_window_mask(a: int, b: int, window: int, causal: bool) -> None:
    num_queries, num_keys = min(a, b), max(a, b)
    mask = window_mask(num_queries, num_keys, window=window, causal=causal)
    for t in range(num_queries):
        i = num_keys - num_queries + t
        for j in range(num_keys):
            near = i - window <= j <= (i if causal else i + window)
            assert bool(mask[t, j]) == near


def test_a_causal_window_holds_one_key_more_than_its_length() -> None:
    """The convention of the published code: both ends are included."""
    mask = window_mask(20, 20, window=4, causal=True)
    assert mask.sum(1).tolist() == [1, 2, 3, 4] + [5] * 16


@given(st.integers(1, 40), st.integers(0, 5), st.booleans(), st.booleans())
def test_a_window_over_everything_is_standard(
    length: int, extra: int, causal: bool, masked: bool
) -> None:
    q, k, v = (normal(generator(i), 2, 2, length, 4) for i in range(3))
    options: dict[str, Any] = {"causal": causal, "scale": 0.3}
    if masked:
        options["key_mask"] = torch.rand(2, length, generator=generator(3)) > 0.4
    window = max(0, length - 1 + extra)
    out = sliding_window_attention(q, k, v, window=window, **options)
    torch.testing.assert_close(out, standard_attention(q, k, v, **options), **EXACT)


@given(LENGTHS, LENGTHS, st.booleans(), st.sampled_from(["inverse_sqrt_width", "mup"]))
def test_bilinear_mlr_scores(
    num_queries: int, num_keys: int, divide: bool, logit_scale: Any
) -> None:
    x, context = inputs(num_queries, num_keys)
    weights = mlr_weights(H), mlr_weights(G, seed=2)
    norms = [[1 + normal(generator(i + p), p) / 4 for p in (3, 6, 4)] for i in range(2)]
    options = {"num_heads": H, "logit_scale": logit_scale, "divide_by_num_levels": divide}
    switches = {"mup": logit_scale == "mup", "divide": divide}
    v = normal(generator(9), 2, G, num_keys, 3)
    for given_norms in (None, norms):
        rows = oracle.bilinear_mlr_rows(x, context, weights, given_norms, H, **switches)
        q_norms, k_norms = given_norms or (None, None)
        scores = bilinear_mlr_scores(
            x, context, *weights, q_norms=q_norms, k_norms=k_norms, **options
        )
        torch.testing.assert_close(scores, stacked(rows, H, num_queries), **EXACT)
        out = bilinear_mlr_attention(
            x, context, v, *weights, q_norms=q_norms, k_norms=k_norms, **options
        )
        torch.testing.assert_close(out, softmax_attention(scores, v), **EXACT)


def test_bilinear_mlr_is_a_matrix_of_high_rank() -> None:
    """Without norms it is x M x', M a sum of block-diagonal products, of rank up to sum r p."""
    q_weights, k_weights = mlr_weights(1), mlr_weights(1, seed=2)
    matrix = torch.zeros(D, D, dtype=torch.float64)
    for q, k in zip(q_weights, k_weights, strict=True):
        p, _, r = q.shape
        matrix += torch.block_diag(*(a @ b.T for a, b in zip(q, k, strict=True))) / (r * p) ** 0.5
    x, context = inputs(7, 5)
    scores = bilinear_mlr_scores(x, context, q_weights, k_weights, num_heads=1)
    torch.testing.assert_close(scores[:, 0], x @ matrix @ context.mT, **EXACT)
    assert torch.linalg.matrix_rank(matrix) == min(D, 3 + 6 + 4)


def test_bilinear_mlr_features_run_through_the_blocks_first() -> None:
    x = torch.arange(4.0).reshape(1, 1, 4)
    weight = torch.tensor([[[1.0, 10.0], [0.0, 0.0]], [[1.0, 10.0], [0.0, 0.0]]])
    (features,) = bilinear_mlr_features(x, [weight], num_heads=1)
    assert features.flatten().tolist() == [0.0, 2.0, 0.0, 20.0]


@given(LENGTHS, LENGTHS, st.sampled_from(["inverse_sqrt_width", "mup"]))
def test_bilinear_btt_scores(num_queries: int, num_keys: int, logit_scale: Any) -> None:
    x, context = inputs(num_queries, num_keys)
    draw = generator(3)
    q_weight, k_weight = normal(draw, H * 4, 3, 2 * 2), normal(draw, 2, 6, G * 4 * 2)
    norm = normal(draw, D)
    options = {"num_heads": H, "norm_weight": norm, "logit_scale": logit_scale}
    heads = oracle.btt_matrices(q_weight, k_weight, H)
    scale = 1 / D if logit_scale == "mup" else D**-0.5
    scores = bilinear_btt_scores(x, context, q_weight, k_weight, **options)
    rows = oracle.bilinear_rows(x, context, heads, norm, scale)
    torch.testing.assert_close(scores, stacked(rows, H, num_queries), **EXACT)
    v = normal(draw, 2, G, num_keys, 3)
    out = bilinear_btt_attention(x, context, v, q_weight, k_weight, **options)
    torch.testing.assert_close(out, softmax_attention(scores, v), **EXACT)
    dense = btt_matrix(q_weight, k_weight, num_heads=H).dense().flatten(0, 1)
    torch.testing.assert_close(dense, torch.stack(heads), **EXACT)


def test_btt_has_full_rank_from_one_step_of_the_train() -> None:
    draw = generator(4)
    matrix = btt_matrix(normal(draw, H * 8, 2, 2), normal(draw, 2, 8, H * 8), num_heads=H)
    assert torch.linalg.matrix_rank(matrix.dense()).flatten().tolist() == [16] * H


def test_btt_splits_a_square_unevenly() -> None:
    """The larger factor is the smallest divisor above the root, as in the published code."""
    for width, (a, b) in {16: (2, 8), 24: (4, 6), 64: (4, 16), 256: (8, 32)}.items():
        shapes = {n: s.shape for n, s in BlockTensorTrain.parameter_specs(width, width).items()}
        assert shapes == {"left": (b, a, a), "right": (a, b, b)}


@given(LENGTHS, LENGTHS, st.integers(1, 5))
def test_a_low_rank_matrix_is_the_dot_product_of_projections(
    num_queries: int, num_keys: int, rank: int
) -> None:
    x, context = inputs(num_queries, num_keys)
    draw = generator(rank)
    left, right = normal(draw, H, 1, D, rank), normal(draw, H, 1, D, rank)
    matrix = MLBTC([BlockLevel(right, left)])
    q, k = x[:, None] @ left[:, 0], context[:, None] @ right[:, 0]
    scores = bilinear_scores(x, context, matrix, scale=0.2)
    torch.testing.assert_close(scores, dot_scores(q, k, scale=0.2), **EXACT)
    v = normal(draw, 2, G, num_keys, 3)
    out = bilinear_attention(x, context, v, matrix, scale=0.02)
    expected = standard_attention(q, k, v.repeat_interleave(2, 1), scale=0.02)
    torch.testing.assert_close(out, expected, **EXACT)


@pytest.mark.parametrize("name", list(matrices))
def test_any_structured_matrix_is_x_m_x(name: str) -> None:
    """The dense scores, the fast keys and the formula agree for every family."""
    structure = matrices[name]
    options = {"low_rank": {"rank": 3}, "mlr": {"ranks": (2, 1)}}.get(name, {})
    specs = structure.parameter_specs(D, D, **options)
    tensors = {n: normal(generator(5), H, *spec.shape) / 4 for n, spec in specs.items()}
    matrix = structure.from_parameters(tensors, **options)
    x, context = inputs(5, 7)
    exact = torch.einsum("btd,hde,bse->bhts", x, matrix.dense(), context)
    scores = bilinear_scores(x, context, matrix, scale=1.0)
    torch.testing.assert_close(scores, exact, **EXACT)
    torch.testing.assert_close(bilinear_scores(x, context, matrix), exact / D**0.5, **EXACT)
    norm = normal(generator(6), D)
    keys = bilinear_keys(context, matrix, norm)
    normed = bilinear_scores(x, context, matrix, norm_weight=norm, scale=1.0)
    torch.testing.assert_close(x[:, None] @ keys.mT, normed, **EXACT)


@pytest.mark.parametrize("name", list(matrices))
def test_many_rows_are_multiplied_by_the_matrix_written_out(name: str) -> None:
    """With every gradient, as few rows are by its factors."""
    structure = matrices[name]
    options = {"low_rank": {"rank": 3}, "mlr": {"ranks": (2, 1)}}.get(name, {})
    specs = structure.parameter_specs(D, D, **options)
    tensors = {n: normal(generator(5), H, *spec.shape) for n, spec in specs.items()}
    leaves = [x.requires_grad_() for x in tensors.values()]
    matrix = structure.from_parameters(tensors, **options)
    _, context = inputs(1, 4 * D)
    context.requires_grad_()
    norm = normal(generator(6), D).requires_grad_()
    assert is_narrow(context, matrix)
    few = [bilinear_keys(part, matrix, norm) for part in context.split(5, 1)]
    assert not is_narrow(context[:, :5], matrix)
    many = bilinear_keys(context, matrix, norm)
    torch.testing.assert_close(many, torch.cat(few, 2), **EXACT)
    weights = normal(generator(7), *many.shape)
    grads = [
        torch.autograd.grad((keys * weights).sum(), [context, norm, *leaves], retain_graph=True)
        for keys in (many, torch.cat(few, 2))
    ]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-10)


def test_many_rows_are_projected_to_all_levels_in_one_product() -> None:
    """With every gradient, as few rows are block by block."""
    weights = [w.requires_grad_() for w in mlr_weights(H)]
    _, x = inputs(1, 4 * D)
    x.requires_grad_()
    many = bilinear_mlr_features(x, weights, num_heads=H)
    few = [bilinear_mlr_features(part, weights, num_heads=H) for part in x.split(5, 1)]
    joined = tuple(torch.cat(parts, 2) for parts in zip(*few, strict=True))
    torch.testing.assert_close(many, joined, **EXACT)
    losses = [sum((level**2).sum() for level in levels) for levels in (many, joined)]
    grads = [torch.autograd.grad(loss, [x, *weights]) for loss in losses]
    torch.testing.assert_close(*grads, **EXACT)


def test_logit_factors_meet_at_64_columns() -> None:
    assert logit_factor(64) == logit_factor(64, "mup") == 1 / 8
    assert (logit_factor(16), logit_factor(16, "mup")) == (1 / 4, 1 / 2)


X = torch.zeros(2, 5, D)
V = torch.zeros(2, G, 5, 3)
Q = torch.zeros(2, H, 5, 6)
K = torch.zeros(2, G, 5, 6)
WQ, WK = torch.zeros(H * 4, 3, 4), torch.zeros(2, 6, G * 8)
ONE = MLBTC([BlockLevel(torch.zeros(H, 1, D, 1), torch.zeros(H, 1, D, 1))])
SMALL = MLBTC([BlockLevel(torch.zeros(H, 1, 6, 1), torch.zeros(H, 1, 6, 1))])
BARE = MLBTC([BlockLevel(torch.zeros(1, D, 1), torch.zeros(1, D, 1))])


def btt(q_weight: Tensor = WQ, k_weight: Tensor = WK, **options: Any) -> Tensor:
    options = {"num_heads": H, "norm_weight": torch.ones(D)} | options
    return bilinear_btt_attention(X, X, V, q_weight, k_weight, **options)


def mlr(q: list[Tensor], k: list[Tensor], **options: Any) -> Tensor:
    return bilinear_mlr_attention(X, X, V, q, k, **({"num_heads": H} | options))


LEVELS = tuple([w.float() for w in mlr_weights(heads)] for heads in (H, G))
THREE_HEADS = [w.float() for w in mlr_weights(3)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dot_scores(Q, K[:, :, :, :5]), r"`q` must have the shape"),
        (lambda: dot_scores(Q, K[:, :, :0]), "must not be empty"),
        (lambda: dot_scores(Q, Q[:, :3]), "G=3, must divide those of `q`, H=4"),
        (lambda: dot_scores(Q, K, scale=float("inf")), "`scale` must be finite, got inf"),
        (lambda: logit_factor(16, "sp"), "`logit_scale` must be one of .*, mup; got 'sp'"),
        (lambda: logit_factor(0), "`width` must be at least 1, got 0"),
        (lambda: window_mask(5, 4, window=1), "T must not exceed S; got T=5 and S=4"),
        (lambda: window_mask(4, 4, window=-1), "`window` must be at least 0, got -1"),
        (lambda: global_window_scores(Q, K, ranks=(3, 2)), r"head width R=6, got \(3, 2\)"),
        (lambda: global_window_scores(Q, K, ranks=(6,)), r"head width R=6, got \(6,\)"),
        (lambda: global_window_scores(Q, K, ranks=(6, 0)), r"`ranks\[1\]` must be at least 1"),
        (
            lambda: global_window_scores(Q, K, ranks=(3, 3), scales=(1.0,)),
            r"`scales` must hold two numbers, got \(1.0,\)",
        ),
        (lambda: bilinear_attention(X, X[:1], V, ONE), r"`context` \(B, S, D\)"),
        (lambda: bilinear_attention(X, X[:, :0], V, ONE), "must not be empty"),
        (lambda: bilinear_attention(X, X, V[:, :, :4], ONE), r"`v` must have the shape"),
        (lambda: bilinear_attention(X, X, V[:, [0, 0, 0]], ONE), "G=3, must divide"),
        (lambda: bilinear_attention(X, X, V, SMALL), r"`matrix` must be 12 x 12, .*\(6, 6\)"),
        (lambda: bilinear_attention(X, X, V, BARE), "with a batch axis"),
        (
            lambda: bilinear_attention(X, X, V, ONE, norm_weight=torch.ones(6)),
            r"norm must have the shape \(12,\)",
        ),
        (lambda: btt(WQ[:-1]), r"`q_weight` must have the shape \(H \* b, a, c \* s\) with H=4"),
        (lambda: btt(k_weight=WK[..., :-1]), "`k_weight`"),
        (lambda: btt(k_weight=WK[..., :0]), "`k_weight`"),
        (lambda: btt(WQ[..., :-1]), "`k_weight`"),
        (lambda: btt(k_weight=torch.zeros(2, 6, 3 * 8)), "a G that divides H"),
        (lambda: btt(logit_scale="sp"), "`logit_scale` must be one of"),
        (lambda: mlr([], []), "at least one level"),
        (lambda: mlr(LEVELS[0], LEVELS[1][:2]), "with one G that divides H=4"),
        (
            lambda: mlr(LEVELS[0], [w.float() for w in mlr_weights(3)]),
            "with one G that divides H=4",
        ),
        (lambda: mlr([w[:, :-1] for w in LEVELS[0]], LEVELS[1]), r"\(p, D / p, heads \* r\)"),
        (lambda: mlr(*LEVELS, num_heads=5), "for each of 5 heads"),
        (lambda: mlr(*LEVELS, q_norms=[torch.ones(3)]), "`norms` one entry for each"),
        (lambda: mlr(*LEVELS, q_norms=[torch.ones(3)] * 3), r"must have the shape \(6,\)"),
    ],
)
def test_what_does_not_fit_is_named(call: Any, message: str, own_errors: None) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dot_scores(Q, K, scale="1"), "`scale` must be a number, got '1'"),
        (lambda: dot_scores(Q, [1.0]), "`k` must be a torch.Tensor, got a list"),
        (lambda: window_mask(4, 4, window=1.5), "`window` must be an integer, got 1.5"),
        (lambda: bilinear_scores(X, X, torch.eye(D)), "`matrix` must be a StructuredMatrix"),
        (lambda: bilinear_keys([1.0], ONE), "must be a torch.Tensor, got a list"),
        (lambda: btt([1.0]), "`q_weight` must be a torch.Tensor, got a list"),
        (lambda: mlr(LEVELS[0], [1.0] * 3), r"`k_weights\[0\]` must be a torch.Tensor"),
        (
            lambda: mlr(LEVELS[0], mlr_weights(G)),
            r"`weights\[0\]` must have the dtype",
        ),
        (lambda: bilinear_scores(X.double(), X, ONE), "`context` must have the dtype"),
        (lambda: bilinear_keys(X.double(), ONE), "`matrix` must have .*float64, got torch"),
        (lambda: mlr(3, LEVELS[1]), "`q_weights` must be a sequence"),
    ],
)
def test_what_is_of_a_wrong_type_is_named(call: Any, message: str, own_errors: None) -> None:
    with pytest.raises(TypeError, match=message):
        call()
