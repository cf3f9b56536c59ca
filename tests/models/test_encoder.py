"""What must hold for the forecast of any encoder model."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mlrforecast.data import ForecastBatch
from mlrforecast.models import EncoderConfig, EncoderForecaster
from mlrforecast.nn import attentions

pytestmark = pytest.mark.usefixtures("seeded")

CONTEXT, FUTURE = 24, 6

SETTINGS: list[dict[str, Any]] = [
    {},
    {"attention": "standard", "loss": "mse"},
    {"loss": "mae", "patch_length": 1, "patch_stride": 1},
    {"patch_length": 7, "patch_stride": 3, "quantile_levels": (0.2, 0.8)},
    {"linear_share": 0.5, "loss": "mae"},
    {
        "attention": ("bilinear_mlr", "mlr_window"),
        "attention_options": {"window": 2, "num_kv_heads": 1, "qk_norm": True},
        "positions": "rotary",
    },
]


def config_of(**fields: Any) -> EncoderConfig:
    sizes = {"patch_length": 4, "patch_stride": 4, "width": 16, "num_heads": 2, "hidden_width": 24}
    return EncoderConfig(
        context_length=CONTEXT, prediction_length=FUTURE, **{"num_layers": 2, **sizes, **fields}
    )


def model_of(**fields: Any) -> EncoderForecaster:
    return EncoderForecaster(config_of(**fields)).eval()


def both(model: EncoderForecaster, x: Tensor, observed: Tensor | None = None) -> Tensor:
    """Point forecast and quantiles side by side, (B, F, C, 1 + Q)."""
    with torch.no_grad():
        point, quantiles = model(x, observed)
    parts = [point.unsqueeze(-1), *([] if quantiles is None else [quantiles])]
    return torch.cat(parts, dim=-1)


def contexts(missing: bool) -> tuple[Tensor, Tensor | None]:
    x = torch.randn(3, CONTEXT, 4)
    if not missing:
        return x, None
    observed = torch.rand(3, CONTEXT, 4) > 0.3
    return x * observed, observed


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("fields", SETTINGS)
def test_shapes(fields: dict[str, Any], missing: bool) -> None:
    model = model_of(**fields)
    point, quantiles = model(*contexts(missing))
    assert point.shape == (3, FUTURE, 4)
    if model.config.loss != "quantile":
        assert quantiles is None
        return
    assert quantiles.shape == (3, FUTURE, 4, len(model.config.quantile_levels))
    assert (quantiles.diff(dim=-1) >= 0).all()


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(("factor", "shift"), [(3.0, 0.0), (1.0, 50.0), (0.02, -7.0), (1e6, 1e6)])
@pytest.mark.parametrize("fields", SETTINGS)
def test_the_forecast_follows_the_units(
    fields: dict[str, Any], factor: float, shift: float, missing: bool
) -> None:
    model = model_of(**fields)
    x, observed = contexts(missing)
    moved = factor * x + shift
    if observed is not None:
        moved = moved * observed
    expected = factor * both(model, x, observed) + shift
    tolerance = 1e-4 * (factor + abs(shift))
    torch.testing.assert_close(both(model, moved, observed), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("fields", SETTINGS)
def test_channels_and_series_are_forecast_on_their_own(
    fields: dict[str, Any], missing: bool
) -> None:
    model = model_of(**fields)
    x, observed = contexts(missing)
    whole = both(model, x, observed)
    order, batch = torch.tensor([2, 0, 3, 1]), torch.tensor([1, 2, 0])
    shuffled = both(
        model,
        x[batch][:, :, order],
        None if observed is None else observed[batch][:, :, order],
    )
    torch.testing.assert_close(shuffled, whole[batch][:, :, order], atol=1e-5, rtol=0)
    for b, c in ((0, 0), (2, 3), (1, 2)):
        one = None if observed is None else observed[b : b + 1, :, c : c + 1]
        alone = both(model, x[b : b + 1, :, c : c + 1], one)[0, :, 0]
        torch.testing.assert_close(alone, whole[b, :, c], atol=1e-5, rtol=0)


@pytest.mark.parametrize("fields", SETTINGS)
def test_a_complete_context_is_forecast_alike_in_any_company(fields: dict[str, Any]) -> None:
    model = model_of(**fields)
    x, _ = contexts(False)
    alone = both(model, x)
    observed = torch.ones_like(x, dtype=torch.bool)
    torch.testing.assert_close(both(model, x, observed), alone, atol=1e-5, rtol=0)
    observed[0, : CONTEXT // 2] = False
    mixed = both(model, x * observed, observed)
    torch.testing.assert_close(mixed[1:], alone[1:], atol=1e-5, rtol=0)
    assert (mixed[0] - alone[0]).abs().max() > 1e-3


@pytest.mark.parametrize("value", [0.0, 0.1, -1e4])
def test_a_constant_is_forecast_as_itself(value: float) -> None:
    x = torch.full((1, CONTEXT, 1), value)
    assert torch.equal(both(model_of(), x), torch.full((1, FUTURE, 1, 10), value))


def test_an_empty_context_gives_numbers() -> None:
    empty = torch.zeros(1, CONTEXT, 1)
    assert (both(model_of(), empty, empty.bool()) == 0).all()


def test_attentions_differ_and_one_level_is_standard() -> None:
    x, _ = contexts(False)
    standard = model_of(attention="standard")
    outputs = {}
    for name, ranks in (("one", (8,)), ("three", None)):
        model = model_of(attention="mlr", ranks=ranks)
        model.load_state_dict(standard.state_dict())
        outputs[name] = both(model, x)
    torch.testing.assert_close(outputs["one"], both(standard, x), atol=1e-5, rtol=0)
    assert (outputs["three"] - both(standard, x)).abs().max() > 1e-4


@pytest.mark.parametrize("attention", list(attentions))
def test_tokens_see_those_before_and_after_them(attention: str) -> None:
    model = model_of(attention=attention)
    tokens = torch.randn(1, 6, 16)
    for changed, seen in ((-1, -2), (0, 1)):
        moved = tokens.clone()
        moved[:, changed] += torch.randn(16)
        difference = model.backbone(moved) - model.backbone(tokens)
        assert difference[:, seen].abs().max() > 1e-4


@pytest.mark.parametrize("fields", SETTINGS)
def test_gradients_reach_every_parameter(fields: dict[str, Any]) -> None:
    model = model_of(**fields)
    past, observed = contexts(True)
    assert observed is not None
    model.loss(ForecastBatch(past, torch.randn(3, FUTURE, 4), observed)).backward()
    for name, parameter in model.named_parameters():
        if name == "linear.weight":
            continue
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        # Adding the same to all scores of a row changes no weight of standard attention.
        if not (name.endswith("key.bias") and model.config.attention == "standard"):
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("fields", SETTINGS)
def test_the_loss_is_that_of_the_head_on_the_observed_steps(fields: dict[str, Any]) -> None:
    model = model_of(**fields, frequency_weight=0.0)
    past, future = torch.randn(2, CONTEXT, 3), torch.randn(2, FUTURE, 3)
    observed = torch.rand(2, FUTURE, 3) > 0.4
    found = model.loss(ForecastBatch(past, future, None, observed)).item()
    point, quantiles = model(past)
    error = (future - point)[observed]
    expected = error.square().mean() if model.config.loss == "mse" else error.abs().mean()
    if quantiles is not None:
        short = (future.unsqueeze(-1) - quantiles)[observed]
        levels = torch.tensor(model.config.quantile_levels)
        expected = expected + torch.where(short > 0, levels * short, (levels - 1) * short).mean()
    assert found == pytest.approx(expected.item(), rel=1e-5)
    spoiled = future.where(observed, 1e5)
    assert model.loss(ForecastBatch(past, spoiled, None, observed)).item() == found


def test_a_backbone_of_ones_own() -> None:
    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(6, 6)
            self.masks: list[Tensor | None] = []

        def forward(self, tokens: Tensor, key_mask: Tensor | None = None) -> Tensor:
            self.masks.append(key_mask)
            return self.mix(tokens.transpose(1, 2)).transpose(1, 2)

    mixer = Mixer()
    # 10 is no multiple of the four heads, which only the default backbone has.
    config = config_of(width=10, num_heads=4)
    model = EncoderForecaster(config, mixer).eval()
    assert model.backbone is mixer
    for missing in (False, True):
        assert model(*contexts(missing))[0].shape == (3, FUTURE, 4)
    assert mixer.masks[0] is None
    assert mixer.masks[1].shape == (12, 6)
    with pytest.raises(ValueError, match="`num_heads` must divide the width 10, got 4"):
        EncoderForecaster(config)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_heads": 3}, "`num_heads` must divide the width 16, got 3"),
        ({"ranks": (4, 2)}, "`ranks` must sum to the head width 8"),
        ({"block_sizes": (None, 2, 3)}, "`block_sizes`"),
        (
            {"attention_options": {"num_kv_heads": 3}},
            r"`num_kv_heads` must divide `num_heads` \(2\)",
        ),
    ],
)
def test_levels_and_heads_are_checked_with_the_encoder(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        EncoderForecaster(config_of(**fields))


@pytest.mark.usefixtures("own_errors")
def test_a_context_of_another_length_is_refused() -> None:
    """Of a longer one the newest steps would be in no token."""
    model = EncoderForecaster(
        EncoderConfig(context_length=48, prediction_length=4, patch_length=4, patch_stride=4)
    )
    for shape in ((1, 49, 1), (1, 47, 1), (1, 48)):
        with pytest.raises(ValueError, match=r"`past_target` must have the shape .* T=48 steps"):
            model(torch.zeros(*shape))
    x = torch.zeros(1, 48, 1)
    for observed in (torch.ones(1, 48, 1), torch.ones(1, 47, 1, dtype=torch.bool)):
        with pytest.raises(ValueError, match="`past_observed` must be a bool tensor"):
            model(x, observed)


@pytest.mark.parametrize("loss", ["quantile", "mse", "normal", "student_t"])
@pytest.mark.parametrize("missing", [False, True])
def test_a_linear_member_has_its_share_of_the_forecast(loss: str, missing: bool) -> None:
    model = model_of(loss=loss, linear_share=0.3)
    x, observed = contexts(missing)
    with torch.no_grad():
        # Before it is solved it has none.
        network = model(x, observed)[0]
        weight = torch.randn(FUTURE, CONTEXT)
        model.linear.weight.copy_(weight)
        assert torch.equal(model(x, observed)[0], network)
        model.linear.share.fill_(0.3)
        found = model(x, observed)[0]
    values = x.double()
    seen = torch.ones_like(x).bool() if observed is None else observed
    count = seen.sum(1, keepdim=True)
    mean = (values * seen).sum(1, keepdim=True) / count
    spread = (((values - mean) ** 2 * seen).sum(1, keepdim=True) / count).sqrt()
    normal = torch.where(seen, (values - mean) / spread, 0.0)
    linear = torch.einsum("ft,btc->bfc", weight.double(), normal) * spread + mean
    expected = 0.7 * network.double() + 0.3 * linear
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


def test_the_network_learns_alone() -> None:
    model = model_of(linear_share=0.5, dropout=0.0)
    batch = ForecastBatch(torch.randn(4, CONTEXT, 2), torch.randn(4, FUTURE, 2))
    alone = model.loss(batch)
    with torch.no_grad():
        model.linear.weight.normal_()
        model.linear.share.fill_(0.5)
    assert model.eval().loss(batch) != alone
    assert torch.equal(model.train().loss(batch), alone)
    model.loss(batch).backward()
    assert model.linear.weight.grad is None
