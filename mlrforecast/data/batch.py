"""What one training or forecasting step reads."""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor


class ForecastBatch(NamedTuple):
    """Windows of series, split into the context and the steps to forecast.

    Missing values are 0 and marked in the masks; a mask of None says that nothing is missing.

    Parameters
    ----------
    past_target : Tensor of shape (B, T, C)
        The context, oldest step first.
    future_target : Tensor of shape (B, F, C)
        The steps that follow.
    past_observed, future_observed : Tensor of bool of the same shapes, or None
        True where a value was observed.
    """

    past_target: Float[Tensor, "B T C"]
    future_target: Float[Tensor, "B F C"]
    past_observed: Bool[Tensor, "B T C"] | None = None
    future_observed: Bool[Tensor, "B F C"] | None = None
