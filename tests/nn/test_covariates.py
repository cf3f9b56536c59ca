"""Columns of covariates, and what is known of the future, against plain loops in float64."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from mlrforecast.nn import CalendarEffect, CovariateColumns, FutureEffect
from mlrforecast.nn.covariates import NUM_CURVES, REACH

pytestmark = pytest.mark.usefixtures("seeded")


# Columns.


def test_numbers_pass_as_they_are() -> None:
    columns = CovariateColumns((0, 0, 0))
    x = torch.randn(2, 5, 3)
    assert torch.equal(columns(x), x)
    assert columns.num_features == 3
    assert not columns.is_learned
    assert list(columns.parameters()) == []


@pytest.mark.parametrize("rows", [(7,), (2, 5), (2, 3, 4)])
def test_features_are_numbers_then_the_vectors_of_the_codes(rows: tuple[int, ...]) -> None:
    columns = CovariateColumns((3, 0, 40, 0))
    assert columns.num_features == 3 + 1 + 8 + 1
    x = torch.stack(
        [
            torch.randint(0, 4, rows).float(),
            torch.randn(rows),
            torch.randint(0, 41, rows).float(),
            torch.randn(rows),
        ],
        dim=-1,
    )
    first, second = (embedding.weight for embedding in columns.categories)
    flat = x.reshape(-1, 4)
    expected = [torch.cat([row[[1, 3]], first[int(row[0])], second[int(row[2])]]) for row in flat]
    torch.testing.assert_close(columns(x), torch.stack(expected).reshape(*rows, -1))


def test_an_unknown_category_is_zeros_and_learns_nothing() -> None:
    columns = CovariateColumns((4,))
    out = columns(torch.tensor([[0.0], [2.0]]))
    assert (out[0] == 0).all()
    assert (out[1] != 0).all()
    (out.sum() + out.square().sum()).backward()
    gradient = columns.categories[0].weight.grad
    assert gradient is not None
    assert gradient.abs().sum(dim=1).ne(0).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("code", [-1.0, 5.0, 1e9, math.nan])
def test_a_code_without_a_vector_is_named(code: float) -> None:
    with pytest.raises(
        ValueError, match=r"Column 1 .* has 4 categories, so its codes must be from"
    ):
        CovariateColumns((0, 4))(torch.tensor([[0.5, code], [0.5, 1.0]]))


# The effect of the future.


def known_by_loops(effect: FutureEffect, summary: Tensor, known: Tensor) -> Tensor:
    """The same, number by number."""
    weights = {name: value.double() for name, value in effect.named_parameters()}
    batch, channels, _ = summary.shape
    out = torch.zeros(batch, channels, effect.prediction_length, dtype=torch.float64)
    for b in range(batch):
        for step in range(effect.prediction_length):
            features: list[float] = []
            at = known.shape[1] - effect.prediction_length + step
            for column in range(known.shape[2]):
                for near in range(at - REACH, at + REACH + 1):
                    there = 0 <= near < known.shape[1]
                    features.append(known[b, near, column].item() if there else 0.0)
            read = torch.tensor(features, dtype=torch.float64)
            curves = weights["curves.weight"] @ read + weights["curves.bias"]
            for c in range(channels):
                said = weights["weights.weight"] @ summary[b, c].double()
                said += weights["weights.bias"]
                direct, bent = said[: len(read)], said[len(read) : -NUM_CURVES]
                shifted = curves + said[-NUM_CURVES:]
                out[b, c, step] = direct @ read + bent @ (shifted / (1 + (-shifted).exp()))
    return out


def calendar_by_loops(effect: CalendarEffect, summary: Tensor, calendar: Tensor) -> Tensor:
    """The same, number by number."""
    weights = {name: value.double() for name, value in effect.named_parameters()}
    batch, channels, _ = summary.shape
    out = torch.zeros(batch, channels, calendar.shape[1], dtype=torch.float64)
    for b, c, step in itertools.product(range(batch), range(channels), range(calendar.shape[1])):
        read = calendar[b, step].double()
        hidden = weights["step.weight"] @ read + weights["step.bias"]
        hidden = hidden + weights["window.weight"] @ summary[b, c].double()
        bent = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
        total = weights["out.weight"] @ bent + weights["out.bias"]
        out[b, c, step] = (total + weights["direct.weight"] @ read).item()
    return out


CASES = [("known", 5, 3), ("known", 1, 1), ("calendar", 1, 4), ("calendar", 7, 8)]


def effect_of(kind: str, future: int, num_features: int) -> FutureEffect | CalendarEffect:
    """An effect that does something already."""
    effect = (
        FutureEffect(future, 6, num_known=num_features)
        if kind == "known"
        else CalendarEffect(num_features, 6)
    )
    for parameter in effect.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return effect


def inputs(kind: str, future: int, num_features: int, context: int) -> tuple[Tensor, Tensor]:
    steps = context + future if kind == "known" else future
    return torch.randn(2, 3, 6), torch.randn(2, steps, num_features)


@pytest.mark.parametrize("context", [1, 2, 4, 11])
@pytest.mark.parametrize("case", CASES)
def test_it_is_what_loops_compute(case: tuple[str, int, int], context: int) -> None:
    effect, given = effect_of(*case), inputs(*case, context)
    loops = {"known": known_by_loops, "calendar": calendar_by_loops}[case[0]]
    expected = loops(effect, *given)
    found = effect.double()(*(x.double() for x in given))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    found = effect.float()(*given)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_finite_differences(case: tuple[str, int, int]) -> None:
    effect = effect_of(*case).double()
    given = tuple(x.double().requires_grad_() for x in inputs(*case, context=3))
    parameters = tuple(effect.parameters())

    def run(*_: Tensor) -> Tensor:
        return effect(*given)

    assert torch.autograd.gradcheck(run, (*given, *parameters))


def test_nothing_is_added_at_first() -> None:
    effect = FutureEffect(5, 6, num_known=2)
    assert (effect(*inputs("known", 5, 2, 9)) == 0).all()
    assert effect.weights.weight.shape == (2 * 9 + 2 * NUM_CURVES, 6)
    assert (CalendarEffect(4, 6)(*inputs("calendar", 5, 4, 9)) == 0).all()


def test_dropout_of_the_calendar_is_for_training() -> None:
    effect = CalendarEffect(4, 6, dropout=0.5)
    for parameter in effect.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    given = inputs("calendar", 5, 4, 9)
    assert not torch.equal(effect(*given), effect(*given))
    effect.eval()
    assert torch.equal(effect(*given), effect(*given))


def test_a_step_reads_the_known_steps_around_it_and_no_others() -> None:
    future, context = 20, 10
    effect = effect_of("known", future, 1)
    summary, known = inputs("known", future, 1, context)
    before = effect(summary, known)
    for at in (0, context - 5, context - 4, context, context + 11, context + future - 1):
        moved = known.clone()
        moved[:, at] += 1
        changed = (effect(summary, moved) != before).any(dim=0).any(dim=0)
        steps = range(at - context - REACH, at - context + REACH + 1)
        assert changed.nonzero().flatten().tolist() == [s for s in steps if 0 <= s < future]


def test_the_calendar_acts_on_its_own_step() -> None:
    effect = effect_of("calendar", 6, 4)
    summary, calendar = inputs("calendar", 6, 4, 1)
    before = effect(summary, calendar)
    moved = calendar.clone()
    moved[:, 2] += 1
    changed = (effect(summary, moved) != before).any(dim=0).any(dim=0)
    assert changed.nonzero().flatten().tolist() == [2]
