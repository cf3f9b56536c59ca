"""Checks of what an encoder forecaster is given."""

import torch
from torch import Tensor


def check_past(past_target: Tensor, past_observed: Tensor | None, context_length: int) -> None:
    """Check that there is one whole context: of a longer one the newest steps would be lost."""
    if past_target.ndim != 3 or past_target.shape[1] != context_length:
        raise ValueError(
            f"`past_target` must have the shape (B, T, C) with T={context_length} steps "
            f"(`context_length`), got {tuple(past_target.shape)}."
        )
    if past_observed is None:
        return
    if past_observed.dtype != torch.bool or past_observed.shape != past_target.shape:
        raise ValueError(
            "`past_observed` must be a bool tensor of the shape of `past_target`, "
            f"{tuple(past_target.shape)}; got {past_observed.dtype} of shape "
            f"{tuple(past_observed.shape)}."
        )


def check_columns(name: str, given: Tensor | None, axes: str, shape: tuple[int, ...]) -> None:
    """Check that there are all columns that a configuration names, or none if it names none."""
    if given is None and shape[-1] == 0:
        return
    if shape[-1] == 0:
        raise ValueError(f"`{name}` must be None: the configuration of the model has none.")
    if given is None or given.shape != shape or not given.is_floating_point():
        found = "None" if given is None else f"{given.dtype} of shape {tuple(given.shape)}"
        raise ValueError(
            f"`{name}` must be a tensor of floats of the shape {axes} = {shape}, as the "
            f"configuration of the model says, got {found}."
        )
