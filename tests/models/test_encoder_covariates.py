"""What must hold for the covariates and the calendar of an encoder model."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mlrforecast.data import ForecastBatch
from mlrforecast.models import EncoderConfig, EncoderForecaster

pytestmark = pytest.mark.usefixtures("seeded")

CONTEXT, FUTURE, CHANNELS = 23, 5, 3

ROLES = {
    "past": {"past_cardinalities": (0, 4)},
    "known": {"known_cardinalities": (3, 0, 0)},
    "static": {"static_cardinalities": (0, 5)},
    "calendar": {"num_calendar_features": 4},
}
COLUMNS: list[dict[str, Any]] = [
    *ROLES.values(),
    {name: value for role in ROLES.values() for name, value in role.items()},
    {"scaling": "robust", "loss": "mse", "known_cardinalities": (0,)},
    {"scaling": "mean_abs", "loss": "mae", "num_calendar_features": 8, "patch_length": 1},
]
ALL = COLUMNS[4]


def config_of(**fields: Any) -> EncoderConfig:
    sizes = {"patch_length": 5, "width": 16, "num_heads": 2, "hidden_width": 24, "num_layers": 1}
    given = {**sizes, **fields}
    return EncoderConfig(
        **{"context_length": CONTEXT, "prediction_length": FUTURE, **given},
        patch_stride=max(1, given["patch_length"] - 1),
    )


def model_of(**fields: Any) -> EncoderForecaster:
    """A model whose every part does something."""
    model = EncoderForecaster(config_of(**fields)).eval()
    if model.known_effect is not None:
        torch.nn.init.normal_(model.known_effect.weights.weight, std=0.3)
    if model.calendar_effect is not None:
        torch.nn.init.normal_(model.calendar_effect.out.weight, std=0.3)
        torch.nn.init.normal_(model.calendar_effect.direct.weight, std=0.3)
    return model


def covariates(cardinalities: tuple[int, ...], *rows: int) -> Tensor | None:
    columns = [
        torch.randint(0, n + 1, rows).float() if n else torch.randn(rows) for n in cardinalities
    ]
    return torch.stack(columns, dim=-1) if columns else None


def batch_of(model: EncoderForecaster, size: int = 4, missing: bool = False) -> ForecastBatch:
    config = model.config
    steps, future, calendar = config.context_length, config.prediction_length, None
    if config.num_calendar_features:
        calendar = torch.rand(size, future, config.num_calendar_features)
    observed = torch.rand(size, steps, CHANNELS) > 0.3 if missing else None
    past = 5 + torch.randn(size, steps, CHANNELS)
    return ForecastBatch(
        past if observed is None else past * observed,
        torch.randn(size, future, CHANNELS),
        observed,
        None,
        covariates(config.past_cardinalities, size, steps),
        covariates(config.known_cardinalities, size, steps + future),
        covariates(config.static_cardinalities, size),
        calendar,
    )


def each(batch: ForecastBatch, change: Callable[[Tensor], Tensor]) -> ForecastBatch:
    return ForecastBatch(*(None if part is None else change(part) for part in batch))


def both(model: EncoderForecaster, batch: ForecastBatch) -> Tensor:
    """Point forecast and quantiles side by side, (B, F, C, 1 + Q)."""
    with torch.no_grad():
        point, quantiles = model.forecast(batch)
    parts = [point.unsqueeze(-1), *([] if quantiles is None else [quantiles])]
    return torch.cat(parts, dim=-1)


@pytest.mark.parametrize("fields", COLUMNS)
def test_a_batch_is_forecast_from_all_its_parts_but_the_target(fields: dict[str, Any]) -> None:
    model = model_of(**fields)
    batch = batch_of(model, missing=True)
    with torch.no_grad():
        expected = model(
            batch.past_target,
            batch.past_observed,
            past_covariates=batch.past_covariates,
            known_covariates=batch.known_covariates,
            static_covariates=batch.static_covariates,
            calendar=batch.calendar,
        )
        found = model.forecast(batch._replace(future_target=batch.future_target * torch.nan))
    assert torch.equal(found[0], expected[0])
    assert (found[1] is None) == (expected[1] is None)
    assert found[1] is None or torch.equal(found[1], expected[1])


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("fields", COLUMNS)
def test_a_window_is_forecast_alike_in_any_company(fields: dict[str, Any], missing: bool) -> None:
    model = model_of(**fields)
    batch = batch_of(model, missing=missing)
    whole = both(model, batch)
    scale = whole.abs().max().item()
    order = torch.tensor([2, 0, 3, 1])
    shuffled = both(model, each(batch, lambda part: part[order]))
    torch.testing.assert_close(shuffled, whole[order], rtol=0, atol=1e-6 * scale)
    for window in range(4):
        alone = both(model, each(batch, lambda part, w=window: part[w : w + 1]))
        torch.testing.assert_close(alone[0], whole[window], rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize("fields", COLUMNS)
def test_channels_share_covariates_and_are_forecast_on_their_own(fields: dict[str, Any]) -> None:
    model = model_of(**fields)
    batch = batch_of(model, missing=True)
    whole = both(model, batch)
    for channel in range(CHANNELS):
        one = batch._replace(
            past_target=batch.past_target[..., channel : channel + 1],
            past_observed=batch.past_observed[..., channel : channel + 1],
        )
        torch.testing.assert_close(
            both(model, one)[:, :, 0], whole[:, :, channel], rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("role", ROLES)
def test_every_column_at_every_step_matters(role: str) -> None:
    model = model_of(**ALL)
    batch = batch_of(model, size=1)
    name = {"calendar": "calendar"}.get(role, f"{role}_covariates")
    before = both(model, batch)
    given = getattr(batch, name)
    cardinalities = ROLES[role].get(f"{role}_cardinalities", (0,) * given.shape[-1])
    for place in range(given[0, ..., 0].numel()):
        for column, size in enumerate(cardinalities):
            moved = given.clone()
            entry = moved[0] if role == "static" else moved[0, place]
            entry[column] = (entry[column] + 1) % (size + 1) if size else entry[column] + 1
            change = both(model, batch._replace(**{name: moved})) - before
            assert change.abs().max() > 1e-6, (place, column)


def test_the_order_of_columns_does_not_matter() -> None:
    """The same model with its columns, and their weights, in another order."""
    model = model_of(known_cardinalities=(0, 3, 0, 5), past_cardinalities=(0, 0))
    batch = batch_of(model)
    other = EncoderForecaster(
        dataclasses.replace(model.config, known_cardinalities=(5, 0, 3, 0))
    ).eval()
    assert batch.known_covariates is not None
    moved = batch._replace(
        known_covariates=batch.known_covariates[..., [3, 2, 1, 0]],
        past_covariates=batch.past_covariates[..., [1, 0]],
    )
    # Features: two numbers, three of the category of three, five of that of five.
    order = torch.tensor([1, 0, *range(5, 10), *range(2, 5)])
    weights = dict(model.state_dict())
    first, second = "known_columns.categories.0.weight", "known_columns.categories.1.weight"
    weights[first], weights[second] = weights[second], weights[first]

    def features(weight: Tensor, steps: int, kept: Tensor) -> Tensor:
        return weight.unflatten(1, (-1, steps))[:, kept].flatten(1)

    of_tokens = torch.cat([torch.tensor([1, 0]), 2 + order])
    weights["embedding.covariates.weight"] = features(
        weights["embedding.covariates.weight"], 5, of_tokens
    )
    weights["known_effect.curves.weight"] = features(
        weights["known_effect.curves.weight"], 9, order
    )
    read = 9 * 10
    for kind in ("weight", "bias"):
        told = weights[f"known_effect.weights.{kind}"]
        direct = told[:read].unflatten(0, (10, 9))[order].flatten(0, 1)
        weights[f"known_effect.weights.{kind}"] = torch.cat([direct, told[read:]])
    other.load_state_dict(weights)
    torch.testing.assert_close(both(other, moved), both(model, batch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fields", COLUMNS)
def test_the_forecast_follows_the_units(fields: dict[str, Any]) -> None:
    model = model_of(**fields)
    batch = batch_of(model, missing=True)
    shift = 0.0 if model.config.scaling == "mean_abs" else 40.0
    moved = (3.0 * batch.past_target + shift) * batch.past_observed
    expected = 3.0 * both(model, batch) + shift
    torch.testing.assert_close(
        both(model, batch._replace(past_target=moved)), expected, rtol=1e-4, atol=1e-3
    )


def test_quantiles_move_with_the_point() -> None:
    model = model_of(num_calendar_features=4)
    batch = batch_of(model)
    moved = batch._replace(calendar=batch.calendar + 1)
    before, after = both(model, batch), both(model, moved)
    assert (after - before).abs().min() > 0
    torch.testing.assert_close(
        after - after[..., :1], before - before[..., :1], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("fields", COLUMNS)
def test_gradients_reach_every_parameter_after_one_step(fields: dict[str, Any]) -> None:
    model = EncoderForecaster(config_of(**fields, dropout=0.0))
    batch = batch_of(model, size=16, missing=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        model.loss(batch).backward()
        optimiser.step()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        rows = parameter.grad[1:] if ".categories." in name else parameter.grad
        assert rows.abs().sum() > 0, name


@pytest.mark.parametrize("scaling", ["standard", "robust"])
def test_a_constant_is_forecast_as_itself_whatever_is_known(scaling: str) -> None:
    model = model_of(**{**ALL, "scaling": scaling})
    batch = batch_of(model)
    constant = batch._replace(past_target=torch.full_like(batch.past_target, -3.7))
    assert (both(model, constant) == torch.tensor(-3.7)).all()


def test_mean_abs_keeps_the_level_in_the_window() -> None:
    model = model_of(scaling="mean_abs")
    flat = torch.full((1, CONTEXT, 1), 2.0)
    assert (both(model, ForecastBatch(flat, flat)) != 2.0).all()
    assert (both(model, ForecastBatch(0 * flat, flat)) == 0).all()


def test_an_empty_context_gives_numbers() -> None:
    model = model_of(**ALL)
    batch = batch_of(model)
    empty = torch.zeros_like(batch.past_target)
    assert (both(model, batch._replace(past_target=empty, past_observed=empty.bool())) == 0).all()


def test_without_columns_there_are_no_parts_for_them() -> None:
    plain = EncoderForecaster(config_of())
    assert plain.known_effect is plain.calendar_effect is None
    assert {name.split(".")[0] for name in plain.state_dict()} == {"embedding", "backbone", "head"}
    assert "embedding.covariates.weight" not in plain.state_dict()


def test_the_calendar_changes_no_first_weight_of_the_rest() -> None:
    """So that with and without it can be compared from one seed."""
    torch.manual_seed(0)
    plain = EncoderForecaster(config_of()).state_dict()
    torch.manual_seed(0)
    told = EncoderForecaster(config_of(num_calendar_features=4)).state_dict()
    assert all(torch.equal(told[name], value) for name, value in plain.items())


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("past_covariates", (4, CONTEXT, 2)),
        ("known_covariates", (4, CONTEXT + FUTURE, 3)),
        ("static_covariates", (4, 2)),
        ("calendar", (4, FUTURE, 4)),
    ],
)
def test_wrong_covariates_are_named(name: str, shape: tuple[int, ...]) -> None:
    model = model_of(**ALL)
    batch = batch_of(model)
    right = getattr(batch, name)
    assert right.shape == shape
    wrong = [None, right[:-1], right[..., :-1], right.unsqueeze(0), right.long()]
    if len(shape) == 3:
        wrong += [right[:, 1:], right[0]]
    for given in wrong:
        with pytest.raises(ValueError, match=f"`{name}` must be a tensor of floats of the shape"):
            model.forecast(batch._replace(**{name: given}))
    with pytest.raises(ValueError, match=f"`{name}` must be None"):
        model_of().forecast(ForecastBatch(batch.past_target, batch.future_target, **{name: right}))


# Alignment.


def trained(model: EncoderForecaster, batches: Callable[[], ForecastBatch], steps: int) -> Tensor:
    """Train, and return the absolute errors on another batch."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    model.train()
    for _ in range(steps):
        optimiser.zero_grad()
        model.loss(batches()).backward()
        optimiser.step()
        schedule.step()
    batch = batches()
    with torch.no_grad():
        return (model.eval().forecast(batch)[0] - batch.future_target).abs()


def with_relative(x: Tensor) -> Tensor:
    """Numbers as a batch has them: as they are, and relative to those of the context."""
    context = x[:, :CONTEXT]
    deviation = context.std(dim=1, keepdim=True, correction=0)
    return torch.cat([x, (x - context.mean(dim=1, keepdim=True)) / deviation], dim=-1)


@pytest.mark.parametrize(("role", "lag"), [("known", 0), ("known", 1), ("past", 1)])
def test_a_target_that_copies_a_covariate_is_forecast_without_error(role: str, lag: int) -> None:
    """Noise that is this step's covariate, or the last one's; only its own steps will do."""
    future = FUTURE if role == "known" else 1
    config = config_of(
        prediction_length=future,
        dropout=0.0,
        loss="mae",
        frequency_weight=0.0,
        **{f"{role}_cardinalities": (0, 0)},
    )
    model = EncoderForecaster(config)

    def batches() -> ForecastBatch:
        x = torch.randn(128, CONTEXT + future + 1, 1)
        y = x[:, 1 - lag : CONTEXT + future + 1 - lag]
        told = with_relative(x[:, 1:])
        given = told if role == "known" else told[:, :CONTEXT]
        return ForecastBatch(y[:, :CONTEXT], y[:, CONTEXT:], **{f"{role}_covariates": given})

    error = trained(model, batches, 300)
    # Noise has a mean absolute value of 0.8.
    assert error.mean() < 0.1
