"""The encoder forecaster: tokens of a context in, all future steps out."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mlrforecast.data import ForecastBatch
from mlrforecast.data.scaling import Scaling
from mlrforecast.models._config import (
    EncoderFields,
    Positions,
    choice,
    count,
    counts,
    share,
)
from mlrforecast.models._encoder_inputs import check_columns, check_past
from mlrforecast.nn import (
    DISTRIBUTIONS,
    CalendarEffect,
    CovariateColumns,
    DistributionHead,
    FutureEffect,
    LinearMember,
    Normalised,
    PatchEmbedding,
    PointHead,
    QuantileHead,
    instance_normalise,
)

__all__ = ["EncoderConfig", "EncoderForecaster"]

Loss = Literal["quantile", "mae", "mse", "normal", "student_t", "negative_binomial"]

MAX_INPUTS = 4096
"""Numbers that a linear regression of the forecast reads at most; its solution takes their cube."""
_CARDINALITIES = ("past_cardinalities", "known_cardinalities", "static_cardinalities")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig(EncoderFields):
    """Everything that determines an :class:`EncoderForecaster` but its weights.

    Parameters
    ----------
    context_length, prediction_length : int
        Steps of the context ``T`` and of the forecast ``F``.
    attention : str or tuple of str
        Score of every block, or a pattern of scores that is repeated over the blocks; the names
        are those of :class:`mlrforecast.nn.StructuredAttention`.
    ranks, block_sizes : tuple of int, optional
        Levels of MLR attention, coarse to fine, in tokens.
    attention_options : mapping of str to object, optional
        Further keyword arguments of :class:`mlrforecast.nn.StructuredAttention`, such as
        ``window`` (in tokens), ``num_kv_heads`` or ``qk_norm``; in a pattern, each block takes
        those that its score has.
    positions : {"learned", "rotary", "none"}
        How a token knows its place.
    patch_length, patch_stride : int
        Steps of a patch and between patches; 1 and 1 for point tokens.
    width, num_heads, num_layers, hidden_width : int
        Size of the encoder.
    dropout, head_dropout : float
        Dropout probability in the encoder and before the head.
    loss : {"quantile", "mae", "mse", "normal", "student_t", "negative_binomial"}
        Median and quantiles; a point forecast trained on the absolute or squared error; or a
        distribution trained by its likelihood, the last one of counts.
    quantile_levels : tuple of float
        Increasing levels in (0, 1) of the quantile loss.
    frequency_weight : float
        Weight, 0 to 1, of the error of the Fourier coefficients in the loss; distributions have
        no such error.
    linear_share : float
        Share, from 0 to below 1, of a linear regression in the forecast, see
        :class:`mlrforecast.nn.LinearMember`. Counts are forecast without one, as is where it would
        read more than 4096 numbers: a context, the covariates of its steps and of the future, and
        the calendar.
    scaling : {"standard", "robust", "mean_abs"}
        How each window is normalised, see :func:`mlrforecast.nn.instance_normalise`.
    past_cardinalities, known_cardinalities, static_cardinalities : tuple of int
        Columns of the covariates in a :class:`mlrforecast.data.ForecastBatch`: 0 for one of
        numbers, otherwise how many categories it has, with the codes 1 to that number.
    num_calendar_features : int
        Columns of the calendar.

    Raises
    ------
    ValueError
        If a field is out of its range, or no block's score has an option that is given. What
        concerns an ``Encoder`` only, whether the heads divide the width and the levels fit a
        head, is checked where one is built.
    TypeError
        If an option cannot be saved as JSON, or cardinalities are no sequence.

    Examples
    --------
    >>> EncoderConfig(context_length=96, prediction_length=24).width
    32
    """

    context_length: int
    prediction_length: int
    attention: str | tuple[str, ...] = "mlr"
    ranks: tuple[int, ...] | None = None
    block_sizes: tuple[int | None, ...] | None = None
    attention_options: Mapping[str, Any] | None = None
    positions: Positions = "learned"
    patch_length: int = 16
    patch_stride: int = 16
    width: int = 32
    num_heads: int = 4
    num_layers: int = 2
    hidden_width: int = 64
    dropout: float = 0.2
    head_dropout: float = 0.0
    loss: Loss = "quantile"
    quantile_levels: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    frequency_weight: float = 0.9
    linear_share: float = 0.0
    scaling: Scaling = "standard"
    past_cardinalities: tuple[int, ...] = ()
    known_cardinalities: tuple[int, ...] = ()
    static_cardinalities: tuple[int, ...] = ()
    num_calendar_features: int = 0

    def __post_init__(self) -> None:
        for name in (
            "context_length",
            "prediction_length",
            "patch_length",
            "patch_stride",
            "hidden_width",
        ):
            self._set(name, count(name, getattr(self, name)))
        super().__post_init__()
        self._set("head_dropout", share("head_dropout", self.head_dropout))
        self._set("frequency_weight", share("frequency_weight", self.frequency_weight, closed=True))
        self._set("linear_share", share("linear_share", self.linear_share))
        choice("loss", self.loss, get_args(Loss))
        choice("scaling", self.scaling, get_args(Scaling))
        for name in _CARDINALITIES:
            self._set(name, counts(name, getattr(self, name), least=0))
        features = count("num_calendar_features", self.num_calendar_features, least=0)
        self._set("num_calendar_features", features)
        self._check_quantile_levels()
        if self.patch_length > self.context_length:
            raise ValueError(
                f"`patch_length` must be at most `context_length` ({self.context_length}), "
                f"got {self.patch_length}."
            )
        if self.patch_stride > self.patch_length:
            raise ValueError(
                f"`patch_stride` must be at most `patch_length` ({self.patch_length}), so that no "
                f"step is left out, got {self.patch_stride}."
            )

    @property
    def data_scaling(self) -> Scaling | None:
        """How values are scaled before the model sees them; None where it needs counts."""
        return None if self.loss == "negative_binomial" else self.scaling

    def _check_quantile_levels(self) -> None:
        """Make the quantile levels a tuple of floats, and check their order."""
        levels = tuple(float(level) for level in self.quantile_levels)
        self._set("quantile_levels", levels)
        rising = list(levels) == sorted(set(levels))
        if not levels or not rising or not all(0 < level < 1 for level in levels):
            raise ValueError(f"`quantile_levels` must increase within (0, 1), got {levels}.")


class EncoderForecaster(nn.Module):
    """Forecast every channel on its own from its context and its covariates.

    Instance normalisation, patch or point tokens, an encoder, and a head that gives all future
    steps at once. The forecast of ``a * x + b`` is ``a * forecast + b`` for ``a > 0`` (with
    ``scaling="mean_abs"`` for ``b = 0``). Covariates of the context are read by the tokens; what
    is known of a future step is added to its forecast, see
    :class:`mlrforecast.nn.FutureEffect` and :class:`mlrforecast.nn.CalendarEffect`.

    Parameters
    ----------
    config : EncoderConfig
        Sizes and settings.
    backbone : Module, optional
        Any encoder with the signature of :class:`mlrforecast.nn.Encoder`:
        ``backbone(tokens, key_mask)``, tokens of shape (B, N, D) in and out with ``D`` the
        configuration's width, ``key_mask`` of shape (B, N) or None. Default: an ``Encoder``.

    Raises
    ------
    ValueError
        If the heads do not divide the width, the levels do not fit a head, or a ``backbone`` is
        to have rotary positions.

    Examples
    --------
    >>> import torch
    >>> model = EncoderForecaster(EncoderConfig(context_length=96, prediction_length=24))
    >>> point, quantiles = model(torch.randn(2, 96, 3))
    >>> point.shape, quantiles.shape
    (torch.Size([2, 24, 3]), torch.Size([2, 24, 3, 9]))
    """

    def __init__(self, config: EncoderConfig, backbone: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.past_columns = _columns(config.past_cardinalities)
        self.known_columns = _columns(config.known_cardinalities)
        self.static_columns = _columns(config.static_cardinalities)
        num_past, num_known, num_static = (
            0 if columns is None else columns.num_features
            for columns in (self.past_columns, self.known_columns, self.static_columns)
        )
        self.embedding = PatchEmbedding(
            config.context_length,
            patch_length=config.patch_length,
            patch_stride=config.patch_stride,
            width=config.width,
            dropout=config.dropout,
            positions=config.positions == "learned",
            num_covariates=num_past + num_known,
            num_static=num_static,
        )
        num_tokens = self.embedding.num_tokens
        if backbone is None:
            backbone = config.build_encoder(context_length=num_tokens, causal=False)
        elif config.positions == "rotary":
            raise ValueError(
                "`positions`='rotary' turns queries and keys in the attention layers that "
                "`backbone` takes the place of: choose 'learned' or 'none'."
            )
        self.backbone = backbone
        self.head = _build_head(config, num_tokens)
        self.linear: LinearMember | None = None
        inputs = config.context_length * (1 + num_past + num_known)
        inputs += config.prediction_length * num_known + num_static + config.num_calendar_features
        if config.linear_share > 0 and config.data_scaling is not None and inputs <= MAX_INPUTS:
            self.linear = LinearMember(inputs, config.prediction_length)
        self.known_effect: FutureEffect | None = None
        if num_known:
            self.known_effect = FutureEffect(
                config.prediction_length,
                config.width,
                num_known=num_known,
                is_learned=any(config.known_cardinalities),
            )
        self.calendar_effect: CalendarEffect | None = None
        if config.num_calendar_features:
            self.calendar_effect = CalendarEffect(
                config.num_calendar_features, config.width, dropout=config.dropout
            )

    def forward(
        self,
        past_target: Float[Tensor, "B T C"],
        past_observed: Bool[Tensor, "B T C"] | None = None,
        *,
        past_covariates: Float[Tensor, "B T K"] | None = None,
        known_covariates: Float[Tensor, "B S K2"] | None = None,
        static_covariates: Float[Tensor, "B K3"] | None = None,
        calendar: Float[Tensor, "B F K4"] | None = None,
    ) -> tuple[Float[Tensor, "B F C"], Float[Tensor, "B F C K5"] | None]:
        """Forecast the steps after a context.

        Parameters
        ----------
        past_target : Tensor of shape (B, T, C)
            Contexts, oldest step first, 0 where missing.
        past_observed : Tensor of bool of shape (B, T, C), optional
            True where a value was observed; everywhere if omitted.
        past_covariates : Tensor of shape (B, T, K), optional
            Covariates of the context, shared by all channels; needed where the configuration has
            ``past_cardinalities``, and so for those that follow.
        known_covariates : Tensor of shape (B, T + F, K2), optional
            Covariates of the context and of the steps to forecast.
        static_covariates : Tensor of shape (B, K3), optional
            Covariates of the series.
        calendar : Tensor of shape (B, F, K4), optional
            Calendar of the steps to forecast.

        Returns
        -------
        point : Tensor of shape (B, F, C)
            Point forecast: the median for the quantile loss and "mae", otherwise the mean.
        details : Tensor of shape (B, F, C, Q) or (B, F, C, P), or None
            Quantiles in the order of ``config.quantile_levels``, or parameters of the distribution
            in the order of its class in :mod:`mlrforecast.nn`, if the loss has them.
        """
        num_channels = past_target.shape[-1]
        read = self._read(
            past_target,
            past_observed,
            past_covariates,
            known_covariates,
            static_covariates,
            calendar,
        )
        tokens, key_mask = self.embedding(
            read.normal.values,
            read.observed,
            covariates=self._of_context(read.past, read.known),
            static=read.static,
        )
        encoded: Tensor = self.backbone(tokens, key_mask)
        summary = encoded.mean(dim=1).unflatten(0, (-1, num_channels))
        centre = self.head.centre(encoded)
        centre = centre + _effect(self.known_effect, summary, read.known)
        centre = centre + _effect(self.calendar_effect, summary, read.calendar)
        if self.linear is not None and not self.training:
            centre = self.linear(_linear_inputs(read, num_channels), centre)
        raw = self.head(encoded, centre)
        point, details = self.head.rescale(raw, read.normal.loc, read.normal.scale)
        point = _unfold(point, num_channels)
        return point, None if details is None else _unfold(details, num_channels)

    def _read(
        self,
        past_target: Tensor,
        past_observed: Tensor | None,
        past_covariates: Tensor | None,
        known_covariates: Tensor | None,
        static_covariates: Tensor | None,
        calendar: Tensor | None,
    ) -> "_Read":
        """Check what is given, normalise contexts, and find the features of covariates."""
        check_past(past_target, past_observed, self.config.context_length)
        given = (past_covariates, known_covariates, static_covariates, calendar)
        self._check_covariates(past_target.shape[0], *given)
        observed = None if past_observed is None else _fold(past_observed)
        normal = instance_normalise(_fold(past_target), observed, self.config.scaling)
        return _Read(
            normal,
            observed,
            _features(self.past_columns, past_covariates),
            _features(self.known_columns, known_covariates),
            _features(self.static_columns, static_covariates),
            calendar,
        )

    def _check_covariates(
        self,
        batch: int,
        past: Tensor | None,
        known: Tensor | None,
        static: Tensor | None,
        calendar: Tensor | None,
    ) -> None:
        """Check that there are just the covariates of the configuration."""
        config = self.config
        context, future = config.context_length, config.prediction_length
        shape = (batch, context, len(config.past_cardinalities))
        check_columns("past_covariates", past, "(B, T, K)", shape)
        shape = (batch, context + future, len(config.known_cardinalities))
        check_columns("known_covariates", known, "(B, T + F, K)", shape)
        check_columns(
            "static_covariates", static, "(B, K)", (batch, len(config.static_cardinalities))
        )
        shape = (batch, future, config.num_calendar_features)
        check_columns("calendar", calendar, "(B, F, K)", shape)

    def _of_context(self, past: Tensor | None, known: Tensor | None) -> Tensor | None:
        """Return the features of covariates at the steps of the context, (B, T, E)."""
        parts = [] if past is None else [past]
        if known is not None:
            parts.append(known[:, : self.config.context_length])
        return torch.cat(parts, dim=-1) if parts else None

    def forecast(
        self, batch: ForecastBatch
    ) -> tuple[Float[Tensor, "B F C"], Float[Tensor, "B F C K5"] | None]:
        """Forecast what follows the contexts of a batch.

        Parameters
        ----------
        batch : ForecastBatch
            Contexts and covariates; its ``future_target`` is not read.

        Returns
        -------
        point, details
            As :meth:`forward`.
        """
        forecast: tuple[Tensor, Tensor | None] = self(**_inputs(batch))
        return forecast

    def regression(
        self, batch: ForecastBatch
    ) -> tuple[
        Float[Tensor, "B2 I"], Float[Tensor, "B2 F"], Float[Tensor, "B2 1"], Bool[Tensor, "B2 1"]
    ]:
        """Return what the linear member learns from.

        Parameters
        ----------
        batch : ForecastBatch
            Contexts and what follows them.

        Returns
        -------
        inputs : Tensor of shape (B * C, I)
            Normalised contexts of all channels, 0 where missing, the features of their
            covariates, and the calendar of the first step to forecast.
        outputs : Tensor of shape (B * C, F)
            What follows them in the same units.
        scale : Tensor of shape (B * C, 1)
            The unit, in that of the series.
        complete : Tensor of bool of shape (B * C, 1)
            Whether all of the future was observed.
        """
        read = self._read(**_inputs(batch))
        normal = read.normal
        scale = normal.scale.where(normal.scale > 0, 1.0)
        outputs = (_fold(batch.future_target) - normal.loc) / scale
        complete = torch.ones_like(normal.scale, dtype=torch.bool)
        if batch.future_observed is not None:
            complete = _fold(batch.future_observed).all(dim=1, keepdim=True)
        inputs = _linear_inputs(read, batch.past_target.shape[-1])
        return inputs, outputs, normal.scale, complete

    def loss(self, batch: ForecastBatch) -> Float[Tensor, ""]:
        """Return the training loss of a batch.

        Parameters
        ----------
        batch : ForecastBatch
            Contexts and what follows them.

        Returns
        -------
        Tensor
            The loss, one number, over the observed steps of ``future_target``.
        """
        point, details = self.forecast(batch)
        observed = None if batch.future_observed is None else _fold(batch.future_observed)
        forecast = (_fold(point), None if details is None else _fold(details))
        loss: Tensor = self.head.loss(forecast, _fold(batch.future_target), observed)
        return loss


class _Read(NamedTuple):
    """What a forecast is made of, for all channels of a batch.

    Parameters
    ----------
    normal : Normalised
        Normalised contexts, of shape (B * C, T).
    observed : Tensor of bool of shape (B * C, T), or None
        True where a value was observed; None for everywhere.
    past, known, static : Tensor of shape (B, ...), or None
        Features of the covariates of each window.
    calendar : Tensor of shape (B, F, K), or None
        Calendar of the steps to forecast.
    """

    normal: Normalised
    observed: Tensor | None
    past: Tensor | None
    known: Tensor | None
    static: Tensor | None
    calendar: Tensor | None


def _build_head(config: EncoderConfig, num_tokens: int) -> PointHead:
    """Return the head of the loss."""
    if config.loss == "quantile":
        return QuantileHead(
            num_tokens,
            config.width,
            config.prediction_length,
            quantile_levels=config.quantile_levels,
            dropout=config.head_dropout,
            frequency_weight=config.frequency_weight,
        )
    if config.loss in DISTRIBUTIONS:
        return DistributionHead(
            num_tokens,
            config.width,
            config.prediction_length,
            distribution=config.loss,
            dropout=config.head_dropout,
        )
    return PointHead(
        num_tokens,
        config.width,
        config.prediction_length,
        dropout=config.head_dropout,
        power={"mae": 1, "mse": 2}[config.loss],
        frequency_weight=config.frequency_weight,
    )


def _columns(cardinalities: tuple[int, ...]) -> CovariateColumns | None:
    """Return what reads some covariates, if there are any."""
    return CovariateColumns(cardinalities) if cardinalities else None


def _features(columns: CovariateColumns | None, covariates: Tensor | None) -> Tensor | None:
    """Return the features of some covariates, if there are any."""
    return None if columns is None else columns(covariates)


def _effect(effect: nn.Module | None, summary: Tensor, known: Tensor | None) -> Tensor | float:
    """Return what is added to the point forecast of each channel, (B * C, F), or 0."""
    if effect is None or known is None:
        return 0.0
    added: Tensor = effect(summary, known).flatten(0, 1)
    return added


def _linear_inputs(read: _Read, num_channels: int) -> Float[Tensor, "B2 I"]:
    """Put what the linear member reads of each channel side by side.

    Of the calendar, waves of cycles, those of the first step tell those of every later one.
    """
    first = None if read.calendar is None else read.calendar[:, 0]
    shared = (part for part in (read.past, read.known, read.static, first) if part is not None)
    by_channel = (
        part.flatten(1).unsqueeze(1).expand(-1, num_channels, -1).flatten(0, 1) for part in shared
    )
    return torch.cat([read.normal.values, *by_channel], dim=1)


def _inputs(batch: ForecastBatch) -> dict[str, Any]:
    """Return what a forecast reads of a batch, by the names of the arguments of a call."""
    return {
        "past_target": batch.past_target,
        "past_observed": batch.past_observed,
        "past_covariates": batch.past_covariates,
        "known_covariates": batch.known_covariates,
        "static_covariates": batch.static_covariates,
        "calendar": batch.calendar,
    }


def _fold(x: Tensor) -> Tensor:
    """Move channels into the batch: (B, T, C, ...) to (B * C, T, ...)."""
    return x.movedim(2, 1).flatten(0, 1)


def _unfold(x: Tensor, num_channels: int) -> Tensor:
    """Undo :func:`_fold`."""
    unfolded: Tensor = x.unflatten(0, (-1, num_channels)).movedim(1, 2)
    return unfolded
