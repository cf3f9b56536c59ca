"""Every generator is seeded inside the block and as before after it."""

import random

import numpy as np
import pytest
import torch

from mlrforecast.training import isolated_seed


def draws() -> tuple[float, float, float]:
    return random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002


def draw_in_block(seed: int) -> tuple[float, float, float]:
    with isolated_seed(seed):
        return draws()


@pytest.mark.usefixtures("seeded")
def test_the_states_go_on_as_if_nothing_had_been_drawn() -> None:
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    expected = draws()
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    torch.set_rng_state(states[2])
    draw_in_block(3)
    assert draws() == expected


def test_a_seed_gives_the_same_draws_in_all_three_and_another_gives_others() -> None:
    first, again, other = draw_in_block(3), draw_in_block(3), draw_in_block(4)
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))
    draw_in_block(2**32 - 1)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_the_states_come_back_after_an_exception(kind: type[BaseException]) -> None:
    # That they do is seen by the guard of the test suite.
    def draw_and_fail() -> None:
        with isolated_seed(3):
            draws()
            raise kind

    with pytest.raises(kind):
        draw_and_fail()


def test_a_seed_out_of_range_changes_nothing() -> None:
    with pytest.raises(ValueError, match="Seed must be between"), isolated_seed(2**32):
        raise AssertionError
