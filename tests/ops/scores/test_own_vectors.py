"""Exactness against our own small numbers, which need no other folder."""

import json

import pytest
import torch
from torch import Tensor

from mlrforecast.ops import attention_ops
from tests.ops.scores.golden import make

STORED = json.loads(make.FILE.read_text())
# Pinned by the vectors of its backends.
ELSEWHERE = {"mlr"}


def tensors_of(stored: dict[str, object]) -> dict[str, Tensor]:
    return {name: torch.tensor(x, dtype=torch.float64) for name, x in stored.items()}


@pytest.mark.parametrize("way", ["dense", "op"])
@pytest.mark.parametrize("name", make.CASES)
def test_own_vectors(name: str, way: str) -> None:
    dense, op = make.CASES[name]
    values = make.with_gradients({"dense": dense, "op": op}[way], tensors_of(STORED["inputs"]))
    exact = tensors_of(STORED["outputs"][name])
    assert values.keys() == exact.keys()
    for key, value in values.items():
        torch.testing.assert_close(
            value, exact[key], rtol=0, atol=1e-12, msg=lambda m, k=key: f"{k}: {m}"
        )


def test_every_op_is_pinned() -> None:
    assert set(make.CASES) | ELSEWHERE == set(attention_ops)
    assert STORED["outputs"].keys() == make.CASES.keys()
    used = {key[1:] for outputs in STORED["outputs"].values() for key in outputs if key != "out"}
    assert used == STORED["inputs"].keys() == make.SHAPES.keys()
