"""The in-context regressor: exact, blind to what it is to predict, the same for every score."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mlrforecast.models import Regressor, RegressorConfig
from mlrforecast.models.regressor import interleave
from tests.models import oracle
from tests.models.golden import make
from tests.models.scores_by_name import FIELDS, NAMES

pytestmark = pytest.mark.usefixtures("seeded")

DIMS, POINTS = 3, 7


def config_of(attention: Any = "bilinear_btt", **fields: Any) -> RegressorConfig:
    sizes = {"num_dims": DIMS, "num_points": POINTS, "width": 12, "num_heads": 3, "num_layers": 2}
    return RegressorConfig(
        **{**sizes, "attention": attention, **FIELDS.get(attention, {}), **fields}
    )


def model_of(attention: Any = "bilinear_btt", **fields: Any) -> Regressor:
    return Regressor(config_of(attention, **fields)).double().eval()


def points(length: int = POINTS, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(2, length, DIMS + 1, generator=generator, dtype=torch.float64)
    return drawn[..., :DIMS], drawn[..., DIMS]


def close(value: Tensor, exact: Tensor, atol: float = 1e-10) -> None:
    torch.testing.assert_close(value, exact, rtol=0, atol=atol)


# Exact.

PUBLISHED = {
    "attention_norm.weight": "ln_attn_w",
    "attention.score.key_norm.weight": "btt_ln_z_w",
    "attention.value.weight": "W_v",
    "attention.output.weight": "W_o",
    "network_norm.weight": "ln_mlp_w",
    "network.0.weight": "W_up",
    "network.3.weight": "W_down",
}


@pytest.mark.shared
def test_the_published_model(shared_file: Callable[[str], Path]) -> None:
    with np.load(shared_file("icl_tiny_btt.npz"), allow_pickle=False) as file:
        meta = json.loads(str(file["meta"]))
        tensors = {name: torch.from_numpy(file[name]) for name in file.files if name != "meta"}
    config = RegressorConfig(
        num_dims=meta["n_dims"],
        width=meta["D"],
        num_heads=meta["H"],
        num_layers=meta["n_layer"],
        attention="bilinear_btt",
        attention_options={"tensor_rank": meta["tt_rank"], "key_norm": meta["qk_layernorm"]},
    )
    model = Regressor(config).double()
    assert 2 * model.max_points == meta["block_size"]
    key, query = tensors["h0_btt_W_k"], tensors["h0_btt_W_q"]
    state = {
        "read_in.weight": tensors["W_in"],
        "positions.weight": tensors["wpe"],
        "encoder.blocks.0.attention.score.weights.right": key.unflatten(
            -1, (meta["H"], -1)
        ).movedim(2, 0),
        "encoder.blocks.0.attention.score.weights.left": query.unflatten(0, (meta["H"], -1)),
        "encoder.norm.weight": tensors["ln_final_w"],
        "read_out.weight": tensors["w_out"],
    }
    state |= {f"encoder.blocks.0.{ours}": tensors[f"h0_{x}"] for ours, x in PUBLISHED.items()}
    model.load_state_dict(state)
    xs, ys = tensors["xs"], tensors["ys"]
    close(model(xs, ys), tensors["pred"])
    close(model.loss(xs, ys), tensors["mse"])
    close(model(xs, ys, indices=[4, 1]), tensors["pred"][:, [4, 1]])


@pytest.mark.shared
def test_the_published_order_of_tokens(shared_file: Callable[[str], Path]) -> None:
    example = json.loads(shared_file("icl.json").read_text())["interleave"]
    xs, ys, tokens = (torch.tensor(example[name]) for name in ("xs", "ys", "zs"))
    assert torch.equal(interleave(xs, ys), tokens)
    assert example["readout_positions"] == list(range(0, tokens.shape[1], 2))


def test_the_committed_vectors() -> None:
    expected = json.loads(make.FILE.read_text())["icl"]
    model, xs, ys = make.regression_case()
    loss = model.loss(xs, ys)
    close(model(xs, ys), torch.tensor(expected["outputs"], dtype=torch.float64))
    assert loss.item() == pytest.approx(expected["loss"], abs=1e-12)
    gradients = make.checksums(loss, dict(model.named_parameters()))
    assert gradients == pytest.approx(expected["gradients"], abs=1e-11)


CASES: dict[str, tuple[dict[str, Any], oracle.Attend]] = {
    "btt": (
        {"attention": "bilinear_btt", "attention_options": {"tensor_rank": 1}},
        oracle.btt_attend(2, rank=1),
    ),
    # Blocks of 10, 6 and 3 tokens: those of the configured length, not of the sequence.
    "mlr": (
        {
            "attention": "mlr",
            "ranks": (2, 1, 1),
            "attention_options": {"level_scale": "inverse_rank", "divide_by_shared_levels": True},
            "bias": True,
        },
        oracle.mlr_attend(2, ranks=(2, 1, 1), block_sizes=(10, 6, 3)),
    ),
}


@pytest.mark.parametrize("length", [1, 3, 5])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_loops_with_every_gradient(case: str, length: int) -> None:
    """Quirk 1 as well: sequences shorter than configured, as a curriculum has them."""
    fields, attend = CASES[case]
    sizes = {"num_dims": DIMS, "num_points": 5, "width": 8, "num_heads": 2, "num_layers": 2}
    model = make.filled(Regressor(RegressorConfig(**sizes, **fields)))
    xs, ys = points(length)
    weights = make.leaves(model)
    predictions = oracle.regression(xs, ys, weights, attend)
    close(model(xs, ys), predictions)
    loss, exact = model.loss(xs, ys), (predictions - ys).square().sum() / (2 * length)
    close(loss, exact)
    found, wanted = (
        torch.autograd.grad(value, list(of), materialize_grads=True)
        for value, of in ((loss, model.parameters()), (exact, weights.values()))
    )
    for gradient, wanted_gradient in zip(found, wanted, strict=True):
        close(gradient, wanted_gradient)


# The same for every score.


@pytest.mark.parametrize("name", NAMES)
def test_one_configuration_serves_every_score(name: str) -> None:
    """Quirk 11: the published one had no fields for block sizes and windows."""
    config = config_of(name)
    assert RegressorConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    model = model_of(name).train()
    model.loss(*points()).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@pytest.mark.parametrize("name", NAMES)
def test_a_value_is_predicted_from_the_points_before_it_and_its_own(name: str) -> None:
    model, (xs, ys) = model_of(name), points()
    before = model(xs, ys)
    for k in range(POINTS):
        other_value, other_point = ys.clone(), xs.clone()
        other_value[:, k] += 5
        other_point[:, k] *= -3
        after = model(xs, other_value)
        close(after[:, : k + 1], before[:, : k + 1])
        if k + 1 < POINTS:
            assert (after[:, k + 1] - before[:, k + 1]).abs().min() > 1e-7
        after = model(other_point, ys)
        close(after[:, :k], before[:, :k])
        assert (after[:, k] - before[:, k]).abs().min() > 1e-7


@pytest.mark.parametrize("name", NAMES)
def test_fewer_points_are_the_first_of_more(name: str) -> None:
    model, (xs, ys) = model_of(name), points()
    whole = model(xs, ys)
    for length in range(1, POINTS):
        close(model(xs[:, :length], ys[:, :length]), whole[:, :length])


@pytest.mark.parametrize("positions", ["rotary", "none"])
@pytest.mark.parametrize("name", NAMES)
def test_more_points_than_configured(name: str, positions: str) -> None:
    model, (xs, ys) = model_of(name, positions=positions), points(2 * POINTS)
    close(model(xs, ys)[:, :POINTS], model(xs[:, :POINTS], ys[:, :POINTS]))


def test_indices_choose_points_and_not_tokens() -> None:
    model, (xs, ys) = model_of(), points()
    whole = model(xs, ys)
    for indices in ([0], [6], [-1], [2, 2, -7], range(3), []):
        close(model(xs, ys, indices=indices), whole[:, list(indices)], 1e-14)


# Parts.


def test_parts() -> None:
    model = Regressor(RegressorConfig(num_dims=5, width=16, num_heads=2, bias=True))
    assert model.max_points == 10
    assert model.positions.weight.shape == (20, 16)
    assert model.encoder.blocks[0].attention.score.heads.context_length == 20
    assert model.read_in.bias is None
    assert model.read_out.bias is None
    assert len(model.encoder.blocks) == 6
    assert model_of(positions="none").positions is None


def test_dropout_is_for_training() -> None:
    model, (xs, ys) = model_of(dropout=0.5), points()
    close(model(xs, ys), model(xs, ys))
    model.train()
    assert (model(xs, ys) - model(xs, ys)).abs().max() > 1e-3
    assert model.encoder.blocks[0].network[2].p == model.dropout.p == 0.5


def test_tokens_of_values_hold_nothing_else() -> None:
    xs, ys = points()
    tokens = interleave(xs, ys)
    close(tokens[:, ::2], xs, 0)
    close(tokens[:, 1::2, 0], ys, 0)
    assert (tokens[:, 1::2, 1:] == 0).all()


# Bad input.


@pytest.mark.usefixtures("own_errors")
def test_wrong_points() -> None:
    model, (xs, ys) = model_of(), points(POINTS + 1)
    for wrong in (xs[0], xs[..., :2], xs[:, :0]):
        with pytest.raises(ValueError, match=r"`xs` must have a shape \(B, N, 3\) with at least"):
            model(wrong, ys)
    with pytest.raises(ValueError, match=r"`ys` must have one .* the shape \(2, 7\), got \(2, 8\)"):
        model(xs[:, 1:], ys)
    with pytest.raises(ValueError, match=r"`xs` must have at most 7 points.* got 8"):
        model(xs, ys)
    for index in (7, -8):
        with pytest.raises(ValueError, match=f"`indices` must lie within the 7 points.*{index}"):
            model(xs[:, 1:], ys[:, 1:], indices=[index])
    with pytest.raises(TypeError, match=r"`indices\[1\]` must be an integer, got 1.5"):
        model(xs[:, 1:], ys[:, 1:], indices=[0, 1.5])


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_dims": 0}, "`num_dims` must be an integer of at least 1, got 0"),
        ({"num_points": 2.5}, "`num_points` must be an integer of at least 1, got 2.5"),
        ({"width": 0}, "`width` must be an integer of at least 1, got 0"),
        ({"attention": "btt"}, "`attention` must be one of .*bilinear_btt.*, got 'btt'"),
    ],
)
def test_wrong_fields(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config_of(**fields)
