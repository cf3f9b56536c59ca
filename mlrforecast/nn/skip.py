"""The straight way from a context to a forecast, beside the network."""

from jaxtyping import Float
from torch import Tensor, nn

from mlrforecast.nn.cost import Convention, Cost
from mlrforecast.nn.mup import MupRule

__all__ = ["LinearSkip"]


class LinearSkip(nn.Module):
    """A linear map of the context to the forecast, that is added to what a network says.

    It learns what is the same in all windows, such as to repeat the last day, to any precision, and
    leaves to the network what is not. It starts at zero.

    Parameters
    ----------
    context_length, prediction_length : int
        Steps of the context ``T`` and of the forecast ``F``.

    References
    ----------
    Zeng et al., Are Transformers Effective for Time Series Forecasting? AAAI 2023: a linear map
    alone.

    Examples
    --------
    >>> import torch
    >>> LinearSkip(96, 24)(torch.randn(5, 96)).shape
    torch.Size([5, 24])
    """

    def __init__(self, context_length: int, prediction_length: int) -> None:
        super().__init__()
        self.map = nn.Linear(context_length, prediction_length, bias=False)
        nn.init.zeros_(self.map.weight)
        # It has one size in a model of any width.
        self.mup_rules = {"map.weight": MupRule("kept")}

    def forward(self, values: Float[Tensor, "B T"]) -> Float[Tensor, "B F"]:
        """Return what is added to a forecast.

        Parameters
        ----------
        values : Tensor of shape (B, T)
            Normalised contexts, 0 where missing.

        Returns
        -------
        Tensor of shape (B, F)
        """
        added: Tensor = self.map(values)
        return added

    def cost(self, length: int, convention: Convention) -> Cost:
        """Count the multiply-adds for one channel, by any ``convention`` and ``length``."""
        size = self.map.weight.numel()
        return Cost(linear=size, from_data=size)
