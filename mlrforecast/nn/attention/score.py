"""What a score must say so that a layer can attend, step by step too."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from mlrforecast._core.registry import Registry
from mlrforecast.nn.cost import Convention, Cost

__all__ = ["Heads", "Reach", "Score", "Step", "attentions", "option_names"]


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Sizes and switches that every score is built from.

    Parameters
    ----------
    width : int
        Model width ``D``.
    num_heads, num_kv_heads : int
        Query heads ``H``, and key and value heads ``G``, which divide them.
    head_width : int
        Columns of a head.
    bias : bool
        Whether linear maps and norms have biases.
    qk_norm : bool
        Whether queries and keys are normalised by a LayerNorm.
    context_length : int, optional
        Steps of the sequences that default blocks and windows are made for; None for those of
        each call.
    """

    width: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    bias: bool = True
    qk_norm: bool = False
    context_length: int | None = None


@dataclass(frozen=True, kw_only=True)
class Reach:
    """How far back the keys of some columns are read: what a cache must keep of them.

    Parameters
    ----------
    columns : int
        Number of columns.
    first : callable
        ``first(step)`` is the oldest step whose keys a query at ``step`` or later reads in these
        columns; it never falls as ``step`` grows.
    """

    columns: int
    first: Callable[[int], int]


@dataclass(frozen=True, kw_only=True)
class Step:
    """New queries and the keys and values that a cache kept for them.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries of the newest ``T`` steps.
    keys : tuple of Tensor of shape (B, G, S_i, R_i)
        Keys of each :class:`Reach`, the newest ``S_i`` steps.
    v : Tensor of shape (B, G, S, V)
        Values of the newest ``S`` steps; no ``S_i`` is larger.
    key_mask : bool Tensor of shape (B, S), optional
        True where a key may be attended.
    length : int
        Steps seen so far, the new ones included.
    """

    q: Float[Tensor, "B H T R"]
    keys: tuple[Tensor, ...]
    v: Float[Tensor, "B G S V"]
    key_mask: Bool[Tensor, "B S"] | None
    length: int


class Score(nn.Module, ABC):
    """How a layer compares steps: features of queries and keys, and the op that attends by them.

    A new score subclasses it, takes its own options as keyword-only arguments after ``heads``,
    and is registered in ``attentions`` under the name of its op.

    Parameters
    ----------
    heads : Heads
        Sizes and switches of the layer.

    Attributes
    ----------
    positional : bool
        Whether it reads where a step stands, and so cannot compare steps of two sequences.
    takes_block_ids, takes_query_block_ids : bool
        Whether ``attend`` takes block ids of its steps, and of the queries of another sequence.
    takes_qk_norm : bool
        Whether it reads the switch ``heads.qk_norm``; a layer refuses the switch otherwise.
    sections : tuple of int
        Columns that rotary positions turn together.

    Examples
    --------
    A score that compares the raw columns of each head:

    >>> from mlrforecast.ops import standard_attention
    >>> class RawScore(Score):
    ...     positional = False
    ...
    ...     def queries(self, x):
    ...         return x.unflatten(-1, (self.heads.num_heads, -1)).transpose(1, 2)
    ...
    ...     keys = queries
    ...
    ...     def attend(self, q, k, v, *, causal, key_mask, dropout_p):
    ...         return standard_attention(q, k, v, causal=causal, key_mask=key_mask)
    >>> RawScore(Heads(width=8, num_heads=2, num_kv_heads=2, head_width=4)).reaches()[0].columns
    4
    """

    positional: ClassVar[bool]
    takes_block_ids: ClassVar[bool] = False
    takes_query_block_ids: ClassVar[bool] = False
    takes_qk_norm: ClassVar[bool] = False

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.heads = heads
        self.sections: tuple[int, ...] = (heads.head_width,)

    def prepare(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Change the layer input before anything else reads it, the values included.

        Parameters
        ----------
        x : Tensor of shape (B, T, D)
            Layer input.

        Returns
        -------
        Tensor of shape (B, T, D)
        """
        return x

    @abstractmethod
    def queries(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T R"]:
        """Return what stands for each step as a query.

        Parameters
        ----------
        x : Tensor of shape (B, T, D)
            Layer input, prepared.

        Returns
        -------
        Tensor of shape (B, H, T, R)
        """

    @abstractmethod
    def keys(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B G S R"]:
        """Return what stands for each step as a key.

        Parameters
        ----------
        x : Tensor of shape (B, S, D)
            Layer input, or another sequence, prepared.

        Returns
        -------
        Tensor of shape (B, G, S, R)
            One head for each group of query heads, or one for each query head.
        """

    @abstractmethod
    def attend(
        self,
        q: Float[Tensor, "B H T R"],
        k: Float[Tensor, "B G S R"],
        v: Float[Tensor, "B G S V"],
        *,
        causal: bool,
        key_mask: Bool[Tensor, "B S"] | None,
        dropout_p: float,
    ) -> Float[Tensor, "B H T V"]:
        """Attend; the queries are the last steps of the keys.

        Parameters
        ----------
        q, k, v : Tensor
            What :meth:`queries` and :meth:`keys` gave, turned by their steps if the layer has
            rotary positions, and the values.
        causal : bool
            Whether a step sees only itself and the past.
        key_mask : bool Tensor of shape (B, S), optional
            True where a key may be attended.
        dropout_p : float
            Share of the weights that is dropped.

        Returns
        -------
        Tensor of shape (B, H, T, V)
            0 where a step may attend no key.
        """

    def reaches(self) -> tuple[Reach, ...]:
        """Return what a cache keeps: by default all columns of every step."""
        return (Reach(columns=sum(self.sections), first=lambda step: 0),)

    def first_value(self, step: int) -> int:
        """Return the oldest step whose value a query at ``step`` or later reads."""
        return min(reach.first(step) for reach in self.reaches())

    def attend_step(self, step: Step) -> Float[Tensor, "B H T V"]:
        """Attend causally to what a cache kept.

        Parameters
        ----------
        step : Step
            New queries, and the keys and values that :meth:`reaches` asked for.

        Returns
        -------
        Tensor of shape (B, H, T, V)
        """
        (keys,) = step.keys
        return self.attend(step.q, keys, step.v, causal=True, key_mask=step.key_mask, dropout_p=0.0)

    def cost(self, length: int, convention: Convention) -> Cost:
        """Count what a sequence of ``length`` steps costs by a ``convention``.

        A score that is to be counted overrides it: ``prepare``, ``queries``, ``keys`` and
        ``attend`` count, see :meth:`cost_of_all_pairs` for the last.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not say what it costs at `length`={length} by "
            f"`convention`={convention!r}: give it a method `cost`, as those in "
            "mlrforecast.nn.attention have."
        )

    def cost_of_all_pairs(self, length: int) -> Cost:
        """Count one product of all queries with all keys, and one of all weights with values.

        Keys are read in every column of ``sections``, in a sequence of ``length`` steps.
        """
        pairs = self.heads.num_heads * length**2
        return Cost(scores=pairs * sum(self.sections), values=pairs * self.heads.head_width)


attentions: Registry[type[Score]] = Registry(
    "attention",
    base=Score,
    hint="Register your own before a model of it is built or loaded: attentions.register.",
)
"""Name -> class of the score. The names are those of ``mlrforecast.ops.attention_ops``."""


def check_count(value: Any, name: str) -> int:
    """Return a number of columns, blocks or steps, which a tensor can have."""
    count = check_integer(value, name)
    if count < 1:
        raise ValueError(f"`{name}` must be at least 1, got {count}.")
    return count


def check_counts(values: Any, name: str) -> tuple[int, ...]:
    """Return a sequence of numbers of columns, blocks or steps."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"`{name}` must be a sequence of integers, got {values!r}.")
    return tuple(check_count(value, f"{name}[{at}]") for at, value in enumerate(values))


def check_integer(value: Any, name: str) -> int:
    """Return an integer that a tensor can count to."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be an integer, got {value!r}.")
    if int(value) >= 2**31:
        raise ValueError(f"`{name}` must be less than 2**31, got {value}.")
    return int(value)


def option_names(score: type[Score]) -> tuple[str, ...]:
    """Return the names of the options that a score takes.

    Parameters
    ----------
    score : subclass of Score
        The class, as in ``attentions``.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> option_names(attentions["sliding_window"])
    ('window', 'qk_width', 'logit_scale')
    """
    parameters: list[Any] = list(inspect.signature(score.__init__).parameters.values())
    return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)


def option_hint(option: str, used: Iterable[str]) -> str:
    """Return what the error about an option that none of the scores ``used`` has says beside it."""
    if option == "qk_norm" and any("key_norm" in option_names(attentions[name]) for name in used):
        return "; its keys are normalised by `key_norm`, its queries are the input itself"
    owners = [name for name in attentions if option in option_names(attentions[name])]
    return f"; attention={' or '.join(map(repr, owners))} has it" if owners else ""
