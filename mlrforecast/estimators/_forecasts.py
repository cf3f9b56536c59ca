"""Forecasts of windows and their quantiles, of a trained network and after calibration."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtr, ndtri

from mlrforecast.models import EncoderConfig
from mlrforecast.nn import DISTRIBUTIONS

_FLAT = 1e-9
"""A spread below this share of the scale of a context is that of a constant."""


class ResidualQuantiles(Protocol):
    """What knows how far actual values fall from the centre of a forecast, in spreads."""

    step_scale: np.ndarray

    def at(self, levels: np.ndarray) -> np.ndarray:
        """Return residuals of some levels, of a shape that broadcasts to (W, F, C, Q)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Forecasts:
    """Forecasts of windows in the unit of the frame.

    Parameters
    ----------
    config : EncoderConfig
        Configuration of the network.
    point : ndarray of shape (W, F, C)
        Point forecasts; NaN where a context holds no value.
    details : ndarray of shape (W, F, C, K), or None
        Quantiles of the trained levels, or parameters of distributions.
    scale : ndarray of shape (W, 1, C)
        Scale of each context.
    varied : ndarray of bool of shape (W, 1, C)
        Whether a context holds two different values.
    residuals : ResidualQuantiles, optional
        What a calibration has learnt.
    """

    config: EncoderConfig
    point: Float[np.ndarray, "W F C"]
    details: Float[np.ndarray, "W F C K"] | None
    scale: Float[np.ndarray, "W 1 C"]
    varied: Bool[np.ndarray, "W 1 C"]
    residuals: ResidualQuantiles | None = None

    def quantiles(self, levels: Float[np.ndarray, "*F Q"]) -> Float[np.ndarray, "W F C Q"]:
        """Return quantiles, ordered as their levels are.

        Parameters
        ----------
        levels : ndarray of shape (Q,) or (F, Q)
            Levels in (0, 1), the same for all steps or for each its own.

        Returns
        -------
        ndarray of shape (W, F, C, Q)
            Quantiles.
        """
        trained = None if self.details is None else self._trained(levels)
        quantiles = trained if self.residuals is None else self._calibrated(levels, trained)
        assert quantiles is not None, "levels are checked before"
        if levels.ndim == 1:
            # Rounding alone could make them cross.
            order = np.argsort(levels)
            quantiles[..., order] = np.maximum.accumulate(quantiles[..., order], axis=-1)
        return quantiles

    def _calibrated(self, levels: np.ndarray, trained: np.ndarray | None) -> np.ndarray:
        """Return quantiles at the distances from the centre that residuals had."""
        assert self.residuals is not None
        centre, below, above = (part[..., None] for part in self.spread())
        moves = self.residuals.at(levels)
        quantiles = centre + moves * np.where(moves < 0, below, above)
        if self._is_count:
            # An interval of counts holds the same ones without its fractions, and none below 0.
            quantiles = np.maximum(np.floor(quantiles), 0.0)
        # After a constant, what the network says; of a point forecast, that it goes on.
        others = centre if trained is None else trained
        return np.where(self.usable[..., None], quantiles, others)

    def residuals_of(self, actual: Float[np.ndarray, "W F C"]) -> Float[np.ndarray, "W F C"]:
        """Return actual values in spreads from the centre, NaN where there is no such number."""
        centre, below, above = self.spread()
        error = actual - centre
        size = np.where(error < 0, below, above)
        return np.where(self.usable, error / np.where(size > 0, size, np.nan), np.nan)

    def spread(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the centre, and the distances from it below and above that are one unit.

        They are those of one standard deviation of a normal distribution where the forecast has
        a distribution, otherwise the scale of the context.
        """
        if not self.has_quantiles:
            size = np.broadcast_to(self.scale, self.point.shape)
            if self.residuals is not None:
                size = size * self.residuals.step_scale[:, None]
            return self.point, size, size
        if self.config.loss in DISTRIBUTIONS:
            assert self.details is not None
            size = DISTRIBUTIONS[self.config.loss].spread(self.details)
            return self._trained(np.array([0.5]))[..., 0], size, size
        low, centre, high = np.moveaxis(self._trained(ndtr(np.array([-1.0, 0.0, 1.0]))), -1, 0)
        return centre, centre - low, high - centre

    @property
    def usable(self) -> np.ndarray:
        """Where residuals mean something: not after a constant, of which nothing is known.

        Of shape (W, F, C).
        """
        if self._is_count:
            return np.asarray(~np.isnan(self.point))
        _, below, above = self.spread()
        return np.asarray(self.varied & (np.minimum(below, above) > _FLAT * self.scale))

    @property
    def has_quantiles(self) -> bool:
        """Whether the network itself forecasts more than one quantile."""
        return has_quantiles(self.config)

    @property
    def _is_count(self) -> bool:
        """Whether the forecast is one of counts."""
        return self.config.loss in DISTRIBUTIONS and DISTRIBUTIONS[self.config.loss].is_count

    def _trained(self, levels: np.ndarray) -> np.ndarray:
        """Return quantiles of the network alone."""
        assert self.details is not None
        if self.config.loss in DISTRIBUTIONS:
            # (Q,) or (F, Q) beside (W, F, C).
            spread_out = levels if levels.ndim == 1 else levels[:, None, :]
            return DISTRIBUTIONS[self.config.loss].quantiles(self.details, spread_out)
        return interpolate_levels(self.details, self.config.quantile_levels, levels)


def count_details(config: EncoderConfig) -> int:
    """Return how many numbers describe the uncertainty of a step."""
    if config.loss == "quantile":
        return len(config.quantile_levels)
    if config.loss in DISTRIBUTIONS:
        return 1 + len(DISTRIBUTIONS[config.loss].starts)
    return 0


def has_quantiles(config: EncoderConfig) -> bool:
    """Tell whether a network forecasts more than one quantile."""
    return count_details(config) > 1


def interpolate_levels(
    trained: Float[np.ndarray, "W F C K"],
    trained_levels: tuple[float, ...],
    levels: Float[np.ndarray, "*F Q"],
) -> Float[np.ndarray, "W F C Q"]:
    """Return quantiles of any level from those of the trained levels.

    Between two levels, and beyond the outermost ones, quantiles go on in a straight line over
    the quantiles of the standard normal distribution: those of any normal distribution are exact.
    """
    if len(trained_levels) == 1:
        return np.repeat(trained, levels.shape[-1], axis=-1)
    known, wanted = ndtri(np.array(trained_levels)), ndtri(levels)
    below = np.clip(np.searchsorted(known, wanted, side="right") - 1, 0, len(known) - 2)
    share = (wanted - known[below]) / (known[below + 1] - known[below])
    if levels.ndim == 1:
        low, high = trained[..., below], trained[..., below + 1]
    else:
        places = below[None, :, None, :]
        low = np.take_along_axis(trained, places, axis=-1)
        high = np.take_along_axis(trained, places + 1, axis=-1)
        share = share[:, None, :]
    return np.asarray(low + share * (high - low))
