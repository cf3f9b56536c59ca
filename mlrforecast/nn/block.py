"""Pre-norm transformer blocks and the encoder made of them."""

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mlrforecast.nn.attention import LayerCache, StructuredAttention, attentions, option_names
from mlrforecast.nn.attention.score import option_hint
from mlrforecast.nn.dropout import Dropout
from mlrforecast.nn.linear import OutputLinear

__all__ = ["Encoder", "EncoderBlock", "attention_of_layers"]

COMMON_OPTIONS = (
    "attention_dropout",
    "context_length",
    "head_width",
    "num_kv_heads",
    "rotary",
)
"""Options that a layer takes whatever its score."""


def layer_options(attention: str) -> tuple[str, ...]:
    """Return the options that a layer with the score of that name takes."""
    score = attentions[attention]
    switch = ("qk_norm",) if score.takes_qk_norm else ()
    return (*COMMON_OPTIONS, *switch, *option_names(score))


def attention_of_layers(
    attention: str | Sequence[str], options: Mapping[str, Any] | None, num_layers: int
) -> list[dict[str, Any]]:
    """Return what each layer's attention is built with.

    Parameters
    ----------
    attention : str or sequence of str
        Score of every layer, or a pattern of scores that is repeated over the layers.
    options : mapping of str to object, optional
        Keyword arguments of :class:`mlrforecast.nn.StructuredAttention`; in a pattern, each layer
        takes those that its score has.
    num_layers : int
        Number of layers.

    Returns
    -------
    list of dict
        Keyword arguments for each layer, ``attention`` among them.

    Raises
    ------
    ValueError
        If a score is unknown, or no layer's score has an option that is given.

    Examples
    --------
    >>> mix = ("standard", "sliding_window", "sliding_window")
    >>> for layer in attention_of_layers(mix, {"window": 4}, 4):
    ...     print(layer)
    {'attention': 'standard'}
    {'attention': 'sliding_window', 'window': 4}
    {'attention': 'sliding_window', 'window': 4}
    {'attention': 'standard'}
    """
    pattern = (attention,) if isinstance(attention, str) else tuple(attention)
    options = dict(options or {})
    if not pattern:
        raise ValueError("`attention` must name at least one score, got an empty sequence.")
    known = {name: layer_options(name) for name in pattern}
    used = list(islice(cycle(pattern), num_layers))
    for name in options:
        if not any(name in known[score] for score in used):
            available = ", ".join(sorted({option for score in used for option in known[score]}))
            raise ValueError(
                f"attention={attention!r} has no option `{name}`{option_hint(name, used)}. Its "
                f"options are {available}."
            )
    return [
        {"attention": score, **{k: v for k, v in options.items() if k in known[score]}}
        for score in used
    ]


class EncoderBlock(nn.Module):
    """One pre-norm block: attention, then a GELU network, each added to its input.

    Parameters
    ----------
    width, num_heads : int
        Model width ``D`` and heads.
    hidden_width : int
        Width of the feed-forward network.
    causal : bool
        Whether a token sees only itself and the past.
    dropout : float
        Dropout probability of both branches and of the hidden layer.
    bias : bool
        Whether linear maps and norms have biases.
    **attention
        Further keyword arguments of :class:`StructuredAttention`.

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
        causal: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        **attention: Any,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, bias=bias)
        self.attention = StructuredAttention(
            width, num_heads, causal=causal, bias=bias, **attention
        )
        self.network_norm = nn.LayerNorm(width, bias=bias)
        self.network = nn.Sequential(
            nn.Linear(width, hidden_width, bias=bias),
            nn.GELU(),
            Dropout(dropout),
            OutputLinear(hidden_width, width, bias=bias),
        )
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B N D"],
        key_mask: Bool[Tensor, "B N"] | None = None,
        *,
        block_ids: Int[Tensor, "*batch num_levels N"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B N D"]:
        """Add attention and network to ``x``.

        Parameters
        ----------
        x : Tensor of shape (B, N, D)
            Tokens.
        key_mask, block_ids, cache
            As in :meth:`StructuredAttention.forward`.

        Returns
        -------
        Tensor of shape (B, N, D)
        """
        mixed = self.attention(self.attention_norm(x), key_mask, block_ids=block_ids, cache=cache)
        x = x + self.dropout(mixed)
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
    attention : str or sequence of str
        Score of every block, or a pattern that is repeated over the blocks, such as
        ``("standard", "sliding_window", "sliding_window")``.
    attention_options : mapping of str to object, optional
        Further keyword arguments of :class:`StructuredAttention`; in a pattern, each block takes
        those that its score has.
    causal : bool
        Whether a token sees only itself and the past.
    dropout : float
        Dropout probability.
    bias : bool
        Whether linear maps and norms have biases.

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
        attention: str | Sequence[str] = "mlr",
        attention_options: Mapping[str, Any] | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        blocks = [
            EncoderBlock(
                width,
                num_heads,
                hidden_width=hidden_width,
                causal=causal,
                dropout=dropout,
                bias=bias,
                **layer,
            )
            for layer in attention_of_layers(attention, attention_options, num_layers)
        ]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width, bias=bias)

    def forward(
        self,
        tokens: Float[Tensor, "B N D"],
        key_mask: Bool[Tensor, "B N"] | None = None,
        *,
        block_ids: Int[Tensor, "*batch num_levels N"] | None = None,
        cache: Sequence[LayerCache] | None = None,
    ) -> Float[Tensor, "B N D"]:
        """Encode tokens.

        Parameters
        ----------
        tokens : Tensor of shape (B, N, D)
            Tokens, oldest first.
        key_mask : Tensor of bool of shape (B, N), optional
            True where a token is real and not padding.
        block_ids : Tensor of int of shape (num_levels, N) or (B, num_levels, N), optional
            Block of each token on each level of MLR attention, in place of block sizes.
        cache : sequence of LayerCache, optional
            One for each block, from :meth:`new_cache`; ``tokens`` continue what they hold.

        Returns
        -------
        Tensor of shape (B, N, D)
            Encoded tokens.
        """
        if cache is not None and not isinstance(cache, Sequence):
            raise TypeError(
                f"`cache` must be a sequence with one LayerCache for each block, got a "
                f"{type(cache).__name__}: make one with new_cache()."
            )
        caches = [None] * len(self.blocks) if cache is None else cache
        if len(caches) != len(self.blocks):
            raise ValueError(
                f"`cache` must hold one LayerCache for each of the {len(self.blocks)} blocks, got "
                f"{len(caches)}."
            )
        for block, kept in zip(self.blocks, caches, strict=True):
            tokens = block(tokens, key_mask, block_ids=block_ids, cache=kept)
        encoded: Tensor = self.norm(tokens)
        return encoded

    def new_cache(self) -> list[LayerCache]:
        """Return an empty cache for each block.

        Returns
        -------
        list of LayerCache

        Raises
        ------
        ValueError
            If blocks or windows would change as the sequence grows.
        """
        blocks = [block for block in self.blocks if isinstance(block, EncoderBlock)]
        return [LayerCache(block.attention.score) for block in blocks]
