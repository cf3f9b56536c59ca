"""What the configurations of all models share: checks of fields, and their JSON form."""

import dataclasses
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

import numpy as np

from mlrforecast._core.arguments import check_switch
from mlrforecast.nn import Encoder, LearnedPositions, attentions
from mlrforecast.nn.attention.score import option_hint
from mlrforecast.nn.block import layer_options

Positions: TypeAlias = Literal["learned", "rotary", "none"]

_SET_BY_MODEL = {"context_length": "the lengths of the model", "rotary": "`positions`"}
"""Options of attention that a configuration sets itself, and by what."""

# Not typing.Self, which the run-time shape checker of the tests cannot read on a method.
_Config = TypeVar("_Config", bound="ModelConfig")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A frozen record of plain values that survives JSON; a subclass checks its fields."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls: type[_Config], fields: Mapping[str, Any]) -> _Config:
        """Build a configuration.

        Parameters
        ----------
        fields : mapping of str to object
            What :meth:`to_dict` returned; lists, as JSON has them, become tuples. Fields that are
            not there keep their defaults.

        Returns
        -------
        ModelConfig
            The configuration.

        Raises
        ------
        ValueError
            If a field is unknown or out of its range.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := set(fields) - known:
            raise ValueError(f"Unknown configuration fields: {', '.join(sorted(unknown))}.")
        return cls(**{name: plain(name, value) for name, value in fields.items()})

    def _set(self, name: str, value: object) -> None:
        """Put a plain value in place of what may be one of numpy, or a list."""
        object.__setattr__(self, name, value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderFields(ModelConfig):
    """The fields that determine the encoder inside a model."""

    width: int
    num_heads: int
    num_layers: int
    hidden_width: int | None = None
    attention: str | tuple[str, ...] = "mlr"
    ranks: tuple[int, ...] | None = None
    block_sizes: tuple[int | None, ...] | None = None
    attention_options: Mapping[str, Any] | None = None
    positions: Positions = "learned"
    dropout: float = 0.0

    flat_options: ClassVar[tuple[str, ...]] = ("ranks", "block_sizes")
    """Options of attention that are fields."""

    def __post_init__(self) -> None:
        for name in ("width", "num_heads", "num_layers"):
            self._set(name, count(name, getattr(self, name)))
        if self.hidden_width is not None:
            self._set("hidden_width", count("hidden_width", self.hidden_width))
        self._set("attention", attention_names(self.attention, self.num_layers))
        if self.ranks is not None:
            self._set("ranks", counts("ranks", self.ranks))
        if self.block_sizes is not None:
            self._set("block_sizes", counts("block_sizes", self.block_sizes, open_ended=True))
        if self.attention_options is not None:
            self._set("attention_options", options(self.attention_options, self.flat_options))
        choice("positions", self.positions, get_args(Positions))
        self._set("dropout", share("dropout", self.dropout))
        self._check_options()

    def _check_options(self) -> None:
        """Check that every option has a layer whose score takes it."""
        attention = self.attention
        used = {attention} if isinstance(attention, str) else set(attention)
        known = {option for name in used for option in layer_options(name)}
        for option in self.options_of_attention(1):
            if option in known:
                continue
            where = "" if option in self.flat_options else "`attention_options`: "
            raise ValueError(
                f"{where}attention={attention!r} has no option `{option}`"
                f"{option_hint(option, used)}. Its options are "
                f"{', '.join(sorted(known - set(_SET_BY_MODEL)))}."
            )

    def _check_reach(self, length: int) -> None:
        """Check that blocks and windows are not longer than all ``length`` tokens together."""
        sizes = enumerate(self.block_sizes or ())
        given = [(f"block_sizes[{lvl}]", size, "at most", length) for lvl, size in sizes]
        window = (self.attention_options or {}).get("window")
        for name, value, rule, longest in (*given, ("window", window, "less than", length - 1)):
            if isinstance(value, int) and value > longest:
                raise ValueError(
                    f"`{name}` must be {rule} the {length} tokens of a sequence, got {value}: what "
                    "is longer leaves nothing out, and would silently be another score. A token "
                    "of a forecaster is a patch of `patch_length` steps."
                )

    def options_of_attention(self, context_length: int) -> dict[str, Any]:
        """Return the keyword arguments of every attention layer, for sequences of that length."""
        given = {name: getattr(self, name) for name in self.flat_options}
        return {
            **(self.attention_options or {}),
            **{name: value for name, value in given.items() if value is not None},
            "context_length": context_length,
            "rotary": self.positions == "rotary",
        }

    def build_positions(self, length: int) -> LearnedPositions | None:
        """Return the learned positions of ``length`` tokens, if the model has any."""
        return LearnedPositions(length, self.width) if self.positions == "learned" else None

    def build_encoder(self, *, context_length: int, causal: bool, bias: bool = True) -> Encoder:
        """Return the encoder, for sequences of ``context_length`` tokens.

        Raises
        ------
        ValueError
            If a block or a window would be longer than such a sequence.
        """
        self._check_reach(context_length)
        return Encoder(
            self.width,
            self.num_heads,
            num_layers=self.num_layers,
            hidden_width=4 * self.width if self.hidden_width is None else self.hidden_width,
            attention=self.attention,
            attention_options=self.options_of_attention(context_length),
            causal=causal,
            dropout=self.dropout,
            bias=bias,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CausalFields(EncoderFields):
    """The same for a causal model, whose norms and biases are fields too."""

    qk_norm: bool | None = None
    bias: bool = False

    flat_options: ClassVar[tuple[str, ...]] = ("ranks", "block_sizes", "qk_norm")

    def __post_init__(self) -> None:
        if self.qk_norm is not None:
            check_switch("qk_norm", self.qk_norm)
        check_switch("bias", self.bias)
        super().__post_init__()

    def _check_options(self) -> None:
        """Say what an open ``qk_norm`` means, and check the options with it."""
        names = (self.attention,) if isinstance(self.attention, str) else self.attention
        if any(attentions[name].takes_qk_norm for name in names):
            self._set("qk_norm", self.qk_norm is not False)
        elif not self.qk_norm:
            self._set("qk_norm", None)
        super()._check_options()


def count(name: str, value: Any, *, least: int = 1, place: str = "") -> int:
    """Return a value as an int of at least ``least``; an error says its ``place``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"`{name}` must be an integer of at least {least}, got {value!r}{place}.")
    if int(value) >= 2**62:
        raise ValueError(f"`{name}` must be less than 2**62, got {value}{place}.")
    return int(value)


def counts(
    name: str, values: Any, *, least: int = 1, open_ended: bool = False
) -> tuple[int | None, ...]:
    """Return a sequence of ints of at least ``least``, or of None too if ``open_ended``."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise TypeError(f"`{name}` must be a sequence of integers, got a {type(values).__name__}.")
    return tuple(
        None
        if value is None and open_ended
        else count(name, value, least=least, place=f" at index {at}")
        for at, value in enumerate(values)
    )


def share(name: str, value: Any, *, closed: bool = False) -> float:
    """Return a value as a float in [0, 1), or in [0, 1] if ``closed``."""
    number = float(value) if isinstance(value, Real | float) else -1.0
    if not 0 <= number <= 1 or (number == 1 and not closed):
        raise ValueError(f"`{name}` must be in [0, 1{']' if closed else ')'}, got {value!r}.")
    return number


def choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Check that a value is one of some words."""
    if value not in (words := tuple(choices)):
        raise ValueError(f"`{name}` must be one of {', '.join(words)}, got {value!r}.")


def attention_names(attention: Any, num_layers: int) -> str | tuple[str, ...]:
    """Return the name of a score, or a pattern of names as a tuple."""
    if not isinstance(attention, str | list | tuple):
        raise TypeError(
            "`attention` must be the name of a score or a sequence of names, got a "
            f"{type(attention).__name__}."
        )
    names = (attention,) if isinstance(attention, str) else tuple(attention)
    for name in names:
        if name not in tuple(attentions):
            raise ValueError(
                f"`attention` must be one of {', '.join(attentions)}, got {name!r}. "
                f"{attentions.hint}"
            )
    if not names:
        raise ValueError("`attention` must name at least one score, got an empty sequence.")
    if len(names) > num_layers:
        raise ValueError(
            f"`attention` must name at most {num_layers} scores (`num_layers`), so that each has "
            f"a layer, got {len(names)}: {attention!r}."
        )
    return str(attention) if isinstance(attention, str) else tuple(map(str, names))


def options(values: Any, flat_options: Iterable[str]) -> dict[str, Any]:
    """Return options of attention as plain values, none of them one that is set elsewhere."""
    if not isinstance(values, Mapping):
        raise TypeError(
            "`attention_options` must map names of options to values, got a "
            f"{type(values).__name__}."
        )
    elsewhere = {**_SET_BY_MODEL, **{name: f"`{name}`" for name in flat_options}}
    for option in values:
        if option in elsewhere:
            raise ValueError(f"`attention_options` holds {option!r}, set by {elsewhere[option]}.")
    return {
        str(option): plain(f"attention_options[{option!r}]", value)
        for option, value in values.items()
    }


def plain(name: str, value: Any) -> Any:
    """Return a value made of what JSON has, with tuples for its lists."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): plain(f"{name}[{key!r}]", entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(plain(f"{name}[{i}]", entry) for i, entry in enumerate(value))
    raise TypeError(
        f"`{name}` must be made of numbers, text, True, False, None, sequences and mappings, so "
        f"that it can be saved as JSON, got a {type(value).__name__}."
    )
