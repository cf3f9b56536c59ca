"""What a model is compared with: rules that predict each point from the points before it."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from mlrforecast._core.registry import Registry
from mlrforecast.tasks._checks import above_zero, count
from mlrforecast.tasks.in_context_regression.functions import Episodes

__all__ = [
    "averaging",
    "comparators",
    "k_nearest_neighbours",
    "least_squares",
    "ridge",
    "zero",
]


_NEW = 1e-8
"""Part of a point, relative to its length, from which on it lies outside the points before."""


def least_squares(episodes: Episodes) -> Float[Tensor, "B N"]:
    """Predict by the linear function that fits the points before best.

    Of several that fit equally well it is the one of least norm, which is the best guess for
    linear functions with weights of a common variance: no model can do better on them.

    Parameters
    ----------
    episodes : Episodes
        Points and values.

    Returns
    -------
    Tensor of shape (B, N)
        Predictions in float64 on the CPU; the first is 0.

    Examples
    --------
    >>> xs, ys = torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[5.0, 10.0, 15.0]])
    >>> least_squares(Episodes(xs, ys, ys)).round(decimals=6)
    tensor([[ 0., 10., 15.]], dtype=torch.float64)
    """
    num_dims = episodes.xs.shape[-1]
    return _recursive(episodes, torch.zeros(num_dims, num_dims), torch.eye(num_dims))


def ridge(episodes: Episodes, *, penalty: float = 0.1) -> Float[Tensor, "B N"]:
    """Predict by the linear function of least squared errors plus penalty on its weights.

    Parameters
    ----------
    episodes : Episodes
        Points and values.
    penalty : float, default 0.1
        What the sum of squared weights is multiplied by, above 0. The best one is the variance of
        the noise over that of the weights.

    Returns
    -------
    Tensor of shape (B, N)
        Predictions in float64 on the CPU; the first is 0.

    Raises
    ------
    ValueError
        If the penalty is not above 0.

    Examples
    --------
    >>> xs, ys = torch.tensor([[[1.0], [2.0]]]), torch.tensor([[5.0, 10.0]])
    >>> ridge(Episodes(xs, ys, ys), penalty=1.0)
    tensor([[0., 5.]], dtype=torch.float64)
    """
    eye = torch.eye(episodes.xs.shape[-1], dtype=torch.float64)
    return _recursive(episodes, eye / above_zero("penalty", penalty), torch.zeros_like(eye))


def k_nearest_neighbours(episodes: Episodes, *, k: int = 3) -> Float[Tensor, "B N"]:
    """Predict the mean value of the nearest points before.

    Parameters
    ----------
    episodes : Episodes
        Points and values.
    k : int, default 3
        How many points are averaged; all of them where there are fewer.

    Returns
    -------
    Tensor of shape (B, N)
        Predictions in float64 on the CPU; the first is 0.

    Raises
    ------
    ValueError
        If ``k`` is no integer of at least 1.

    Examples
    --------
    >>> xs, ys = torch.tensor([[[0.0], [1.0], [0.9]]]), torch.tensor([[5.0, 6.0, 7.0]])
    >>> k_nearest_neighbours(Episodes(xs, ys, ys), k=1)
    tensor([[0., 5., 6.]], dtype=torch.float64)
    """
    most = count("k", k)

    def predict(xs: Tensor, ys: Tensor, point: Tensor) -> Tensor:
        distances = (xs - point[:, None]).square().sum(-1)
        nearest = distances.topk(min(most, xs.shape[1]), largest=False).indices
        return ys.gather(1, nearest).mean(1)

    return _by_point(episodes, predict)


def averaging(episodes: Episodes) -> Float[Tensor, "B N"]:
    """Predict by the linear function with the mean of ``d * y * x`` as its weights.

    Its weights are right on average, since a coordinate has the variance ``1 / d``. The active
    dimensions ``d`` are those that are not 0 in all points of an episode.

    Parameters
    ----------
    episodes : Episodes
        Points and values.

    Returns
    -------
    Tensor of shape (B, N)
        Predictions in float64 on the CPU; the first is 0.

    Examples
    --------
    >>> xs, ys = torch.tensor([[[1.0], [-1.0], [2.0]]]), torch.tensor([[3.0, -3.0, 6.0]])
    >>> averaging(Episodes(xs, ys, ys))
    tensor([[ 0., -3.,  6.]], dtype=torch.float64)
    """
    dims = (episodes.xs != 0).any(1).sum(-1).cpu()

    def predict(xs: Tensor, ys: Tensor, point: Tensor) -> Tensor:
        weights = (xs * ys[..., None]).mean(1)
        return dims * (weights * point).sum(-1)

    return _by_point(episodes, predict)


def zero(episodes: Episodes) -> Float[Tensor, "B N"]:
    """Predict 0 everywhere.

    Parameters
    ----------
    episodes : Episodes
        Points and values.

    Returns
    -------
    Tensor of shape (B, N)
        Zeros in float64 on the CPU.

    Examples
    --------
    >>> xs, ys = torch.ones(1, 2, 3), torch.ones(1, 2)
    >>> zero(Episodes(xs, ys, ys))
    tensor([[0., 0.]], dtype=torch.float64)
    """
    return torch.zeros(episodes.ys.shape, dtype=torch.float64)


comparators: Registry[Callable[..., Tensor]] = Registry("comparator")
"""Name -> rule that predicts every point of :class:`Episodes` from the points before it."""

comparators.register("averaging", averaging)
comparators.register("k_nearest_neighbours", k_nearest_neighbours)
comparators.register("least_squares", least_squares)
comparators.register("ridge", ridge)
comparators.register("zero", zero)


def _recursive(episodes: Episodes, inverse: Tensor, unseen: Tensor) -> Float[Tensor, "B N"]:
    """Predict by least squares, whose solution is updated from point to point (Greville's method).

    ``inverse`` is that of the sum of all ``x x^T``, plus a penalty, within the directions that were
    seen, and ``unseen`` projects on the others.
    """
    xs, ys = _exact(episodes)
    start = torch.zeros(len(xs), 1, 1, dtype=torch.float64)
    inverse, unseen = start + inverse, start + unseen
    weights, predictions = torch.zeros_like(xs[:, 0]), torch.zeros_like(ys)
    for at in range(ys.shape[1]):
        x = xs[:, at]
        predictions[:, at] = (weights * x).sum(-1)
        # Twice, since what is left of a point that is nearly seen is mostly rounding.
        outside = _apply(unseen, _apply(unseen, x))
        inside = _apply(inverse, x)
        size = outside.square().sum(-1, keepdim=True)
        grown = 1 + (x * inside).sum(-1, keepdim=True)
        is_new = size > _NEW**2 * x.square().sum(-1, keepdim=True)
        gain = torch.where(is_new, outside / size, inside / grown)
        # A point in a new direction is fitted without a change to the predictions so far.
        more = is_new[..., None] * (_outer(inside, gain) - _outer(grown * gain, gain))
        inverse = inverse - _outer(gain, inside) - more
        unseen = unseen - is_new[..., None] * _outer(gain, outside)
        weights = weights + gain * (ys[:, at] - predictions[:, at])[:, None]
    return predictions


def _apply(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Return the product of a matrix and a vector for each episode."""
    return (matrices @ vectors[..., None])[..., 0]


def _outer(left: Tensor, right: Tensor) -> Tensor:
    """Return the outer product of two vectors for each episode."""
    return left[:, :, None] * right[:, None, :]


def _exact(episodes: Episodes) -> tuple[Tensor, Tensor]:
    """Return points and values in float64 on the CPU."""
    xs, ys = (part.detach().to("cpu", torch.float64) for part in episodes[:2])
    return xs, ys


def _by_point(
    episodes: Episodes, predict: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Float[Tensor, "B N"]:
    """Predict each point but the first from the points and values before it."""
    xs, ys = _exact(episodes)
    predictions = torch.zeros_like(ys)
    for at in range(1, ys.shape[1]):
        predictions[:, at] = predict(xs[:, :at], ys[:, :at], xs[:, at])
    return predictions
