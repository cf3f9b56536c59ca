"""The one call of multi-level attention, and the choice of what computes it."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast._core.errors import BackendError
from mlrforecast.ops.attention import expanded, hierarchical, reference
from mlrforecast.ops.attention._case import (
    AttentionCase,
    Link,
    Unshared,
    build_case,
)
from mlrforecast.ops.attention._inputs import follow_autocast
from mlrforecast.ops.scores.mlr import LevelScale

__all__ = ["Backend", "BackendChoice", "explain_backend", "mlr_attention"]

Backend: TypeAlias = Literal["auto", "reference", "expanded", "hierarchical"]

_Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor, AttentionCase, Tensor | None], Tensor]
_Refusal: TypeAlias = Callable[[AttentionCase], str | None]

_BACKENDS: dict[str, tuple[_Attend, _Refusal]] = {
    "expanded": (expanded.expanded_attention, expanded.refusal),
    "hierarchical": (hierarchical.hierarchical_attention, hierarchical.refusal),
    "reference": (reference.reference_attention, reference.refusal),
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
    >>> BackendChoice(name="reference", reason="asked for by name").name
    'reference'
    """

    name: str
    reason: str
    refused: dict[str, str] = field(default_factory=dict)


def mlr_attention(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B H T R"],
    v: Float[Tensor, "B H T V"],
    *,
    ranks: Sequence[int],
    block_sizes: Sequence[int | None] | None = None,
    num_blocks: Sequence[int] | None = None,
    offset: int = 0,
    causal: bool = False,
    key_mask: Bool[Tensor, "B T"] | None = None,
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
    same block of ``block_sizes[lvl]`` steps: near pairs meet on many levels and get a high-rank
    score, far pairs a cheap one.

    Parameters
    ----------
    q, k : Tensor of shape (B, H, T, R)
        Queries and keys, not scaled. Columns run coarse to fine; ``R`` must equal ``sum(ranks)``.
    v : Tensor of shape (B, H, T, V)
        Values.
    ranks : sequence of int, one per level
        Columns of each level, coarse to fine.
    block_sizes : sequence of int or None, one per level, optional
        Steps of a block, coarse to fine; ``None`` in it is the whole sequence. By default each
        level halves the blocks of the one before, see
        :func:`mlrforecast.ops.halving_block_sizes`.
    num_blocks : sequence of int, one per level, optional
        Blocks of each level instead of their size.
    offset : int, at least 0, default 0
        Position ``i`` lies in block ``floor((i + offset) / size)``.
    causal : bool, default False
        Whether a query attends only to its own and earlier positions.
    key_mask : bool Tensor of shape (B, T), optional
        True where a key may be attended, False at padding.
    level_scale : str or sequence of float, default "inverse_rank"
        Factor of each level: ``"inverse_rank"`` (1/r, as the published code),
        ``"inverse_sqrt_rank"`` (1/sqrt(r)), ``"inverse_sqrt_width"`` (1/sqrt(R), as standard
        attention), or one positive number per level.
    divide_by_shared_levels : bool, default False
        Whether a score is divided by the number of levels that the pair shares.
    divide_by_num_levels : bool, default False
        Whether all scores are divided by the number of levels.
    unshared : {"mask", "zero"}, default "mask"
        Pairs that share no block: not attended, or attended with score 0 as in the published
        code. They exist only if no level spans the sequence.
    link : {"softmax", "identity"}, default "softmax"
        What turns scores into weights.
    dropout_p : float in [0, 1), default 0
        Share of the weights that is dropped.
    backend : {"auto", "reference", "expanded", "hierarchical"}, default "auto"
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
    """
    q, k, v = follow_autocast(q, k, v)
    case = build_case(
        q,
        k,
        v,
        ranks=ranks,
        block_sizes=block_sizes,
        num_blocks=num_blocks,
        offset=offset,
        causal=causal,
        key_mask=key_mask,
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


_SIGNATURE = inspect.signature(mlr_attention)


def explain_backend(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B H T R"],
    v: Float[Tensor, "B H T V"],
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
    >>> choice.refused
    {'hierarchical': 'it has no dropout, and `dropout_p` is 0.1'}
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


# The longest sequence for which the dense matrix is not slower than the pieces on one CPU thread,
# by benchmarks/results/kernels/attention_cpu.csv.
_DENSE_UP_TO = {"causal": 96, "bidirectional": 128}


def _best(case: AttentionCase, refused: dict[str, str]) -> tuple[str, str]:
    """Return the fastest backend of those left, and why it is."""
    if case.device.type == "cpu":
        direction = "causal" if case.causal else "bidirectional"
        limit = _DENSE_UP_TO[direction]
        if case.length <= limit:
            return "reference", f"the dense {direction} matrix is fast on a CPU up to {limit} steps"
        order = ("hierarchical", "expanded")
    else:
        order = ("expanded", "hierarchical")
    reasons = {
        "expanded": "one fused attention call",
        "hierarchical": "fused attention calls, without the T x T matrix",
    }
    for name in order:
        if name not in refused:
            return name, reasons[name]
    return "reference", "the only one that can serve this call"
