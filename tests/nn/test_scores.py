"""Every score keeps the contract; each brings an oracle by plain loops."""

import math
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from mlrforecast.nn import StructuredAttention, attentions, default_ranks
from mlrforecast.ops.matrices import matrices
from tests.contracts.score_contract import WIDTH, ScoreContract


def in_heads(layer: StructuredAttention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Project to q, k and v of shape (B, H, T, R), normalised if the layer does so."""
    heads, score = layer.score.heads.num_heads, layer.score
    q, k, v = (
        torch.einsum("btd,ed->bte", x, linear.weight).unflatten(-1, (heads, -1))
        for linear in (score.query, score.key, layer.value)
    )
    if layer.score.heads.qk_norm:
        q = layer_norm(q, q.shape[-1:], score.query_norm.weight)
        k = layer_norm(k, k.shape[-1:], score.key_norm.weight)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def values(layer: StructuredAttention, x: Tensor) -> Tensor:
    return (
        (x @ layer.value.weight.T).unflatten(-1, (layer.score.heads.num_heads, -1)).transpose(1, 2)
    )


def weighted(layer: StructuredAttention, scores: Tensor, mask: Tensor, v: Tensor) -> Tensor:
    """Softmax over what the mask allows, a row at a time, and the output map."""
    batch, heads, length, _ = scores.shape
    out = [
        row_output(scores[b, h, i], mask[b, i], v[b, h])
        for b in range(batch)
        for h in range(heads)
        for i in range(length)
    ]
    mixed = torch.stack(out).view(batch, heads, length, -1)
    return mixed.transpose(1, 2).flatten(-2) @ layer.output.weight.T


def row_output(scores: Tensor, allowed: Tensor, v: Tensor) -> Tensor:
    if not allowed.any():
        return (0 * scores.sum() + 0 * v.sum(0)).expand(v.shape[-1])
    powers = torch.exp(scores[allowed] - scores[allowed].max().detach())
    return (powers / powers.sum()) @ v[allowed]


def near(length: int, window: int) -> Tensor:
    """Pairs at most ``window`` steps apart."""
    pairs = [[abs(i - j) <= window for j in range(length)] for i in range(length)]
    return torch.tensor(pairs)


class TestStandard(ScoreContract):
    name = "standard"

    def expected(self, layer: StructuredAttention, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = in_heads(layer, x)
        scores = torch.einsum("bhtr,bhsr->bhts", q, k) / math.sqrt(q.shape[-1])
        return weighted(layer, scores, mask, v)

    def test_mup_scaling_is_eight_over_the_width(self) -> None:
        assert self.layer(logit_scale="mup").score.factor == 8 / 3
        wide = StructuredAttention(128, 2, attention="standard", logit_scale="mup")
        assert wide.score.factor == pytest.approx(1 / math.sqrt(64))


class TestSlidingWindow(ScoreContract):
    name = "sliding_window"
    options: ClassVar[dict[str, Any]] = {"window": 3}
    crosses = False

    def expected(self, layer: StructuredAttention, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = in_heads(layer, x)
        scores = torch.einsum("bhtr,bhsr->bhts", q, k) / math.sqrt(q.shape[-1])
        return weighted(layer, scores, mask & near(x.shape[1], 3), v)

    def test_a_wide_window_is_standard_attention(self) -> None:
        x = torch.linspace(-1, 1, 10 * WIDTH, dtype=torch.float64).view(1, 10, WIDTH).sin()
        wide, standard = self.layer(window=9), TestStandard().layer()
        torch.testing.assert_close(wide(x), standard(x), rtol=0, atol=1e-12)


class TestGlobalWindow(ScoreContract):
    name = "global_window"
    options: ClassVar[dict[str, Any]] = {"window": 3, "ranks": (2, 1)}
    crosses = False

    def expected(self, layer: StructuredAttention, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = in_heads(layer, x)
        everywhere = torch.einsum("bhtr,bhsr->bhts", q[..., :2], k[..., :2]) / math.sqrt(2)
        nearby = torch.einsum("bhtr,bhsr->bhts", q[..., 2:], k[..., 2:])
        local = mask & near(x.shape[1], 3)
        halves = weighted(layer, everywhere, mask, v) + weighted(layer, nearby, local, v)
        return halves / (1 if layer.score.combine == "sum" else 2)

    def test_published_rows_sum_to_two(self) -> None:
        x = torch.ones(1, 6, WIDTH, dtype=torch.float64).cumsum(1).cos()
        mean, total = self.layer()(x), self.layer(combine="sum")(x)
        torch.testing.assert_close(total, 2 * mean, rtol=0, atol=1e-12)


class TestMLR(ScoreContract):
    name = "mlr"
    options: ClassVar[dict[str, Any]] = {"ranks": (2, 1), "block_sizes": (None, 4)}
    period = 4
    crosses = False

    def expected(self, layer: StructuredAttention, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = in_heads(layer, x)
        scores = self.scores(q, k, layer.causal)
        return weighted(layer, scores, mask & self.allowed(x.shape[1], layer.causal), v)

    def scores(self, q: Tensor, k: Tensor, causal: bool) -> Tensor:
        length = q.shape[2]
        whole = torch.einsum("bhtr,bhsr->bhts", q[..., :2], k[..., :2])
        fine = torch.einsum("bhtr,bhsr->bhts", q[..., 2:], k[..., 2:])
        return (whole * self.coarse(length) + fine * self.same(length, causal)) / math.sqrt(3)

    def same(self, length: int, causal: bool) -> Tensor:
        """Pairs of one block of four, counted from the first step or back from the newest."""
        block = [(i if causal else i + (-length) % 4) // 4 for i in range(length)]
        return torch.tensor([[float(a == b) for b in block] for a in block])

    def coarse(self, length: int) -> Tensor:
        return torch.ones(length, length)

    def allowed(self, length: int, causal: bool) -> Tensor:
        return torch.ones(length, length, dtype=torch.bool)

    def test_rotary_positions_tear_no_pair_between_levels(self) -> None:
        """With a pair of columns in two levels, a shift by whole blocks would change scores."""
        layer = self.layer(causal=True, rotary=True, ranks=(1, 2))
        x = torch.arange(11 * WIDTH, dtype=torch.float64).view(1, 11, WIDTH).sin()
        padded = torch.cat([torch.zeros(1, 8, WIDTH, dtype=torch.float64), x], 1)
        key_mask = torch.arange(19)[None] >= 8
        torch.testing.assert_close(layer(padded, key_mask)[:, 8:], layer(x), rtol=0, atol=1e-11)

    def test_a_cache_needs_blocks_that_stay_in_place(self) -> None:
        moving = StructuredAttention(WIDTH, 4, causal=True)
        with pytest.raises(ValueError, match="`cache` needs fixed `block_sizes`"):
            moving.score.reaches()
        with pytest.raises(ValueError, match="`newest_whole`"):
            self.layer(causal=True, newest_whole=True).score.reaches()

    def test_default_blocks_keep_to_the_context_length(self) -> None:
        layer = StructuredAttention(WIDTH, 3, causal=True, context_length=16)
        assert layer.score.ranks == default_ranks(4) == (2, 1, 1)
        assert layer.score.sizes(5) == layer.score.sizes(99) == (None, 8, 4)

    def test_block_ids_of_the_sizes_are_the_sizes(self) -> None:
        layer = self.layer(causal=True)
        x = torch.arange(2 * 10 * WIDTH, dtype=torch.float64).view(2, 10, WIDTH).sin()
        ids = torch.stack([torch.zeros(10, dtype=torch.int64), torch.arange(10) // 4])
        torch.testing.assert_close(layer(x, block_ids=ids), layer(x), rtol=0, atol=1e-12)
        each = ids.expand(2, -1, -1)
        torch.testing.assert_close(layer(x, block_ids=each), layer(x), rtol=0, atol=1e-12)

    def test_cross_attention_on_a_common_partition(self) -> None:
        """Steps of two sequences meet in the blocks that both are told to be in."""
        layer = self.layer()
        x = torch.arange(11 * WIDTH, dtype=torch.float64).view(1, 11, WIDTH).sin()
        ids = torch.stack([torch.zeros(11, dtype=torch.int64), torch.arange(11) % 3])
        key_mask = torch.arange(11)[None] < 6
        joint = layer(x, key_mask, block_ids=ids)[:, 6:]
        crossed = layer(
            x[:, 6:], context=x[:, :6], block_ids=ids[:, :6], query_block_ids=ids[:, 6:]
        )
        torch.testing.assert_close(crossed, joint, rtol=0, atol=1e-12)


class TestMLRWindow(TestMLR):
    name = "mlr_window"
    options: ClassVar[dict[str, Any]] = {"window": 2, "ranks": (2, 1), "block_sizes": (None, 4)}

    def coarse(self, length: int) -> Tensor:
        return near(length, 2).double()

    def allowed(self, length: int, causal: bool) -> Tensor:
        return near(length, 2) | (self.same(length, causal) > 0)

    def test_default_blocks_keep_to_the_context_length(self) -> None:
        layer = StructuredAttention(
            WIDTH, 3, attention="mlr_window", causal=True, context_length=16
        )
        firsts = [reach.first(21) for reach in layer.score.reaches()]
        assert firsts == [21 - 8, 16, 20]

    def test_cross_attention_on_a_common_partition(self) -> None:
        """Two sequences may have blocks in common, but no distance."""
        ids = torch.zeros(2, 5, dtype=torch.int64)
        x = torch.zeros(1, 5, WIDTH, dtype=torch.float64)
        with pytest.raises(ValueError, match="'mlr_window' compares places in one sequence"):
            self.layer()(x, context=x, block_ids=ids, query_block_ids=ids)


class TestMLRUnsharedZero(TestMLR):
    """As published: pairs in no common block score 0 and are attended."""

    options: ClassVar[dict[str, Any]] = {
        "ranks": (2, 1),
        "block_sizes": (8, 4),
        "unshared": "zero",
    }
    period = 8

    def coarse(self, length: int) -> Tensor:
        return self.eights

    def scores(self, q: Tensor, k: Tensor, causal: bool) -> Tensor:
        length = q.shape[2]
        block = [(i if causal else i + (-length) % 8) // 8 for i in range(length)]
        self.eights = torch.tensor([[float(a == b) for b in block] for a in block])
        return super().scores(q, k, causal)

    def same(self, length: int, causal: bool) -> Tensor:
        block = [(i if causal else i + (-length) % 8) // 4 for i in range(length)]
        return torch.tensor([[float(a == b) for b in block] for a in block])

    def test_block_ids_of_the_sizes_are_the_sizes(self) -> None:
        layer = self.layer(causal=True)
        x = torch.arange(2 * 10 * WIDTH, dtype=torch.float64).view(2, 10, WIDTH).sin()
        ids = torch.stack([torch.arange(10) // 8, torch.arange(10) // 4])
        torch.testing.assert_close(layer(x, block_ids=ids), layer(x), rtol=0, atol=1e-12)


def clamped(weight: Tensor, fan_in: int, fan_out: int) -> Tensor:
    limit = math.sqrt(min(fan_in, fan_out)) / fan_in
    rms = torch.sqrt((weight**2).mean() + 1e-8)
    return weight / max(rms / limit, torch.ones_like(rms))


class TestBilinearMLR(ScoreContract):
    name = "bilinear_mlr"
    options: ClassVar[dict[str, Any]] = {"ranks": (2, 1), "num_blocks": (1, 3)}

    def expected(self, layer: StructuredAttention, x: Tensor, mask: Tensor) -> Tensor:
        score, scores = layer.score, 0
        for lvl, (rank, blocks) in enumerate(zip(score.ranks, score.num_blocks, strict=True)):
            q, k = (
                self.features(weights[lvl], None if norms is None else norms[lvl], x, rank, blocks)
                for weights, norms in (
                    (score.query_weights, score.query_norms),
                    (score.key_weights, score.key_norms),
                )
            )
            scores = scores + torch.einsum("bhtr,bhsr->bhts", q, k) / math.sqrt(rank * blocks)
        return weighted(layer, scores, mask, values(layer, x))

    def features(self, weight: Tensor, norm: Any, x: Tensor, rank: int, blocks: int) -> Tensor:
        size, heads = WIDTH // blocks, 4
        weight = clamped(weight, size, heads * rank)
        columns = [
            torch.stack(
                [
                    x[..., p * size : (p + 1) * size] @ weight[p, :, h * rank + r]
                    for r in range(rank)
                    for p in range(blocks)
                ],
                -1,
            )
            for h in range(heads)
        ]
        features = torch.stack(columns, 1)
        return features if norm is None else layer_norm(features, (rank * blocks,), norm.weight)


class TestBilinearBTT(ScoreContract):
    name = "bilinear_btt"
    options: ClassVar[dict[str, Any]] = {"tensor_rank": 2}

    def expected(self, layer: StructuredAttention, x: Tensor, mask: Tensor) -> Tensor:
        score = layer.score
        right = clamped(score.weights["right"], 4, 4 * 4 * 2)
        left = clamped(score.weights["left"], 3 * 2, 3)
        scores = []
        for h in range(4):
            # Rows are numbered α·b + β, columns γ·d + δ, with a = c = 3 and b = d = 4.
            matrix = torch.stack(
                [
                    torch.stack(
                        [
                            (
                                left[h, b, a, g * 2 : g * 2 + 2] * right[h, g, d, b * 2 : b * 2 + 2]
                            ).sum()
                            for g in range(3)
                            for d in range(4)
                        ]
                    )
                    for a in range(3)
                    for b in range(4)
                ]
            )
            z = layer_norm(x @ matrix.T, (WIDTH,), score.key_norm.weight)
            scores.append(x @ z.transpose(1, 2) / math.sqrt(WIDTH))
        return weighted(layer, torch.stack(scores, 1), mask, values(layer, x))


class BilinearStructure(ScoreContract):
    """A bilinear score over any structured matrix; the oracle reads its dense form."""

    name = "bilinear"

    def expected(self, layer: StructuredAttention, x: Tensor, mask: Tensor) -> Tensor:
        score = layer.score
        dense = score.matrix().dense()
        z = torch.einsum("hij,btj->bhti", dense, x)
        if score.key_norm is not None:
            z = layer_norm(z, (WIDTH,), score.key_norm.weight)
        scores = torch.einsum("bti,bhsi->bhts", x, z) / math.sqrt(WIDTH)
        return weighted(layer, scores, mask, values(layer, x))

    def test_one_group_shares_what_reads_the_input(self) -> None:
        full, grouped = self.layer(), self.layer(num_kv_heads=1)
        specs = full.score.specs
        for name, spec in specs.items():
            # A single factor for all heads of a group would make them one head.
            wanted = 1 if spec.reads_input and len(specs) > 1 else 4
            assert len(grouped.score.weights[name]) == wanted
            assert len(full.score.weights[name]) == 4


class TestBilinearLowRank(BilinearStructure):
    options: ClassVar[dict[str, Any]] = {"structure": "low_rank", "structure_options": {"rank": 5}}

    def test_heads_that_read_one_input_are_clamped_as_one_map(self) -> None:
        layer = self.layer()
        weights, matrix = layer.score.weights, layer.score.matrix()
        torch.testing.assert_close(matrix.right, clamped(weights["right"], WIDTH, 4 * 5))
        torch.testing.assert_close(matrix.left, clamped(weights["left"], 5, WIDTH))


class TestBilinearDense(BilinearStructure):
    options: ClassVar[dict[str, Any]] = {"structure": "dense", "key_norm": False}


class TestBilinearMonarch(BilinearStructure):
    options: ClassVar[dict[str, Any]] = {
        "structure": "monarch",
        "structure_options": {"in_factors": (2, 6)},
    }


class TestBilinearKronecker(BilinearStructure):
    options: ClassVar[dict[str, Any]] = {"structure": "kronecker", "clamp": False}


class TestBilinearButterfly(BilinearStructure):
    options: ClassVar[dict[str, Any]] = {"structure": "butterfly"}


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("structure", list(matrices))
def test_every_structure_has_defaults(structure: str) -> None:
    layer = StructuredAttention(12, 2, attention="bilinear", structure=structure)
    assert layer(torch.ones(1, 5, 12)).shape == (1, 5, 12)


def test_options_of_structures_are_checked() -> None:
    with pytest.raises(ValueError, match="the structure 'monarch' has no option `rank`"):
        StructuredAttention(
            12, 2, attention="bilinear", structure="monarch", structure_options={"rank": 2}
        )
    with pytest.raises(ValueError, match=r"Unknown .*'sparse'.*Available: .*btt"):
        StructuredAttention(12, 2, attention="bilinear", structure="sparse")


def test_every_score_keeps_the_contract() -> None:
    """Registering a score without a contract class fails here."""

    def below(kind: type) -> list[type]:
        return [kind, *(leaf for child in kind.__subclasses__() for leaf in below(child))]

    tested = {kind.name for kind in below(ScoreContract) if hasattr(kind, "name")}
    assert tested == set(attentions)
