"""A linear regression whose forecast is averaged with that of a network."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mlrforecast.nn.cost import Convention, Cost
from mlrforecast.nn.mup import MupRule

__all__ = ["LinearMember"]


class LinearMember(nn.Module):
    """Average what a network forecasts with a linear map of what it reads.

    The two err in different ways, so that their mean errs less than either. The map is not learnt
    by steps of an optimiser: a model in training mode leaves it out, so that the network learns
    alone. :func:`mlrforecast.training.solve_linear` then finds the map; until it has, the share of
    the map is 0.

    Parameters
    ----------
    num_inputs, prediction_length : int
        Numbers that the map reads, ``I``, and steps of the forecast, ``F``.

    Attributes
    ----------
    weight : Parameter of shape (F, I)
        The map; it has no gradient.
    share : Tensor of shape ()
        Share of the map in the forecast, 0 to 1.

    References
    ----------
    Zeng et al., Are Transformers Effective for Time Series Forecasting? AAAI 2023: a linear map
    alone.

    Examples
    --------
    >>> import torch
    >>> member = LinearMember(96, 24)
    >>> network = torch.randn(5, 24)
    >>> bool((member(torch.randn(5, 96), network) == network).all())
    True
    """

    def __init__(self, num_inputs: int, prediction_length: int) -> None:
        super().__init__()
        weight = torch.zeros(prediction_length, num_inputs)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.register_buffer("share", torch.zeros(()))
        self.share: Tensor
        # It reads as many numbers in a model of any width.
        self.mup_rules = {"weight": MupRule("kept")}

    def forward(
        self, inputs: Float[Tensor, "B I"], network: Float[Tensor, "B F"]
    ) -> Float[Tensor, "B F"]:
        """Return the mean of both forecasts.

        Parameters
        ----------
        inputs : Tensor of shape (B, I)
            Normalised contexts, 0 where missing, features of covariates and the calendar.
        network : Tensor of shape (B, F)
            What the network forecasts, in the same units.

        Returns
        -------
        Tensor of shape (B, F)
        """
        mean: Tensor = network + self.share * (inputs @ self.weight.T - network)
        return mean

    def cost(self, length: int, convention: Convention) -> Cost:
        """Count the multiply-adds for one channel, by any ``convention`` and ``length``."""
        size = self.weight.numel()
        return Cost(linear=size, from_data=size)
