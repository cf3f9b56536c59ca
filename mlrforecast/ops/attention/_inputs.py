"""Checks that every attention op shares: shapes, masks, precision."""

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from mlrforecast._core.arguments import check_switch
from mlrforecast._core.errors import BackendError
from mlrforecast.ops._checks import check_tensor, number

__all__ = [
    "carries_tangent",
    "check_dropout",
    "check_key_mask",
    "check_qkv",
    "check_values",
    "follow_autocast",
    "refuse_tangents",
]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_qkv(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> None:
    """Check that three tensors form one attention problem."""
    check_switch("causal", causal)
    if not q.ndim == k.ndim == v.ndim == 4 or (
        k.shape[:-1] != v.shape[:-1] or (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3])
    ):
        raise ValueError(
            "`q` must have the shape (B, H, T, R), `k` (B, G, S, R) and `v` (B, G, S, V), "
            f"got {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}."
        )
    if any(size < 1 for size in (*q.shape, *k.shape, *v.shape)):
        raise ValueError(
            "`q`, `k` and `v` must not be empty, got "
            f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}."
        )
    if q.shape[1] % k.shape[1]:
        raise ValueError(
            f"The heads of `k` and `v`, G={k.shape[1]}, must divide those of `q`, H={q.shape[1]}."
        )
    if causal and q.shape[2] > k.shape[2]:
        raise ValueError(
            "Queries are the last T of the S steps of the keys, so `causal` needs T <= S, got "
            f"T={q.shape[2]} and S={k.shape[2]}. Attend to another sequence with causal=False."
        )
    if not (q.dtype == k.dtype == v.dtype) or q.dtype not in _DTYPES:
        raise TypeError(
            "`q`, `k` and `v` must have one floating-point dtype of 16 bits or more, got "
            f"{q.dtype}, {k.dtype} and {v.dtype}. Cast them, or run under torch.autocast."
        )
    if not (q.device == k.device == v.device):
        raise ValueError(
            f"`q`, `k` and `v` must be on one device, got {q.device}, {k.device}, {v.device}."
        )


def check_key_mask(key_mask: Tensor | None, k: Tensor) -> None:
    """Check that a key mask says yes or no to every step of ``k``, (B, G, S, R)."""
    if key_mask is None:
        return
    check_tensor(key_mask, "key_mask")
    expected = (k.shape[0], k.shape[2])
    if key_mask.dtype != torch.bool or tuple(key_mask.shape) != expected:
        raise ValueError(
            f"`key_mask` must be a bool tensor of shape (B, S) = {expected}, True where a key may "
            f"be attended; got {key_mask.dtype} of shape {tuple(key_mask.shape)}."
        )
    if key_mask.device != k.device:
        raise ValueError(f"`key_mask` must be on {k.device} as `k`, got {key_mask.device}.")


def check_values(v: Tensor, context: Tensor, num_heads: int) -> None:
    """Check that values (B, G, S, V) are those of the steps of ``context``, (B, S, D)."""
    check_tensor(v, "v")
    if v.ndim != 4 or (v.shape[0], v.shape[2]) != tuple(context.shape[:2]) or min(v.shape) < 1:
        raise ValueError(
            "`v` must have the shape (B, G, S, V) for `context` of shape (B, S, D), got "
            f"{tuple(v.shape)} and {tuple(context.shape)}."
        )
    if num_heads % v.shape[1]:
        raise ValueError(
            f"The heads of `v`, G={v.shape[1]}, must divide those of the scores, H={num_heads}."
        )


def check_dropout(dropout_p: float) -> float:
    """Return ``dropout_p`` as a float if it is a share below 1."""
    value = number(dropout_p, "dropout_p")
    if not 0.0 <= value < 1.0:
        raise ValueError(f"`dropout_p` must lie in [0, 1), got {value}.")
    return value


def carries_tangent(*tensors: Tensor) -> bool:
    """Return whether a derivative is taken forward through one of the tensors.

    An operator without a forward derivative does not refuse it: PyTorch goes on as if it were 0.
    """
    if torch.compiler.is_compiling():
        return False
    return any(unpack_dual(x).tangent is not None for x in tensors)


def refuse_tangents(backend: str, *tensors: Tensor) -> None:
    """Raise an error if a derivative is taken forward through a backend that has none."""
    if carries_tangent(*tensors):
        raise BackendError(
            f"The backend {backend!r} cannot serve this call: it has no derivative in forward mode "
            "(jvp, jacfwd, hessian). Use backend='reference'."
        )


def follow_autocast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cast float32 and lower inputs to the autocast dtype, as PyTorch's own attention does."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_tensor(x, name)
    device = q.device.type
    if not torch.is_autocast_enabled(device):
        return q, k, v
    dtype = torch.get_autocast_dtype(device)
    q, k, v = (x if x.dtype == torch.float64 else x.to(dtype) for x in (q, k, v))
    return q, k, v
