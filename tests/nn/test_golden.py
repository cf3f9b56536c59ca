"""Whole attention layers against the published code's numbers, every score built by its name."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mlrforecast.nn import StructuredAttention

FILES = {
    "bilinear_mlr_d16.npz": 20,
    "bilinear_mlr_d64.npz": 4,
    "btt_d16.npz": 12,
    "btt_d16_smallw.npz": 4,
    "btt_d64.npz": 4,
    "mlr_t128_7levels.npz": 2,
    "mlr_t16_blocks_16_8.npz": 4,
    "mlr_t16_blocks_4_8_16.npz": 6,
    "mlr_t16_default.npz": 16,
    "mlr_t16_onelevel.npz": 2,
    "mlr_t256_8levels.npz": 3,
    "swa_t16.npz": 15,
}
"""File -> number of layer outputs that are compared (those of the identity link are the op's)."""

Weights = dict[str, Tensor]


def load(path: Path) -> tuple[Weights, dict[str, Any]]:
    with np.load(path, allow_pickle=False) as file:
        meta = json.loads(str(file["meta"]))
        tensors = {name: torch.from_numpy(file[name]) for name in file.files if name != "meta"}
    return tensors, meta


def outputs(weights: Weights) -> Iterator[tuple[str, bool, str]]:
    """Yield each stored layer output with its variant: name, causal, variant."""
    for name in weights:
        kind, _, variant = name.partition("__")
        if kind in ("y", "y_causal", "y_bidir") and not variant.endswith("identity"):
            yield name, kind != "y_bidir", variant


def build(
    weights: Weights, meta: dict[str, Any], variant: str, causal: bool
) -> StructuredAttention:
    """Build the layer of a variant by its name and options, and fill in the stored weights."""
    switches = meta["variants"][variant]
    family = {
        "mlr": mlr_layer,
        "mha_swa_gswa": window_layer,
        "bilinear_mlr": bilinear_mlr_layer,
        "bilinear_btt": btt_layer,
    }[meta["family"]]
    options, state = family(weights, meta, switches)
    layer = StructuredAttention(meta["D"], meta["H"], causal=causal, **options).double()
    state |= {"value.weight": weights["W_v"], "output.weight": weights["W_o"]}
    if meta.get("bias"):
        state |= {"value.bias": weights["b_v"], "output.bias": weights["b_o"]}
    layer.load_state_dict(state)
    return layer


def mlr_layer(weights: Weights, meta: dict[str, Any], switches: dict[str, Any]) -> Any:
    sizes, ranks = meta["block_sizes"], meta["ranks"]
    order = sorted(range(len(sizes)), key=lambda lvl: -sizes[lvl])
    starts = np.cumsum([0, *ranks])
    # Levels run coarse to fine here, so the columns of a head move with their level.
    columns = [c for lvl in order for c in range(starts[lvl], starts[lvl + 1])]
    rows = [h * sum(ranks) + c for h in range(meta["H"]) for c in columns]
    state = {f"score.{long}.weight": weights[f"W_{short}"][rows] for long, short in QK}
    if meta["bias"]:
        state |= {f"score.{long}.bias": weights[f"b_{short}"][rows] for long, short in QK}
    if switches["qk_layernorm"]:
        for long, short in QK:
            state[f"score.{long}_norm.weight"] = weights[f"ln_{short}_w"][columns]
            if meta["bias"]:
                state[f"score.{long}_norm.bias"] = weights[f"ln_{short}_b"][columns]
    options = {
        "attention": "mlr",
        "bias": meta["bias"],
        "qk_norm": switches["qk_layernorm"],
        "ranks": [ranks[lvl] for lvl in order],
        "block_sizes": [sizes[lvl] for lvl in order],
        "newest_whole": False,
        "level_scale": "inverse_rank",
        "divide_by_shared_levels": switches["divide_by_block_levels"],
        "divide_by_num_levels": switches["divide_by_num_levels"],
    }
    return options, state


def window_layer(weights: Weights, meta: dict[str, Any], switches: dict[str, Any]) -> Any:
    wide = "_wide" if "d_qk_head" in switches else ""
    state = {f"score.{long}.weight": weights[f"W_{short}{wide}"] for long, short in QK}
    normed = switches.get("qk_layernorm", True)
    if normed:
        state |= {f"score.{long}_norm.weight": weights[f"ln_{short}{wide}_w"] for long, short in QK}
    options = {"bias": False, "qk_norm": normed, "logit_scale": "mup"}
    if switches.get("sp_scaling"):
        options["logit_scale"] = "inverse_sqrt_width"
    if switches["kind"] == "mha":
        options |= {"attention": "standard", "qk_width": switches.get("d_qk_head")}
    elif switches["kind"] == "swa":
        options |= {"attention": "sliding_window", "window": switches["window"]}
    else:
        options |= {
            "attention": "global_window",
            "ranks": (switches["global_dims"], switches["local_dims"]),
            "window": switches["window"],
            "combine": "sum",
        }
    return options, state


def bilinear_mlr_layer(weights: Weights, meta: dict[str, Any], switches: dict[str, Any]) -> Any:
    suffix, state = switches["weight_suffix"], {}
    for long, short in QK:
        for lvl in range(len(meta["ranks"])):
            state[f"score.{long}_weights.{lvl}"] = weights[f"W_{short}{lvl}{suffix}"]
            if switches["qk_layernorm"]:
                state[f"score.{long}_norms.{lvl}.weight"] = weights[f"ln_{short}{lvl}_w"]
    options = {
        "attention": "bilinear_mlr",
        "bias": False,
        "qk_norm": switches["qk_layernorm"],
        "ranks": meta["ranks"],
        "logit_scale": "mup" if switches["mup_logit_scaling"] else "inverse_sqrt_width",
        "divide_by_num_levels": switches["divide_by_num_levels"],
    }
    return options, state


def btt_layer(weights: Weights, meta: dict[str, Any], switches: dict[str, Any]) -> Any:
    heads, rank = meta["H"], switches["tt_rank"]
    key, query = weights[f"W_k_s{rank}"], weights[f"W_q_s{rank}"]
    state = {
        "score.weights.right": key.unflatten(-1, (heads, -1)).movedim(2, 0),
        "score.weights.left": query.unflatten(0, (heads, -1)),
        "score.key_norm.weight": weights["ln_z_w"],
    }
    if switches["extra_layernorm_on_x"]:
        state["score.input_norm.weight"] = weights["ln_x_w"]
    options = {
        "attention": "bilinear_btt",
        "bias": False,
        "tensor_rank": rank,
        "input_norm": switches["extra_layernorm_on_x"],
        "logit_scale": "mup" if switches["mup_logit_scaling"] else "inverse_sqrt_width",
    }
    return options, state


QK = (("query", "q"), ("key", "k"))

pytestmark = [pytest.mark.shared, pytest.mark.usefixtures("seeded")]


@pytest.mark.parametrize("file", FILES)
def test_outputs(file: str, shared_file: Callable[[str], Path]) -> None:
    weights, meta = load(shared_file(file))
    names = list(outputs(weights))
    assert len(names) == FILES[file]
    for name, causal, variant in names:
        layer = build(weights, meta, variant, causal)
        y = layer(weights["x"])
        torch.testing.assert_close(y, weights[name], rtol=0, atol=1e-10, msg=name)


GRADIENTS = {
    "bilinear_mlr_d16.npz": {
        "W_q0": "score.query_weights.0",
        "W_q1": "score.query_weights.1",
        "W_q2": "score.query_weights.2",
        "W_k0": "score.key_weights.0",
        "W_k1": "score.key_weights.1",
        "W_k2": "score.key_weights.2",
    },
    "btt_d16.npz": {
        "W_k": "score.weights.right",
        "W_q": "score.weights.left",
        "ln_z_w": "score.key_norm.weight",
    },
    "mlr_t16_default.npz": {
        "W_q": "score.query.weight",
        "W_k": "score.key.weight",
        "W_v": "value.weight",
        "W_o": "output.weight",
        "ln_q_w": "score.query_norm.weight",
        "ln_k_w": "score.key_norm.weight",
    },
}


@pytest.mark.parametrize("file", GRADIENTS)
def test_gradients(file: str, shared_file: Callable[[str], Path]) -> None:
    weights, meta = load(shared_file(file))
    stored = [name for name in weights if name.startswith("d") and not name.endswith("identity")]
    assert stored
    for name in stored:
        tensor, _, variant = name[1:].partition("__")
        layer = build(weights, meta, variant, causal=True)
        x = weights["x"].clone().requires_grad_()
        wanted = x if tensor == "x" else layer.get_parameter(GRADIENTS[file][tensor])
        (gradient,) = torch.autograd.grad((layer(x) * weights["G"]).sum(), wanted)
        if tensor == "W_k" and "right" in GRADIENTS[file][tensor]:
            gradient = gradient.movedim(0, 2).flatten(-2)
        if tensor == "W_q" and "left" in GRADIENTS[file][tensor]:
            gradient = gradient.flatten(0, 1)
        torch.testing.assert_close(gradient, weights[name], rtol=0, atol=1e-10, msg=name)
