"""Linear maps whose place in a model decides how muP treats them."""

from torch import nn

__all__ = ["InputLinear", "OutputLinear"]


class InputLinear(nn.Linear):
    """A linear map of raw data to the model width.

    The same as ``torch.nn.Linear``. muP starts it as it starts an embedding, whatever its number
    of inputs, which does not grow with the model.

    Examples
    --------
    >>> InputLinear(3, 8, bias=False).weight.shape
    torch.Size([8, 3])
    """


class OutputLinear(nn.Linear):
    """A linear map that ends a residual branch or the model.

    The same as ``torch.nn.Linear``. muP starts it at zero, so that every branch adds nothing at
    first and the first output of the model is 0.

    Examples
    --------
    >>> OutputLinear(8, 3, bias=False).weight.shape
    torch.Size([3, 8])
    """
