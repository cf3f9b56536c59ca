"""Scores that are dot products of projected queries and keys: standard, and with windows."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from mlrforecast.nn.attention.score import (
    Heads,
    Reach,
    Score,
    Step,
    attentions,
    check_count,
    check_counts,
    check_integer,
)
from mlrforecast.nn.cost import Convention, Cost, window_pairs
from mlrforecast.ops import (
    LogitScale,
    global_window_attention,
    logit_factor,
    sliding_window_attention,
    standard_attention,
)

__all__ = ["DotScore", "GlobalWindowScore", "SlidingWindowScore", "StandardScore"]


def default_window(length: int) -> int:
    """Return half of the sequence, the window of the paper's language models."""
    return max(1, length // 2)


class DotScore(Score):
    """Project to queries and keys, normalise them if asked to; a subclass says how to attend.

    Parameters
    ----------
    heads : Heads
        Sizes and switches of the layer.
    qk_width : int, optional
        Columns of a head that are compared. Default: those of its values.
    """

    positional: ClassVar[bool] = False
    takes_qk_norm: ClassVar[bool] = True

    def __init__(self, heads: Heads, *, qk_width: int | None = None) -> None:
        super().__init__(heads)
        self.qk_width = heads.head_width if qk_width is None else check_count(qk_width, "qk_width")
        self.sections = (self.qk_width,)
        self.query = nn.Linear(heads.width, heads.num_heads * self.qk_width, bias=heads.bias)
        self.key = nn.Linear(heads.width, heads.num_kv_heads * self.qk_width, bias=heads.bias)
        self.query_norm: nn.Module = nn.Identity()
        self.key_norm: nn.Module = nn.Identity()
        if heads.qk_norm:
            self.query_norm = nn.LayerNorm(self.qk_width, bias=heads.bias)
            self.key_norm = nn.LayerNorm(self.qk_width, bias=heads.bias)

    def queries(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T R"]:
        """Project, cut into heads and normalise."""
        q: Tensor = self.query_norm(self.query(x).unflatten(-1, (self.heads.num_heads, -1)))
        return q.transpose(1, 2)

    def keys(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B G S R"]:
        """Project, cut into heads and normalise."""
        k: Tensor = self.key_norm(self.key(x).unflatten(-1, (self.heads.num_kv_heads, -1)))
        return k.transpose(1, 2)

    def cost(self, length: int, convention: Convention) -> Cost:
        """Count projections, norms and products of attention over ``length`` steps.

        The scores of blocks and windows depend on the ``convention``, see :meth:`paper_scores`.
        """
        heads = self.heads
        weights = self.query.weight.numel() + self.key.weight.numel()
        columns = (heads.num_heads + heads.num_kv_heads) * self.qk_width if heads.qk_norm else 0
        products = self.cost_of_all_pairs(length)
        if convention == "paper":
            scores = heads.num_heads * self.paper_scores(length)
            products = dataclasses.replace(products, scores=scores)
        return Cost(linear=length * weights, norm_elements=length * columns) + products

    def paper_scores(self, length: int) -> int:
        """Count the multiply-adds of one head's scores in ``length`` steps, as the paper does."""
        return self.qk_width * length**2


class StandardScore(DotScore):
    """Dot products of queries and keys over all steps.

    Parameters
    ----------
    heads : Heads
        Sizes and switches of the layer.
    qk_width : int, optional
        Columns of a head that are compared. Default: those of its values.
    logit_scale : {"inverse_sqrt_width", "mup"}
        ``1 / sqrt(r)``, or ``8 / r`` as in the published code.

    Examples
    --------
    >>> from mlrforecast.nn import StructuredAttention
    >>> layer = StructuredAttention(16, 2, attention="standard", logit_scale="mup")
    >>> layer.score.factor
    1.0
    """

    def __init__(
        self,
        heads: Heads,
        *,
        qk_width: int | None = None,
        logit_scale: LogitScale = "inverse_sqrt_width",
    ) -> None:
        super().__init__(heads, qk_width=qk_width)
        self.factor = logit_factor(self.qk_width, logit_scale)

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
        """Attend to every step."""
        return standard_attention(
            q, k, v, causal=causal, key_mask=key_mask, scale=self.factor, dropout_p=dropout_p
        )


class SlidingWindowScore(DotScore):
    """Dot products of queries and keys at most ``window`` steps apart.

    Parameters
    ----------
    heads : Heads
        Sizes and switches of the layer.
    window : int, optional
        Largest distance that is attended. Default: half of the sequence.
    qk_width : int, optional
        Columns of a head that are compared. Default: those of its values.
    logit_scale : {"inverse_sqrt_width", "mup"}
        ``1 / sqrt(r)``, or ``8 / r`` as in the published code.

    Examples
    --------
    >>> from mlrforecast.nn import StructuredAttention
    >>> layer = StructuredAttention(16, 2, attention="sliding_window", window=24)
    >>> layer.score.reaches()[0].first(100)
    76
    """

    positional: ClassVar[bool] = True

    def __init__(
        self,
        heads: Heads,
        *,
        window: int | None = None,
        qk_width: int | None = None,
        logit_scale: LogitScale = "inverse_sqrt_width",
    ) -> None:
        super().__init__(heads, qk_width=qk_width)
        self.window = check_window(window)
        self.factor = logit_factor(self.qk_width, logit_scale)

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
        """Attend to the window."""
        return sliding_window_attention(
            q,
            k,
            v,
            window=window_of(self.window, self.heads, k.shape[2]),
            causal=causal,
            key_mask=key_mask,
            scale=self.factor,
            dropout_p=dropout_p,
        )

    def reaches(self) -> tuple[Reach, ...]:
        """Keep the window."""
        window = fixed_window(self.window, self.heads)
        return (Reach(columns=self.qk_width, first=lambda step: max(0, step - window)),)

    def paper_scores(self, length: int) -> int:
        """Count the window of ``length`` steps only."""
        return self.qk_width * window_pairs(length, window_of(self.window, self.heads, length))


class GlobalWindowScore(DotScore):
    """Two softmaxes over one set of values: some columns over all steps, the others in a window.

    Parameters
    ----------
    heads : Heads
        Sizes and switches of the layer. The queries and keys are normalised before they are cut,
        if they are.
    ranks : sequence of two int, optional
        Columns for all steps, and for the window. Default: half each.
    window : int, optional
        Largest distance that the second softmax attends. Default: half of the sequence.
    logit_scale : {"inverse_sqrt_width", "mup"}
        ``1 / sqrt(r)`` of each part, or ``8 / r`` as in the published code.
    combine : {"mean", "sum"}
        Whether the weights of a row sum to 1, or to 2 as in the published code.

    Examples
    --------
    >>> from mlrforecast.nn import StructuredAttention
    >>> layer = StructuredAttention(16, 2, attention="global_window", ranks=(6, 2), window=24)
    >>> [reach.first(100) for reach in layer.score.reaches()]
    [0, 76]
    """

    positional: ClassVar[bool] = True

    def __init__(
        self,
        heads: Heads,
        *,
        ranks: Sequence[int] | None = None,
        window: int | None = None,
        logit_scale: LogitScale = "inverse_sqrt_width",
        combine: Literal["mean", "sum"] = "mean",
    ) -> None:
        if ranks is None:
            ranks = (heads.head_width - heads.head_width // 2, heads.head_width // 2)
        ranks = check_counts(ranks, "ranks")
        if len(ranks) != 2:
            raise ValueError(
                "`ranks` of attention='global_window' must be two integers, for all "
                f"steps and for the window, got {ranks}."
            )
        super().__init__(heads, qk_width=sum(ranks))
        if combine not in ("mean", "sum"):
            raise ValueError(f"`combine` must be one of mean, sum; got {combine!r}.")
        self.sections = (ranks[0], ranks[1])
        self.window = check_window(window)
        self.factors = (logit_factor(ranks[0], logit_scale), logit_factor(ranks[1], logit_scale))
        self.combine: Literal["mean", "sum"] = combine

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
        """Attend twice."""
        return global_window_attention(
            q,
            k,
            v,
            ranks=self.sections,
            window=window_of(self.window, self.heads, k.shape[2]),
            causal=causal,
            key_mask=key_mask,
            scales=self.factors,
            combine=self.combine,
            dropout_p=dropout_p,
        )

    def reaches(self) -> tuple[Reach, ...]:
        """Keep the first columns of all steps, the others of the window."""
        window = fixed_window(self.window, self.heads)
        return (
            Reach(columns=self.sections[0], first=lambda step: 0),
            Reach(columns=self.sections[1], first=lambda step: max(0, step - window)),
        )

    def cost(self, length: int, convention: Convention) -> Cost:
        """Count over ``length`` steps two products with the values, one for each softmax.

        The paper adds the weights first, so that by its ``convention`` there is one.
        """
        cost = super().cost(length, convention)
        return cost if convention == "paper" else dataclasses.replace(cost, values=2 * cost.values)

    def paper_scores(self, length: int) -> int:
        """Count all pairs of ``length`` steps in some columns, the window in the others."""
        near = window_pairs(length, window_of(self.window, self.heads, length))
        return self.sections[0] * length**2 + self.sections[1] * near

    def attend_step(self, step: Step) -> Float[Tensor, "B H T V"]:
        """Attend to all steps and to the window, each with the columns that were kept."""
        near = step.keys[1].shape[2]
        q_all, q_near = step.q.split(list(self.sections), -1)
        mask = step.key_mask
        everywhere = standard_attention(
            q_all, step.keys[0], step.v, causal=True, key_mask=mask, scale=self.factors[0]
        )
        nearby = sliding_window_attention(
            q_near,
            step.keys[1],
            step.v[:, :, -near:],
            window=fixed_window(self.window, self.heads),
            causal=True,
            key_mask=None if mask is None else mask[:, -near:],
            scale=self.factors[1],
        )
        total = everywhere + nearby
        return total / 2 if self.combine == "mean" else total


def check_window(window: int | None) -> int | None:
    """Return a window if it is None or an integer of at least 0."""
    if window is not None and check_integer(window, "window") < 0:
        raise ValueError(f"`window` must be at least 0, got {window}.")
    return window


def window_of(window: int | None, heads: Heads, length: int) -> int:
    """Return the window, or the default for a sequence of ``length`` steps."""
    return default_window(heads.context_length or length) if window is None else window


def fixed_window(window: int | None, heads: Heads) -> int:
    """Return the window if it does not depend on the length of the sequence so far."""
    if window is None and heads.context_length is None:
        raise ValueError("`cache` needs a fixed `window` (or `context_length`), got neither.")
    return window_of(window, heads, 1)


attentions.register("global_window", GlobalWindowScore)
attentions.register("sliding_window", SlidingWindowScore)
attentions.register("standard", StandardScore)
