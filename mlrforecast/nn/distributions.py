"""Distributions that a head can forecast: from its raw outputs to parameters and quantiles."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from scipy import special, stats
from torch import Tensor, distributions
from torch.nn import functional

__all__ = [
    "DISTRIBUTIONS",
    "NegativeBinomialOutput",
    "NormalOutput",
    "OutputDistribution",
    "StudentTOutput",
]

_LEAST_SCALE = 1e-2
"""Added to every scale, in standard deviations of a series: after a constant context the loss of
any step would be without bound."""
_LEAST_FREEDOM = 2.1
_LEAST_DISPERSION = 1e-3
"""Added to every dispersion: what is closer to a Poisson distribution is treated as one this far
from it."""


class OutputDistribution(ABC):
    """A family of distributions, one for each step to forecast.

    Attributes
    ----------
    starts : tuple of float
        Where the raw outputs beside the location start in training, each the bias of a softplus.
    is_count : bool
        Whether it is one of counts: whole numbers from 0 on.

    Examples
    --------
    >>> sorted(DISTRIBUTIONS)
    ['negative_binomial', 'normal', 'student_t']
    """

    starts: tuple[float, ...]
    is_count: ClassVar[bool] = False

    @abstractmethod
    def parameters(
        self, raw: Float[Tensor, "B F P"], loc: Float[Tensor, "B 1"], scale: Float[Tensor, "B 1"]
    ) -> Float[Tensor, "B F P"]:
        """Return the parameters in the unit of the series.

        Parameters
        ----------
        raw : Tensor of shape (B, F, P)
            Raw outputs of the head in the unit of the context, the location first.
        loc, scale : Tensor of shape (B, 1)
            ``location * scale + loc`` is in the unit of the series.

        Returns
        -------
        Tensor of shape (B, F, P)
            Parameters, in the order that the other methods read.
        """

    @abstractmethod
    def point(self, parameters: Float[Tensor, "B F P"]) -> Float[Tensor, "B F"]:
        """Return the mean, or of a symmetric distribution its centre.

        Parameters
        ----------
        parameters : Tensor of shape (B, F, P)
            As :meth:`parameters` gives them.

        Returns
        -------
        Tensor of shape (B, F)
            Point forecast.
        """

    @abstractmethod
    def log_prob(
        self, parameters: Float[Tensor, "B F P"], target: Float[Tensor, "B F"]
    ) -> Float[Tensor, "B F"]:
        """Return the log-likelihood of actual values.

        Parameters
        ----------
        parameters : Tensor of shape (B, F, P)
            As :meth:`parameters` gives them.
        target : Tensor of shape (B, F)
            Actual values.

        Returns
        -------
        Tensor of shape (B, F)
            Logarithm of the density, or of the probability of a count.
        """

    @abstractmethod
    def rescale(
        self,
        parameters: Float[np.ndarray, "*batch P"],
        loc: Float[np.ndarray, "*any"],
        scale: Float[np.ndarray, "*any"],
    ) -> Float[np.ndarray, "*batch P"]:
        """Return the parameters of ``x * scale + loc``, where ``x`` has the given ones.

        Parameters
        ----------
        parameters : ndarray of shape (..., P)
            Parameters.
        loc, scale : ndarray that broadcasts to (...)
            The map; of counts only NaN, which has no forecast, and no change.

        Returns
        -------
        ndarray of shape (..., P)
            Parameters.
        """

    @abstractmethod
    def quantiles(
        self, parameters: Float[np.ndarray, "*batch P"], levels: Float[np.ndarray, "*any"]
    ) -> Float[np.ndarray, "*batch Q"]:
        """Return quantiles.

        Parameters
        ----------
        parameters : ndarray of shape (..., P)
            Parameters.
        levels : ndarray of shape (Q,), or one that broadcasts to (..., Q)
            Levels in (0, 1).

        Returns
        -------
        ndarray of shape (..., Q)
            Quantiles.
        """

    @abstractmethod
    def spread(self, parameters: Float[np.ndarray, "*batch P"]) -> Float[np.ndarray, "*batch"]:
        """Return a size of the uncertainty, in the unit of the series.

        Parameters
        ----------
        parameters : ndarray of shape (..., P)
            Parameters.

        Returns
        -------
        ndarray of shape (...)
            Standard deviation, or what is proportional to it.
        """


class NormalOutput(OutputDistribution):
    """Normal distributions with the parameters mean and standard deviation.

    Examples
    --------
    >>> output = NormalOutput()
    >>> output.quantiles(np.array([10.0, 2.0]), np.array([0.5, 0.975])).round(2)
    array([10.  , 13.92])
    """

    starts: tuple[float, ...] = (0.54,)

    def parameters(
        self, raw: Float[Tensor, "B F P"], loc: Float[Tensor, "B 1"], scale: Float[Tensor, "B 1"]
    ) -> Float[Tensor, "B F P"]:
        """Return mean and standard deviation; see :class:`OutputDistribution`."""
        deviation = functional.softplus(raw[..., 1]) * scale + _LEAST_SCALE
        return torch.stack([raw[..., 0] * scale + loc, deviation], dim=-1)

    def point(self, parameters: Float[Tensor, "B F P"]) -> Float[Tensor, "B F"]:
        """Return the mean; see :class:`OutputDistribution`."""
        return parameters[..., 0]

    def log_prob(
        self, parameters: Float[Tensor, "B F P"], target: Float[Tensor, "B F"]
    ) -> Float[Tensor, "B F"]:
        """Return the log-density; see :class:`OutputDistribution`."""
        mean, deviation = parameters.unbind(-1)
        normal = distributions.Normal(mean, deviation, validate_args=False)
        log_prob: Tensor = normal.log_prob(target)
        return log_prob

    def rescale(
        self,
        parameters: Float[np.ndarray, "*batch P"],
        loc: Float[np.ndarray, "*any"],
        scale: Float[np.ndarray, "*any"],
    ) -> Float[np.ndarray, "*batch P"]:
        """Return the parameters after a linear map; see :class:`OutputDistribution`."""
        centre, deviation, *shape = np.moveaxis(parameters, -1, 0)
        return np.stack([centre * scale + loc, deviation * scale, *shape], axis=-1)

    def quantiles(
        self, parameters: Float[np.ndarray, "*batch P"], levels: Float[np.ndarray, "*any"]
    ) -> Float[np.ndarray, "*batch Q"]:
        """Return quantiles; see :class:`OutputDistribution`."""
        centre, deviation = np.moveaxis(parameters, -1, 0)[..., None]
        return np.asarray(centre + deviation * special.ndtri(levels))

    def spread(self, parameters: Float[np.ndarray, "*batch P"]) -> Float[np.ndarray, "*batch"]:
        """Return the standard deviation; see :class:`OutputDistribution`."""
        return np.asarray(parameters[..., 1])


class StudentTOutput(NormalOutput):
    """Student's t-distributions with the parameters centre, scale and degrees of freedom.

    There are more than 2.1 degrees of freedom, so that the variance is finite.

    Examples
    --------
    >>> output = StudentTOutput()
    >>> output.quantiles(np.array([10.0, 2.0, 5.0]), np.array([0.5, 0.975])).round(2)
    array([10.  , 15.14])
    """

    starts: tuple[float, ...] = (0.54, 3.0)

    def parameters(
        self, raw: Float[Tensor, "B F P"], loc: Float[Tensor, "B 1"], scale: Float[Tensor, "B 1"]
    ) -> Float[Tensor, "B F P"]:
        """Return centre, scale and degrees of freedom; see :class:`OutputDistribution`."""
        freedom = _LEAST_FREEDOM + functional.softplus(raw[..., 2:])
        return torch.cat([super().parameters(raw[..., :2], loc, scale), freedom], dim=-1)

    def log_prob(
        self, parameters: Float[Tensor, "B F P"], target: Float[Tensor, "B F"]
    ) -> Float[Tensor, "B F"]:
        """Return the log-density; see :class:`OutputDistribution`."""
        centre, scale, freedom = parameters.unbind(-1)
        student = distributions.StudentT(freedom, centre, scale, validate_args=False)
        log_prob: Tensor = student.log_prob(target)
        return log_prob

    def quantiles(
        self, parameters: Float[np.ndarray, "*batch P"], levels: Float[np.ndarray, "*any"]
    ) -> Float[np.ndarray, "*batch Q"]:
        """Return quantiles; see :class:`OutputDistribution`."""
        centre, scale, freedom = np.moveaxis(parameters, -1, 0)[..., None]
        return np.asarray(centre + scale * special.stdtrit(freedom, levels))


class NegativeBinomialOutput(OutputDistribution):
    """Negative binomial distributions of counts with the parameters mean and dispersion.

    The variance is ``mean + dispersion * mean**2``. The mean is a softplus of the location, so it
    is positive whatever the network says, and nearly the location where that is large.

    Examples
    --------
    >>> output = NegativeBinomialOutput()
    >>> output.quantiles(np.array([3.0, 0.5]), np.array([0.1, 0.5, 0.9]))
    array([0., 2., 7.])
    """

    starts: tuple[float, ...] = (0.0,)
    is_count = True

    def parameters(
        self, raw: Float[Tensor, "B F P"], loc: Float[Tensor, "B 1"], scale: Float[Tensor, "B 1"]
    ) -> Float[Tensor, "B F P"]:
        """Return mean and dispersion; see :class:`OutputDistribution`."""
        size = scale.where(scale > 0, 1.0)
        mean = size * functional.softplus(raw[..., 0] + loc / size)
        least = torch.finfo(mean.dtype).tiny
        dispersion = functional.softplus(raw[..., 1]) + _LEAST_DISPERSION
        return torch.stack([mean.clamp(min=least), dispersion], dim=-1)

    def point(self, parameters: Float[Tensor, "B F P"]) -> Float[Tensor, "B F"]:
        """Return the mean; see :class:`OutputDistribution`."""
        return parameters[..., 0]

    def log_prob(
        self, parameters: Float[Tensor, "B F P"], target: Float[Tensor, "B F"]
    ) -> Float[Tensor, "B F"]:
        """Return the log-probability; see :class:`OutputDistribution`."""
        # Logarithms of factorials lose all digits in float32, which is all that mps has.
        precise = torch.float32 if parameters.device.type == "mps" else torch.float64
        mean, dispersion = parameters.to(precise).unbind(-1)
        counts = distributions.NegativeBinomial(
            1 / dispersion, logits=(mean * dispersion).log(), validate_args=False
        )
        log_prob: Tensor = counts.log_prob(target.to(precise))
        return log_prob.to(parameters.dtype)

    def rescale(
        self,
        parameters: Float[np.ndarray, "*batch P"],
        loc: Float[np.ndarray, "*any"],
        scale: Float[np.ndarray, "*any"],
    ) -> Float[np.ndarray, "*batch P"]:
        """Return the parameters as they are, or NaN; see :class:`OutputDistribution`."""
        return np.asarray(parameters * np.where(np.isnan(scale + loc), np.nan, 1.0)[..., None])

    def quantiles(
        self, parameters: Float[np.ndarray, "*batch P"], levels: Float[np.ndarray, "*any"]
    ) -> Float[np.ndarray, "*batch Q"]:
        """Return quantiles, whole numbers; see :class:`OutputDistribution`."""
        mean, dispersion = np.moveaxis(parameters, -1, 0)[..., None]
        return np.asarray(stats.nbinom.ppf(levels, 1 / dispersion, 1 / (1 + dispersion * mean)))

    def spread(self, parameters: Float[np.ndarray, "*batch P"]) -> Float[np.ndarray, "*batch"]:
        """Return the standard deviation; see :class:`OutputDistribution`."""
        mean, dispersion = np.moveaxis(parameters, -1, 0)
        return np.asarray(np.sqrt(mean + dispersion * mean**2))


DISTRIBUTIONS: dict[str, OutputDistribution] = {
    "normal": NormalOutput(),
    "student_t": StudentTOutput(),
    "negative_binomial": NegativeBinomialOutput(),
}
"""The distributions by the name of their loss."""
