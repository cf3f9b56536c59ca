"""Rotary positions against complex rotation, and what they promise."""

import pytest
import torch

from mlrforecast.ops import rotate


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("sections", [None, (4, 3, 1), (1, 7)])
def test_equals_complex_rotation(sections: tuple[int, ...] | None, start: int) -> None:
    x = draw(2, 3, 7, 8)
    out = rotate(x, start=start, sections=sections)
    begin = 0
    for width in sections or (8,):
        half = width // 2
        for pair in range(half):
            first, second = begin + pair, begin + half + pair
            frequency = 10000.0 ** (-pair / half)
            for step in range(7):
                turn = torch.polar(
                    torch.tensor(1.0, dtype=torch.float64),
                    torch.tensor((start + step) * frequency, dtype=torch.float64),
                )
                turned = torch.complex(x[..., step, first], x[..., step, second]) * turn
                torch.testing.assert_close(out[..., step, first], turned.real)
                torch.testing.assert_close(out[..., step, second], turned.imag)
        if width % 2:
            last = begin + width - 1
            assert torch.equal(out[..., last], x[..., last])
        begin += width


def test_products_depend_on_the_distance_within_each_section() -> None:
    x = draw(1, 1, 1, 8).expand(1, 1, 9, 8)
    y = x.roll(1, -1)
    sections = (4, 3, 1)
    products = torch.stack(
        [
            (a * b).sum(-1)
            for a, b in zip(
                rotate(x, sections=sections).split(sections, -1),
                rotate(y, start=2, sections=sections).split(sections, -1),
                strict=True,
            )
        ]
    )
    torch.testing.assert_close(products, products[..., :1].expand_as(products))


def test_far_steps_stay_exact_in_float32() -> None:
    x = draw(1, 1, 4, 16)
    far = rotate(x.float(), start=1_000_000).double()
    torch.testing.assert_close(far, rotate(x, start=1_000_000), rtol=0, atol=1e-6)


def test_gradcheck() -> None:
    x = draw(1, 2, 3, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: rotate(y, start=3, sections=(3, 2)), (x,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sections": (4, 3)}, "`sections` must sum to the 8 columns"),
        ({"sections": (8, 0)}, r"`sections\[1\]` must be at least 1"),
        ({"start": -1}, "`start` must be at least 0, got -1"),
        ({"base": 1.0}, "`base` must be above 1"),
    ],
)
def test_bad_arguments(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rotate(draw(1, 1, 2, 8), **options)
