"""The optimiser of a parametrisation, standard or muP."""

import math
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import nn

from mlrforecast.nn import mup_table

__all__ = ["Parametrization", "build_optimizer", "mup_groups"]

Parametrization: TypeAlias = Literal["standard", "mup"]
"""Whether start and learning rates are those of torch, or of muP."""

# Gradients of a model of any width are far above it, so it never damps a step.
MUP_EPSILON = 1e-20
MUP_BETAS = (0.9, 0.95)


def mup_groups(
    model: nn.Module, learning_rate: float, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Return the parameter groups of an Adam optimiser under muP.

    Parameters
    ----------
    model : Module
        See :func:`mlrforecast.nn.mup_table`.
    learning_rate : float
        Learning rate of a model of width 768.
    weight_decay : float
        Weight decay of parameters of two axes or more; the others have none.

    Returns
    -------
    list of dict
        ``params``, ``lr`` and ``weight_decay`` of each group: one for all parameters that have
        the last two in common.

    Raises
    ------
    ValueError
        If it is not known how to treat a parameter.

    Examples
    --------
    >>> from mlrforecast.nn import EncoderBlock
    >>> block = EncoderBlock(64, 4, hidden_width=256, bias=False)
    >>> for group in mup_groups(block, 1e-3, 0.1):
    ...     print(len(group["params"]), f"{group['lr']:g}", group["weight_decay"])
    2 0.001 0.0
    5 0.012 0.1
    1 0.003 0.1
    """
    parameters = dict(model.named_parameters())
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for row in mup_table(model, learning_rate=learning_rate, weight_decay=weight_decay):
        group = groups.setdefault((row.learning_rate, row.weight_decay), [])
        group.append(parameters[row.name])
    return [
        {"params": members, "lr": rate, "weight_decay": decay}
        for (rate, decay), members in groups.items()
    ]


def build_optimizer(
    model: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float = 0.0,
    parametrization: Parametrization = "standard",
    fused: bool = True,
) -> torch.optim.AdamW:
    """Return AdamW for a model; only parameters of two axes or more decay.

    Parameters
    ----------
    model : Module
        The model. Under muP it should have been started by
        :func:`mlrforecast.nn.initialise_mup`.
    learning_rate : float
        One rate for all parameters or, under muP, that of a model of width 768.
    weight_decay : float
        Of AdamW.
    parametrization : {"standard", "mup"}
        ``"standard"`` has torch's own betas (0.9, 0.999) and epsilon 1e-8; ``"mup"`` a rate for
        each parameter, betas (0.9, 0.95) and epsilon 1e-20, as in the published code.
    fused : bool
        Whether a step is one kernel in place of a dozen for each parameter. Lightning does not
        clip gradients of mixed precision then.

    Returns
    -------
    torch.optim.AdamW
        The optimiser.

    Raises
    ------
    ValueError
        If a number is negative or not finite, the parametrisation is unknown, or muP does not
        know a parameter or finds one in float16, which has no epsilon so small.

    Examples
    --------
    >>> from mlrforecast.nn import EncoderBlock
    >>> block = EncoderBlock(64, 4, hidden_width=256)
    >>> optimizer = build_optimizer(block, learning_rate=1e-3, parametrization="mup")
    >>> optimizer.defaults["betas"], optimizer.defaults["eps"]
    ((0.9, 0.95), 1e-20)
    """
    if parametrization not in get_args(Parametrization):
        raise ValueError(
            f"`parametrization` must be one of {', '.join(get_args(Parametrization))}, got "
            f"{parametrization!r}."
        )
    for name, value in (("learning_rate", learning_rate), ("weight_decay", weight_decay)):
        if not 0 <= value < math.inf:
            raise ValueError(f"`{name}` must be a finite number of at least 0, got {value!r}.")
    kernel: dict[str, Any] = {"fused" if fused else "foreach": True}
    if parametrization == "mup":
        _check_epsilon(model)
        groups = mup_groups(model, learning_rate, weight_decay)
        return torch.optim.AdamW(
            groups, lr=learning_rate, betas=MUP_BETAS, eps=MUP_EPSILON, **kernel
        )
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, **kernel)


def _check_epsilon(model: nn.Module) -> None:
    """Refuse parameters in which epsilon is 0: most gradients of the first step are 0 as well."""
    for name, parameter in model.named_parameters():
        if parameter.dtype == torch.float16:
            raise ValueError(
                f"`parametrization`='mup' needs parameters in float32 or bfloat16, got `{name}` in "
                "float16. Keep them in float32 and compute in float16 under torch.autocast."
            )
