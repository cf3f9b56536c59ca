"""Where attention looks: its weights, shared out among the levels of blocks."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from mlrforecast.data import Panel
from mlrforecast.estimators._inference import Predictor, check_observed, slices
from mlrforecast.nn import MLRScore, StructuredAttention
from mlrforecast.ops import Levels, newest_whole_offset, rotate

MOST_WEIGHTS = 2**24
"""Attention weights that are held at once."""


@dataclass
class _Sums:
    """What has been added up of one layer, for each level (no level first)."""

    spans: tuple[int, ...]
    weight: np.ndarray = field(init=False)
    even: np.ndarray = field(init=False)
    distance: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.weight, self.even, self.distance = np.zeros((3, 1 + len(self.spans)))


def attention_by_level(predictor: Predictor, panel: Panel) -> pd.DataFrame:
    """Run the network on the newest context of each series and add up its attention weights.

    Parameters
    ----------
    predictor : Predictor
        The network.
    panel : Panel
        The series to forecast.

    Returns
    -------
    DataFrame
        See :meth:`MLRForecaster.attention_by_level`.
    """
    context_length = predictor.model.config.context_length
    check_observed(panel.tail(context_length), context_length)
    layers = attention_layers(predictor.model)
    sums: dict[int, _Sums] = {}
    with _watched(layers, sums):
        predictor.forecast(predictor.windows(panel, np.arange(len(panel)), panel.lengths))
    rows = [row for number in sorted(sums) for row in _rows_of(number + 1, sums[number], predictor)]
    columns = ["layer", "level", "block", "share", "even_share", "distance"]
    return pd.DataFrame(rows, columns=columns)


def attention_layers(model: nn.Module) -> list[StructuredAttention]:
    """Return the attention layers of a network, from input to output."""
    layers = [module for module in model.modules() if isinstance(module, StructuredAttention)]
    if not layers:
        raise ValueError(
            "Levels are those of StructuredAttention layers, but the network has none: its "
            "`backbone` is of another kind."
        )
    return layers


def levels_of(layer: StructuredAttention, length: int) -> Levels | None:
    """Return the blocks that a layer has in a sequence of ``length`` tokens, if it has any."""
    score = layer.score
    if not isinstance(score, MLRScore):
        return None
    sizes = score.sizes(length)
    back = not layer.causal if score.newest_whole is None else score.newest_whole
    offset = newest_whole_offset(length, sizes) if back else 0
    return Levels(length, score.ranks, sizes, offset=offset)


def window_of_coarsest(layer: StructuredAttention, length: int) -> int | None:
    """Return the window that the coarsest level of a layer has in place of its blocks, if any."""
    score = layer.score
    return score._window(length) if isinstance(score, MLRScore) else None


def spans_of(layer: StructuredAttention, length: int) -> tuple[int, ...]:
    """Return how many tokens a token meets on each level, coarse to fine; () without levels."""
    levels = levels_of(layer, length)
    if levels is None:
        return ()
    spans = [int(span) for span in levels.block_lengths()]
    window = window_of_coarsest(layer, length)
    if window is not None:
        spans[0] = min(2 * window + 1, length)
    return tuple(spans)


def finest_levels(layer: StructuredAttention, length: int) -> Tensor:
    """Return the finest level that each pair of tokens shares, from 1; 0 for none.

    Parameters
    ----------
    layer : StructuredAttention
        The layer.
    length : int
        Tokens of the sequence.

    Returns
    -------
    Tensor of int64 of shape (length, length)
        All 0 for a score without levels.
    """
    finest = torch.zeros(length, length, dtype=torch.int64)
    levels = levels_of(layer, length)
    if levels is None:
        return finest
    window = window_of_coarsest(layer, length)
    for number, ids in enumerate(levels.ids(), start=1):
        shared = ids[:, None] == ids[None, :]
        if number == 1 and window is not None:
            steps = torch.arange(length)
            shared = (steps[:, None] - steps[None, :]).abs() <= window
        finest[shared] = number
    return finest


@contextmanager
def _watched(layers: list[StructuredAttention], sums: dict[int, _Sums]) -> Iterator[None]:
    """Add up the weights of every call of some layers."""
    handles = [
        layer.register_forward_pre_hook(_watcher(number, sums), with_kwargs=True)
        for number, layer in enumerate(layers)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _watcher(
    number: int, sums: dict[int, _Sums]
) -> Callable[[nn.Module, tuple[Any, ...], Mapping[str, Any]], None]:
    """Return the hook of one layer."""

    def watch(layer: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        assert isinstance(layer, StructuredAttention)
        x, key_mask = _inputs(*args, **kwargs)
        length = x.shape[1]
        if number not in sums:
            sums[number] = _Sums(spans_of(layer, length))
        finest = finest_levels(layer, length).to(x.device)
        most = max(1, MOST_WEIGHTS // (layer.score.heads.num_heads * length**2))
        for rows in slices(len(x), most):
            _add(sums[number], layer, x[rows], None if key_mask is None else key_mask[rows], finest)

    return watch


def _inputs(
    x: Tensor,
    key_mask: Tensor | None = None,
    *,
    context: Tensor | None = None,
    block_ids: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return what a layer was called with, if its blocks are its own."""
    if context is not None or block_ids is not None:
        raise ValueError(
            "Levels are counted for self-attention over block sizes, but the `backbone` gives a "
            "layer a `context` or `block_ids`."
        )
    return x, key_mask


def attention_weights(layer: StructuredAttention, x: Tensor, key_mask: Tensor | None) -> Tensor:
    """Return the weights (B, H, T, T) with which a layer attends, those of a row summing to 1."""
    x = layer.score.prepare(x)
    q, k = layer.score.queries(x), layer.score.keys(x)
    if layer.rotary:
        q, k = (rotate(part, sections=layer.score.sections) for part in (q, k))
    # Values of which each is one key alone, so that the output is the weights themselves.
    unit = torch.eye(x.shape[1], dtype=q.dtype, device=q.device)
    values = unit.expand(len(x), layer.score.heads.num_kv_heads, -1, -1)
    weights = layer.score.attend(
        q, k, values, causal=layer.causal, key_mask=key_mask, dropout_p=0.0
    )
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(q.dtype).tiny)


def _add(
    sums: _Sums, layer: StructuredAttention, x: Tensor, key_mask: Tensor | None, finest: Tensor
) -> None:
    """Add the weights of some sequences, without those of padding."""
    weights = attention_weights(layer, x, key_mask)
    visible = torch.ones(len(x), *finest.shape, dtype=torch.bool, device=x.device)
    if key_mask is not None:
        visible &= key_mask[:, :, None] & key_mask[:, None, :]
    if layer.causal:
        visible &= torch.ones_like(finest, dtype=torch.bool).tril()
    if isinstance(layer.score, MLRScore) and layer.score.unshared == "mask":
        visible &= finest > 0
    pairs = visible.double()
    even = pairs / pairs.sum(dim=-1, keepdim=True).clamp(min=1)
    mean = weights.double().mean(dim=1) * pairs
    steps = torch.arange(x.shape[1], device=x.device)
    distance = (steps[:, None] - steps[None, :]).abs() * mean
    for level in range(len(sums.weight)):
        here = finest == level
        sums.weight[level] += float(mean[:, here].sum())
        sums.even[level] += float(even[:, here].sum())
        sums.distance[level] += float(distance[:, here].sum())


def _rows_of(layer: int, sums: _Sums, predictor: Predictor) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each level of a layer that some pair of tokens has."""
    config = predictor.model.config
    tokens = (0, *sums.spans)
    for level, (weight, even, distance) in enumerate(
        zip(sums.weight, sums.even, sums.distance, strict=True)
    ):
        if level == 0 and even == 0:
            continue
        yield (
            layer,
            level,
            steps_of(config, tokens[level]) if level else config.context_length,
            weight / sums.weight.sum(),
            even / sums.even.sum(),
            config.patch_stride * distance / weight if weight > 0 else np.nan,
        )


def steps_of(config: Any, tokens: int) -> int:
    """Return how many steps of a context some neighbouring tokens hold together."""
    steps = (tokens - 1) * config.patch_stride + config.patch_length
    return min(int(steps), int(config.context_length))
