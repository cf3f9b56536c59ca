"""Dropout whose masks are drawn several times faster on a CPU than those of PyTorch."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

_LEVELS = 2**16
"""Values of a random number of 16 bits; a share of dropped values is a multiple of its inverse."""


class Dropout(nn.Dropout):
    """Set entries to 0 at random in training, and divide the others by the share that stays.

    The same as ``torch.nn.Dropout``. On a CPU that draws one random number for each entry, one
    after the other, which takes longer than the products of matrices of a small network; here four
    entries share the 64 bits of a number.

    Examples
    --------
    >>> Dropout(0.5).eval()(torch.ones(2))
    tensor([1., 1.])
    """

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drop entries, in training.

        Parameters
        ----------
        x : Tensor of any shape
            Values.

        Returns
        -------
        Tensor of the same shape
        """
        drops = self.training and 0 < self.p < 1 and not self.inplace
        if not drops or x.device.type != "cpu" or torch.compiler.is_compiling():
            out: Tensor = super().forward(x)
            return out
        factors = torch.empty(x.numel(), dtype=x.dtype)
        # Written as 0 and 1 at once: a conversion would take longer than the comparison.
        dropped = min(round(self.p * _LEVELS), _LEVELS - 1)
        torch.ge(_random_bits(x.numel()), dropped - _LEVELS // 2, out=factors)
        return x * factors.mul_(_LEVELS / (_LEVELS - dropped)).view(x.shape)


def _random_bits(count: int) -> Tensor:
    """Draw ``count`` numbers of 16 bits from the global generator of the CPU."""
    words = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.int16)[:count]
