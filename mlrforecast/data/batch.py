"""What one training or forecasting step reads."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class ForecastBatch(NamedTuple):
    """Windows of series, split into the context and the steps to forecast.

    Missing values are 0 and marked in the masks; a mask of None says that nothing is missing.
    A covariate is a number, 0 where missing and about 1 in size, or the code of a category from 1
    on, 0 where it is missing or unknown; which of both a column holds is part of the
    configuration of a model. None says that there are no such covariates.

    Parameters
    ----------
    past_target : Tensor of shape (B, T, C)
        The context, oldest step first.
    future_target : Tensor of shape (B, F, C)
        The steps that follow.
    past_observed, future_observed : Tensor of bool of the same shapes, or None
        True where a value was observed.
    past_covariates : Tensor of shape (B, T, K), or None
        Covariates of the context that are not known further.
    known_covariates : Tensor of shape (B, T + F, K), or None
        Covariates of the context and of the steps that follow.
    static_covariates : Tensor of shape (B, K), or None
        Covariates of the whole series.
    calendar : Tensor of shape (B, F, K), or None
        Where the steps to forecast stand in the day, the week and the year: numbers from -1 to 1.
    """

    past_target: Float[Tensor, "B T C"]
    future_target: Float[Tensor, "B F C"]
    past_observed: Bool[Tensor, "B T C"] | None = None
    future_observed: Bool[Tensor, "B F C"] | None = None
    past_covariates: Float[Tensor, "B T K"] | None = None
    known_covariates: Float[Tensor, "B S K2"] | None = None
    static_covariates: Float[Tensor, "B K3"] | None = None
    calendar: Float[Tensor, "B F K4"] | None = None

    def to(self, device: torch.device) -> "ForecastBatch":
        """Return the batch on a device.

        Parameters
        ----------
        device : torch.device
            Where all tensors are to be.

        Returns
        -------
        ForecastBatch
        """
        return ForecastBatch(*(None if part is None else part.to(device) for part in self))  # type: ignore[arg-type]  # the first two are tensors
