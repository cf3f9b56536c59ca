"""T5, an encoder and a decoder with relative positions, whose self-attention may be multi-level.

Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
2020. The parameters are those of the T5 of transformers, under names of our own.
"""

import math
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlrforecast.ops import biased_mlr_attention, newest_whole_offset
from mlrforecast.pretraining.config import PretrainConfig

NUM_BUCKETS, MAX_DISTANCE = 32, 128
_Levels = tuple[tuple[int, ...], tuple[int | None, ...]]


@dataclass
class Cache:
    """Keys and values of the steps of a generation so far, an entry for each attention layer."""

    steps: dict[nn.Module, tuple[Tensor, Tensor]] = field(default_factory=dict)
    sources: dict[nn.Module, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def extended(self, layer: nn.Module, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new steps, and return those of all steps."""
        if layer in self.steps:
            earlier = self.steps[layer]
            k, v = torch.cat([earlier[0], k], 2), torch.cat([earlier[1], v], 2)
        self.steps[layer] = k, v
        return k, v


class Norm(nn.Module):
    """Divide by the root mean square, and scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)


class Attention(nn.Module):
    """Attention to the sequence itself or to another one; scores are not scaled, as in T5."""

    def __init__(self, config: PretrainConfig, levels: _Levels | None, *, causal: bool) -> None:
        super().__init__()
        inner = config.num_heads * config.head_width
        self.num_heads, self.dropout, self.causal = config.num_heads, config.dropout, causal
        self.levels = levels
        scale = config.level_scale
        self.level_scale = (1.0,) * len(levels[0]) if levels and scale is None else scale
        self.divides = config.divide_by_shared_levels
        self.q = nn.Linear(config.width, inner, bias=False)
        self.k = nn.Linear(config.width, inner, bias=False)
        self.v = nn.Linear(config.width, inner, bias=False)
        self.o = nn.Linear(inner, config.width, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        bias: Float[Tensor, "#B #H #T S"],
        source: Float[Tensor, "B S D"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Attend to ``source``, or to ``x`` and what a cache holds, with a ``bias`` of scores."""
        if source is None:
            q, k, v = self._heads(x, self.q, self.k, self.v)
            if cache is not None:
                k, v = cache.extended(self, k, v)
        else:
            (q,) = self._heads(x, self.q)
            k, v = self._source_heads(source, cache)
        dropout = self.dropout if self.training else 0.0
        if self.levels is None:
            mixed = F.scaled_dot_product_attention(q, k, v, bias.to(q), dropout, scale=1.0)
        else:
            ranks, sizes = self.levels
            mixed = biased_mlr_attention(
                q,
                k,
                v,
                bias,
                ranks=ranks,
                block_sizes=sizes,
                # Where nothing grows, padding on the left must not move the blocks.
                offset=0 if self.causal else newest_whole_offset(k.shape[2], sizes),
                level_scale=self.level_scale or "inverse_rank",
                divide_by_shared_levels=self.divides,
                dropout_p=dropout,
            )
        found: Tensor = self.o(mixed.transpose(1, 2).flatten(2))
        return found

    def _source_heads(self, source: Tensor, cache: Cache | None) -> tuple[Tensor, Tensor]:
        """Return the keys and values of another sequence, which no step changes."""
        if cache is None:
            k, v = self._heads(source, self.k, self.v)
            return k, v
        if self not in cache.sources:
            k, v = self._heads(source, self.k, self.v)
            cache.sources[self] = k, v
        return cache.sources[self]

    def _heads(self, x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
        """Return what each layer makes of (B, T, D), (B, H, T, R), by one product for all."""
        found = F.linear(x, torch.cat([layer.weight for layer in layers]))
        heads: Tensor = found.unflatten(-1, (len(layers), self.num_heads, -1))
        return heads.permute(2, 0, 3, 1, 4).unbind()


class Feed(nn.Module):
    """The feed-forward network of a block."""

    def __init__(self, config: PretrainConfig) -> None:
        super().__init__()
        self.wi = nn.Linear(config.width, config.hidden_width, bias=False)
        self.wo = nn.Linear(config.hidden_width, config.width, bias=False)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Widen, cut below 0, and narrow."""
        found: Tensor = self.wo(self.drop(self.wi(x).relu()))
        return found


class Block(nn.Module):
    """Self-attention, in a decoder cross-attention, and a feed-forward network."""

    def __init__(self, config: PretrainConfig, levels: _Levels | None, *, decodes: bool) -> None:
        super().__init__()
        self.attention = Attention(config, levels, causal=decodes)
        self.attention_norm = Norm(config.width)
        self.decodes = decodes
        if decodes:
            self.cross = Attention(config, None, causal=False)
            self.cross_norm = Norm(config.width)
        self.feed = Feed(config)
        self.feed_norm = Norm(config.width)
        self.drop = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        bias: Tensor,
        source: Tensor | None,
        source_bias: Tensor | None,
        cache: Cache | None,
    ) -> Tensor:
        """Return the tokens, (B, T, D), after the block."""
        x = x + self.drop(self.attention(self.attention_norm(x), bias, cache=cache))
        if self.decodes:
            x = x + self.drop(self.cross(self.cross_norm(x), source_bias, source, cache))
        found: Tensor = x + self.drop(self.feed(self.feed_norm(x)))
        return found


class Stack(nn.Module):
    """The encoder or the decoder."""

    buckets: Tensor

    def __init__(self, config: PretrainConfig, *, decodes: bool) -> None:
        super().__init__()
        levels = config.decoder_levels if decodes else config.encoder_levels
        count = config.num_decoder_layers if decodes else config.num_layers
        self.decodes = decodes
        self.positions = nn.Embedding(NUM_BUCKETS, config.num_heads)
        distances = torch.arange(-MAX_DISTANCE, MAX_DISTANCE + 1)
        self.register_buffer("buckets", _buckets(distances, directed=not decodes), persistent=False)
        self.blocks = nn.ModuleList(Block(config, levels, decodes=decodes) for _ in range(count))
        self.norm = Norm(config.width)
        self.drop = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        key_mask: Bool[Tensor, "B T"] | None = None,
        source: Float[Tensor, "B S D"] | None = None,
        source_mask: Bool[Tensor, "B S"] | None = None,
        cache: Cache | None = None,
        first: int = 0,
    ) -> Float[Tensor, "B T D"]:
        """Run the blocks; before ``x`` a cache holds the ``first`` steps of the sequence."""
        bias = self._bias(x, first)
        if key_mask is not None:
            bias = _hidden(bias, key_mask)
        source_bias = None
        if source is not None:
            source_bias = bias.new_zeros(1, 1, 1, source.shape[1])
            if source_mask is not None:
                source_bias = _hidden(source_bias, source_mask)
        x = self.drop(x)
        for block in self.blocks:
            x = block(x, bias, source, source_bias, cache)
        found: Tensor = self.drop(self.norm(x))
        return found

    def _bias(self, x: Tensor, first: int) -> Tensor:
        """Return the bias of positions, (1, H, T, S), which in a decoder hides what is to come."""
        keys = torch.arange(first + x.shape[1], device=x.device)
        distance = keys - keys[first:, None]
        # All that is farther shares a bucket.
        near = distance.clamp(-MAX_DISTANCE, MAX_DISTANCE)
        bias: Tensor = self.positions(self.buckets[near + MAX_DISTANCE]).permute(2, 0, 1)[None]
        if not self.decodes:
            return bias
        return bias.masked_fill(distance > 0, torch.finfo(bias.dtype).min)


def _hidden(bias: Tensor, key_mask: Tensor) -> Tensor:
    """Add the lowest number where a key is padding; no row is NaN, even if all of them are."""
    return torch.where(key_mask[:, None, None, :], bias, torch.finfo(bias.dtype).min)


def _buckets(distance: Tensor, *, directed: bool) -> Tensor:
    """Return the bucket of each distance: one each for near steps, then wider and wider ones.

    ``directed`` buckets tell what is before from what is after; otherwise all that comes is one.
    """
    count = NUM_BUCKETS // 2 if directed else NUM_BUCKETS
    shift = count * (distance > 0).long() if directed else 0
    steps = distance.abs() if directed else (-distance).clamp(min=0)
    exact = count // 2
    growth = torch.log(steps.clamp(min=1).float() / exact) / math.log(MAX_DISTANCE / exact)
    far = (exact + (growth * (count - exact)).long()).clamp(max=count - 1)
    return shift + torch.where(steps < exact, steps, far)


def initialise(module: nn.Module, config: PretrainConfig) -> None:
    """Draw the first weights as T5 does, times a factor."""
    factor = config.initial_factor
    width, inner = config.width, config.num_heads * config.head_width
    for part in module.modules():
        if isinstance(part, Attention):
            # The scale that T5 leaves out of its scores.
            nn.init.normal_(part.q.weight, std=factor * (width * config.head_width) ** -0.5)
            nn.init.normal_(part.k.weight, std=factor * width**-0.5)
            nn.init.normal_(part.v.weight, std=factor * width**-0.5)
            nn.init.normal_(part.o.weight, std=factor * inner**-0.5)
        elif isinstance(part, Feed):
            nn.init.normal_(part.wi.weight, std=factor * width**-0.5)
            nn.init.normal_(part.wo.weight, std=factor * config.hidden_width**-0.5)
        elif isinstance(part, Stack):
            nn.init.normal_(part.positions.weight, std=factor * width**-0.5)
        elif isinstance(part, Norm):
            nn.init.constant_(part.weight, factor)
