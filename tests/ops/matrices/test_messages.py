"""Bad input: one error that names the argument, the rule and the value."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from mlrforecast.ops import (
    MLBTC,
    BlockLayout,
    BlockLevel,
    BlockTensorTrain,
    Butterfly,
    Dense,
    Kronecker,
    LowRank,
    Monarch,
    MultiLevelLowRank,
    Shuffle,
)
from mlrforecast.ops.matrices import matrices

ONES = torch.ones

WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: matrices["mrl"], "Unknown structured matrix 'mrl'. Available: btt, butterfly"),
    # Tensors that do not fit each other.
    (lambda: LowRank(ONES(4, 2), ONES(3, 1)), "must read the 1 entries that the right blocks give"),
    (lambda: LowRank(ONES(2, 4, 2), ONES(3, 2)), "`left` and `right` must each have 2 axes after"),
    (lambda: LowRank(ONES(2, 4, 1), ONES(3, 3, 1)), "batch axes of `left` and `right` must be"),
    (lambda: LowRank(ONES(4), ONES(3)), "must each have 2 axes"),
    (lambda: LowRank(ONES(0, 2), ONES(3, 2)), "none of them 0, got (1, 0, 2)"),
    (lambda: BlockTensorTrain(ONES(3, 2, 2), ONES(2, 3, 4)), "must have the shapes (..., b, a, c"),
    (lambda: BlockTensorTrain(ONES(3, 2, 2), ONES(2, 3, 6)), "got (3, 2, 2) and (2, 3, 6)"),
    (lambda: Monarch(ONES(3, 2, 4), ONES(2, 3, 6)), "For more use a BlockTensorTrain"),
    (lambda: MultiLevelLowRank([ONES(1, 4, 1)], []), "one tensor for each level, got 1 and 0"),
    (lambda: MultiLevelLowRank([], []), "`levels` must hold at least one level"),
    (
        lambda: MultiLevelLowRank([ONES(2, 2, 1)], [ONES(1, 4, 2)]),
        "equally many blocks on each level, got the numbers [(1, 2)]",
    ),
    (
        lambda: MultiLevelLowRank([ONES(1, 4, 1), ONES(2, 3, 1)], [ONES(1, 4, 1), ONES(2, 2, 1)]),
        "`levels` must all have one shape (d_out, d_in), got [(4, 4), (6, 4)]",
    ),
    (lambda: Butterfly([]), "`factors` must hold at least one"),
    (lambda: Butterfly([ONES(1, 2, 3, 3)]), "`factor_0` must have the shape (..., 1, 1, 3, 3)"),
    (
        lambda: MLBTC([BlockLevel(ONES(2, 3, 2), middle=Shuffle((5,), (0,)))]),
        "`levels[0].middle` must permute 4 entries, got 5",
    ),
    (
        lambda: MLBTC([BlockLevel(ONES(2, 3, 2), output=Shuffle((2, 4), (1, 0)))]),
        "`levels[0].output` must permute 4 entries, got 8",
    ),
    (lambda: MLBTC([BlockLevel(ONES(3, 2))]), "`levels[0].right` must have the shape"),
    (lambda: Shuffle((2, 3), (0, 0)), "`order` must name each of the 2 axes of `shape` once"),
    (lambda: Shuffle((2, 0), (0, 1)), "`shape[1]` must be at least 1, got 0"),
    # Scales.
    (
        lambda: MultiLevelLowRank([ONES(1, 4, 1)], [ONES(1, 4, 1)], [0.0]),
        "`scales` must hold one finite number, not 0, for each of the 1 levels, got (0.0,)",
    ),
    (
        lambda: MLBTC([BlockLevel(ONES(1, 2, 2))], [1.0, 2.0]),
        "1 levels, got (1.0, 2.0)",
    ),
    (lambda: MLBTC([BlockLevel(ONES(1, 2, 2))], [float("nan")]), "got (nan,)"),
    # Options.
    (lambda: LowRank.parameter_specs(4, 4, rank=0), "`rank` must be at least 1, got 0"),
    (lambda: Dense.parameter_specs(0, 4), "`d_out` must be at least 1, got 0"),
    (lambda: BlockTensorTrain.parameter_specs(0, 4), "`d_out` must be at least 1, got 0"),
    (
        lambda: BlockTensorTrain.parameter_specs(8, 8, out_factors=(2, 3)),
        "`out_factors` must be two factors of 8, got (2, 3)",
    ),
    (lambda: Monarch.parameter_specs(8, 8, in_factors=(8,)), "`in_factors` must be two factors"),
    (lambda: Kronecker.parameter_specs(8, 8, in_factors=(2, 2, 2)), "`in_factors` must be two"),
    (
        lambda: MultiLevelLowRank.parameter_specs(12, 12, ranks=(1, 1, 1, 1)),
        "8 blocks must divide `d_out` evenly, which is 12",
    ),
    (
        lambda: MultiLevelLowRank.parameter_specs(12, 10, ranks=(1, 1), num_blocks=(1, 3)),
        "3 blocks must divide `d_in` evenly, which is 10",
    ),
    (
        lambda: MultiLevelLowRank.parameter_specs(4, 4, ranks=(1, 1), num_blocks=(1,)),
        "one entry for each level, got (1, 1) and (1,)",
    ),
    (lambda: MultiLevelLowRank.parameter_specs(4, 4, ranks=()), "one entry for each level"),
    (
        lambda: MultiLevelLowRank.parameter_specs(4, 4, ranks=(1,), scales=(1.0, 1.0)),
        "`scales` must hold one finite number",
    ),
    (lambda: Butterfly.parameter_specs(4, 6), "must be equal for a butterfly, got 4 and 6"),
    (
        lambda: Butterfly.parameter_specs(6, 6, radices=(2, 2)),
        "the product 6, got (2, 2)",
    ),
    (
        lambda: MLBTC.parameter_specs(4, 4, levels=[BlockLayout(2, 3, 4)]),
        "4 blocks must divide `the middle` evenly, which is 6",
    ),
    # Parameters that are not those of the options.
    (
        lambda: LowRank.from_parameters({"left": ONES(4, 2), "right": ONES(4, 2)}, rank=1),
        "`parameters` must have the shapes {'left': (4, 1), 'right': (4, 1)} after the batch axes",
    ),
    (
        lambda: BlockTensorTrain.from_parameters({"left": ONES(2, 2, 4), "right": ONES(2, 2, 4)}),
        "for the options {}, got",
    ),
    (
        lambda: MultiLevelLowRank.from_parameters(
            {"left_0": ONES(1, 4, 1), "right": ONES(1, 4, 1)}, ranks=(1,)
        ),
        "`parameters` must hold 'right_0', got left_0, right",
    ),
    (lambda: MLBTC.from_parameters({}), "`levels` must hold at least one level"),
]


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_the_rule_and_the_value_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Dense([[1.0]]), "`weight` must be a torch.Tensor, got a list"),
        (lambda: Dense(ONES(2, 2)).apply([[1.0, 2.0]]), "`x` must be a torch.Tensor"),
        (lambda: LowRank.parameter_specs(4, 4, rank=1.5), "`rank` must be an integer, got 1.5"),
        (lambda: LowRank.parameter_specs(4, 4), "rank"),
        (lambda: Dense.parameter_specs(4, 4, rank=1), "rank"),
        (lambda: MultiLevelLowRank.parameter_specs(4, 4, ranks=2), "`ranks` must be a sequence"),
    ],
)
def test_wrong_types_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        call()


def test_the_default_factors_are_the_published_ones() -> None:
    """Reference, section 2.6: the second is the smallest divisor strictly above the root."""
    published = {
        16: (2, 8),
        24: (4, 6),
        32: (4, 8),
        64: (4, 16),
        128: (8, 16),
        256: (8, 32),
        512: (16, 32),
        768: (24, 32),
        1024: (16, 64),
    }
    for size, (a, b) in published.items():
        specs = BlockTensorTrain.parameter_specs(size, size)
        assert specs["left"].shape == (b, a, a), size
        assert specs["right"].shape == (a, b, b), size


def test_fans_are_the_published_ones() -> None:
    """Reference, section 4: a factor's fan-in is what one of its products sums over."""
    train = BlockTensorTrain.parameter_specs(64, 64, rank=3)
    assert (train["right"].fan_in, train["right"].fan_out) == (16, 16 * 3)
    assert (train["left"].fan_in, train["left"].fan_out) == (4 * 3, 4)
    assert (train["right"].reads_input, train["left"].reads_input) == (True, False)
    levels = MultiLevelLowRank.parameter_specs(64, 64, ranks=(8, 4, 2))
    assert [levels[f"right_{lvl}"].fan_in for lvl in range(3)] == [64, 32, 16]
    digits = Butterfly.parameter_specs(12, 12)
    assert [spec.reads_input for spec in digits.values()] == [False, False, True]
