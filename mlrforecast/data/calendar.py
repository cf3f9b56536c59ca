"""Calendar features: where a stamp stands in the day, the week and the year."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd
from jaxtyping import Float

DAY = 86_400.0
CYCLES: Mapping[str, float] = MappingProxyType(
    {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}
)
"""Cycles by name, and their lengths in seconds."""

FEATURES_PER_CYCLE = 4
"""Sine and cosine of one turn and of two."""

_MOST_OF_ONE, _ALMOST_TWO = 0.9, 1.98
"""Years and months differ in length: what counts as less than one cycle, and as two of them."""

# The second 0 of 1970 was a Thursday; a week begins on Monday.
_MONDAY = 3 * DAY


def calendar_cycles(freq: str | int, span: float) -> tuple[str, ...]:
    """Return the cycles that series of a frequency can teach.

    A cycle must be longer than a step, and the longest series must cover it twice: what a network
    makes of a month that it never saw is chance.

    Parameters
    ----------
    freq : str or int
        Pandas offset alias, or an integer for integer time, which has no cycles.
    span : float
        Seconds from the first to the last stamp of the longest series.

    Returns
    -------
    tuple of {"day", "week", "year"}

    Examples
    --------
    >>> calendar_cycles("h", span=400 * 86400.0), calendar_cycles("MS", span=3e8)
    (('day', 'week'), ('year',))
    """
    if isinstance(freq, int):
        return ()
    stamps = pd.date_range("2024-01-01", periods=3, freq=freq)
    step = (stamps[-1] - stamps[0]).total_seconds() / 2
    return tuple(
        name
        for name, length in CYCLES.items()
        if step < _MOST_OF_ONE * length and span + step >= _ALMOST_TWO * length
    )


def calendar_features(clock: np.ndarray, cycles: tuple[str, ...]) -> Float[np.ndarray, "... K"]:
    """Return sines and cosines of one and two turns of each cycle.

    Parameters
    ----------
    clock : ndarray
        Seconds since 1970 on the local clock.
    cycles : tuple of {"day", "week", "year"}
        Which cycles.

    Returns
    -------
    ndarray of float32 of shape (..., K)
        Four numbers a cycle, from -1 to 1.

    Examples
    --------
    >>> print(calendar_features(np.array([0.0, 3600.0]), ("day",)).round(2))
    [[0.   1.   0.   1.  ]
     [0.26 0.97 0.5  0.87]]
    """
    features = np.empty((*clock.shape, FEATURES_PER_CYCLE * len(cycles)), dtype=np.float32)
    for place, name in enumerate(cycles):
        turns = (clock + _MONDAY) / CYCLES[name]
        angle = (2 * np.pi * (turns - np.floor(turns))).astype(np.float32)
        sine, cosine = np.sin(angle), np.cos(angle)
        columns = features[..., FEATURES_PER_CYCLE * place :]
        columns[..., 0], columns[..., 1] = sine, cosine
        # The second turn by the formulas for twice an angle, which cost less than a sine.
        columns[..., 2], columns[..., 3] = 2 * sine * cosine, 1 - 2 * np.square(sine)
    return features
