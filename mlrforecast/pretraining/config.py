"""What a model of the Chronos family consists of."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, TypeAlias, get_args

from mlrforecast._core.arguments import check_switch
from mlrforecast.nn.attention.mlr import default_ranks
from mlrforecast.ops import check_levels, halving_block_sizes, level_scales
from mlrforecast.ops.scores import LevelScale
from mlrforecast.pretraining._checks import above_zero, at_least, entries, share

__all__ = ["Head", "PretrainConfig", "StackAttention"]

Head: TypeAlias = Literal["tokens", "quantiles"]
"""What is forecast: tokens one by one as Chronos-T5, or a patch of quantiles as Chronos-Bolt."""

StackAttention: TypeAlias = Literal["mlr", "standard"]
"""Self-attention of a stack."""

NUM_SPECIAL_TOKENS, PAD, END = 2, 0, 1
_COUNTS = (
    *("context_length", "prediction_length", "width", "num_heads", "head_width"),
    *("hidden_width", "num_layers", "num_decoder_layers", "patch_length"),
)
_LEVELS = ("ranks", "block_sizes", "decoder_ranks", "decoder_block_sizes", "level_scale")


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """What a model of the Chronos family consists of: T5 with tokens or patches of a series.

    Parameters
    ----------
    head : {"tokens", "quantiles"}
        ``"tokens"``: steps are scaled by the mean absolute value of the context, cut into bins
        and forecast one by one, as in Chronos-T5. ``"quantiles"``: patches are read and all steps
        are forecast at once, as in Chronos-Bolt.
    context_length, prediction_length : int
        Steps that are read and forecast.
    width, num_heads, head_width, hidden_width, num_layers, num_decoder_layers : int
        Size of T5. The defaults are those of Chronos-T5-tiny.
    dropout : float in [0, 1)
        Dropout probability.
    initial_factor : float
        The first weights are those of T5, times this. With the 0.05 of Chronos' own configurations,
        which are for a hundred times as many steps, what is read reaches the forecast through so
        many small factors that a short training does not learn to use it.
    attention : {"mlr", "standard"}
        Self-attention of the encoder.
    decoder_attention : {"mlr", "standard"}, optional
        Self-attention of the decoder. Default: as in the encoder. Cross-attention is standard.
    ranks : sequence of int, optional
        Columns of each level of MLR attention, coarse to fine; they sum to ``head_width``.
        Default: half of them, a quarter, a quarter.
    block_sizes : sequence of int or None, optional
        Tokens of a block of each level of the encoder, None for all. Default: each level halves
        the blocks of the one before, in the longest context.
    decoder_ranks, decoder_block_sizes : optional
        The same of the decoder. Default: the ranks of the encoder, and halves of the longest
        forecast.
    level_scale : str or sequence of float, optional
        As in :func:`mlrforecast.ops.mlr_attention`. Default: 1, as T5 does not scale its scores.
    divide_by_shared_levels : bool
        Whether a score is divided by the number of levels that count for the pair.
    num_tokens : int
        Tokens, two special ones among them; read by ``head="tokens"`` only.
    limit : float
        Scaled values from ``-limit`` to ``limit`` have bins of their own; with ``"tokens"`` only.
    patch_length : int
        Steps of a patch; read by ``head="quantiles"`` only.
    quantile_levels : sequence of float
        Increasing levels in (0, 1) that are forecast; read by ``head="quantiles"`` only.

    Raises
    ------
    ValueError, TypeError
        If a field is out of its range.

    Examples
    --------
    The paper's setting, of which the last tokens are the end of a series:

    >>> config = PretrainConfig(
    ...     context_length=127, prediction_length=127, ranks=(32, 10, 8, 4, 4, 4, 2)
    ... )
    >>> config.encoder_levels
    ((32, 10, 8, 4, 4, 4, 2), (None, 64, 32, 16, 8, 4, 2))
    """

    head: Head = "tokens"
    context_length: int = 512
    prediction_length: int = 64
    width: int = 256
    num_heads: int = 4
    head_width: int = 64
    hidden_width: int = 1024
    num_layers: int = 4
    num_decoder_layers: int = 4
    dropout: float = 0.1
    initial_factor: float = 1.0
    attention: StackAttention = "mlr"
    decoder_attention: StackAttention | None = None
    ranks: Sequence[int] | None = None
    block_sizes: Sequence[int | None] | None = None
    decoder_ranks: Sequence[int] | None = None
    decoder_block_sizes: Sequence[int | None] | None = None
    level_scale: LevelScale | Sequence[float] | None = None
    divide_by_shared_levels: bool = False
    num_tokens: int = 4096
    limit: float = 15.0
    patch_length: int = 16
    quantile_levels: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

    def __post_init__(self) -> None:
        for name in _COUNTS:
            at_least(1, name, getattr(self, name))
        at_least(NUM_SPECIAL_TOKENS + 3, "num_tokens", self.num_tokens)
        choices = {
            "head": get_args(Head),
            "attention": get_args(StackAttention),
            "decoder_attention": (*get_args(StackAttention), None),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                named = ", ".join(str(each) for each in allowed)
                raise ValueError(f"`{name}` must be one of {named}; got {getattr(self, name)!r}.")
        share("dropout", self.dropout)
        above_zero("limit", self.limit)
        above_zero("initial_factor", self.initial_factor)
        check_switch("divide_by_shared_levels", self.divide_by_shared_levels)
        for name in (*_LEVELS, "quantile_levels"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                # The one way to set what is frozen.
                object.__setattr__(self, name, tuple(entries(name, value)))
        levels = self.quantile_levels
        if 0.5 not in levels or list(levels) != sorted({q for q in levels if 0 < q < 1}):
            raise ValueError(
                f"`quantile_levels` must increase within (0, 1) and hold 0.5, got {levels}."
            )
        self._check_ranks()

    def _check_ranks(self) -> None:
        """Check the levels of both stacks."""
        for found, prefix in ((self.encoder_levels, ""), (self.decoder_levels, "decoder_")):
            if found is None:
                continue
            if sum(found[0]) != self.head_width:
                raise ValueError(
                    f"`{prefix}ranks` must sum to `head_width`={self.head_width}, got {found[0]} "
                    f"(sum {sum(found[0])})."
                )
            if self.level_scale is not None:
                level_scales(found[0], self.level_scale)

    @property
    def encoder_length(self) -> int:
        """Tokens of the longest context: its steps and their end, or its patches and a summary."""
        if self.head == "tokens":
            return self.context_length + 1
        return -(-self.context_length // self.patch_length) + 1

    @property
    def decoder_length(self) -> int:
        """Tokens of a forecast: its steps and their end, or one."""
        return self.prediction_length + 1 if self.head == "tokens" else 1

    @property
    def encoder_levels(self) -> tuple[tuple[int, ...], tuple[int | None, ...]] | None:
        """Ranks and block sizes of the encoder; None if it has standard attention."""
        if self.attention == "standard":
            return None
        return self._levels(self.ranks, self.block_sizes, self.encoder_length)

    @property
    def decoder_levels(self) -> tuple[tuple[int, ...], tuple[int | None, ...]] | None:
        """Ranks and block sizes of the decoder; None if it has standard attention."""
        if (self.decoder_attention or self.attention) == "standard":
            return None
        ranks = self.ranks if self.decoder_ranks is None else self.decoder_ranks
        return self._levels(ranks, self.decoder_block_sizes, self.decoder_length)

    def _levels(
        self, ranks: Sequence[int] | None, sizes: Sequence[int | None] | None, length: int
    ) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
        own = default_ranks(self.head_width) if ranks is None else ranks
        return check_levels(
            length, own, halving_block_sizes(length, len(own)) if sizes is None else sizes
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values of JSON."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Undo :meth:`to_dict`; ``values`` must have all fields and no others."""
        # Before it was a field, it was that of Chronos.
        values = {"initial_factor": 0.05, **values}
        names = {field.name for field in fields(cls)}
        if differing := names ^ set(values):
            raise ValueError(f"a configuration lacks or adds {', '.join(sorted(differing))}.")
        return cls(**values)
