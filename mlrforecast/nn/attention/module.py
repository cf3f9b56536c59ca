"""The attention module that every model uses, whatever the score."""

import inspect
from numbers import Real
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mlrforecast._core.arguments import check_switch
from mlrforecast.nn.attention.cache import LayerCache
from mlrforecast.nn.attention.score import (
    Heads,
    attentions,
    check_count,
    check_integer,
    option_hint,
    option_names,
)
from mlrforecast.nn.linear import OutputLinear
from mlrforecast.ops import rotate

__all__ = ["StructuredAttention"]


class StructuredAttention(nn.Module):
    """Multi-head attention with a score chosen by name.

    Parameters
    ----------
    width : int
        Model width ``D``.
    num_heads : int
        Query heads ``H``; must divide ``width``.
    attention : str
        The score: ``"standard"``, ``"mlr"``, ``"mlr_window"``, ``"bilinear_mlr"``,
        ``"bilinear_btt"``, ``"bilinear"``, ``"sliding_window"`` or ``"global_window"``.
    num_kv_heads : int, optional
        Key and value heads ``G``, a divisor of ``num_heads``: query heads share them in groups.
        Default: one for each query head.
    head_width : int, optional
        Columns of a head. Default: ``width // num_heads``.
    causal : bool
        Whether a step sees only itself and the past.
    attention_dropout : float
        Dropout probability of the attention weights in training; a call with a cache has none.
    bias : bool
        Whether linear maps and norms have biases.
    qk_norm : bool
        Whether queries and keys are normalised by a LayerNorm; ``"bilinear"`` and
        ``"bilinear_btt"`` have ``key_norm`` instead.
    rotary : bool
        Whether queries and keys are turned by their step, see :func:`mlrforecast.ops.rotate`.
    context_length : int, optional
        Steps that default blocks and windows are made for, however long the sequence; needed for
        a cache unless these are given. Default: the steps of each call.
    **options
        Options of the score, see the class of that name: ``ranks`` and ``block_sizes`` of
        ``"mlr"``, for example.

    Attributes
    ----------
    score : Score
        The module that compares steps.

    Raises
    ------
    ValueError
        If an argument is out of its range, the score is unknown, or it has no such option.

    References
    ----------
    Customizing the Inductive Biases of Softmax Attention using Structured Matrices, ICML 2025,
    arXiv 2509.07963.

    Examples
    --------
    >>> import torch
    >>> layer = StructuredAttention(16, 2, attention="mlr", ranks=(4, 2, 2))
    >>> layer(torch.zeros(3, 10, 16)).shape
    torch.Size([3, 10, 16])
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        attention: str = "mlr",
        num_kv_heads: int | None = None,
        head_width: int | None = None,
        causal: bool = False,
        attention_dropout: float = 0.0,
        bias: bool = True,
        qk_norm: bool = False,
        rotary: bool = False,
        context_length: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        score = attentions[attention]
        _check_options(attention, options)
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if head_width is None:
            _check_divides(num_heads, "num_heads", width, f"the width {width}")
            head_width = width // num_heads
        head_width = check_count(head_width, "head_width")
        if context_length is not None:
            context_length = check_count(context_length, "context_length")
        for name, value in (
            ("causal", causal),
            ("bias", bias),
            ("qk_norm", qk_norm),
            ("rotary", rotary),
        ):
            check_switch(name, value)
        if qk_norm and not score.takes_qk_norm:
            raise ValueError(
                f"attention={attention!r} has no option `qk_norm`"
                f"{option_hint('qk_norm', [attention])}."
            )
        self.attention_dropout = _share(attention_dropout, "attention_dropout")
        _check_divides(num_kv_heads, "num_kv_heads", num_heads, f"`num_heads` ({num_heads})")
        self.attention = attention
        self.causal = causal
        self.rotary = rotary
        heads = Heads(
            width=width,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_width=head_width,
            bias=bias,
            qk_norm=qk_norm,
            context_length=context_length,
        )
        self.score = score(heads, **options)
        self.value = nn.Linear(width, num_kv_heads * head_width, bias=bias)
        self.output = OutputLinear(num_heads * head_width, width, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        key_mask: Bool[Tensor, "B S"] | None = None,
        *,
        context: Float[Tensor, "B S D"] | None = None,
        block_ids: Int[Tensor, "*batch num_levels S"] | None = None,
        query_block_ids: Int[Tensor, "*query_batch num_levels T"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Attend over the steps of ``x``, or from them over those of ``context``.

        Parameters
        ----------
        x : Tensor of shape (B, T, D)
            Layer input.
        key_mask : Tensor of bool of shape (B, S), optional
            True where a step may be attended.
        context : Tensor of shape (B, S, D), optional
            Another sequence to attend to (cross-attention). Scores that compare places,
            ``"sliding_window"``, ``"global_window"``, ``"mlr_window"`` and ``"mlr"``, have no
            place for its steps; ``"mlr"`` can be told, by the block ids of both sides.
        block_ids : Tensor of int of shape (num_levels, S) or (B, num_levels, S), optional
            Block of each step on each level of ``"mlr"``, in place of block sizes.
        query_block_ids : Tensor of int of shape (num_levels, T) or (B, num_levels, T), optional
            The same for the steps of ``x``, where a ``context`` is given.
        cache : LayerCache, optional
            What was kept of earlier steps; ``x`` continues them, and is kept as well. Only for a
            causal layer, without ``context`` and block ids.

        Returns
        -------
        Tensor of shape (B, T, D)
            Layer output.

        Raises
        ------
        ValueError
            If what is given does not go together, or not with the score.
        """
        partition = {"block_ids": block_ids, "query_block_ids": query_block_ids}
        given = {name: ids for name, ids in partition.items() if ids is not None}
        self._check_shapes(x, context)
        self._check_call(context is not None, set(given), cache)
        x = _cast_once(self.score.prepare(x))
        source = x if context is None else _cast_once(self.score.prepare(context))
        q, k = self.score.queries(x), self.score.keys(source)
        v: Tensor = self.value(source).unflatten(-1, (self.score.heads.num_kv_heads, -1))
        v = v.transpose(1, 2)
        if self.rotary:
            start = 0 if cache is None else cache.length
            q, k = (rotate(part, start=start, sections=self.score.sections) for part in (q, k))
        if cache is None:
            out = self.score.attend(
                q,
                k,
                v,
                causal=self.causal,
                key_mask=key_mask,
                dropout_p=self.attention_dropout if self.training else 0.0,
                **given,
            )
        else:
            out = cache.attend(q, k, v, key_mask)
        mixed: Tensor = self.output(out.transpose(1, 2).flatten(-2))
        return mixed

    def _check_shapes(self, x: Tensor, context: Tensor | None) -> None:
        """Check that what goes in are sequences of the layer's width, of one batch."""
        width = self.score.heads.width
        for name, value in (("x", x), ("context", x if context is None else context)):
            if value.ndim != 3 or value.shape[-1] != width or value.shape[0] != x.shape[0]:
                raise ValueError(
                    f"`{name}` must have the shape (B, T, D) with the model width D={width}"
                    f"{'' if name == 'x' else f' and the batch B={len(x)} of `x`'}, "
                    f"got {tuple(value.shape)}."
                )

    def _check_call(self, crosses: bool, given: set[str], cache: LayerCache | None) -> None:
        """Check that the arguments of one call go together."""
        name = self.attention
        if given and not self.score.takes_block_ids:
            raise ValueError(f"`block_ids` belong to attention='mlr', not {name!r}.")
        if cache is not None and not isinstance(cache, LayerCache):
            raise TypeError(
                f"`cache` must be a LayerCache, got a {type(cache).__name__}: make one with "
                "LayerCache(layer.score)."
            )
        if cache is not None and (crosses or given or not self.causal):
            raise ValueError(
                "`cache` is for causal self-attention over blocks of fixed sizes: build the layer "
                "with causal=True, and leave out `context` and block ids."
            )
        if cache is not None and cache.score is not self.score:
            raise ValueError(
                "`cache` was made for another layer: make one with LayerCache(layer.score)."
            )
        if not crosses:
            if "query_block_ids" in given:
                raise ValueError("`query_block_ids` belong to a `context`, which was not given.")
            return
        if self.causal or self.rotary:
            raise ValueError(
                "`context`: the steps of two sequences have no common order, so the layer must "
                "be built with causal=False and rotary=False."
            )
        if not self.score.positional:
            return
        if not self.score.takes_query_block_ids:
            raise ValueError(
                f"`context`: attention={name!r} compares places in one sequence, and the steps of "
                "another have none in it."
            )
        if given != {"block_ids", "query_block_ids"}:
            raise ValueError(
                f"`context`: attention={name!r} compares places, which two sequences have in "
                "common only through block ids; give `block_ids` and `query_block_ids`."
            )


def _cast_once(x: Tensor) -> Tensor:
    """Cast, where autocast would, what several maps read: it would for each of them."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind) or x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(kind))


def _check_options(attention: str, options: dict[str, Any]) -> None:
    """Check that the score has every option that is given."""
    known = option_names(attentions[attention])
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(
            f"attention={attention!r} has no option `{unknown[0]}`"
            f"{option_hint(unknown[0], [attention])}. Its options are {', '.join(known)}."
        )
    parameters = inspect.signature(attentions[attention].__init__).parameters
    for name, value in options.items():
        if isinstance(parameters[name].default, bool):
            check_switch(name, value)


def _share(value: Any, name: str) -> float:
    """Return a number in [0, 1)."""
    if isinstance(value, bool) or not isinstance(value, Real | float):
        raise TypeError(f"`{name}` must be a number, got {value!r}.")
    share = float(value)
    if not 0 <= share < 1:
        raise ValueError(f"`{name}` must lie in [0, 1), got {value}.")
    return share


def _check_divides(divisor: Any, name: str, number: int, what: str) -> None:
    """Check that a count is positive and divides a number."""
    if check_integer(divisor, name) < 1 or number % divisor:
        raise ValueError(f"`{name}` must divide {what}, got {divisor}.")
