"""The optimiser of either parametrisation."""

from typing import Any

import pytest
import torch

from mlrforecast.models import CausalLM, CausalLMConfig
from mlrforecast.nn import EncoderBlock, initialise_mup, mup_table
from mlrforecast.training import build_optimizer, mup_groups

pytestmark = pytest.mark.usefixtures("seeded")

RATE, DECAY = 1e-3, 0.3


def model_of(attention: str = "bilinear_btt") -> CausalLM:
    config = CausalLMConfig(
        vocabulary_size=11,
        context_length=8,
        width=24,
        num_heads=2,
        num_layers=2,
        attention=attention,
        bias=True,
    )
    return CausalLM(config)


def loss_of(model: CausalLM) -> torch.Tensor:
    text = torch.arange(18).reshape(2, 9) % 11
    return model.loss(text[:, :-1], text[:, 1:])


def test_the_groups_are_few_and_hold_each_parameter_with_its_own_rate_and_decay() -> None:
    model = model_of()
    groups = mup_groups(model, RATE, DECAY)
    pairs = [(group["lr"], group["weight_decay"]) for group in groups]
    assert len(set(pairs)) == len(pairs) <= 6
    given = {
        id(p): (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]
    }
    assert sum(len(group["params"]) for group in groups) == len(given)
    names = {name: id(p) for name, p in model.named_parameters()}
    assert set(names.values()) == set(given)
    for row in mup_table(model, learning_rate=RATE, weight_decay=DECAY):
        assert given[names[row.name]] == (row.learning_rate, row.weight_decay)


@pytest.mark.parametrize("attention", ["mlr", "bilinear_mlr", "bilinear_btt"])
def test_the_first_step_of_every_entry_is_as_large_as_the_rate_of_its_row(attention: str) -> None:
    """Adam's first step is the rate times the sign of the gradient, however small that is."""
    # In float32 the squares of such gradients would be 0.
    model = model_of(attention).double()
    for name, parameter in model.named_parameters():
        if "norm" not in name and parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    optimizer = build_optimizer(model, learning_rate=RATE, parametrization="mup")
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    (1e-10 * loss_of(model)).backward()
    optimizer.step()
    rows = {row.name: row for row in mup_table(model, learning_rate=RATE)}
    for name, parameter in model.named_parameters():
        # A bias of all keys changes no weight: what is left of its gradient is rounding.
        clear = parameter.grad.abs() > 1e-17
        assert clear.any(), name
        step = (parameter.detach() - before[name])[clear]
        expected = -rows[name].learning_rate * parameter.grad[clear].sign()
        torch.testing.assert_close(step, expected, rtol=2e-3, atol=0, msg=name)
        still = parameter.grad == 0
        assert torch.equal(parameter.detach()[still], before[name][still]), name


def test_mup_has_the_published_betas_and_epsilon() -> None:
    optimizer = build_optimizer(
        model_of(), learning_rate=RATE, weight_decay=DECAY, parametrization="mup"
    )
    for group in optimizer.param_groups:
        assert (group["betas"], group["eps"]) == ((0.9, 0.95), 1e-20)


def test_decay_shrinks_matrices_by_their_own_rate_and_nothing_else() -> None:
    model = model_of()
    optimizer = build_optimizer(
        model, learning_rate=RATE, weight_decay=DECAY, parametrization="mup"
    )
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for row in mup_table(model, learning_rate=RATE):
        factor = 1 - row.learning_rate * DECAY if len(row.shape) >= 2 else 1.0
        found = model.get_parameter(row.name).detach()
        torch.testing.assert_close(found, factor * before[row.name], rtol=1e-6, atol=0)


@pytest.mark.parametrize("fused", [True, False])
def test_the_standard_optimiser_is_adamw_as_torch_has_it(fused: bool) -> None:
    """What every result so far was trained with: two groups, torch's betas and epsilon."""
    ours, plain = model_of(), model_of()
    plain.load_state_dict(ours.state_dict())
    matrices = [p for p in plain.parameters() if p.ndim >= 2]
    others = [p for p in plain.parameters() if p.ndim < 2]
    groups: Any = [{"params": matrices, "weight_decay": DECAY}, {"params": others}]
    expected = torch.optim.AdamW(
        groups, lr=0.01, weight_decay=0.0, betas=(0.9, 0.999), eps=1e-8, fused=fused
    )
    found = build_optimizer(ours, learning_rate=0.01, weight_decay=DECAY, fused=fused)
    for _ in range(3):
        for model, optimizer in ((ours, found), (plain, expected)):
            optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()
    for (name, p), q in zip(ours.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=0, msg=name)


def test_an_unknown_parametrisation_is_refused() -> None:
    with pytest.raises(
        ValueError, match="`parametrization` must be one of standard, mup, got 'sp'"
    ):
        build_optimizer(model_of(), learning_rate=RATE, parametrization="sp")  # type: ignore[arg-type]


def test_half_precision_without_room_for_epsilon_is_refused_and_bfloat16_trains() -> None:
    with pytest.raises(ValueError, match=r"got `embedding.weight` in float16.*autocast"):
        build_optimizer(model_of().half(), learning_rate=RATE, parametrization="mup")
    model = model_of().bfloat16()
    initialise_mup(model)
    optimizer = build_optimizer(model, learning_rate=RATE, parametrization="mup")
    for _ in range(4):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("parametrization", ["standard", "mup"])
def test_negative_and_infinite_rates_are_refused(parametrization: str) -> None:
    block = EncoderBlock(16, 2, hidden_width=24)
    for options in ({"learning_rate": -1.0}, {"learning_rate": float("nan")}):
        with pytest.raises(ValueError, match="`learning_rate` must be a finite number"):
            build_optimizer(block, **options, parametrization=parametrization)
    with pytest.raises(ValueError, match=r"`weight_decay` .* of at least 0, got -1.0"):
        build_optimizer(
            block, learning_rate=1e-3, weight_decay=-1.0, parametrization=parametrization
        )
