"""The causal language model: tokens in, logits of the token that follows each out."""

import dataclasses
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor, nn
from torch.nn import functional

from mlrforecast.models._config import CausalFields, Positions, count
from mlrforecast.models._sampling import Sampler, evaluating
from mlrforecast.models.cache import ModelCache
from mlrforecast.nn import Dropout, OutputLinear

__all__ = ["CausalLM", "CausalLMConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CausalLMConfig(CausalFields):
    """Everything that determines a :class:`CausalLM` but its weights.

    The defaults are the sizes and switches of the paper's smallest language model, and the sane
    factors of :func:`mlrforecast.ops.mlr_attention`; the published ones are options, see below.

    Parameters
    ----------
    vocabulary_size : int
        Number of tokens.
    context_length : int
        Tokens ``T`` that the model is trained on. Default blocks and windows are made for it,
        however long or short a sequence is.
    width, num_heads, num_layers : int
        Model width ``D``, heads and blocks.
    hidden_width : int, optional
        Width of the feed-forward networks. Default: ``4 * width``.
    attention : str or tuple of str
        Score of every block, or a pattern of scores that is repeated over the blocks; the names
        are those of :class:`mlrforecast.nn.StructuredAttention`.
    ranks, block_sizes : tuple of int, optional
        Levels of MLR attention, coarse to fine.
    attention_options : mapping of str to object, optional
        Further keyword arguments of :class:`mlrforecast.nn.StructuredAttention`, such as
        ``num_kv_heads`` or ``window``. The published MLR model has ``{"level_scale":
        "inverse_rank", "divide_by_shared_levels": True}``.
    positions : {"learned", "rotary", "none"}
        How a token knows its place. Learned positions end at ``context_length``.
    qk_norm : bool, optional
        Whether queries and keys are normalised. Default: they are, where a block's score has that
        switch (``"bilinear"`` and ``"bilinear_btt"`` have the option ``key_norm`` instead).
    bias : bool
        Whether linear maps and norms have biases; the head has none.
    dropout : float
        Dropout probability.

    Raises
    ------
    ValueError
        If a field is out of its range, or no block's score has an option that is given.
    TypeError
        If a switch is not True or False, or an option cannot be saved as JSON.

    Examples
    --------
    >>> config = CausalLMConfig(vocabulary_size=96, context_length=256, ranks=(32, 16, 16))
    >>> CausalLMConfig.from_dict(config.to_dict()) == config
    True
    """

    vocabulary_size: int
    context_length: int
    width: int = 256
    num_heads: int = 4
    num_layers: int = 6
    hidden_width: int | None = None
    attention: str | tuple[str, ...] = "mlr"
    ranks: tuple[int, ...] | None = None
    block_sizes: tuple[int | None, ...] | None = None
    attention_options: dict[str, Any] | None = None
    positions: Positions = "learned"
    qk_norm: bool | None = None
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("vocabulary_size", "context_length"):
            self._set(name, count(name, getattr(self, name)))
        super().__post_init__()


class CausalLM(nn.Module):
    """Predict each token from those before it.

    Token embedding, positions, causal pre-norm blocks, a final LayerNorm and a head of its own.
    One configuration serves every score.

    Parameters
    ----------
    config : CausalLMConfig
        Sizes and settings.

    Raises
    ------
    ValueError
        If the heads do not divide the width, or the levels do not fit a head.

    References
    ----------
    Customizing the Inductive Biases of Softmax Attention using Structured Matrices, ICML 2025,
    arXiv 2509.07963.

    Examples
    --------
    >>> config = CausalLMConfig(vocabulary_size=11, context_length=16, width=16, num_layers=2)
    >>> model = CausalLM(config)
    >>> tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    >>> model(tokens).shape
    torch.Size([1, 8, 11])
    >>> model.generate(tokens, 4, temperature=0.0).shape
    torch.Size([1, 12])
    """

    def __init__(self, config: CausalLMConfig) -> None:
        super().__init__()
        if not isinstance(config, CausalLMConfig):
            raise TypeError(
                f"`config` must be a CausalLMConfig, got a {type(config).__name__}. "
                "CausalLMConfig.from_dict makes one of a mapping."
            )
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary_size, config.width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.positions = config.build_positions(config.context_length)
        self.dropout = Dropout(config.dropout)
        self.encoder = config.build_encoder(
            context_length=config.context_length, causal=True, bias=config.bias
        )
        self.head = OutputLinear(config.width, config.vocabulary_size, bias=False)

    def forward(
        self,
        tokens: Integer[Tensor, "B T"],
        key_mask: Bool[Tensor, "B T"] | None = None,
        *,
        block_ids: Int[Tensor, "*batch num_levels T"] | None = None,
        cache: ModelCache | None = None,
    ) -> Float[Tensor, "B T vocabulary_size"]:
        """Return the logits of the token that follows each.

        Parameters
        ----------
        tokens : Tensor of int of shape (B, T)
            Tokens, 0 to ``vocabulary_size - 1``, oldest first.
        key_mask : Tensor of bool of shape (B, T), optional
            True where a token is real and not padding. Padding stands on the left and is counted
            in the places of the tokens after it, which learned positions and blocks depend on.
        block_ids : Tensor of int of shape (num_levels, T) or (B, num_levels, T), optional
            Block of each token on each level of MLR attention, in place of block sizes.
        cache : ModelCache, optional
            What was kept of earlier tokens, from :meth:`new_cache`; ``tokens`` continue them, and
            are kept as well.

        Returns
        -------
        Tensor of shape (B, T, vocabulary_size)
            Logits.

        Raises
        ------
        ValueError
            If a token is unknown, a shape is wrong, the learned positions are too few, or
            ``cache`` belongs to another model or batch. The cache is as it was then.
        TypeError
            If ``tokens`` holds no integers.
        """
        encoded = self._encode(tokens, key_mask, block_ids, cache)
        logits: Tensor = self.head(encoded)
        return logits

    def _encode(
        self,
        tokens: Tensor,
        key_mask: Tensor | None,
        block_ids: Tensor | None,
        cache: ModelCache | None,
    ) -> Tensor:
        """Return what the head reads, (B, T, D)."""
        _check_tokens("tokens", tokens, self.config.vocabulary_size)
        _check_key_mask(key_mask, tokens)
        start = 0
        if cache is not None:
            if not isinstance(cache, ModelCache):
                raise TypeError(
                    f"`cache` must be a ModelCache, got a {type(cache).__name__}: make one with "
                    "new_cache()."
                )
            cache.check(self.encoder, len(tokens))
            start = cache.length
        x = self.embedding(tokens.long())
        if self.positions is not None:
            x = self.positions(x, start)
        layers = None if cache is None else cache.layers
        encoded: Tensor = self.encoder(self.dropout(x), key_mask, block_ids=block_ids, cache=layers)
        return encoded

    def loss(
        self,
        tokens: Integer[Tensor, "B T"],
        targets: Integer[Tensor, "B T"],
        key_mask: Bool[Tensor, "B T"] | None = None,
        *,
        block_ids: Int[Tensor, "*batch num_levels T"] | None = None,
    ) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the targets, in nats a token.

        Parameters
        ----------
        tokens : Tensor of int of shape (B, T)
            Tokens that are read.
        targets : Tensor of int of shape (B, T)
            The token that follows each.
        key_mask : Tensor of bool of shape (B, T), optional
            True where a token is real and not padding; what follows padding is not counted.
        block_ids : Tensor of int of shape (num_levels, T) or (B, num_levels, T), optional
            As in :meth:`forward`.

        Returns
        -------
        Tensor
            The loss, one number, at least in float32.

        Raises
        ------
        ValueError
            If the shapes differ or a token is unknown.
        """
        _check_tokens("targets", targets, self.config.vocabulary_size)
        if targets.shape != tokens.shape:
            raise ValueError(
                f"`targets` must have the shape of `tokens`, {tuple(tokens.shape)}, got "
                f"{tuple(targets.shape)}."
            )
        logits = self(tokens, key_mask, block_ids=block_ids)
        targets = targets.long()
        if key_mask is not None:
            if not key_mask.any():
                raise ValueError("`key_mask` must be True for at least one token, got none.")
            logits, targets = logits[key_mask], targets[key_mask]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return functional.cross_entropy(
            logits.reshape(-1, self.config.vocabulary_size), targets.reshape(-1)
        )

    def new_cache(self) -> ModelCache:
        """Return an empty cache for a batch of sequences.

        Returns
        -------
        ModelCache

        Raises
        ------
        ValueError
            If the blocks would move as a sequence grows: with the option ``newest_whole``.
        """
        return ModelCache(self.encoder)

    @torch.no_grad()
    def generate(
        self,
        tokens: Integer[Tensor, "B T"],
        max_new_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
        key_mask: Bool[Tensor, "B T"] | None = None,
    ) -> Integer[Tensor, "B length"]:
        """Continue sequences token by token, with a cache and without dropout.

        Parameters
        ----------
        tokens : Tensor of int of shape (B, T)
            Sequences to continue, of at least one token.
        max_new_tokens : int
            Tokens to add, at least 1.
        temperature : float, at least 0
            Logits are divided by it; 0 takes the likeliest token.
        top_k : int, optional
            Draw among the ``top_k`` likeliest tokens only.
        generator : torch.Generator, optional
            Draws the tokens, on its own device, so that a seed gives the same text again. Default:
            a new one with a seed of the operating system; the global random state is not touched.
        key_mask : Tensor of bool of shape (B, T), optional
            True where a token is real; padding stands on the left, so the last is.

        Returns
        -------
        Tensor of int of shape (B, T + max_new_tokens)
            ``tokens`` and what follows them, in their dtype.

        Raises
        ------
        ValueError
            If an argument is out of its range, padding is on the right, or the learned positions
            end before the text does.
        """
        count("max_new_tokens", max_new_tokens)
        draw = Sampler(
            self.config.vocabulary_size, temperature=temperature, top_k=top_k, generator=generator
        )
        _check_tokens("tokens", tokens, self.config.vocabulary_size)
        _check_key_mask(key_mask, tokens)
        if key_mask is not None and not key_mask[:, -1].all():
            raise ValueError(
                "`key_mask` must be True for the last token of every sequence: pad on the left."
            )
        # The last token that is drawn is not read.
        self._check_places(tokens.shape[1] + max_new_tokens - 1)
        if self.config.vocabulary_size - 1 > torch.iinfo(tokens.dtype).max:
            raise ValueError(
                f"`tokens` must be of a type that holds every token up to "
                f"{self.config.vocabulary_size - 1}, got {tokens.dtype}. Use torch.int64."
            )
        cache, pieces = self.new_cache(), [tokens]
        with evaluating(self):
            for _ in range(max_new_tokens):
                encoded = self._encode(pieces[-1], key_mask, None, cache)
                key_mask = None
                pieces.append(draw(self.head(encoded[:, -1])).to(tokens.dtype))
        return torch.cat(pieces, 1)

    def _check_places(self, length: int) -> None:
        """Check, before anything is done, that there are learned positions for all tokens."""
        if self.positions is not None and length > self.config.context_length:
            raise ValueError(
                f"`max_new_tokens`: the text would take {length} learned positions, and they end "
                f"at {self.config.context_length}. Give fewer tokens, or build the model with "
                "positions='rotary' or 'none'."
            )


def _check_tokens(name: str, tokens: Tensor, vocabulary_size: int) -> None:
    """Check the shape and the entries of tokens."""
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.dtype == torch.bool:
        found = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"`{name}` must be a tensor of integers, got {found}.")
    if tokens.ndim != 2 or tokens.numel() == 0:
        raise ValueError(
            f"`{name}` must have a shape (B, T) with at least one token, got {tuple(tokens.shape)}."
        )
    # Elsewhere a look at the entries would wait for the device, which checks them itself.
    if tokens.is_cpu and not torch.compiler.is_compiling():
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= vocabulary_size:
            raise ValueError(
                f"`{name}` must lie in 0 to {vocabulary_size - 1}, got {low if low < 0 else high}."
            )


def _check_key_mask(key_mask: Tensor | None, tokens: Tensor) -> None:
    """Check that there is one bool for each of the tokens that are given."""
    if key_mask is None:
        return
    if not isinstance(key_mask, Tensor) or key_mask.dtype != torch.bool:
        found = key_mask.dtype if isinstance(key_mask, Tensor) else type(key_mask).__name__
        raise TypeError(f"`key_mask` must be a tensor of bool, got {found}.")
    if key_mask.shape != tokens.shape:
        raise ValueError(
            f"`key_mask` must have the shape of `tokens`, {tuple(tokens.shape)}, got "
            f"{tuple(key_mask.shape)}."
        )
