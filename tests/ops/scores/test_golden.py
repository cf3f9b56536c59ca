"""Exactness against the published code: every tensor that is stored for these scores."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear

from mlrforecast.ops import (
    bilinear_btt_attention,
    bilinear_btt_scores,
    bilinear_mlr_attention,
    bilinear_mlr_scores,
    dot_scores,
    global_window_attention,
    global_window_scores,
    logit_factor,
    rms_clamp,
    sliding_window_attention,
    standard_attention,
    window_mask,
)

BILINEAR_MLR = ("bilinear_mlr_d16.npz", "bilinear_mlr_d64.npz")
BTT = ("btt_d16.npz", "btt_d16_smallw.npz", "btt_d64.npz")

pytestmark = pytest.mark.shared


class Vectors:
    """The tensors of a file, which notes those that were read or compared."""

    def __init__(self, path: Path) -> None:
        with np.load(path, allow_pickle=False) as file:
            self.meta: dict[str, Any] = json.loads(str(file["meta"]))
            self.stored = {n: torch.from_numpy(file[n]) for n in file.files if n != "meta"}
        self.seen: set[str] = set()
        self.leaves: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        self.seen.add(name)
        return self.leaves.get(name, self.stored[name])

    @property
    def unseen(self) -> set[str]:
        return set(self.stored) - self.seen

    def check(self, name: str, value: Tensor, *, optional: bool = False) -> None:
        """Compare with what is stored; ``optional`` where not every variant stores it."""
        if optional and name not in self.stored:
            return
        exact = self[name].to(value.dtype)
        torch.testing.assert_close(value, exact, rtol=0, atol=1e-10, msg=lambda m: f"{name}: {m}")

    def check_gradients(self, variant: str, forward: Callable[[], Tensor]) -> None:
        """Compare each gradient that is stored for a variant."""
        stored = [n for n in self.stored if n[0] == "d" and n.endswith(f"__{variant}")]
        for name in stored:
            parameter = self.parameter(name[1:].split("__")[0], variant)
            leaf = self.stored[parameter].clone().requires_grad_()
            self.leaves = {parameter: leaf}
            (grad,) = torch.autograd.grad((self["G"] * forward()).sum(), leaf)
            self.leaves = {}
            self.check(name, grad)

    def parameter(self, name: str, variant: str) -> str:
        """Return the stored name of what a gradient is taken by."""
        suffixed = f"{name}_{variant.split('_')[0]}"
        return name if name in self.stored else suffixed

    def heads(self, name: str, linear_map: str, norm: str | None = None) -> Tensor:
        """Project, split into heads and normalise: (B, H, T, columns)."""
        x = linear(self[name], self[linear_map]).unflatten(-1, (self.meta["H"], -1))
        x = x if norm is None else layer_norm(x, x.shape[-1:], self[norm], eps=self.meta["ln_eps"])
        return x.transpose(1, 2)

    def output(self, attended: Tensor) -> Tensor:
        return linear(attended.transpose(1, 2).flatten(-2), self["W_o"])


def unit_values(v: Tensor) -> Tensor:
    """Return values by which the weights themselves come out."""
    return torch.eye(v.shape[2], dtype=v.dtype).expand(*v.shape[:2], -1, -1)


@pytest.fixture
def vectors(
    request: pytest.FixtureRequest, shared_file: Callable[[str], Path]
) -> Iterator[Vectors]:
    """Open a file, and at the end see that nothing in it was left out."""
    opened = Vectors(shared_file(request.param))
    yield opened
    assert opened.unseen == set()


def causal_rows(x: Tensor) -> Tensor:
    return x.masked_fill(torch.ones(x.shape[-2:]).triu(1) > 0, float("-inf")).softmax(-1)


# Standard attention and windows.


def queries_and_keys(vectors: Vectors, switches: dict[str, Any]) -> tuple[Tensor, Tensor]:
    wide = "_wide" if "d_qk_head" in switches else ""
    normed = switches.get("qk_layernorm", True)  # the published global window always norms
    q, k = (
        vectors.heads("x", f"W_{side}{wide}", f"ln_{side}{wide}_w" if normed else None)
        for side in "qk"
    )
    return q, k


def check_standard(vectors: Vectors, variant: str, switches: dict[str, Any]) -> None:
    q, k = queries_and_keys(vectors, switches)
    v = vectors.heads("x", "W_v")
    scale = logit_factor(q.shape[-1], "inverse_sqrt_width" if switches["sp_scaling"] else "mup")
    vectors.check(f"S__{variant}", dot_scores(q, k, scale=scale))
    weights = standard_attention(q, k, unit_values(v), causal=True, scale=scale)
    vectors.check(f"P_causal__{variant}", weights)
    for mask in ("causal", "bidir"):
        out = standard_attention(q, k, v, causal=mask == "causal", scale=scale)
        vectors.check(f"y_{mask}__{variant}", vectors.output(out))


def check_sliding(vectors: Vectors, variant: str, switches: dict[str, Any]) -> None:
    q, k = queries_and_keys(vectors, switches)
    v, window = vectors.heads("x", "W_v"), switches["window"]
    scale = logit_factor(q.shape[-1], "inverse_sqrt_width" if switches["sp_scaling"] else "mup")
    vectors.check(f"S__{variant}", dot_scores(q, k, scale=scale))
    near = window_mask(q.shape[2], k.shape[2], window=window, causal=True)
    vectors.check(f"mask_swa_w{window}", near.to(torch.uint8))
    options = {"window": window, "causal": True, "scale": scale}
    weights = sliding_window_attention(q, k, unit_values(v), **options)
    vectors.check(f"P__{variant}", weights)
    assert ((weights > 0) == near).all(), "both ends of the window are attended, nothing else"
    vectors.check(f"y__{variant}", vectors.output(sliding_window_attention(q, k, v, **options)))


def check_global_window(vectors: Vectors, variant: str, switches: dict[str, Any]) -> None:
    q, k = queries_and_keys(vectors, switches)
    v, window = vectors.heads("x", "W_v"), switches["window"]
    ranks = (switches["global_dims"], switches["local_dims"])
    scales = [logit_factor(rank, "mup") for rank in ranks]
    everywhere, near = global_window_scores(q, k, ranks=ranks, scales=scales)
    vectors.check(f"S_global__{variant}", everywhere)
    vectors.check(f"S_local__{variant}", near)
    hidden = ~window_mask(q.shape[2], k.shape[2], window=window, causal=True)
    weights = causal_rows(everywhere), near.masked_fill(hidden, float("-inf")).softmax(-1)
    vectors.check(f"P_global__{variant}", weights[0])
    vectors.check(f"P_local__{variant}", weights[1])
    options = {"ranks": ranks, "scales": scales, "window": window, "causal": True}
    total = global_window_attention(q, k, unit_values(v), combine="sum", **options)
    torch.testing.assert_close(total, sum(weights), rtol=0, atol=1e-10)
    torch.testing.assert_close(total.sum(-1), torch.full_like(total[..., 0], 2.0))
    out = global_window_attention(q, k, v, combine="sum", **options)
    vectors.check(f"y__{variant}", vectors.output(out))
    mean = global_window_attention(q, k, v, **options)
    torch.testing.assert_close(2 * mean, out, rtol=0, atol=1e-14)


@pytest.mark.parametrize("vectors", ["swa_t16.npz"], indirect=True)
def test_standard_and_windows(vectors: Vectors) -> None:
    checks = {"mha": check_standard, "swa": check_sliding, "gswa": check_global_window}
    for variant, switches in vectors.meta["variants"].items():
        checks[switches["kind"]](vectors, variant, switches)


# Bilinear MLR.


def mlr_arguments(vectors: Vectors, switches: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    meta, suffix = vectors.meta, switches["weight_suffix"]
    levels = range(len(meta["ranks"]))
    weights = []
    for side in "qk":
        raw = [vectors[f"W_{side}{lvl}{suffix}"] for lvl in levels]
        clamped = [rms_clamp(w, fan_in=w.shape[1], fan_out=w.shape[2]) for w in raw]
        weights.append(clamped)
        for lvl, weight in enumerate(clamped):
            assert tuple(weight.shape) == (
                meta["num_blocks"][lvl],
                meta["D"] // meta["num_blocks"][lvl],
                meta["H"] * meta["ranks"][lvl],
            )
            if not vectors.leaves:
                vectors.check(f"W_{side}{lvl}{suffix}_normed", weight)
    options: dict[str, Any] = {
        "num_heads": meta["H"],
        "logit_scale": "mup" if switches["mup_logit_scaling"] else "inverse_sqrt_width",
        "divide_by_num_levels": switches["divide_by_num_levels"],
    }
    if switches["qk_layernorm"]:
        for side in "qk":
            options[f"{side}_norms"] = [vectors[f"ln_{side}{lvl}_w"] for lvl in levels]
    return weights, options


@pytest.mark.parametrize("vectors", BILINEAR_MLR, indirect=True)
def test_bilinear_mlr(vectors: Vectors) -> None:
    for variant, switches in vectors.meta["variants"].items():

        def forward(causal: bool = True, switches: dict[str, Any] = switches) -> Tensor:
            weights, options = mlr_arguments(vectors, switches)
            x, v = vectors["x"], vectors.heads("x", "W_v")
            out = bilinear_mlr_attention(x, x, v, *weights, causal=causal, **options)
            return vectors.output(out)

        weights, options = mlr_arguments(vectors, switches)
        x, v = vectors["x"], vectors.heads("x", "W_v")
        vectors.check(f"S__{variant}", bilinear_mlr_scores(x, x, *weights, **options))
        unit = unit_values(v)
        weights_of_keys = bilinear_mlr_attention(x, x, unit, *weights, causal=True, **options)
        vectors.check(f"P_causal__{variant}", weights_of_keys, optional=True)
        vectors.check(f"y_causal__{variant}", forward())
        vectors.check(f"y_bidir__{variant}", forward(causal=False))
        vectors.check_gradients(variant, forward)


# Bilinear BTT.


def btt_arguments(
    vectors: Vectors, switches: dict[str, Any]
) -> tuple[list[Tensor], dict[str, Any]]:
    meta, rank = vectors.meta, switches["tt_rank"]
    fans = {
        "q": (meta["c"] * rank, meta["a"]),
        "k": (meta["d"], meta["H"] * meta["b"] * rank),
    }
    weights = []
    for side, (fan_in, fan_out) in fans.items():
        raw = vectors[f"W_{side}_s{rank}"]
        weights.append(rms_clamp(raw, fan_in=fan_in, fan_out=fan_out))
        if not vectors.leaves:
            vectors.check(f"W_{side}_s{rank}_normed", weights[-1])
    scale = "mup" if switches["mup_logit_scaling"] else "inverse_sqrt_width"
    return weights, {
        "num_heads": meta["H"],
        "norm_weight": vectors["ln_z_w"],
        "logit_scale": scale,
    }


def btt_input(vectors: Vectors, switches: dict[str, Any]) -> Tensor:
    x = vectors["x"]
    if not switches["extra_layernorm_on_x"]:
        return x
    return layer_norm(x, x.shape[-1:], vectors["ln_x_w"], eps=vectors.meta["ln_eps"])


@pytest.mark.parametrize("vectors", BTT, indirect=True)
def test_bilinear_btt(vectors: Vectors) -> None:
    for variant, switches in vectors.meta["variants"].items():

        def attend(v: Tensor | None, causal: bool, switches: dict[str, Any] = switches) -> Tensor:
            """Attend with values of the layer, or those given."""
            weights, options = btt_arguments(vectors, switches)
            x = btt_input(vectors, switches)
            if v is None:
                v = linear(x, vectors["W_v"]).unflatten(-1, (vectors.meta["H"], -1))
                v = v.transpose(1, 2)
            return bilinear_btt_attention(x, x, v, *weights, causal=causal, **options)

        weights, options = btt_arguments(vectors, switches)
        x = btt_input(vectors, switches)
        vectors.check(f"S__{variant}", bilinear_btt_scores(x, x, *weights, **options))
        unit = unit_values(x.unsqueeze(1).expand(-1, vectors.meta["H"], -1, -1))
        vectors.check(f"P_causal__{variant}", attend(unit, True), optional=True)
        vectors.check(f"y_causal__{variant}", vectors.output(attend(None, True)))
        vectors.check(f"y_bidir__{variant}", vectors.output(attend(None, False)), optional=True)
        vectors.check_gradients(variant, lambda run=attend: vectors.output(run(None, True)))


def test_the_clamp_is_on_and_off_in_the_vectors(shared_file: Callable[[str], Path]) -> None:
    """Small weights come back as they are; others shrink by the divisor of the formula."""
    small, mixed = (Vectors(shared_file(n)) for n in ("btt_d16_smallw.npz", "bilinear_mlr_d16.npz"))
    assert torch.equal(small["W_q_s1"], small["W_q_s1_normed"])
    assert torch.equal(small["W_k_s1"], small["W_k_s1_normed"])
    shrunk = [
        not torch.equal(mixed[f"W_q{lvl}_mixed"], mixed[f"W_q{lvl}_mixed_normed"])
        for lvl in range(3)
    ]
    assert shrunk == [True, False, False]
