"""The one call of multi-level attention, and the choice of what computes it."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from mlrforecast._core.errors import BackendError
from mlrforecast.ops._checks import integer
from mlrforecast.ops.attention import expanded, hierarchical, reference, triton
from mlrforecast.ops.attention._case import (
    AttentionCase,
    Link,
    Unshared,
    build_case,
)
from mlrforecast.ops.attention._inputs import follow_autocast
from mlrforecast.ops.attention._short import is_short
from mlrforecast.ops.scores.mlr import LevelScale

__all__ = [
    "Backend",
    "BackendChoice",
    "explain_backend",
    "mlr_attention",
    "mlr_window_attention",
]

Backend: TypeAlias = Literal["auto", "reference", "expanded", "hierarchical", "triton"]

_Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor, AttentionCase, Tensor | None], Tensor]
_Refusal: TypeAlias = Callable[[AttentionCase], str | None]

_BACKENDS: dict[str, tuple[_Attend, _Refusal]] = {
    "expanded": (expanded.expanded_attention, expanded.refusal),
    "hierarchical": (hierarchical.hierarchical_attention, hierarchical.refusal),
    "reference": (reference.reference_attention, reference.refusal),
    "triton": (triton.triton_attention, triton.refusal),
}


@dataclass(frozen=True, kw_only=True)
class BackendChoice:
    """Which backend serves a call, and why.

    Parameters
    ----------
    name : str
        The backend that runs.
    reason : str
        Why it was taken.
    refused : dict of str to str
        The backends that cannot serve the call, each with its reason.

    Examples
    --------
    >>> print(BackendChoice(name="reference", reason="asked for by name"))
    reference: asked for by name
    """

    name: str
    reason: str
    refused: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.reason}"]
        lines += [f"not {name}: {reason}" for name, reason in self.refused.items()]
        return "\n".join(lines)


def mlr_attention(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    v: Float[Tensor, "B G S V"],
    *,
    ranks: Sequence[int],
    block_sizes: Sequence[int | None] | None = None,
    num_blocks: Sequence[int] | None = None,
    block_ids: Integer[Tensor, "... num_levels S"] | None = None,
    query_block_ids: Integer[Tensor, "... num_levels T"] | None = None,
    offset: int = 0,
    causal: bool = False,
    key_mask: Bool[Tensor, "B S"] | None = None,
    window: int | None = None,
    level_scale: LevelScale | Sequence[float] = "inverse_rank",
    divide_by_shared_levels: bool = False,
    divide_by_num_levels: bool = False,
    unshared: Unshared = "mask",
    link: Link = "softmax",
    dropout_p: float = 0.0,
    backend: Backend = "auto",
) -> Float[Tensor, "B H T V"]:
    """Attend with multi-level low-rank scores.

    Level ``lvl`` owns ``ranks[lvl]`` columns of ``q`` and ``k`` and counts only for pairs in the
    same block of that level: near pairs meet on many levels and get a high-rank score, far pairs a
    cheap one. Blocks are given by their sizes, by their number, or by an id for each position.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries, not scaled: the last ``T`` of the ``S`` steps, as a rule all of them. Columns run
        coarse to fine; ``R`` must equal ``sum(ranks)``.
    k : Tensor of shape (B, G, S, R)
        Keys. ``G`` divides ``H``; query head ``h`` reads key head ``h // (H // G)``.
    v : Tensor of shape (B, G, S, V)
        Values.
    ranks : sequence of int, one per level
        Columns of each level, coarse to fine.
    block_sizes : sequence of int or None, one per level, optional
        Steps of a block, coarse to fine; ``None`` in it is the whole sequence. By default each
        level halves the blocks of the one before, see
        :func:`mlrforecast.ops.halving_block_sizes`.
    num_blocks : sequence of int, one per level, optional
        Blocks of each level instead of their size.
    block_ids : Tensor of int of shape (num_levels, S) or (B, num_levels, S), optional
        Instead of sizes, the block of each position on each level, for all sequences or for each
        of them: equal ids are one block. They need be neither sorted nor nested, and may be on any
        device. See :class:`mlrforecast.ops.Levels`.
    query_block_ids : Tensor of int of shape (num_levels, T) or (B, num_levels, T), optional
        The blocks of queries that are steps of another sequence, in the numbering of
        ``block_ids``; ``T`` is then any number. Without it attention to another sequence is not
        defined: blocks are places in one sequence. Not with ``causal`` or ``window``.
    offset : int, at least 0, default 0
        Position ``i`` lies in block ``floor((i + offset) / size)``. Only without ``block_ids``.
    causal : bool, default False
        Whether a query attends only to its own and earlier positions.
    key_mask : bool Tensor of shape (B, S), optional
        True where a key may be attended, False at padding.
    window : int, at least 0, optional
        Let the coarsest level count for pairs at most so many steps apart, in place of its blocks;
        the others keep theirs. A pair for which no level counts follows ``unshared``.
    level_scale : str or sequence of float, default "inverse_rank"
        Factor of each level: ``"inverse_rank"`` (1/r, as the published code),
        ``"inverse_sqrt_rank"`` (1/sqrt(r)), ``"inverse_sqrt_width"`` (1/sqrt(R), as standard
        attention), or one positive number per level.
    divide_by_shared_levels : bool, default False
        Whether a score is divided by the number of levels that count for the pair.
    divide_by_num_levels : bool, default False
        Whether all scores are divided by the number of levels.
    unshared : {"mask", "zero"}, default "mask"
        Pairs for which no level counts: not attended, or attended with score 0 as in the published
        code. They exist only if no level spans the sequence.
    link : {"softmax", "identity"}, default "softmax"
        What turns scores into weights.
    dropout_p : float in [0, 1), default 0
        Share of the weights that is dropped.
    backend : {"auto", "reference", "expanded", "hierarchical", "triton"}, default "auto"
        What computes it; all compute the same function. See :func:`explain_backend`. Only
        ``"reference"`` can be differentiated twice or run under the transforms of ``torch.func``.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``. Rows that may attend no key are 0, with gradient 0.

    Raises
    ------
    ValueError
        If shapes, levels or options are not valid.
    TypeError
        If an argument is of the wrong type, or the dtypes differ or are not floating-point.
    BackendError
        If ``backend`` names one that cannot serve the call; the message says why.

    References
    ----------
    "Customizing the Inductive Biases of Softmax Attention using Structured Matrices", ICML 2025,
    https://arxiv.org/abs/2509.07963

    Examples
    --------
    Four columns see the whole sequence, two more its halves, and two more its quarters:

    >>> generator = torch.Generator().manual_seed(0)
    >>> q, k, v = torch.randn(3, 2, 1, 96, 8, generator=generator)
    >>> mlr_attention(q, k, v, ranks=(4, 2, 2), causal=True).shape
    torch.Size([2, 1, 96, 8])

    One level with the factor of standard attention is standard attention:

    >>> from mlrforecast.ops import standard_attention
    >>> out = mlr_attention(q, k, v, ranks=(8,), level_scale="inverse_sqrt_width")
    >>> torch.allclose(out, standard_attention(q, k, v), atol=1e-6)
    True

    Two documents packed into one sequence, halved on a second level, and the newest query alone:

    >>> ids = torch.tensor([[0] * 60 + [1] * 36, [0] * 30 + [1] * 30 + [2] * 18 + [3] * 18])
    >>> newest = mlr_attention(q[:, :, -1:], k, v, ranks=(4, 4), block_ids=ids)
    >>> alone = mlr_attention(*(x[:, :, 60:] for x in (q, k, v)), ranks=(4, 4))
    >>> torch.allclose(newest, alone[:, :, -1:], atol=1e-6)
    True
    """
    q, k, v = follow_autocast(q, k, v)
    case = build_case(
        q,
        k,
        v,
        ranks=ranks,
        block_sizes=block_sizes,
        num_blocks=num_blocks,
        block_ids=block_ids,
        query_block_ids=query_block_ids,
        offset=offset,
        causal=causal,
        key_mask=key_mask,
        window=window,
        level_scale=level_scale,
        divide_by_shared_levels=divide_by_shared_levels,
        divide_by_num_levels=divide_by_num_levels,
        unshared=unshared,
        link=link,
        dropout_p=dropout_p,
    )
    attend, _ = _BACKENDS[_choose(case, backend).name]
    with torch.autocast(q.device.type, enabled=False):
        return attend(q, k, v, case, key_mask)


def mlr_window_attention(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    v: Float[Tensor, "B G S V"],
    *,
    window: int,
    **options: Any,
) -> Float[Tensor, "B H T V"]:
    """Attend with multi-level low-rank scores whose coarsest level looks no further than a window.

    Parameters
    ----------
    q, k, v : Tensor
        As in :func:`mlr_attention`.
    window : int, at least 0
        Largest distance at which the coarsest level counts: causal ``window + 1`` keys, the
        query's own included.
    **options
        The other keyword arguments of :func:`mlr_attention`. ``block_sizes[0]`` is not read.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``. Rows that may attend no key are 0, with gradient 0.

    Raises
    ------
    ValueError, TypeError, BackendError
        As :func:`mlr_attention`.

    Examples
    --------
    With a window of one step and blocks of two, the third step meets the second on the coarse
    level and the fourth on both:

    >>> q = k = torch.zeros(1, 1, 4, 2)
    >>> v = torch.eye(4).view(1, 1, 4, 4)
    >>> mlr_window_attention(q, k, v, window=1, ranks=(1, 1), block_sizes=(None, 2))[0, 0, 2]
    tensor([0.0000, 0.3333, 0.3333, 0.3333])
    """
    return mlr_attention(q, k, v, window=integer(window, "window"), **options)


_SIGNATURE = inspect.signature(mlr_attention)


def explain_backend(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    v: Float[Tensor, "B G S V"],
    **options: Any,
) -> BackendChoice:
    """Say which backend :func:`mlr_attention` would take for the same arguments, and why.

    Parameters
    ----------
    q, k, v : Tensor
        As in :func:`mlr_attention`; only shape, dtype and device are read.
    **options
        The keyword arguments of :func:`mlr_attention`.

    Returns
    -------
    BackendChoice

    Raises
    ------
    ValueError, TypeError, BackendError
        As :func:`mlr_attention`.

    Examples
    --------
    >>> x = torch.zeros(1, 1, 64, 8, device="cpu")
    >>> choice = explain_backend(x, x, x, ranks=(4, 4), dropout_p=0.1)
    >>> choice.name
    'reference'
    >>> choice.refused["hierarchical"]
    'it has no dropout, and `dropout_p` is 0.1'

    ``print(choice)`` gives the choice and all reasons, a line each.
    """
    q, k, v = follow_autocast(q, k, v)
    bound = _SIGNATURE.bind(q, k, v, **options)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    backend = arguments.pop("backend")
    return _choose(build_case(**arguments), backend)


def _choose(case: AttentionCase, backend: str) -> BackendChoice:
    """Take the backend asked for, or the best of those that can serve the case."""
    reasons = {name: refuse(case) for name, (_, refuse) in _BACKENDS.items()}
    refused = {name: reason for name, reason in reasons.items() if reason is not None}
    if backend == "auto":
        name, reason = _best(case, refused)
        return BackendChoice(name=name, reason=reason, refused=refused)
    if backend not in tuple(_BACKENDS):
        raise ValueError(
            f"`backend` must be one of auto, {', '.join(sorted(_BACKENDS))}; got {backend!r}."
        )
    if backend in refused:
        raise BackendError(
            f"The backend {backend!r} cannot serve this call: {refused[backend]}. "
            "Use backend='auto' to take one that can."
        )
    return BackendChoice(name=backend, reason="asked for by name", refused=refused)


# The longest sequence for which the dense matrix is not slower than the tiles on one CPU thread,
# by benchmarks/results/kernels/attention_cpu.csv.
_DENSE_UP_TO = {"causal": 48, "bidirectional": 64}
_WIDEST_SHORT = 64

_ROWS = 64

# By bytes of a number, the fastest first, by benchmarks/results/kernels/cuda.csv.
_ON_GPU = {
    2: ("triton", "expanded", "hierarchical"),
    4: ("expanded", "hierarchical", "triton"),
    8: ("expanded",),
}


def _best(case: AttentionCase, refused: dict[str, str]) -> tuple[str, str]:
    """Return the fastest backend of those left, and why it is."""
    if case.device.type == "cpu":
        direction = "causal" if case.causal else "bidirectional"
        limit = _DENSE_UP_TO[direction]
        if case.pairs.num_queries * case.pairs.num_keys <= limit**2:
            if "expanded" not in refused and _is_narrow(case):
                return "expanded", "many short and narrow heads are a few products of all of them"
            return "reference", f"the dense {direction} matrix is fast on a CPU up to {limit} steps"
        order: tuple[str, ...] = ("hierarchical", "expanded")
    else:
        order = _order_on_gpu(case)
    reasons = {
        "triton": "one fused kernel, which contracts far pairs over few columns",
        "expanded": "one fused attention call",
        "hierarchical": "few columns for far pairs, without the T x T matrix",
    }
    for name in order:
        if name not in refused:
            return name, reasons[name]
    return "reference", "the only one that can serve this call"


def _order_on_gpu(case: AttentionCase) -> tuple[str, ...]:
    """Return the backends for a GPU, the fastest first."""
    order = _ON_GPU[case.dtype.itemsize]
    # A program of the kernels has so many queries, and walks over all their keys alone.
    if case.pairs.num_queries < min(_ROWS, case.pairs.num_keys):
        order = tuple(sorted(order, key=lambda name: name == "triton"))
    return order


def _is_narrow(case: AttentionCase) -> bool:
    """Whether attention over a few steps takes the case, with few columns for all its blocks."""
    return (
        case.dropout_p == 0
        and expanded.expanded_width(case) <= _WIDEST_SHORT
        and is_short(
            case.batch * case.num_heads,
            case.pairs.num_queries,
            case.pairs.num_keys,
            case.value_width,
            case.dtype,
            case.device,
        )
    )
