"""Tokens from windows: patches of several steps, or one token a step."""

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from mlrforecast.nn.dropout import Dropout
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
    num_covariates, num_static : int
        Features of covariates, ``E`` at each step and ``E2`` of the whole series.

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
        num_covariates: int = 0,
        num_static: int = 0,
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
        self.covariates = (
            InputLinear(num_covariates * patch_length, width, bias=False)
            if num_covariates
            else None
        )
        self.static = InputLinear(num_static, width, bias=False) if num_static else None
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T"],
        observed: Bool[Tensor, "B T"] | None = None,
        *,
        covariates: Float[Tensor, "W T E"] | None = None,
        static: Float[Tensor, "W E2"] | None = None,
    ) -> tuple[Float[Tensor, "B N D"], Bool[Tensor, "B N"] | None]:
        """Embed normalised windows.

        Parameters
        ----------
        x : Tensor of shape (B, T)
            Normalised values, 0 where missing.
        observed : Tensor of bool of shape (B, T), optional
            True where a value was observed; everywhere if omitted.
        covariates : Tensor of shape (W, T, E), optional
            Features of covariates, cut into patches like the values. One for every window or,
            where ``W`` is less than ``B``, for ``B / W`` windows in turn: the channels of one
            frame.
        static : Tensor of shape (W, E2), optional
            Features of the whole series, added to each of its tokens.

        Returns
        -------
        tokens : Tensor of shape (B, N, D)
            Tokens, oldest first.
        key_mask : Tensor of bool of shape (B, N), or None
            True for tokens with an observed value; None if nothing is missing.

        Raises
        ------
        ValueError
            If there are features that the embedding was not built for, or the other way round.
        """
        tokens: Tensor = self.positions(self.values(self._patches(x)))
        if covariates is not None:
            patches = self._patches(covariates.mT).swapaxes(1, 2).flatten(2)
            tokens = _add(tokens, _layer("covariates", self.covariates)(patches))
        elif self.covariates is not None:
            raise ValueError("`covariates` must be given: the embedding has `num_covariates`.")
        if static is not None:
            tokens = _add(tokens, _layer("static", self.static)(static).unsqueeze(1))
        elif self.static is not None:
            raise ValueError("`static` must be given: the embedding has `num_static`.")
        if observed is None:
            return self.dropout(tokens), None
        gaps = self.gaps(self._patches((~observed).to(x.dtype)))
        # Not the missing ones counted: the padding of the oldest patch is neither.
        return self.dropout(tokens + gaps), self._patches(observed).any(dim=-1)

    def _patches(self, x: Shaped[Tensor, "*B T"]) -> Shaped[Tensor, "*B N P"]:
        """Pad with zeros on the old side and unfold."""
        padded = functional.pad(x, (self.padding, 0))
        return padded.unfold(-1, self.patch_length, self.patch_stride)


def _layer(name: str, layer: nn.Linear | None) -> nn.Linear:
    """Return the layer of some features, if the embedding has it."""
    if layer is None:
        raise ValueError(f"`{name}` must be None: the embedding was built with num_{name}=0.")
    return layer


def _add(tokens: Float[Tensor, "B N D"], added: Float[Tensor, "W N2 D"]) -> Float[Tensor, "B N D"]:
    """Add the same to the tokens of all channels of a frame."""
    batch = added.shape[0]
    num_channels = tokens.shape[0] // max(batch, 1)
    summed: Tensor = tokens.unflatten(0, (batch, num_channels)) + added.unsqueeze(1)
    return summed.flatten(0, 1)
