"""Tokens from windows: patches of several steps, or one token a step."""

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from mlrforecast.nn.linear import InputLinear


class LearnedPositions(nn.Module):
    """Add a learned vector to each token, by its place.

    Parameters
    ----------
    max_length : int
        Places that are learned.
    width : int
        Token width ``D``.

    Examples
    --------
    >>> LearnedPositions(16, 8)(torch.zeros(2, 10, 8), start=3).shape
    torch.Size([2, 10, 8])
    """

    def __init__(self, max_length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(max_length, width))

    def forward(self, tokens: Float[Tensor, "B N D"], start: int = 0) -> Float[Tensor, "B N D"]:
        """Add the positions from ``start`` on.

        Parameters
        ----------
        tokens : Tensor of shape (B, N, D)
            Tokens.
        start : int
            Place of the first token.

        Returns
        -------
        Tensor of shape (B, N, D)

        Raises
        ------
        ValueError
            If a token stands beyond the places that are learned.
        """
        end = start + tokens.shape[1]
        if end > len(self.weight):
            raise ValueError(
                f"Learned positions end at {len(self.weight)} tokens, got {end}. Give fewer, or "
                "build the model with positions='rotary' or 'none'."
            )
        return tokens + self.weight[start:end]


class PatchEmbedding(nn.Module):
    """Cut windows into patches and map each to a token, by default with a learned position.

    Patches are counted back from the newest step, so the newest is always whole; what is left
    over on the old side is padded with zeros, the mean of the window. A patch length of 1 gives
    the point tokens of the paper.

    Parameters
    ----------
    context_length : int
        Steps of a window, ``T``.
    patch_length, patch_stride : int
        Steps of a patch, and from one patch to the next.
    width : int
        Token width ``D``.
    dropout : float
        Dropout probability of the tokens.
    positions : bool
        Whether a learned position is added to each token.

    Attributes
    ----------
    num_tokens : int
        Tokens of a window, ``N``.

    References
    ----------
    A Time Series is Worth 64 Words: Long-term Forecasting with Transformers, ICLR 2023.

    Examples
    --------
    >>> embed = PatchEmbedding(10, patch_length=4, patch_stride=4, width=8)
    >>> tokens, key_mask = embed(torch.zeros(2, 10))
    >>> tokens.shape, key_mask is None
    (torch.Size([2, 3, 8]), True)
    """

    def __init__(
        self,
        context_length: int,
        *,
        patch_length: int,
        patch_stride: int,
        width: int,
        dropout: float = 0.0,
        positions: bool = True,
    ) -> None:
        super().__init__()
        steps = -(-max(context_length - patch_length, 0) // patch_stride)
        self.num_tokens = steps + 1
        self.padding = steps * patch_stride + patch_length - context_length
        self.patch_length = patch_length
        self.patch_stride = patch_stride
        self.values = InputLinear(patch_length, width)
        self.gaps = InputLinear(patch_length, width, bias=False)
        self.positions = LearnedPositions(self.num_tokens, width) if positions else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T"], observed: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B N D"], Bool[Tensor, "B N"] | None]:
        """Embed normalised windows.

        Parameters
        ----------
        x : Tensor of shape (B, T)
            Normalised values, 0 where missing.
        observed : Tensor of bool of shape (B, T), optional
            True where a value was observed; everywhere if omitted.

        Returns
        -------
        tokens : Tensor of shape (B, N, D)
            Tokens, oldest first.
        key_mask : Tensor of bool of shape (B, N), or None
            True for tokens with an observed value; None if nothing is missing.
        """
        tokens: Tensor = self.positions(self.values(self._patches(x)))
        if observed is None:
            return self.dropout(tokens), None
        gaps = self.gaps(self._patches((~observed).to(x.dtype)))
        # Not the missing ones counted: the padding of the oldest patch is neither.
        return self.dropout(tokens + gaps), self._patches(observed).any(dim=-1)

    def _patches(self, x: Shaped[Tensor, "B T"]) -> Shaped[Tensor, "B N P"]:
        """Pad with zeros on the old side and unfold."""
        padded = functional.pad(x, (self.padding, 0))
        return padded.unfold(-1, self.patch_length, self.patch_stride)
