"""The ops that compare queries and keys, held to the contract of every op."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from mlrforecast.ops import (
    global_window_attention,
    sliding_window_attention,
    standard_attention,
    window_mask,
)
from tests.ops.scores import oracle
from tests.ops.scores.attention_op_contract import (
    DotContract,
    Tensors,
)
from tests.ops.scores.plain import sdpa


class TestStandard(DotContract):
    name = "standard"

    def call(self, tensors: Tensors, **options: Any) -> Tensor:
        return standard_attention(**tensors, scale=0.7, **options)

    def loops(self, tensors: Tensors, **options: Any) -> Tensor:
        rows = oracle.dot_rows(tensors["q"], tensors["k"], 0.7)
        return oracle.attend(rows, tensors["v"], tuple(tensors["q"].shape[1:3]), **options)

    def plain(self, tensors: Tensors) -> Tensor:
        return sdpa(*tensors.values(), 0.7)


class TestSlidingWindow(DotContract):
    name = "sliding_window"
    positional = True
    window = 2
    extra_cases: ClassVar = {
        # More than two chunks: cut up, with a short last one.
        "T131-causal-masked": (131, 131, True, True),
        "T150": (150, 150, False, False),
        "T131-of-150-causal": (131, 150, True, True),
        "T131-of-132": (131, 132, False, True),
    }

    def call(self, tensors: Tensors, **options: Any) -> Tensor:
        return sliding_window_attention(**tensors, window=self.window, **options)

    def loops(self, tensors: Tensors, **options: Any) -> Tensor:
        rows = oracle.dot_rows(tensors["q"], tensors["k"], self.width**-0.5)
        sizes = tuple(tensors["q"].shape[1:3])
        return oracle.attend(
            rows, tensors["v"], sizes, allowed=lambda i, j: abs(i - j) <= self.window, **options
        )

    def plain(self, tensors: Tensors) -> Tensor:
        length = tensors["q"].shape[2]
        near = torch.ones(length, length, dtype=torch.bool).triu(-self.window)
        return sdpa(*tensors.values(), self.width**-0.5, near)


class TestSlidingWindowOfOneStep(TestSlidingWindow):
    window = 0
    zero_gradients = ("q", "k")
    extra_cases: ClassVar = {"T131": (131, 131, False, True)}


class TestSlidingWindowLongerThanAChunk(TestSlidingWindow):
    window = 65
    extra_cases: ClassVar = {
        "T134-causal": (134, 134, True, True),
        "T140": (140, 140, False, False),
        "T133-of-170": (133, 170, False, True),
    }


class TestGlobalWindow(DotContract):
    name = "global_window"
    positional = True
    combine = "mean"

    def call(self, tensors: Tensors, **options: Any) -> Tensor:
        return global_window_attention(
            **tensors, ranks=(3, 2), window=2, scales=(0.4, 0.9), combine=self.combine, **options
        )

    def loops(self, tensors: Tensors, **options: Any) -> Tensor:
        q, k, v = tensors.values()
        sizes = tuple(q.shape[1:3])
        everywhere = oracle.attend(
            oracle.dot_rows(q[..., :3], k[..., :3], 0.4), v, sizes, **options
        )
        near = oracle.attend(
            oracle.dot_rows(q[..., 3:], k[..., 3:], 0.9),
            v,
            sizes,
            allowed=lambda i, j: abs(i - j) <= 2,
            **options,
        )
        return (everywhere + near) * {"mean": 0.5, "sum": 1.0}[self.combine]

    def plain(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.values()
        near = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(-2)
        total = sdpa(q[..., :3], k[..., :3], v, 0.4) + sdpa(q[..., 3:], k[..., 3:], v, 0.9, near)
        return total * {"mean": 0.5, "sum": 1.0}[self.combine]

    def check_dropped(self, dropped: Tensor, weights: Tensor) -> None:
        """Each softmax drops by itself: outside the window only the first is seen."""
        far = ~window_mask(16, 16, window=2, causal=True)
        super().check_dropped(dropped[..., far], weights[..., far])
        near = dropped[..., ~far] / weights[..., ~far]
        assert near.max() < 2.001
        assert ((near > 0) & (near < 1.99)).any(), "one is dropped without the other"


class TestGlobalWindowSum(TestGlobalWindow):
    combine = "sum"
