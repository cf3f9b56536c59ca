"""What classes of functions have in common: how points are drawn, and the form of an episode."""

import abc
import dataclasses
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from mlrforecast.tasks._checks import count


class Episodes(NamedTuple):
    """Sequences of points, each with the values of a function of its own.

    Attributes
    ----------
    xs : Tensor of shape (B, N, n)
        Points.
    ys : Tensor of shape (B, N)
        The value of each point, which a model reads after it.
    targets : Tensor of shape (B, N)
        What is to be predicted at each point: its value, but for nearest neighbours.
    """

    xs: Float[Tensor, "B N num_dims"]
    ys: Float[Tensor, "B N"]
    targets: Float[Tensor, "B N"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FunctionClass(abc.ABC):
    """A distribution over functions and points. A subclass says what the values are.

    The coordinates of a point are normal with variance ``1 / d``, of which ``d`` are active and the
    others 0: a point has the length 1, up to its fluctuations. Values have the variance 1 in every
    class, so that the error of predicting 0 is 1.

    Examples
    --------
    >>> from mlrforecast.tasks.in_context_regression import LinearRegression
    >>> generator = torch.Generator().manual_seed(0)
    >>> xs, ys, targets = LinearRegression().draw(64, 20, 10, active_dims=4, generator=generator)
    >>> xs.shape, ys.shape, int(xs[..., 4:].count_nonzero())
    (torch.Size([64, 20, 10]), torch.Size([64, 20]), 0)
    """

    def draw(
        self,
        batch_size: int,
        num_points: int,
        num_dims: int,
        *,
        active_dims: int | Tensor | None = None,
        generator: torch.Generator,
        device: torch.device | str | None = None,
    ) -> Episodes:
        """Draw a function and points for each episode.

        Parameters
        ----------
        batch_size, num_points, num_dims : int
            Episodes ``B``, points ``N`` of each, and dimensions ``n`` of a point.
        active_dims : int or Tensor, optional
            Dimensions that are not 0, 1 to ``num_dims``: a number, or a tensor of one integer on
            the device, which is not read back and hence not checked; a CUDA graph that was
            recorded with one follows its changes. Default: all.
        generator : torch.Generator
            The only source of random numbers, on the device.
        device : device, optional
            Where to draw. Default: that of the generator.

        Returns
        -------
        Episodes
            In float32.

        Raises
        ------
        ValueError
            If a size is out of its range, or ``active_dims`` is a tensor of another shape, kind or
            device.
        """
        sizes = {"batch_size": batch_size, "num_points": num_points, "num_dims": num_dims}
        batch, points, dims = (count(name, value) for name, value in sizes.items())
        where = generator.device if device is None else torch.device(device)
        active = _active(active_dims, dims, where)
        xs = normal((batch, points, dims), generator, where) * active
        xs = self._place(xs, active)
        ys = self._values(xs, active, generator)
        return Episodes(xs, ys, self._targets(xs, ys))

    def _place(self, xs: Tensor, active: Tensor) -> Tensor:
        """Return points, given normal coordinates of variance 1 that are 0 where not active."""
        return xs * active.sum().rsqrt()

    @abc.abstractmethod
    def _values(self, xs: Tensor, active: Tensor, generator: torch.Generator) -> Tensor:
        """Draw a function an episode and return the values (B, N) of its points."""

    def _targets(self, xs: Tensor, ys: Tensor) -> Tensor:
        """Return what is to be predicted."""
        return ys


def _active(active_dims: int | Tensor | None, num_dims: int, device: torch.device) -> Tensor:
    """Return which coordinates are active, without reading a tensor back."""
    places = torch.arange(num_dims, device=device)
    if isinstance(active_dims, Tensor):
        whole = not (active_dims.is_floating_point() or active_dims.dtype == torch.bool)
        if active_dims.ndim or not whole or active_dims.device != places.device:
            raise ValueError(
                f"`active_dims` must be one integer on {places.device}, got a tensor of the shape "
                f"{tuple(active_dims.shape)} and {active_dims.dtype} on {active_dims.device}."
            )
        return places < active_dims
    number = num_dims if active_dims is None else count("active_dims", active_dims)
    if number > num_dims:
        raise ValueError(f"`active_dims` must be at most `num_dims`={num_dims}, got {number}.")
    return places < number


def normal(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw normal numbers of variance 1."""
    return torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
