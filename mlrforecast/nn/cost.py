"""What a forward pass costs: multiply-adds, by the kind of product."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Convention", "Cost", "window_pairs"]

Convention: TypeAlias = Literal["paper", "matmul"]
"""How FLOPs are counted, see :func:`mlrforecast.models.count_flops`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Multiply-adds of one sequence through a module; costs of parts are added.

    Parameters
    ----------
    linear : int
        Of linear maps, in which one weight matrix serves every step.
    structured : int
        Of maps by structured weights: blocks of columns, a matrix for each head.
    scores : int
        Of queries with keys.
    values : int
        Of weights with values.
    from_data : int
        Those of ``linear`` that read raw data, for which no gradient is computed.
    norm_elements : int
        Elements that LayerNorms normalise; no multiply-adds.

    Examples
    --------
    >>> Cost(linear=6) + Cost(linear=2, scores=3)
    Cost(linear=8, structured=0, scores=3, values=0, from_data=0, norm_elements=0)
    """

    linear: int = 0
    structured: int = 0
    scores: int = 0
    values: int = 0
    from_data: int = 0
    norm_elements: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            linear=self.linear + other.linear,
            structured=self.structured + other.structured,
            scores=self.scores + other.scores,
            values=self.values + other.values,
            from_data=self.from_data + other.from_data,
            norm_elements=self.norm_elements + other.norm_elements,
        )


def window_pairs(length: int, window: int) -> int:
    """Count the pairs within a window as the paper does.

    Query ``i`` counts the keys from ``i - window`` to ``i + window - 1`` that exist, twice the
    window, although a causal query sees ``window + 1`` keys only.

    Parameters
    ----------
    length : int
        Steps of the sequence.
    window : int, at least 0
        Largest distance that is attended.

    Returns
    -------
    int

    Examples
    --------
    >>> window_pairs(10, 3), sum(min(10, i + 3) - max(0, i - 3) for i in range(10))
    (51, 51)
    """
    window = min(window, length)
    return 2 * window * length - window**2
