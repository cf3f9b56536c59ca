"""Runs of steps that grow in place: the same steps as by joining, at far fewer copies."""

import pytest
import torch
from torch import Tensor

from mlrforecast.nn.attention._run import Run


def steps(first: int, last: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return steps that hold their own number, (2, 3, last - first, 4)."""
    return torch.arange(first, last, dtype=dtype).view(1, 1, -1, 1).expand(2, 3, -1, 4)


def grown(num_steps: int, *, window: int | None = None) -> tuple[Run, int]:
    """Grow by one step at a time, and count how often all were moved."""
    run = Run.of(steps(0, 1), 2)
    moves = 0
    for step in range(1, num_steps):
        place = run.steps.untyped_storage().data_ptr()
        run = run.extended(steps(step, step + 1))
        moves += run.steps.untyped_storage().data_ptr() != place
        if window is not None:
            run = run.newest(window)
    return run, moves


@torch.no_grad()
def test_a_run_holds_all_its_steps_and_is_seldom_moved() -> None:
    run, moves = grown(2000)
    assert torch.equal(run.steps, steps(0, 2000))
    assert moves <= 15


@pytest.mark.parametrize("window", [0, 1, 50, 300])
@torch.no_grad()
def test_a_window_moves_on_and_takes_bounded_memory(window: int) -> None:
    run, moves = grown(2000, window=window)
    assert torch.equal(run.steps, steps(2000 - window, 2000))
    assert moves <= 2000 // 60
    room = run.steps.untyped_storage().nbytes() // (4 * 2 * 3 * 4)
    assert room <= max(window // 4, 64) + window + 1


@torch.no_grad()
def test_few_of_many_steps_give_the_memory_back() -> None:
    run = Run.of(steps(0, 5000), 2).newest(3)
    assert torch.equal(run.steps, steps(4997, 5000))
    assert run.steps.untyped_storage().nbytes() <= 4 * 2 * 3 * 4 * 67


@torch.no_grad()
def test_branches_do_not_write_into_each_other() -> None:
    start = Run.of(steps(0, 5), 2)
    one, other = start.extended(steps(5, 7)), start.extended(steps(50, 52))
    longer = start.extended(steps(9, 10)).extended(steps(10, 11))
    assert torch.equal(start.steps, steps(0, 5))
    assert torch.equal(one.steps, steps(0, 7))
    assert other.steps[0, 0, :, 0].tolist() == [0, 1, 2, 3, 4, 50, 51]
    assert longer.steps[0, 0, :, 0].tolist() == [0, 1, 2, 3, 4, 9, 10]


def test_nothing_is_written_in_place_where_gradients_are_recorded() -> None:
    first = steps(0, 5).clone().requires_grad_()
    run = Run.of(first, 2)
    longer = run.extended(steps(5, 6)).newest(3)
    with torch.no_grad():
        after = longer.extended(steps(6, 7))
    longer.steps.square().sum().backward()
    assert first.grad is not None
    assert torch.equal(first.grad[:, :, 3:], 2 * steps(3, 5))
    assert after.steps[0, 0, :, 0].tolist() == [3, 4, 5, 6]


def test_a_run_begun_in_inference_mode_goes_on_outside() -> None:
    with torch.inference_mode():
        run = Run.of(steps(0, 5), 2)
    with torch.no_grad():
        run = run.extended(steps(5, 6))
    assert torch.equal(run.steps, steps(0, 6))


@torch.no_grad()
def test_a_wider_dtype_is_followed() -> None:
    run = Run.of(steps(0, 3, torch.float16), 2).extended(steps(3, 4))
    assert run.steps.dtype == torch.float32
    assert torch.equal(run.steps, steps(0, 4))
