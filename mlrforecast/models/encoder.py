"""The encoder forecaster: tokens of a context in, all future steps out."""

import dataclasses
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Literal, get_args

from jaxtyping import Bool, Float
from torch import Tensor, nn

from mlrforecast.data import ForecastBatch
from mlrforecast.nn import (
    Encoder,
    PatchEmbedding,
    PointHead,
    QuantileHead,
    attentions,
    instance_normalise,
)

Loss = Literal["quantile", "mae", "mse"]

_COUNTS = (
    "context_length",
    "prediction_length",
    "patch_length",
    "patch_stride",
    "width",
    "num_heads",
    "num_layers",
    "hidden_width",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Everything that determines an :class:`EncoderForecaster` but its weights.

    Parameters
    ----------
    context_length, prediction_length : int
        Steps of the context ``T`` and of the forecast ``F``.
    attention : str
        Score of the attention layers: ``"mlr"`` or ``"standard"``.
    ranks, block_sizes : tuple of int, optional
        Levels of MLR attention, coarse to fine; see :class:`mlrforecast.nn.StructuredAttention`.
    patch_length, patch_stride : int
        Steps of a patch and between patches; 1 and 1 for point tokens.
    width, num_heads, num_layers, hidden_width : int
        Size of the encoder.
    dropout, head_dropout : float
        Dropout probability in the encoder and before the head.
    loss : {"quantile", "mae", "mse"}
        Median and quantiles, or a point forecast trained on the absolute or squared error.
    quantile_levels : tuple of float
        Increasing levels in (0, 1) of the quantile loss.
    frequency_weight : float
        Weight, 0 to 1, of the error of the Fourier coefficients in the loss.

    Raises
    ------
    ValueError
        If a field is out of its range. What concerns an ``Encoder`` only, whether the heads
        divide the width and the levels fit a head, is checked where one is built.

    Examples
    --------
    >>> EncoderConfig(context_length=96, prediction_length=24).width
    32
    """

    context_length: int
    prediction_length: int
    attention: str = "mlr"
    ranks: tuple[int, ...] | None = None
    block_sizes: tuple[int | None, ...] | None = None
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
    frequency_weight: float = 0.8

    def __post_init__(self) -> None:
        for name in _COUNTS:
            self._set(name, _count(name, getattr(self, name)))
        for name in ("dropout", "head_dropout", "frequency_weight"):
            self._set(name, _share(name, getattr(self, name), closed=name == "frequency_weight"))
        for name in ("ranks", "block_sizes"):
            if (levels := getattr(self, name)) is not None:
                self._set(name, tuple(None if n is None else _count(name, n) for n in levels))
        self._set("quantile_levels", tuple(float(level) for level in self.quantile_levels))
        self._check_choices()
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

    def _check_choices(self) -> None:
        """Check names and quantile levels."""
        if self.attention not in attentions:
            raise ValueError(
                f"`attention` must be one of {', '.join(attentions)}, got {self.attention!r}."
            )
        if self.loss not in get_args(Loss):
            raise ValueError(
                f"`loss` must be one of {', '.join(get_args(Loss))}, got {self.loss!r}."
            )
        levels = self.quantile_levels
        rising = list(levels) == sorted(set(levels))
        if not levels or not rising or not all(0 < level < 1 for level in levels):
            raise ValueError(f"`quantile_levels` must increase within (0, 1), got {levels}.")

    def _set(self, name: str, value: object) -> None:
        """Put a plain number in place of what may be one of numpy."""
        object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "EncoderConfig":
        """Build a configuration.

        Parameters
        ----------
        fields : mapping of str to object
            What :meth:`to_dict` returned; lists, as JSON has them, become tuples. Fields that are
            not there keep their defaults.

        Returns
        -------
        EncoderConfig
            The configuration.

        Raises
        ------
        ValueError
            If a field is unknown or out of its range.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := set(fields) - known:
            raise ValueError(f"Unknown configuration fields: {', '.join(sorted(unknown))}.")
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
        return cls(**plain)


def _count(name: str, value: Any) -> int:
    """Return a value as an int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"`{name}` must be an integer of at least 1, got {value!r}.")
    return int(value)


def _share(name: str, value: Any, *, closed: bool) -> float:
    """Return a value as a float in [0, 1), or in [0, 1] if ``closed``."""
    number = float(value) if isinstance(value, Real | float) else -1.0
    if not 0 <= number <= 1 or (number == 1 and not closed):
        raise ValueError(f"`{name}` must be in [0, 1{']' if closed else ')'}, got {value!r}.")
    return number


class EncoderForecaster(nn.Module):
    """Forecast every channel on its own from its context.

    Instance normalisation, patch or point tokens, an encoder, and a head that gives all future
    steps at once. The forecast of ``a * x + b`` is ``a * forecast + b`` for ``a > 0``.

    Parameters
    ----------
    config : EncoderConfig
        Sizes and settings.
    backbone : Module, optional
        Any encoder with the signature of :class:`mlrforecast.nn.Encoder`:
        ``backbone(tokens, key_mask)``, tokens of shape (B, N, D) in and out with ``D`` the
        configuration's width, ``key_mask`` of shape (B, N) or None. Default: an ``Encoder``.

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
        self.embedding = PatchEmbedding(
            config.context_length,
            patch_length=config.patch_length,
            patch_stride=config.patch_stride,
            width=config.width,
            dropout=config.dropout,
        )
        self.backbone = _build_encoder(config) if backbone is None else backbone
        self.head = _build_head(config, self.embedding.num_tokens)

    def forward(
        self,
        past_target: Float[Tensor, "B T C"],
        past_observed: Bool[Tensor, "B T C"] | None = None,
    ) -> tuple[Float[Tensor, "B F C"], Float[Tensor, "B F C Q"] | None]:
        """Forecast the steps after a context.

        Parameters
        ----------
        past_target : Tensor of shape (B, T, C)
            Contexts, oldest step first, 0 where missing.
        past_observed : Tensor of bool of shape (B, T, C), optional
            True where a value was observed; everywhere if omitted.

        Returns
        -------
        point : Tensor of shape (B, F, C)
            Point forecast: the median for the quantile loss and "mae", the mean for "mse".
        quantiles : Tensor of shape (B, F, C, Q), or None
            Quantiles in the order of ``config.quantile_levels``, if the loss has them.
        """
        num_channels = past_target.shape[-1]
        observed = None if past_observed is None else _fold(past_observed)
        normal = instance_normalise(_fold(past_target), observed)
        tokens, key_mask = self.embedding(normal.values, observed)
        point, quantiles = self.head(self.backbone(tokens, key_mask))
        point = _unfold(point * normal.scale + normal.loc, num_channels)
        if quantiles is None:
            return point, None
        scale, loc = normal.scale.unsqueeze(-1), normal.loc.unsqueeze(-1)
        return point, _unfold(quantiles * scale + loc, num_channels)

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
        point, quantiles = self(batch.past_target, batch.past_observed)
        observed = None if batch.future_observed is None else _fold(batch.future_observed)
        forecast = (_fold(point), None if quantiles is None else _fold(quantiles))
        loss: Tensor = self.head.loss(forecast, _fold(batch.future_target), observed)
        return loss


def _build_encoder(config: EncoderConfig) -> Encoder:
    """Return the default backbone."""
    return Encoder(
        config.width,
        config.num_heads,
        num_layers=config.num_layers,
        hidden_width=config.hidden_width,
        attention=config.attention,
        ranks=config.ranks,
        block_sizes=config.block_sizes,
        dropout=config.dropout,
    )


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
    return PointHead(
        num_tokens,
        config.width,
        config.prediction_length,
        dropout=config.head_dropout,
        power={"mae": 1, "mse": 2}[config.loss],
        frequency_weight=config.frequency_weight,
    )


def _fold(x: Tensor) -> Tensor:
    """Move channels into the batch: (B, T, C, ...) to (B * C, T, ...)."""
    return x.movedim(2, 1).flatten(0, 1)


def _unfold(x: Tensor, num_channels: int) -> Tensor:
    """Undo :func:`_fold`."""
    unfolded: Tensor = x.unflatten(0, (-1, num_channels)).movedim(1, 2)
    return unfolded
