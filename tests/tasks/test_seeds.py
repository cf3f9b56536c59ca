"""Seeds of draws: one for each step, process and purpose, and none of two purposes."""

import itertools

import pytest
import torch

from mlrforecast.tasks._seeds import PURPOSES, draw_seed

RUNS, STEPS, RANKS = range(20), range(200), range(4)


def seeds(purpose):
    grid = itertools.product(RUNS, STEPS, RANKS)
    return [draw_seed(seed, step, purpose, rank=rank) for seed, step, rank in grid]


def test_no_two_purposes_share_a_seed():
    found = [set(seeds(purpose)) for purpose in PURPOSES]
    assert {len(each) for each in found} == {len(RUNS) * len(STEPS) * len(RANKS)}
    assert len(set.union(*found)) == sum(map(len, found))
    # The purpose is written into the seed, so this holds for those that are not listed here too.
    assert [{seed % 4 for seed in each} for each in found] == [{0}, {1}, {2}]


def test_purposes_differ_in_the_bits_that_the_generator_of_the_cpu_reads():
    def first(seed):
        return torch.rand(4, generator=torch.Generator().manual_seed(seed)).tolist()

    assert first(7) == first(7 + 2**32)
    low = [{seed % 2**32 for seed in seeds(purpose)} for purpose in PURPOSES]
    assert all(not one & other for one, other in itertools.combinations(low, 2))


def test_seeds_fit_a_generator_and_fill_its_range():
    drawn = seeds("training")
    assert 0 <= min(drawn) < 2**53
    assert 2**63 > max(drawn) > 2**63 - 2**53


def test_arguments_are_not_run_together():
    assert draw_seed(1, 23, "training") != draw_seed(12, 3, "training")
    assert draw_seed(1, 2, "training", rank=3) != draw_seed(1, 23, "training")


def test_a_seed_never_changes_between_releases():
    # A run that is resumed, or a result that is looked up, needs the draws it had.
    assert draw_seed(0, 0, "training") == PINNED[0]
    assert draw_seed(3, 1000, "evaluation", rank=2) == PINNED[1]


PINNED = (5101490454523883080, 32705541703891749)


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": -1}, "`seed` must be an integer of at least 0, got -1"),
        ({"step": 1.5}, "`step` must be an integer of at least 0, got 1.5"),
        ({"rank": True}, "`rank` must be an integer of at least 0, got True"),
        ({"purpose": "test"}, "`purpose` must be one of training, evaluation, weights, got 'test'"),
    ],
)
def test_errors(changed, message):
    with pytest.raises(ValueError, match=message):
        draw_seed(**{"seed": 0, "step": 0, "purpose": "training", **changed})
