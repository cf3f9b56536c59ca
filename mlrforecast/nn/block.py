"""Pre-norm transformer blocks and the encoder made of them."""

from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor, nn

from mlrforecast.nn.attention import StructuredAttention


class EncoderBlock(nn.Module):
    """One pre-norm block: attention, then a GELU network, each added to its input.

    Parameters
    ----------
    width, num_heads : int
        Model width ``D`` and heads.
    hidden_width : int
        Width of the feed-forward network.
    attention, ranks, block_sizes
        As in :class:`StructuredAttention`.
    dropout : float
        Dropout probability of both branches and of the hidden layer.

    Examples
    --------
    >>> import torch
    >>> EncoderBlock(16, 2, hidden_width=32)(torch.zeros(3, 10, 16)).shape
    torch.Size([3, 10, 16])
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        hidden_width: int,
        attention: str = "mlr",
        ranks: Sequence[int] | None = None,
        block_sizes: Sequence[int | None] | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = StructuredAttention(
            width, num_heads, attention=attention, ranks=ranks, block_sizes=block_sizes
        )
        self.network_norm = nn.LayerNorm(width)
        self.network = nn.Sequential(
            nn.Linear(width, hidden_width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_width, width),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B N D"], key_mask: Bool[Tensor, "B N"] | None = None
    ) -> Float[Tensor, "B N D"]:
        """Add attention and network to ``x``; keys where ``key_mask`` is False are not attended."""
        x = x + self.dropout(self.attention(self.attention_norm(x), key_mask))
        out: Tensor = x + self.dropout(self.network(self.network_norm(x)))
        return out


class Encoder(nn.Module):
    """A stack of pre-norm blocks with a final LayerNorm.

    It has the signature that ``MLRForecaster(backbone=...)`` asks of any encoder:
    ``forward(tokens, key_mask)``, tokens of shape (B, N, D) in and out, ``key_mask`` of shape
    (B, N), True for real tokens, or None if all are real.

    Parameters
    ----------
    width, num_heads, num_layers, hidden_width : int
        Model width ``D``, heads, blocks, width of the feed-forward networks.
    attention, ranks, block_sizes
        As in :class:`StructuredAttention`, the same in every block.
    dropout : float
        Dropout probability.

    Examples
    --------
    >>> import torch
    >>> encoder = Encoder(16, 2, num_layers=2, hidden_width=32, attention="standard")
    >>> encoder(torch.zeros(3, 10, 16)).shape
    torch.Size([3, 10, 16])
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        num_layers: int,
        hidden_width: int,
        attention: str = "mlr",
        ranks: Sequence[int] | None = None,
        block_sizes: Sequence[int | None] | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            EncoderBlock(
                width,
                num_heads,
                hidden_width=hidden_width,
                attention=attention,
                ranks=ranks,
                block_sizes=block_sizes,
                dropout=dropout,
            )
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(
        self, tokens: Float[Tensor, "B N D"], key_mask: Bool[Tensor, "B N"] | None = None
    ) -> Float[Tensor, "B N D"]:
        """Encode tokens.

        Parameters
        ----------
        tokens : Tensor of shape (B, N, D)
            Tokens, oldest first.
        key_mask : Tensor of bool of shape (B, N), optional
            True where a token is real and not padding.

        Returns
        -------
        Tensor of shape (B, N, D)
            Encoded tokens.
        """
        for block in self.blocks:
            tokens = block(tokens, key_mask)
        encoded: Tensor = self.norm(tokens)
        return encoded
