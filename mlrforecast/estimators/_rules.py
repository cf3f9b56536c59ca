"""The written rules by which a forecaster derives what was left open."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from numbers import Real
from typing import Any

import torch
from torch import nn

from mlrforecast.models import EncoderConfig, EncoderForecaster
from mlrforecast.nn import initialise_mup, mup_table

MAX_CONTEXT = 504
"""Three weeks of hours."""
NUM_TOKENS = 20
PATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24)
"""They divide the day of hourly series, or two days, so that tokens begin at the same hours."""
MIN_STEPS, MAX_STEPS = 100, 2400
SHARED_FUTURE = 48
"""Two days of hours: windows of a longer horizon share most of what they forecast."""


def derive_lengths(
    longest: int,
    prediction_length: int,
    context_length: int | None,
    patch_length: int | None,
) -> tuple[int, int]:
    """Return context and patch length for series of at most ``longest`` steps.

    The context is half of the longest series, at most 504 steps. A patch is the longest of 1, 2,
    3, 4, 6, 8, 12, 16 or 24 steps that cuts it into at least 20 tokens. A derived context is a
    whole number of patches.
    """
    context = context_length or min(MAX_CONTEXT, max(1, (longest - prediction_length) // 2))
    longest_patch = max(1, context // NUM_TOKENS)
    patch = patch_length or max(length for length in PATCHES if length <= longest_patch)
    if context_length is None:
        context = max(1, context // patch) * patch
    if patch > context:
        raise ValueError(
            f"`patch_length` must be at most the context length {context}, got {patch}."
        )
    return context, patch


def derive_steps(num_windows: int, prediction_length: int) -> int:
    """Return the optimiser steps: 9 times the root of the number of windows, 100 to 2400.

    Neighbouring windows say nearly the same, so that ten times as many want three times as many
    steps. The more so the more of the future they share: beyond 48 steps, a horizon that is four
    times as long counts its windows for a fourth, and wants half of the steps.
    """
    counted = num_windows * min(1.0, SHARED_FUTURE / prediction_length)
    return int(min(MAX_STEPS, max(MIN_STEPS, round(9 * counted**0.5))))


def derive_linear_share(prediction_length: int) -> float:
    """Return the share of the regression: half, and more of horizons beyond 48 steps.

    The longer the horizon, the fewer windows a network has to learn from that do not share their
    future: its share falls as the root of what counts of them, to 1/4 at a horizon of 192.
    """
    return 1.0 - 0.5 * math.sqrt(min(1.0, SHARED_FUTURE / prediction_length))


def check_level_numbers(levels: Any) -> tuple[float, ...]:
    """Return quantile levels as floats of 6 decimals, so that 1 - 0.9 is 0.1."""
    if not isinstance(levels, Iterable) or isinstance(levels, str):
        raise TypeError(f"`quantile_levels` must be a sequence such as (0.1, 0.9), got {levels!r}.")
    given = tuple(levels)
    for level in given:
        if not isinstance(level, Real):
            raise TypeError(f"`quantile_levels` must be numbers, got {level!r}.")
    return tuple(round(float(level), 6) for level in given)


def check_quantile_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """Return increasing levels in (0, 1) as a tuple."""
    given = check_level_numbers(levels)
    if not given or not all(0 < level < 1 for level in given) or list(given) != sorted(set(given)):
        raise ValueError(
            f"`quantile_levels` must increase within (0, 1), to 6 decimals, got {tuple(levels)}."
        )
    return given


def build_skeleton(config: EncoderConfig, backbone: nn.Module | None) -> EncoderForecaster:
    """Return a model without numbers: it needs no memory, and raises what building one raises.

    The spread around a point forecast, which can only be built with numbers, is left out.
    """
    try:
        with torch.device("meta"):
            return EncoderForecaster(dataclasses.replace(config, loss="mae"), backbone)
    except RuntimeError as error:
        # Even without numbers a tensor has a size, which must fit into 64 bits.
        raise ValueError(
            f"A network of `width` {config.width} and these options is too large for torch: "
            f"{str(error).splitlines()[0]}"
        ) from error


def build_model(config: EncoderConfig, backbone: nn.Module | None) -> EncoderForecaster:
    """Return a model with a copy of the backbone, after one call of it; weights are random."""
    model = EncoderForecaster(config, deepcopy(backbone))
    if backbone is None:
        return model
    tokens = torch.zeros(2, model.embedding.num_tokens, config.width)
    shape = tuple(tokens.shape)
    try:
        with torch.no_grad():
            encoded = deepcopy(model.backbone).eval()(tokens, torch.ones(shape[:2]).bool())
    except Exception as error:
        raise ValueError(
            f"`backbone` must accept backbone(tokens, key_mask) with tokens of shape {shape}; it "
            f"raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(encoded, torch.Tensor) or encoded.shape != shape:
        found = tuple(encoded.shape) if isinstance(encoded, torch.Tensor) else type(encoded)
        raise ValueError(
            f"`backbone` must return tokens of the shape that it is given, {shape}, got {found}."
        )
    return model


def check_parametrization(model: EncoderForecaster, parametrization: str) -> None:
    """Raise a ValueError if muP does not know a parameter of a model, which one's own may have."""
    if parametrization != "mup":
        return
    try:
        mup_table(model, learning_rate=1.0)
    except ValueError as error:
        raise ValueError(f"`parametrization`='mup' does not fit `backbone`: {error}") from error


def start(model: EncoderForecaster, parametrization: str) -> None:
    """Give a model the first weights of its parametrisation, those of torch being there."""
    if parametrization == "mup":
        initialise_mup(model, generator=torch.default_generator)
