"""Models of the Chronos family: tokens that are forecast one by one, or patches of quantiles."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlrforecast.pretraining._network import Cache, Stack, initialise
from mlrforecast.pretraining.config import END, NUM_SPECIAL_TOKENS, PAD, PretrainConfig

__all__ = ["QuantileModel", "TokenModel", "build_model"]

TOP = 50
"""Tokens that a step is drawn from: the most probable ones."""


class _Ends(NamedTuple):
    """What scales values and back."""

    location: Tensor
    scale: Tensor


class TokenModel(nn.Module):
    """Forecast the bins of scaled values one by one, as Chronos-T5.

    Parameters
    ----------
    config : PretrainConfig
        With ``head="tokens"``.

    Examples
    --------
    >>> config = PretrainConfig(context_length=8, prediction_length=3, width=16, num_layers=1)
    >>> model = TokenModel(config)
    >>> context, future = torch.rand(2, 8), torch.rand(2, 3)
    >>> model(context, future).shape, model.sample(context, 3, num_samples=5).shape
    (torch.Size([]), torch.Size([2, 5, 3]))
    """

    centers: Tensor

    def __init__(self, config: PretrainConfig) -> None:
        super().__init__()
        self.config = config
        self.shared = nn.Embedding(config.num_tokens, config.width)
        self.encoder = Stack(config, decodes=False)
        self.decoder = Stack(config, decodes=True)
        count = config.num_tokens - NUM_SPECIAL_TOKENS - 1
        centers = torch.linspace(-config.limit, config.limit, count)
        self.register_buffer("centers", centers, persistent=False)
        nn.init.normal_(self.shared.weight, std=config.initial_factor)
        initialise(self, config)

    def forward(self, context: Float[Tensor, "B T"], future: Float[Tensor, "B F"]) -> Tensor:
        """Return the mean cross-entropy of the tokens of ``future``, given ``context``.

        NaN is a missing value: it is not attended, and not scored.
        """
        ids, mask, scale = self.tokens(context)
        labels, seen, _ = self.tokens(future, scale)
        start = torch.full_like(labels[:, :1], PAD)
        source = self.encoder(self.shared(ids), key_mask=mask)
        logits = self._logits(
            self.decoder(
                self.shared(torch.cat([start, labels[:, :-1]], 1)), source=source, source_mask=mask
            )
        )
        return F.cross_entropy(
            logits.flatten(0, 1).float(), labels.masked_fill(~seen, -100).flatten()
        )

    def tokens(
        self, values: Float[Tensor, "B T"], scale: Float[Tensor, "B 1"] | None = None
    ) -> tuple[Int[Tensor, "B N"], Bool[Tensor, "B N"], Float[Tensor, "B 1"]]:
        """Return the tokens of ``values`` and of their end, which of them count, and the scale.

        The ``scale`` is the mean absolute value of what is observed, unless it is given.
        """
        seen = ~values.isnan()
        known = values.nan_to_num(0.0).float()
        if scale is None:
            scale = known.abs().sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)
            scale = torch.where(scale > 0, scale, 1.0)
        edges = (self.centers[1:] + self.centers[:-1]) / 2
        ids = NUM_SPECIAL_TOKENS + 1 + torch.bucketize(known / scale, edges, right=True)
        ids = ids.masked_fill(~seen, PAD)
        end = torch.full_like(ids[:, :1], END)
        return torch.cat([ids, end], 1), torch.cat([seen, torch.ones_like(end).bool()], 1), scale

    @torch.no_grad()
    def sample(
        self,
        context: Float[Tensor, "B T"],
        num_steps: int,
        *,
        num_samples: int,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "B K F"]:
        """Draw paths of the steps that follow a ``context``.

        Each of ``num_steps`` is drawn by ``generator`` from the 50 most probable tokens.
        ``num_samples`` is K.
        """
        ids, mask, scale = self.tokens(context)
        source = self.encoder(self.shared(ids), key_mask=mask)
        source, mask = (x.repeat_interleave(num_samples, 0) for x in (source, mask))
        token = torch.full((len(source), 1), PAD, device=source.device)
        cache, drawn = Cache(), []
        for step in range(num_steps):
            hidden = self.decoder(
                self.shared(token), source=source, source_mask=mask, cache=cache, first=step
            )
            logits = self._logits(hidden)[:, -1].float()
            logits[:, :NUM_SPECIAL_TOKENS] = float("-inf")
            best, places = logits.topk(min(TOP, logits.shape[-1] - NUM_SPECIAL_TOKENS))
            chosen = torch.multinomial(best.softmax(-1), 1, generator=generator)
            token = places.gather(-1, chosen)
            drawn.append(token)
        bins = (torch.cat(drawn, 1) - NUM_SPECIAL_TOKENS - 1).clamp(min=0)
        paths: Tensor = self.centers[bins].unflatten(0, (-1, num_samples))
        return paths * scale[:, None]

    def _logits(self, hidden: Tensor) -> Tensor:
        """Return a number for each token; the matrix is that of the embedding."""
        return F.linear(hidden * self.config.width**-0.5, self.shared.weight)


class Residual(nn.Module):
    """A hidden layer beside a linear map."""

    def __init__(self, inputs: int, hidden: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.hidden_layer = nn.Linear(inputs, hidden)
        self.output_layer = nn.Linear(hidden, outputs)
        self.residual_layer = nn.Linear(inputs, outputs)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map the last axis."""
        deep = self.drop(self.output_layer(self.hidden_layer(x).relu()))
        found: Tensor = deep + self.residual_layer(x)
        return found


class QuantileModel(nn.Module):
    """Read patches and forecast all steps at once, as Chronos-Bolt.

    Parameters
    ----------
    config : PretrainConfig
        With ``head="quantiles"``.

    Examples
    --------
    >>> config = PretrainConfig(
    ...     head="quantiles", context_length=32, prediction_length=8, width=16, num_layers=1
    ... )
    >>> model = QuantileModel(config)
    >>> model(torch.rand(2, 32), torch.rand(2, 8)).shape, model.quantiles(torch.rand(2, 20)).shape
    (torch.Size([]), torch.Size([2, 9, 8]))
    """

    levels: Tensor

    def __init__(self, config: PretrainConfig) -> None:
        super().__init__()
        self.config = config
        width, hidden, drop = config.width, config.hidden_width, config.dropout
        self.shared = nn.Embedding(2, width)
        self.patches = Residual(2 * config.patch_length, hidden, width, drop)
        self.encoder = Stack(config, decodes=False)
        self.decoder = Stack(config, decodes=True)
        outputs = len(config.quantile_levels) * config.prediction_length
        self.steps = Residual(width, hidden, outputs, drop)
        self.register_buffer("levels", torch.tensor(config.quantile_levels), persistent=False)
        factor = config.initial_factor
        nn.init.normal_(self.shared.weight, std=factor)
        for part in (self.patches, self.steps):
            # Chronos-Bolt draws both as wide as what the first of them reads.
            spread = factor * self.patches.hidden_layer.in_features**-0.5
            for layer in (part.hidden_layer, part.residual_layer):
                nn.init.normal_(layer.weight, std=spread)
            nn.init.normal_(part.output_layer.weight, std=factor * hidden**-0.5)
            for layer in (part.hidden_layer, part.output_layer, part.residual_layer):
                nn.init.zeros_(layer.bias)
        initialise(self, config)

    def forward(self, context: Float[Tensor, "B T"], future: Float[Tensor, "B F"]) -> Tensor:
        """Return twice the mean quantile loss of ``future``, in units of ``context``."""
        scaled, ends = self._scaled(context)
        found = self._forecast(scaled)
        wanted = ((future - ends.location) / ends.scale)[:, None]
        seen = ~wanted.isnan()
        error = wanted.nan_to_num(0.0) - found
        levels = self.levels[:, None]
        loss = 2 * torch.maximum(levels * error, (levels - 1) * error) * seen
        return loss.sum() / (seen.sum() * len(self.levels)).clamp(min=1)

    @torch.no_grad()
    def quantiles(self, context: Float[Tensor, "B T"]) -> Float[Tensor, "B Q F"]:
        """Forecast the trained levels of the steps that follow a ``context``."""
        scaled, ends = self._scaled(context)
        return self._forecast(scaled) * ends.scale[:, None] + ends.location[:, None]

    def _scaled(self, context: Tensor) -> tuple[Tensor, _Ends]:
        """Take off the mean and divide by the standard deviation of what is observed."""
        context = context[:, -self.config.context_length :].float()
        seen = ~context.isnan()
        count = seen.sum(-1, keepdim=True).clamp(min=1)
        location = context.nan_to_num(0.0).sum(-1, keepdim=True) / count
        centred = (context - location).nan_to_num(0.0)
        scale = (centred.square().sum(-1, keepdim=True) / count).sqrt()
        scale = torch.where(scale > 0, scale, torch.where(seen.any(-1, keepdim=True), 1e-5, 1.0))
        return (context - location) / scale, _Ends(location, scale)

    def _forecast(self, scaled: Tensor) -> Tensor:
        """Forecast scaled quantiles, (B, Q, F)."""
        size = self.config.patch_length
        padded = F.pad(scaled, (-scaled.shape[-1] % size, 0), value=float("nan"))
        patches = padded.unflatten(-1, (-1, size))
        seen = ~patches.isnan()
        read = self.patches(torch.cat([patches.nan_to_num(0.0), seen.to(patches)], -1))
        ends = torch.ones(len(read), 1, dtype=torch.long, device=read.device)
        read = torch.cat([read, self.shared(ends)], 1)
        mask = torch.cat([seen.any(-1), ends.bool()], 1)
        source = self.encoder(read, key_mask=mask)
        hidden = self.decoder(self.shared(ends - 1), source=source, source_mask=mask)
        found: Tensor = self.steps(hidden[:, 0]).unflatten(-1, (len(self.levels), -1)).float()
        return found


def build_model(config: PretrainConfig) -> TokenModel | QuantileModel:
    """Make the model of a configuration; its weights are drawn from the global generator.

    Parameters
    ----------
    config : PretrainConfig
        What it consists of.

    Returns
    -------
    TokenModel or QuantileModel

    Examples
    --------
    >>> type(build_model(PretrainConfig(head="quantiles", width=16))).__name__
    'QuantileModel'
    """
    return TokenModel(config) if config.head == "tokens" else QuantileModel(config)
