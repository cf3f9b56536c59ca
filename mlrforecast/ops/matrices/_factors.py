"""Ways to write a size as a product."""

import math
from collections.abc import Sequence

from mlrforecast.ops._checks import positive, positives

__all__ = ["check_pair", "pair_above_root", "pair_at_root", "prime_factors"]


def pair_above_root(size: int) -> tuple[int, int]:
    """Write ``size = a * b`` with ``b`` its smallest divisor above the square root, as published.

    A square therefore never splits evenly: 16 is 2 * 8.
    """
    divisors = (b for b in range(math.isqrt(size) + 1, size + 1) if size % b == 0)
    b = next(divisors, size)
    return size // b, b


def pair_at_root(size: int) -> tuple[int, int]:
    """Write ``size = a * b`` with ``b`` its smallest divisor not below the square root."""
    root = math.isqrt(size)
    return (root, root) if root * root == size else pair_above_root(size)


def check_pair(pair: Sequence[int] | None, size: int, name: str) -> tuple[int, int] | None:
    """Return ``pair`` as two ints whose product is ``size``."""
    if pair is None:
        return None
    checked = positives(pair, name)
    if len(checked) != 2 or math.prod(checked) != size:
        raise ValueError(f"`{name}` must be two factors of {size}, got {checked}.")
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
