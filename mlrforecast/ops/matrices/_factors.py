"""Ways to write a size as a product."""

import math
from collections.abc import Sequence
from typing import Literal

from mlrforecast.ops._checks import positive, positives

__all__ = ["factor_pair", "prime_factors"]


def factor_pair(
    size: int, pair: Sequence[int] | None, side: Literal["out", "in"], *, even: bool
) -> tuple[int, int]:
    """Check a ``pair`` whose product is ``size``, or choose one.

    The second factor is chosen as the smallest divisor above the square root, as published, or with
    ``even`` from the root on: 16 is 2 * 8, or 4 * 4.
    """
    size = positive(size, f"d_{side}")
    if pair is None:
        root = math.isqrt(size)
        smallest = root if even and root * root == size else root + 1
        # No divisor above its root has only 1.
        b = next((n for n in range(smallest, size + 1) if size % n == 0), size)
        return size // b, b
    checked = positives(pair, f"{side}_factors")
    if len(checked) != 2 or math.prod(checked) != size:
        raise ValueError(f"`{side}_factors` must be two factors of {size}, got {checked}.")
    return checked[0], checked[1]


def prime_factors(size: int) -> tuple[int, ...]:
    """Return the prime factors of ``size``, smallest first, each as often as it divides.

    1 has itself, so that there always is a factor.
    """
    size = positive(size, "size")
    found: list[int] = []
    factor = 2
    while factor * factor <= size:
        while size % factor == 0:
            found.append(factor)
            size //= factor
        factor += 1
    return (*found, size) if size > 1 or not found else tuple(found)
