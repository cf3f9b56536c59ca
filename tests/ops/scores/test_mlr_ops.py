"""The multi-level ops, held to the contract of every op; their backends have one of their own."""

from typing import Any

import torch
from torch import Tensor

from mlrforecast.ops import mlr_attention, mlr_window_attention
from tests.ops.scores import oracle
from tests.ops.scores.attention_op_contract import GROUP, DotContract, Tensors
from tests.ops.scores.plain import softmax_of


class TestMLR(DotContract):
    name = "mlr"
    positional = True

    def call(self, tensors: Tensors, **options: Any) -> Tensor:
        return mlr_attention(**tensors, ranks=(2, 2, 1), block_sizes=(None, 6, 3), **options)

    def grid_begins(self, step: int) -> dict[str, Any]:
        return {"offset": -step % 6}

    def loops(self, tensors: Tensors, **options: Any) -> Tensor:
        q, k, v = tensors.values()
        rows = oracle.mlr_rows(q, k, (2, 2, 1), (10**6, 6, 3), lambda i, j: True)
        return oracle.attend(rows, v, tuple(q.shape[1:3]), **options)

    def plain(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.values()
        step = torch.arange(q.shape[2])
        whole = torch.ones(len(step), len(step), dtype=torch.bool)
        return softmax_of(level_scores(q, k, whole), v)


class TestMLRWindow(DotContract):
    name = "mlr_window"
    positional = True
    window = 4

    def call(self, tensors: Tensors, **options: Any) -> Tensor:
        levels = {"ranks": (2, 2, 1), "block_sizes": (None, 6, 3)}
        return mlr_window_attention(**tensors, window=self.window, **levels, **options)

    def grid_begins(self, step: int) -> dict[str, Any]:
        return {"offset": -step % 6}

    def loops(self, tensors: Tensors, **options: Any) -> Tensor:
        def near(i: int, j: int) -> bool:
            return abs(i - j) <= self.window

        def meet(i: int, j: int) -> bool:
            return near(i, j) or i // 6 == j // 6

        q, k, v = tensors.values()
        rows = oracle.mlr_rows(q, k, (2, 2, 1), (10**6, 6, 3), near)
        return oracle.attend(rows, v, tuple(q.shape[1:3]), allowed=meet, **options)

    def plain(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.values()
        step = torch.arange(q.shape[2])
        near = (step[:, None] - step).abs() <= self.window
        meet = near | (step[:, None] // 6 == step // 6)
        return softmax_of(level_scores(q, k, near), v, meet)


def level_scores(q: Tensor, k: Tensor, coarsest: Tensor) -> Tensor:
    """Score with ranks 2, 2, 1 on the pairs of ``coarsest``, in blocks of 6 and in blocks of 3."""
    k = k.repeat_interleave(GROUP, 1)
    step = torch.arange(q.shape[2])
    scores = q[..., :2] @ k[..., :2].mT / 2 * coarsest
    for columns, size in ((slice(2, 4), 6), (slice(4, 5), 3)):
        same = step[:, None] // size == step // size
        level = q[..., columns] @ k[..., columns].mT / (columns.stop - columns.start)
        scores = scores + level * same
    return scores
