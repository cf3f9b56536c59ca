"""The factor of each level."""

import pytest

from mlrforecast.ops import level_scales


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("inverse_rank", (1 / 9, 1 / 7)),
        ("inverse_sqrt_rank", (1 / 3, 7**-0.5)),
        ("inverse_sqrt_width", (0.25, 0.25)),
        ((2.0, 0.5), (2.0, 0.5)),
    ],
)
@pytest.mark.parametrize("divide", [False, True])
def test_scales(scale: object, expected: tuple[float, ...], divide: bool) -> None:
    found = level_scales((9, 7), scale, divide_by_num_levels=divide)
    assert found == pytest.approx([x / 2 if divide else x for x in expected])


@pytest.mark.parametrize("scale", ["inverse", (1.0,), (1.0, 0.0), (1.0, float("nan")), (-1.0, 1.0)])
def test_bad_scales(scale: object, own_errors: None) -> None:
    with pytest.raises(ValueError, match="`level_scale` must"):
        level_scales((4, 2), scale)
