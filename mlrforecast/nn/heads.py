"""Forecast heads: encoded tokens in, forecasts with their uncertainty out, each with its loss."""

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional

from mlrforecast.nn.distributions import DISTRIBUTIONS, OutputDistribution
from mlrforecast.nn.dropout import Dropout
from mlrforecast.nn.linear import OutputLinear

Forecast = tuple[Float[Tensor, "B F"], Float[Tensor, "B F Q"] | None]
"""Point forecast, and quantiles or parameters of a distribution where the head has them."""


class PointHead(nn.Module):
    """A linear map from all encoded tokens to all future steps at once.

    Parameters
    ----------
    num_tokens, width, prediction_length : int
        ``N``, ``D`` and ``F``.
    dropout : float
        Dropout probability of the flattened tokens.
    power : {1, 2}
        1 trains on the absolute error, 2 on the squared error.
    frequency_weight : float
        Weight, 0 to 1, of the same error taken on the Fourier coefficients of the forecast.

    References
    ----------
    The frequency term: FreDF, Learning to Forecast in the Frequency Domain, ICLR 2025.

    Examples
    --------
    >>> head = PointHead(4, 8, 24)
    >>> point, quantiles = head(torch.zeros(2, 4, 8))
    >>> point.shape, quantiles is None
    (torch.Size([2, 24]), True)
    """

    def __init__(
        self,
        num_tokens: int,
        width: int,
        prediction_length: int,
        *,
        dropout: float = 0.0,
        power: int = 1,
        frequency_weight: float = 0.0,
    ) -> None:
        super().__init__()
        self.power = power
        self.frequency_weight = frequency_weight
        self.dropout = Dropout(dropout)
        self.point = OutputLinear(num_tokens * width, prediction_length)

    def centre(self, encoded: Float[Tensor, "B N D"]) -> Float[Tensor, "B F"]:
        """Return the point forecast alone.

        Parameters
        ----------
        encoded : Tensor of shape (B, N, D)
            Encoded tokens.

        Returns
        -------
        Tensor of shape (B, F)
        """
        point: Tensor = self.point(self.dropout(encoded.flatten(1)))
        return point

    def forward(
        self, encoded: Float[Tensor, "B N D"], centre: Float[Tensor, "B F"] | None = None
    ) -> Forecast:
        """Forecast from encoded tokens.

        Parameters
        ----------
        encoded : Tensor of shape (B, N, D)
            Encoded tokens.
        centre : Tensor of shape (B, F), optional
            Point forecast, which quantiles lie around; that of :meth:`centre` if omitted.

        Returns
        -------
        tuple
            The point forecast, and the quantiles or None.
        """
        return self.centre(encoded) if centre is None else centre, None

    def rescale(
        self, forecast: Forecast, loc: Float[Tensor, "B 1"], scale: Float[Tensor, "B 1"]
    ) -> Forecast:
        """Bring a forecast from the unit of the context into that of the series.

        Parameters
        ----------
        forecast : tuple
            What ``forward`` returned.
        loc, scale : Tensor of shape (B, 1)
            ``point * scale + loc`` is in the unit of the series.

        Returns
        -------
        tuple
            The point forecast, and quantiles (B, F, Q) or parameters (B, F, P), or None.
        """
        point, quantiles = forecast
        if quantiles is not None:
            quantiles = quantiles * scale.unsqueeze(-1) + loc.unsqueeze(-1)
        return point * scale + loc, quantiles

    def loss(
        self,
        forecast: Forecast,
        target: Float[Tensor, "B F"],
        observed: Bool[Tensor, "B F"] | None = None,
    ) -> Float[Tensor, ""]:
        """Return the mean error over the observed steps.

        Parameters
        ----------
        forecast : tuple
            What ``rescale`` returned, in the units of ``target``.
        target : Tensor of shape (B, F)
            Actual values.
        observed : Tensor of bool of shape (B, F), optional
            True where ``target`` was observed.

        Returns
        -------
        Tensor
            The loss, one number; 0 if nothing was observed.
        """
        error = forecast[0] - target
        if observed is not None:
            error = error * observed
        loss = _masked_mean(error.abs().pow(self.power), observed)
        if self.frequency_weight == 0:
            return loss
        waves = torch.fft.rfft(error, norm="ortho")
        # Where it is not zero but below all normal numbers, its size has NaN for a gradient.
        waves = waves.where(waves.abs() > torch.finfo(error.dtype).tiny, 0.0)
        spectrum = waves.abs().pow(self.power).mean()
        return torch.lerp(loss, spectrum, self.frequency_weight)


class QuantileHead(PointHead):
    """A point head for the median, with quantiles built around it.

    The median has a weight for every token and step. The quantiles are steps away from it,
    positive by construction, so they never cross; they read the mean token only and are trained
    by the quantile loss with the median held fixed, so that the spread cannot pull the forecast.

    Parameters
    ----------
    num_tokens, width, prediction_length : int
        ``N``, ``D`` and ``F``.
    quantile_levels : sequence of float
        Increasing levels in (0, 1), ``Q`` of them.
    dropout, frequency_weight : float
        As in :class:`PointHead`, whose absolute error trains the median.

    Examples
    --------
    >>> head = QuantileHead(4, 8, 24, quantile_levels=(0.1, 0.5, 0.9))
    >>> point, quantiles = head(torch.zeros(2, 4, 8))
    >>> quantiles.shape, bool((quantiles[..., 1] == point).all())
    (torch.Size([2, 24, 3]), True)
    """

    def __init__(
        self,
        num_tokens: int,
        width: int,
        prediction_length: int,
        *,
        quantile_levels: Sequence[float],
        dropout: float = 0.0,
        frequency_weight: float = 0.0,
    ) -> None:
        super().__init__(
            num_tokens, width, prediction_length, dropout=dropout, frequency_weight=frequency_weight
        )
        levels = torch.tensor(tuple(quantile_levels), dtype=torch.float64)
        self.register_buffer("levels", levels.float(), persistent=False)
        self.num_below = int((levels < 0.5).sum())
        self.num_above = int((levels > 0.5).sum())
        self.has_median = len(levels) > self.num_below + self.num_above
        self.spread = self._build_spread(levels, width, prediction_length)
        self.levels: Tensor

    def _build_spread(
        self, levels: Float[Tensor, " Q"], width: int, prediction_length: int
    ) -> nn.Linear | None:
        """Start from the quantiles of a normal distribution, half a standard deviation wide.

        A short training then ends with intervals of a plausible width.
        """
        if self.num_below + self.num_above == 0:
            return None
        distances = Normal(0.0, 0.5).icdf(levels).abs()
        below, above = distances[: self.num_below].flip(0), distances[levels > 0.5]
        zero = levels.new_zeros(1)
        steps = torch.cat([below.diff(prepend=zero), above.diff(prepend=zero)])
        # The inverse of softplus.
        return _constant_start(width, prediction_length, steps.expm1().log())

    def forward(
        self, encoded: Float[Tensor, "B N D"], centre: Float[Tensor, "B F"] | None = None
    ) -> Forecast:
        """Forecast from encoded tokens.

        Parameters
        ----------
        encoded, centre
            As in :meth:`PointHead.forward`.

        Returns
        -------
        tuple
            The median, and the quantiles ordered by level.
        """
        point, _ = super().forward(encoded, centre)
        if self.spread is None:
            return point, point.unsqueeze(-1)
        steps = functional.softplus(self.spread(encoded.mean(dim=1)))
        below, above = steps.unflatten(-1, (point.shape[-1], -1)).split(
            [self.num_below, self.num_above], dim=-1
        )
        centre = point.unsqueeze(-1)
        parts = [
            centre - _running_sum(below).flip(-1),
            centre.expand(*point.shape, int(self.has_median)),
            centre + _running_sum(above),
        ]
        return point, torch.cat(parts, dim=-1)

    def loss(
        self,
        forecast: Forecast,
        target: Float[Tensor, "B F"],
        observed: Bool[Tensor, "B F"] | None = None,
    ) -> Float[Tensor, ""]:
        """Return the loss of the median plus the mean quantile loss of the levels.

        Parameters
        ----------
        forecast, target, observed
            As in :meth:`PointHead.loss`.

        Returns
        -------
        Tensor
            The loss, one number.
        """
        point, quantiles = forecast
        assert quantiles is not None
        centre = point.unsqueeze(-1)
        error = target.unsqueeze(-1) - (quantiles - centre + centre.detach())
        pinball = torch.maximum(self.levels * error, (self.levels - 1) * error)
        mask = None if observed is None else observed.unsqueeze(-1).expand_as(pinball)
        return super().loss(forecast, target, observed) + _masked_mean(pinball, mask)


class DistributionHead(PointHead):
    """A distribution for each step, trained by its likelihood.

    The location has a weight for every token and step; the other parameters read the mean token
    only.

    Parameters
    ----------
    num_tokens, width, prediction_length : int
        ``N``, ``D`` and ``F``.
    distribution : {"normal", "student_t", "negative_binomial"}
        The family, of ``P`` parameters.
    dropout : float
        Dropout probability of the flattened tokens.

    Examples
    --------
    >>> head = DistributionHead(4, 8, 24, distribution="student_t")
    >>> raw = head(torch.zeros(2, 4, 8))
    >>> point, parameters = head.rescale(raw, torch.zeros(2, 1), torch.ones(2, 1))
    >>> parameters.shape, bool((parameters[..., 0] == point).all())
    (torch.Size([2, 24, 3]), True)
    """

    def __init__(
        self,
        num_tokens: int,
        width: int,
        prediction_length: int,
        *,
        distribution: str,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(num_tokens, width, prediction_length, dropout=dropout)
        self.output: OutputDistribution = DISTRIBUTIONS[distribution]
        self.prediction_length = prediction_length
        self.spread = _constant_start(width, prediction_length, torch.tensor(self.output.starts))

    def forward(
        self, encoded: Float[Tensor, "B N D"], centre: Float[Tensor, "B F"] | None = None
    ) -> Forecast:
        """Forecast from encoded tokens, in raw outputs.

        Parameters
        ----------
        encoded, centre
            As in :meth:`PointHead.forward`.

        Returns
        -------
        tuple
            The location, and all raw outputs, the location first.
        """
        location, _ = super().forward(encoded, centre)
        others = self.spread(encoded.mean(dim=1)).unflatten(-1, (self.prediction_length, -1))
        return location, torch.cat([location.unsqueeze(-1), others], dim=-1)

    def rescale(
        self, forecast: Forecast, loc: Float[Tensor, "B 1"], scale: Float[Tensor, "B 1"]
    ) -> Forecast:
        """Turn raw outputs into the parameters of distributions in the unit of the series.

        Parameters
        ----------
        forecast, loc, scale
            As in :meth:`PointHead.rescale`.

        Returns
        -------
        tuple
            The point forecast, and the parameters (B, F, P).
        """
        raw = forecast[1]
        assert raw is not None
        parameters = self.output.parameters(raw, loc, scale)
        return self.output.point(parameters), parameters

    def loss(
        self,
        forecast: Forecast,
        target: Float[Tensor, "B F"],
        observed: Bool[Tensor, "B F"] | None = None,
    ) -> Float[Tensor, ""]:
        """Return minus the mean log-likelihood of the observed steps.

        Parameters
        ----------
        forecast, target, observed
            As in :meth:`PointHead.loss`.

        Returns
        -------
        Tensor
            The loss, one number.
        """
        parameters = forecast[1]
        assert parameters is not None
        return _masked_mean(-self.output.log_prob(parameters, target), observed)


def _constant_start(
    width: int, prediction_length: int, starts: Float[Tensor, " P"]
) -> OutputLinear:
    """Return a map to some numbers for each step, which are the same for any input at first."""
    layer = OutputLinear(width, prediction_length * len(starts))
    nn.init.zeros_(layer.weight)
    with torch.no_grad():
        layer.bias.copy_(starts.repeat(prediction_length))
    return layer


def _running_sum(x: Float[Tensor, "B F Q"]) -> Float[Tensor, "B F Q"]:
    """Sum up over the last axis; torch's own way of it does not repeat to the bit on a GPU."""
    sums = list(itertools.accumulate(x.unbind(-1)))
    return torch.stack(sums, dim=-1) if sums else x


def _masked_mean(x: Tensor, mask: Tensor | None) -> Tensor:
    """Average over the entries of the mask; 0 if there are none."""
    if mask is None:
        return x.mean()
    mean: Tensor = (x * mask).sum() / mask.sum().clamp(min=1)
    return mean
