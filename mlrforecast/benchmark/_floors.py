"""The forecasts without training that stand in every table."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlrforecast.baselines import profile_mean, repeat_last, seasonal_naive
from mlrforecast.benchmark._splits import Errors, future_windows, mean_errors, past_windows

Values = NDArray[np.float64]

# Where values are missing a floor looks further back than its own rows, this far.
_REACH = 4 * 168


@dataclass(frozen=True, kw_only=True)
class Floor:
    """One baseline and the rows of past that it reads where none is missing."""

    context_length: int
    forecast: Callable[[Values, int], Values]


# The seasons are those of hourly data: a day and a week.
FLOORS: dict[str, Floor] = {
    "repeat_last": Floor(context_length=1, forecast=repeat_last),
    "seasonal_naive_24": Floor(
        context_length=24, forecast=lambda past, steps: seasonal_naive(past, steps, 24)
    ),
    "seasonal_naive_168": Floor(
        context_length=168, forecast=lambda past, steps: seasonal_naive(past, steps, 168)
    ),
    "profile_7d": Floor(
        context_length=168, forecast=lambda past, steps: profile_mean(past, steps, 24, 7)
    ),
}


def score_floor(name: str, values: Values, scored: range, horizon: int) -> Errors:
    """Score one floor on all windows of the scored rows."""
    floor = FLOORS[name]
    actual = future_windows(values, scored, horizon)
    reach = max(floor.context_length, min(_REACH, scored.start))
    past = past_windows(values, scored, horizon, reach)
    return mean_errors(actual, lambda rows: floor.forecast(past[rows], horizon))
