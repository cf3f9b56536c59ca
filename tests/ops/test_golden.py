"""Exactness against stored numbers: the published code's, and our own small ones."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear

from mlrforecast._core.errors import BackendError
from mlrforecast.ops import mlr_attention, mlr_scores
from tests.ops.golden import make

BACKENDS = ("reference", "expanded", "hierarchical")
FILES = (
    "mlr_t128_7levels.npz",
    "mlr_t16_blocks_16_8.npz",
    "mlr_t16_blocks_4_8_16.npz",
    "mlr_t16_default.npz",
    "mlr_t16_onelevel.npz",
    "mlr_t256_8levels.npz",
)
TOO_WIDE = {"mlr_t128_7levels.npz", "mlr_t256_8levels.npz"}
TOLERANCE = {"rtol": 0, "atol": 1e-10}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", make.CASES)
def test_own_vectors(name: str, backend: str) -> None:
    stored = json.loads(make.FILE.read_text())
    tensors = [torch.tensor(x, dtype=torch.float64) for x in stored["inputs"]]
    values = make.call(tensors, make.CASES[name], backend)
    for key, value in zip(("out", "dq", "dk", "dv"), values, strict=True):
        exact = torch.tensor(stored["outputs"][name][key], dtype=torch.float64)
        torch.testing.assert_close(value, exact, rtol=0, atol=1e-12)


@dataclass
class Layer:
    """The attention layer of a vector file, its levels put coarse to fine."""

    weights: dict[str, Tensor]
    meta: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> "Layer":
        with np.load(path, allow_pickle=False) as file:
            meta = json.loads(str(file["meta"]))
            names = [name for name in file.files if name != "meta"]
            return cls({name: torch.from_numpy(file[name]) for name in names}, meta)

    @property
    def order(self) -> list[int]:
        sizes = self.meta["block_sizes"]
        return sorted(range(len(sizes)), key=lambda lvl: -sizes[lvl])

    def options(self, variant: str, causal: bool) -> dict[str, Any]:
        switches = self.meta["variants"][variant]
        return {
            "ranks": [self.meta["ranks"][lvl] for lvl in self.order],
            "block_sizes": [self.meta["block_sizes"][lvl] for lvl in self.order],
            "divide_by_shared_levels": switches["divide_by_block_levels"],
            "divide_by_num_levels": switches["divide_by_num_levels"],
            "link": switches["link"],
            "causal": causal,
        }

    def project(self, variant: str) -> list[Tensor]:
        """Return q, k and v, the columns of q and k in the order of the levels."""
        heads = []
        for name in ("q", "k", "v"):
            x = linear(self.weights["x"], self.weights[f"W_{name}"], self.weights.get(f"b_{name}"))
            x = x.unflatten(-1, (self.meta["H"], self.meta["d_head"])).transpose(1, 2)
            if name != "v" and self.meta["variants"][variant]["qk_layernorm"]:
                x = layer_norm(
                    x,
                    x.shape[-1:],
                    self.weights[f"ln_{name}_w"],
                    self.weights.get(f"ln_{name}_b"),
                    self.meta["ln_eps"],
                )
            heads.append(x if name == "v" else self._coarse_to_fine(x))
        return heads

    def _coarse_to_fine(self, x: Tensor) -> Tensor:
        slices = x.split(self.meta["ranks"], -1)
        return torch.cat([slices[lvl] for lvl in self.order], -1)

    def forward(self, variant: str, causal: bool, backend: str) -> Tensor:
        options = self.options(variant, causal)
        out = mlr_attention(*self.project(variant), backend=backend, **options)
        return linear(out.transpose(1, 2).flatten(-2), self.weights["W_o"], self.weights.get("b_o"))


@pytest.fixture(params=FILES)
def layer(request: pytest.FixtureRequest, shared_file: Callable[[str], Path]) -> Layer:
    return Layer.load(shared_file(request.param))


@pytest.mark.shared
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("file", FILES)
def test_outputs(file: str, backend: str, shared_file: Callable[[str], Path]) -> None:
    layer = Layer.load(shared_file(file))
    stored = [name for name in layer.weights if name.startswith("y_")]
    assert stored
    for name in stored:
        mask, variant = name.removeprefix("y_").split("__")
        refused = variant.endswith("identity") and backend != "reference"
        if refused or (backend == "expanded" and file in TOO_WIDE):
            with pytest.raises(BackendError):
                layer.forward(variant, mask == "causal", backend)
            continue
        y = layer.forward(variant, mask == "causal", backend)
        torch.testing.assert_close(y, layer.weights[name], **TOLERANCE, msg=name)


@pytest.mark.shared
def test_scores(layer: Layer) -> None:
    for name in [name for name in layer.weights if name.startswith("S__")]:
        variant = name.removeprefix("S__")
        options = layer.options(variant, causal=False)
        for unread in ("link", "causal"):
            del options[unread]
        q, k, _ = layer.project(variant)
        scores = mlr_scores(q, k, **options)
        torch.testing.assert_close(scores, layer.weights[name], **TOLERANCE, msg=name)


@pytest.mark.shared
@pytest.mark.parametrize("backend", BACKENDS)
def test_weights(layer: Layer, backend: str) -> None:
    """The values of the identity matrix return the softmax weights themselves."""
    for name in [name for name in layer.weights if name.startswith("P_causal__")]:
        variant = name.removeprefix("P_causal__")
        q, k, v = layer.project(variant)
        unit = torch.eye(q.shape[2], dtype=q.dtype).expand(*v.shape[:2], -1, -1)
        weights = mlr_attention(q, k, unit, backend=backend, **layer.options(variant, causal=True))
        torch.testing.assert_close(weights, layer.weights[name], **TOLERANCE, msg=name)


@pytest.mark.shared
@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(backend: str, shared_file: Callable[[str], Path]) -> None:
    layer = Layer.load(shared_file("mlr_t16_default.npz"))
    stored = [name for name in layer.weights if name.startswith("d") and "__" in name]
    assert len(stored) == 12
    for name in stored:
        parameter, variant = name.removeprefix("d").split("__")
        fresh = Layer(dict(layer.weights), layer.meta)
        leaf = fresh.weights[parameter].clone().requires_grad_()
        fresh.weights[parameter] = leaf
        y = fresh.forward(variant, causal=True, backend=backend)
        (grad,) = torch.autograd.grad((y * layer.weights["G"]).sum(), leaf)
        torch.testing.assert_close(grad, layer.weights[name], **TOLERANCE, msg=name)
