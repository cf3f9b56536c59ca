"""PyTorch's attention kernels for a GPU that also return, or take, the log-sum-exp of each row.

They are reached as ``torch.ops.aten`` operators because the public function returns the output
alone. Tensors are (N, H, T, E) of one width E; the log-sum-exp is (N, H, T).
"""

from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["Gradients", "attend_piece", "attend_piece_backward"]

Gradients: TypeAlias = tuple[Tensor, Tensor, Tensor]

_aten = torch.ops.aten


def attend_piece(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the output of one piece and the log-sum-exp of its rows."""
    if _takes_flash(q, bias):
        out, lse = _aten._scaled_dot_product_flash_attention(
            q, k, v, 0.0, causal, False, scale=scale
        )[:2]
    else:
        out, lse = _aten._scaled_dot_product_efficient_attention(
            q, k, v, _aligned(bias, q, k), True, 0.0, causal, scale=scale
        )[:2]
    return out, lse[..., : q.shape[2]]


def attend_piece_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    bias: Tensor | None,
    *,
    causal: bool,
    scale: float,
) -> Gradients:
    """Return the gradients of one piece, given the output and log-sum-exp of the whole rows."""
    if _takes_flash(q, bias):
        gradients = _flash_backward(grad, q, k, v, out, lse, causal=causal, scale=scale)
    else:
        seed = torch.zeros((), dtype=torch.int64, device=q.device)
        gradients = _aten._scaled_dot_product_efficient_attention_backward(
            _steps_outside(grad),
            q,
            k,
            v,
            _aligned(bias, q, k),
            _steps_outside(out),
            # The kernel reads rows in groups of 32; infinity makes the weights of the rest 0.
            pad(lse, (0, -lse.shape[-1] % 32), value=float("inf")),
            seed,
            seed,
            0.0,
            [True, True, True, False],
            causal,
            scale=scale,
        )
    grad_q, grad_k, grad_v = gradients[:3]
    return grad_q, grad_k, grad_v


def _takes_flash(q: Tensor, bias: Tensor | None) -> bool:
    """Whether the CUDA flash kernel serves the piece: half precision and no mask."""
    return bias is None and q.dtype in (torch.float16, torch.bfloat16)


def _flash_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    causal: bool,
    scale: float,
) -> Gradients:
    """Call the CUDA flash kernel for a batch of equal lengths, without dropout."""
    seed = torch.zeros(2, dtype=torch.uint64, device=q.device)
    grad_q, grad_k, grad_v = _aten._scaled_dot_product_flash_attention_backward(
        grad,
        q,
        k,
        v,
        out,
        lse,
        # No lengths of sequences packed together: the batch is dense.
        None,
        None,
        q.shape[2],
        k.shape[2],
        0.0,
        causal,
        seed,
        seed[:0],
        scale=scale,
    )
    return grad_q, grad_k, grad_v


def _steps_outside(x: Tensor) -> Tensor:
    """Lay (N, H, T, E) out as (N, T, H, E): the kernel takes that for granted in ``out``."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def _aligned(bias: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Expand a mask to (N, H, T, S) with rows that begin at multiples of 16 elements."""
    if bias is None:
        return None
    padded = pad(bias, (0, -k.shape[2] % 16))[..., : k.shape[2]]
    return padded.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
