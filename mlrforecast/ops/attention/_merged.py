"""Multi-level attention on a GPU: PyTorch's own kernels over dense pieces, merged afterwards.

The pieces are as wide as the heads, with the columns zeroed that the two sides do not share. The
backward pass calls each piece's backward kernel with the output and the log-sum-exp of the whole
row, which is exact: a softmax row's gradient needs only its weights and the sum of ``grad * out``.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from mlrforecast.ops.attention._piece_kernels import attend_piece, attend_piece_backward
from mlrforecast.ops.attention._pieces import Pieces, cut_into_pieces
from mlrforecast.ops.attention._tiles import Problem

__all__ = ["attend_merged", "attend_merged_backward"]

_WIDTH_MULTIPLE = 8
"""What the kernels want the width of a head to be a multiple of."""


def attend_merged(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, problem: Problem
) -> tuple[Tensor, Tensor]:
    """Return the output, and the log-sum-exp of each row; infinity in rows that see no key."""
    value_width = v.shape[-1]
    q, k, v = _padded(q, k, v)
    precise = torch.promote_types(q.dtype, torch.float32)
    out = torch.zeros_like(v, dtype=precise, memory_format=torch.contiguous_format)
    lse = torch.full(q.shape[:-1], -math.inf, dtype=precise, device=q.device)
    for pieces, width, scale in _plan(problem, q):
        rows, columns = _sides(pieces)
        causal = problem.causal and pieces.diagonal
        bias, sees = _mask_of(key_mask, pieces, q, causal=causal)
        part, part_lse = attend_piece(
            _first_columns(_gather(q, *rows), width),
            _gather(k, *columns),
            _gather(v, *columns),
            bias,
            causal=causal,
            scale=scale,
        )
        if sees is not None:
            part_lse = part_lse.masked_fill(~sees, -math.inf)
        _merge(_windows(out, *rows), _windows(lse, *rows), part, part_lse)
    # A row that sees no key gets weights exp(score - inf) = 0 in the backward pass.
    lse.masked_fill_(lse == -math.inf, math.inf)
    return out[..., :value_width].to(q.dtype).contiguous(), lse


def attend_merged_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    key_mask: Tensor | None,
    problem: Problem,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values."""
    inputs = (q, k, v)
    q, k, v = _padded(q, k, v)
    missing = v.shape[-1] - out.shape[-1]
    out, grad = pad(out, (0, missing)), pad(grad, (0, missing))
    grads = [
        torch.zeros_like(x, dtype=lse.dtype, memory_format=torch.contiguous_format)
        for x in (q, k, v)
    ]
    for pieces, width, scale in _plan(problem, q):
        rows, columns = _sides(pieces)
        causal = problem.causal and pieces.diagonal
        bias, _ = _mask_of(key_mask, pieces, q, causal=causal)
        grad_q, grad_k, grad_v = attend_piece_backward(
            _gather(grad, *rows),
            _first_columns(_gather(q, *rows), width),
            _gather(k, *columns),
            _gather(v, *columns),
            _gather(out, *rows),
            _gather(lse, *rows),
            bias,
            causal=causal,
            scale=scale,
        )
        _add(_windows(grads[0], *rows), _first_columns(grad_q, width))
        _add(_windows(grads[1], *columns), grad_k)
        _add(_windows(grads[2], *columns), grad_v)
    grad_q, grad_k, grad_v = (
        found[..., : x.shape[-1]].to(x.dtype).contiguous()
        for found, x in zip(grads, inputs, strict=True)
    )
    return grad_q, grad_k, grad_v


_Side = tuple[int, int, Pieces]


def _padded(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Give all three the one width that the kernels want."""
    width = -(-max(q.shape[-1], v.shape[-1]) // _WIDTH_MULTIPLE) * _WIDTH_MULTIPLE
    q, k, v = (pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    return q, k, v


def _plan(problem: Problem, q: Tensor) -> Iterator[tuple[Pieces, int, float]]:
    """Yield the pieces with the columns that count and the factor of the score."""
    for pieces in cut_into_pieces(q.shape[2], problem.starts, problem.causal):
        divisor = pieces.shared if problem.divide else 1
        yield pieces, sum(problem.ranks[: pieces.shared]), problem.scale / divisor


def _sides(pieces: Pieces) -> tuple[_Side, _Side]:
    """Return where the queries and where the keys of the pieces lie."""
    return (
        (pieces.q_start, pieces.q_length, pieces),
        (pieces.k_start, pieces.k_length, pieces),
    )


def _windows(x: Tensor, start: int, length: int, pieces: Pieces) -> Tensor:
    """View (B, H, T, ...) as the windows of its pieces: (B, H, count, length, ...)."""
    reach = (pieces.count - 1) * pieces.stride + length
    windows = x.narrow(2, start, reach).unfold(2, length, pieces.stride)
    return windows.movedim(-1, 3)


def _gather(x: Tensor, start: int, length: int, pieces: Pieces) -> Tensor:
    """Copy (B, H, T, ...) into a batch of pieces (B * count, H, length, ...)."""
    return _windows(x, start, length, pieces).transpose(1, 2).flatten(0, 1).contiguous()


def _first_columns(x: Tensor, width: int) -> Tensor:
    """Copy with zeros in the columns of the levels that do not count."""
    return pad(x[..., :width], (0, x.shape[-1] - width))


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
    key_mask: Tensor | None, pieces: Pieces, q: Tensor, *, causal: bool
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
    sees = seen[:, :, 0] if causal else seen[:, :, 0, -1:]
    return bias, sees
