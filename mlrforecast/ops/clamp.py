"""A bound on the size of structured weights, which keeps training stable."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from mlrforecast.ops._checks import check_tensor, positive

__all__ = ["rms_clamp"]


def rms_clamp(weight: Float[Tensor, "..."], *, fan_in: int, fan_out: int) -> Float[Tensor, "..."]:
    """Shrink a weight until its root mean square is at most that of a muP initialisation.

    ``weight / max(1, rms / limit)`` with ``rms = sqrt(mean(weight ** 2) + 1e-8)`` over the whole
    tensor and ``limit = sqrt(min(fan_in, fan_out)) / fan_in``. It never enlarges a weight.
    Gradients flow through the root mean square. Nothing waits for the device, so that it compiles
    into one graph.

    Parameters
    ----------
    weight : Tensor of any shape
        One factor of a structured weight, the factors of all heads together.
    fan_in : int, at least 1
        Inputs that one output of the factor sums over.
    fan_out : int, at least 1
        Outputs of the factor. Where the heads are concatenated in its output, all of them count.

    Returns
    -------
    Tensor of the shape and dtype of ``weight``
        The mean is taken in float32 at least.

    Raises
    ------
    ValueError
        If a fan is less than 1.
    TypeError
        If ``weight`` is not a tensor, or a fan is not an integer.

    References
    ----------
    "Customizing the Inductive Biases of Softmax Attention using Structured Matrices", ICML 2025,
    https://arxiv.org/abs/2509.07963

    Examples
    --------
    >>> rms_clamp(torch.full((2, 2), 3.0), fan_in=4, fan_out=4)
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    >>> rms_clamp(torch.full((2, 2), 0.1), fan_in=4, fan_out=4)
    tensor([[0.1000, 0.1000],
            [0.1000, 0.1000]])
    """
    check_tensor(weight, "weight")
    fan_in, fan_out = positive(fan_in, "fan_in"), positive(fan_out, "fan_out")
    limit = math.sqrt(min(fan_in, fan_out)) / fan_in
    exact = weight.to(torch.promote_types(weight.dtype, torch.float32))
    rms = (exact.square().mean() + 1e-8).sqrt()
    return (exact / (rms / limit).clamp(min=1.0)).to(weight.dtype)
