"""The multi-level ops, held to the contract of every op; their backends have one of their own."""

from typing import Any

import torch
from torch import Tensor

from mlrforecast.ops import (
    mlr_attention,
)
from tests.ops.scores import oracle
from tests.ops.scores.attention_op_contract import (
    GROUP,
    DotContract,
    Tensors,
)
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
        k = k.repeat_interleave(GROUP, 1)
        block = torch.arange(q.shape[2])
        scores = q[..., :2] @ k[..., :2].mT / 2
        for columns, size in ((slice(2, 4), 6), (slice(4, 5), 3)):
            same = block[:, None] // size == block // size
            level = q[..., columns] @ k[..., columns].mT / (columns.stop - columns.start)
            scores = scores + level * same
        return softmax_of(scores, v)
