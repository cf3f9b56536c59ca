"""Multi-level attention as ordinary attention over pieces, merged by their log-sum-exp.

Two positions that share exactly ``m`` levels meet in the first ``R_m`` columns only. So siblings
attend to each other through one dense call with the other columns zeroed, and the finest blocks
to themselves with all of them. No T x T matrix is built.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from mlrforecast.ops._layout import expand_heads
from mlrforecast.ops.attention._case import AttentionCase
from mlrforecast.ops.attention._piece_kernels import (
    attend_piece,
    attend_piece_backward,
    width_multiple,
)
from mlrforecast.ops.attention._pieces import Pieces, cut_into_pieces, window

__all__ = ["hierarchical_attention", "refusal"]


def refusal(case: AttentionCase) -> str | None:
    """Return why a case cannot be served, or None.

    Parameters
    ----------
    case : AttentionCase
        The checked call.

    Returns
    -------
    str or None
    """
    if case.link != "softmax":
        return "it computes softmax attention only, and `link` is 'identity'"
    if case.dropout_p > 0:
        return f"it has no dropout, and `dropout_p` is {case.dropout_p}"
    if case.dtype == torch.float16 and case.masked_keys:
        return "in float16 a masked key could outweigh very low scores; bfloat16 has the range"
    if torch.compiler.is_compiling():
        return "torch.compile cannot trace its merge in place"
    reason = _partition_refusal(case)
    if reason is not None:
        return reason
    if case.device.type not in ("cpu", "cuda"):
        return f"it runs on cpu and cuda, and the tensors are on {case.device.type}"
    return _precision_refusal(case)


def _partition_refusal(case: AttentionCase) -> str | None:
    """Return why the pairs cannot be covered by rectangles, or None."""
    pairs, levels = case.pairs, case.levels
    if pairs.of_two_sequences:
        return "it attends within one sequence, and `query_block_ids` are those of another"
    if pairs.num_queries != pairs.num_keys:
        return f"it needs as many queries as keys, got T={pairs.num_queries} and S={pairs.num_keys}"
    if pairs.window is not None:
        return "it needs blocks on every level, and the coarsest has a window"
    if levels.batched:
        return "it needs one partition for all sequences, and `block_ids` give each its own"
    if not levels.contiguous:
        return "it needs blocks without gaps, and equal `block_ids` are no neighbours"
    if not levels.nested:
        return f"it needs nested blocks, each inside one block of the level above, got {levels}"
    if case.unshared == "zero" and not pairs.share_surely:
        return "pairs without a common block are attended with score 0, and it never meets them"
    return None


def _precision_refusal(case: AttentionCase) -> str | None:
    """Return why the kernels of the device cannot serve the dtype and width, or None."""
    if case.device.type != "cuda":
        return None
    if case.dtype == torch.float64:
        return "the kernels of the GPU have no float64"
    width = max(case.levels.width, case.value_width)
    if width > 256:
        return f"the kernels of the GPU serve heads of at most 256 columns, got {width}"
    return None


def hierarchical_attention(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    v: Float[Tensor, "B G S V"],
    case: AttentionCase,
    key_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H T V"]:
    """Attend piece by piece and merge the pieces exactly.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries.
    k : Tensor of shape (B, G, S, R)
        Keys.
    v : Tensor of shape (B, G, S, V)
        Values.
    case : AttentionCase
        The checked call.
    key_mask : bool Tensor of shape (B, S), optional
        True where a key may be attended.

    Returns
    -------
    Tensor of shape (B, H, T, V)
        In the dtype of ``v``; 0 in rows that may attend no key.
    """
    value_width = v.shape[-1]
    k, v = expand_heads(k, q.shape[1]), expand_heads(v, q.shape[1])
    multiple = width_multiple(q.device)
    width = -(-max(q.shape[-1], value_width) // multiple) * multiple
    q, k, v = (pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    # torch's stubs leave Function.apply untyped.
    out: Tensor = _MergedPieces.apply(q, k, v, key_mask, case)  # type: ignore[no-untyped-call]
    return out[..., :value_width]


class _MergedPieces(torch.autograd.Function):
    """Forward and backward over the pieces; the merge itself is never differentiated."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, case: AttentionCase
    ) -> Tensor:
        precise = torch.promote_types(q.dtype, torch.float32)
        out = torch.zeros_like(v, dtype=precise, memory_format=torch.contiguous_format)
        lse = torch.full(q.shape[:-1], -math.inf, dtype=precise, device=q.device)
        for pieces, factors, scale in _plan(case, q):
            rows, columns = _sides(pieces)
            bias, sees = _mask_of(key_mask, pieces, q)
            part, part_lse = attend_piece(
                _scaled(_gather(q, *rows), factors),
                _gather(k, *columns),
                _gather(v, *columns),
                bias,
                causal=pieces.causal,
                scale=scale,
            )
            if sees is not None:
                part_lse = part_lse.masked_fill(~sees, -math.inf)
            _merge(window(out, *rows), window(lse, *rows), part, part_lse)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse, key_mask)
        ctx.case = case
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, out, lse, key_mask = ctx.saved_tensors
        # A row that sees no key must get weights exp(score - inf) = 0 from the kernels.
        lse = lse.masked_fill(lse == -math.inf, math.inf)
        grads = [
            torch.zeros_like(x, dtype=lse.dtype, memory_format=torch.contiguous_format)
            for x in (q, k, v)
        ]
        for pieces, factors, scale in _plan(ctx.case, q):
            rows, columns = _sides(pieces)
            bias, _ = _mask_of(key_mask, pieces, q)
            grad_q, grad_k, grad_v = attend_piece_backward(
                _gather(grad, *rows),
                _scaled(_gather(q, *rows), factors),
                _gather(k, *columns),
                _gather(v, *columns),
                _gather(out, *rows),
                _gather(lse, *rows),
                bias,
                causal=pieces.causal,
                scale=scale,
            )
            _add(window(grads[0], *rows), grad_q * factors)
            _add(window(grads[1], *columns), grad_k)
            _add(window(grads[2], *columns), grad_v)
        return grads[0].to(q.dtype), grads[1].to(q.dtype), grads[2].to(q.dtype), None, None


_Side = tuple[int, int, Pieces]


def _plan(case: AttentionCase, q: Tensor) -> Iterator[tuple[Pieces, Tensor, float]]:
    """Yield the pieces with the factor of each column of q and that of the whole score."""
    levels = case.levels
    factors = torch.zeros(
        levels.num_levels, q.shape[-1], dtype=torch.promote_types(q.dtype, torch.float32)
    )
    # Relative to the largest scale no factor is above 1, and half precision cannot overflow.
    largest = max(case.scales)
    end = 0
    for lvl, rank in enumerate(levels.ranks):
        factors[lvl:, end : end + rank] = case.scales[lvl] / largest
        end += rank
    factors = factors.to(q.device)
    for pieces in cut_into_pieces(levels.length, levels.starts(), case.causal):
        divisor = pieces.shared if case.divide_by_shared_levels else 1
        yield pieces, factors[pieces.shared - 1], largest / divisor


def _sides(pieces: Pieces) -> tuple[_Side, _Side]:
    """Return where the queries and where the keys of the pieces lie."""
    return (
        (pieces.q_start, pieces.q_length, pieces),
        (pieces.k_start, pieces.k_length, pieces),
    )


def _gather(x: Tensor, start: int, length: int, pieces: Pieces) -> Tensor:
    """Copy (B, H, T, ...) into a batch of pieces (B * count, H, length, ...)."""
    return window(x, start, length, pieces).transpose(1, 2).flatten(0, 1).contiguous()


def _scaled(q: Tensor, factors: Tensor) -> Tensor:
    """Scale the columns of the levels that count, and zero the others."""
    return (q * factors).to(q.dtype)


def _ungather(part: Tensor, like: Tensor) -> Tensor:
    """View a batch of pieces as the windows that it was gathered from."""
    batch, count = like.shape[0], like.shape[2]
    return part.reshape(batch, count, *part.shape[1:]).transpose(1, 2)


def _add(target: Tensor, part: Tensor) -> None:
    """Add a batch of pieces to its windows in place."""
    target += _ungather(part, target)


def _merge(out: Tensor, lse: Tensor, part: Tensor, part_lse: Tensor) -> None:
    """Merge a batch of pieces into its windows in place, weighted by their log-sum-exp."""
    part, part_lse = _ungather(part, out), _ungather(part_lse, lse)
    total = torch.logaddexp(lse, part_lse)
    # Rows that have seen no key so far would give -inf - -inf.
    finite = total.masked_fill(total == -math.inf, 0.0)
    out *= (lse - finite).exp()[..., None]
    out += part * (part_lse - finite).exp()[..., None]
    lse.copy_(total)


def _mask_of(
    key_mask: Tensor | None, pieces: Pieces, q: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Return the additive mask of the pieces' keys, and which of their rows see any key."""
    if key_mask is None:
        return None, None
    keys = _gather(key_mask[:, None], *_sides(pieces)[1])[:, :, None]
    bias = torch.zeros(keys.shape, dtype=q.dtype, device=q.device)
    # Finite even when a kernel goes over to powers of two, because some make NaN of rows whose
    # every key is at minus infinity.
    bias = bias.masked_fill(~keys, torch.finfo(q.dtype).min / 2)
    seen = keys.cumsum(-1) > 0
    sees = seen[:, :, 0] if pieces.causal else seen[:, :, 0, -1:]
    return bias, sees
