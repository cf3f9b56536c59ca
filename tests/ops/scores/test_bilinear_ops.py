"""The ops that are given layer inputs and weights, held to the contract of every op."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from mlrforecast.ops import (
    MLBTC,
    BlockLevel,
    bilinear_attention,
    bilinear_btt_attention,
    bilinear_mlr_attention,
)
from tests.ops.scores import oracle
from tests.ops.scores.attention_op_contract import (
    BATCH,
    GROUP,
    NUM_HEADS,
    NUM_KV_HEADS,
    VALUE_WIDTH,
    AttentionOpContract,
    Tensors,
    normal,
)
from tests.ops.scores.plain import sdpa, softmax_of

D = 12


class BilinearContract(AttentionOpContract):
    """Ops that are given layer inputs and weights."""

    step_tensors = (("x",), ("context", "v"))
    # Gradients of a matrix that is written out are summed over the rows before they reach its
    # factors, where they may cancel.
    error_budget = 3

    def draw(self, num_queries: int, num_keys: int) -> Tensors:
        generator = torch.Generator().manual_seed(100 * num_queries + num_keys)
        return {
            "x": normal(generator, BATCH, num_queries, D),
            "context": normal(generator, BATCH, num_keys, D),
            "v": normal(generator, BATCH, NUM_KV_HEADS, num_keys, VALUE_WIDTH),
            **self.weights(generator),
        }

    def weights(self, generator: torch.Generator) -> Tensors:
        raise NotImplementedError

    def repeated(self, tensors: Tensors) -> Tensors:
        return tensors | {"v": tensors["v"].repeat_interleave(GROUP, 1)}


class TestBilinear(BilinearContract):
    """With two matrices of rank 2 a head; the norm is on."""

    name = "bilinear"

    def weights(self, generator: torch.Generator) -> Tensors:
        return {
            "left": normal(generator, NUM_HEADS, 1, D, 2) / 2,
            "right": normal(generator, NUM_HEADS, 1, D, 2) / 2,
            "norm": 1 + normal(generator, D) / 4,
        }

    def call(self, tensors: Tensors, **options: Any) -> Tensor:
        x, context, v, left, right, norm = tensors.values()
        matrix = MLBTC([BlockLevel(right, left)])
        return bilinear_attention(x, context, v, matrix, norm_weight=norm, scale=0.4, **options)

    def loops(self, tensors: Tensors, **options: Any) -> Tensor:
        x, context, v, left, right, norm = tensors.values()
        heads = [left[h, 0] @ right[h, 0].T for h in range(NUM_HEADS)]
        rows = oracle.bilinear_rows(x, context, heads, norm, 0.4)
        return oracle.attend(rows, v, (NUM_HEADS, x.shape[1]), **options)

    def plain(self, tensors: Tensors) -> Tensor:
        x, context, v, left, right, norm = tensors.values()
        keys = layer_norm((context[:, None] @ right[:, 0]) @ left[:, 0].mT, (D,), norm)
        return sdpa(x[:, None].expand(-1, NUM_HEADS, -1, -1), keys, v, 0.4)


class TestBilinearBTT(BilinearContract):
    """3 x 4 rows, 2 x 6 columns, tensor-train rank 2, grouped key weights."""

    name = "bilinear_btt"
    logit_scale = "inverse_sqrt_width"

    def weights(self, generator: torch.Generator) -> Tensors:
        return {
            "q_weight": normal(generator, NUM_HEADS * 4, 3, 2 * 2) / 2,
            "k_weight": normal(generator, 2, 6, NUM_KV_HEADS * 4 * 2) / 2,
            "norm_weight": 1 + normal(generator, D) / 4,
        }

    def repeated(self, tensors: Tensors) -> Tensors:
        groups = tensors["k_weight"].unflatten(-1, (NUM_KV_HEADS, -1))
        k_weight = groups.repeat_interleave(GROUP, 2).flatten(2)
        return super().repeated(tensors) | {"k_weight": k_weight}

    def call(self, tensors: Tensors, **options: Any) -> Tensor:
        return bilinear_btt_attention(
            **tensors, num_heads=NUM_HEADS, logit_scale=self.logit_scale, **options
        )

    def loops(self, tensors: Tensors, **options: Any) -> Tensor:
        x, context, v, q_weight, k_weight, norm = tensors.values()
        heads = oracle.btt_matrices(q_weight, k_weight, NUM_HEADS)
        scale = {"inverse_sqrt_width": D**-0.5, "mup": 1 / D}[self.logit_scale]
        rows = oracle.bilinear_rows(x, context, heads, norm, scale)
        return oracle.attend(rows, v, (NUM_HEADS, x.shape[1]), **options)

    def plain(self, tensors: Tensors) -> Tensor:
        x, context, v, q_weight, k_weight, norm = tensors.values()
        right = k_weight.unflatten(-1, (NUM_KV_HEADS, 4, 2)).repeat_interleave(GROUP, 2)
        left = q_weight.unflatten(0, (NUM_HEADS, 4)).unflatten(-1, (2, 2))
        middle = torch.einsum("bscd,cdhor->bshcor", context.unflatten(-1, (2, 6)), right)
        z = torch.einsum("bshcor,hoacr->bhsao", middle, left).flatten(-2)
        scale = {"inverse_sqrt_width": D**-0.5, "mup": 1 / D}[self.logit_scale]
        keys = layer_norm(z, (D,), norm)
        return sdpa(x[:, None].expand(-1, NUM_HEADS, -1, -1), keys, v, scale)


class TestBilinearBTTForMuP(TestBilinearBTT):
    logit_scale = "mup"


class TestBilinearMLR(BilinearContract):
    """Levels of 1, 3 and 4 blocks, with norms, grouped key weights."""

    name = "bilinear_mlr"
    levels = ((1, 3), (3, 2), (4, 1))  # blocks, rank
    options: ClassVar[dict[str, Any]] = {}

    def weights(self, generator: torch.Generator) -> Tensors:
        tensors = {}
        for lvl, (blocks, rank) in enumerate(self.levels):
            size = (blocks, D // blocks)
            tensors[f"wq{lvl}"] = normal(generator, *size, NUM_HEADS * rank) / size[1] ** 0.5
            tensors[f"wk{lvl}"] = normal(generator, *size, NUM_KV_HEADS * rank) / size[1] ** 0.5
            for side in "qk":
                tensors[f"n{side}{lvl}"] = 1 + normal(generator, rank * blocks) / 4
        return tensors

    def per_level(self, tensors: Tensors, kind: str) -> list[Tensor]:
        return [tensors[f"{kind}{lvl}"] for lvl in range(len(self.levels))]

    def repeated(self, tensors: Tensors) -> Tensors:
        weights = {
            f"wk{lvl}": tensors[f"wk{lvl}"]
            .unflatten(-1, (NUM_KV_HEADS, -1))
            .repeat_interleave(GROUP, 2)
            .flatten(2)
            for lvl in range(len(self.levels))
        }
        return super().repeated(tensors) | weights

    def call(self, tensors: Tensors, **options: Any) -> Tensor:
        wq, wk, nq, nk = (self.per_level(tensors, kind) for kind in ("wq", "wk", "nq", "nk"))
        return bilinear_mlr_attention(
            *(tensors[n] for n in ("x", "context", "v")),
            wq,
            wk,
            num_heads=NUM_HEADS,
            q_norms=nq,
            k_norms=nk,
            **self.options,
            **options,
        )

    def loops(self, tensors: Tensors, **options: Any) -> Tensor:
        wq, wk, nq, nk = (self.per_level(tensors, kind) for kind in ("wq", "wk", "nq", "nk"))
        x = tensors["x"]
        rows = oracle.bilinear_mlr_rows(
            x,
            tensors["context"],
            (wq, wk),
            (nq, nk),
            NUM_HEADS,
            mup=self.options.get("logit_scale") == "mup",
            divide=self.options.get("divide_by_num_levels", False),
        )
        return oracle.attend(rows, tensors["v"], (NUM_HEADS, x.shape[1]), **options)

    def plain(self, tensors: Tensors) -> Tensor:
        scores = 0
        for lvl, (blocks, rank) in enumerate(self.levels):
            features = []
            for side, name, heads in (("q", "x", NUM_HEADS), ("k", "context", NUM_KV_HEADS)):
                weight = tensors[f"w{side}{lvl}"].unflatten(-1, (heads, rank))
                parts = tensors[name].unflatten(-1, (blocks, -1))
                z = torch.einsum("btpm,pmhr->bhtrp", parts, weight).flatten(-2)
                features.append(layer_norm(z, z.shape[-1:], tensors[f"n{side}{lvl}"]))
            q, k = features
            columns = rank * blocks
            mup = self.options.get("logit_scale") == "mup"
            factor = 8 / columns if mup else columns**-0.5
            scores = scores + factor * (q @ k.repeat_interleave(GROUP, 1).mT)
        if self.options.get("divide_by_num_levels"):
            scores = scores / len(self.levels)
        return softmax_of(scores, tensors["v"])


class TestBilinearMLRForMuP(TestBilinearMLR):
    options: ClassVar = {"logit_scale": "mup", "divide_by_num_levels": True}
