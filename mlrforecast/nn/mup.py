"""muP: start and learning rate of every parameter, so that a rate found at one width fits all."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from mlrforecast.nn.attention import BilinearMLRScore, BilinearScore
from mlrforecast.nn.block import EncoderBlock
from mlrforecast.nn.embedding import LearnedPositions
from mlrforecast.nn.heads import DistributionHead, QuantileHead
from mlrforecast.nn.linear import InputLinear, OutputLinear

__all__ = ["MupRow", "MupRule", "initialise_mup", "mup_table"]

Kind: TypeAlias = Literal["input", "hidden", "output", "gain", "bias", "kept"]
Init: TypeAlias = Literal["normal", "zeros", "ones", "kept"]

BASE_WIDTH = 768
"""Inputs at which a matrix has just the learning rate that was asked for."""

INPUT_STD = 0.02

_INITS: Mapping[Kind, Init] = {
    "input": "normal",
    "hidden": "normal",
    "output": "zeros",
    "gain": "ones",
    "bias": "zeros",
    "kept": "kept",
}

# Not 0, 1 or 42: weights drawn from a seed that also drew a user's data would resemble them.
_DEFAULT_SEED = 2203_03466


@dataclass(frozen=True, slots=True)
class MupRule:
    """How muP treats one parameter.

    A module of your own says it in an attribute ``mup_rules``, a mapping from the names of its
    parameters to rules. Names may reach into its children (``"projection.weight"``), whose own
    rules then do not count. Linear maps, embeddings and LayerNorms need no mention.

    Parameters
    ----------
    kind : {"input", "hidden", "output", "gain", "bias", "kept"}
        - ``"input"``: read by an input whose size does not grow with the model, such as an
          embedding: normal with standard deviation 0.02, learning rate as it is;
        - ``"hidden"``: a matrix inside the model: normal with standard deviation
          ``1 / sqrt(fan_in)``, learning rate times ``768 / fan_in``;
        - ``"output"``: a matrix that ends a residual branch or the model: zeros, learning rate
          times ``768 / fan_in``;
        - ``"gain"``: the weight of a norm: ones, learning rate as it is;
        - ``"bias"``: zeros, learning rate as it is;
        - ``"kept"``: left as it was built, learning rate as it is.
    fan_in : int
        Numbers that one entry of the product sums over; read by ``"hidden"`` and ``"output"``.

    Raises
    ------
    ValueError
        If the kind is unknown or ``fan_in`` is less than 1.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> class Mixer(nn.Module):
    ...     def __init__(self, width: int) -> None:
    ...         super().__init__()
    ...         self.mix = nn.Parameter(torch.zeros(4, width // 4, width // 4))
    ...         self.mup_rules = {"mix": MupRule("hidden", fan_in=width // 4)}
    >>> [row] = mup_table(Mixer(64), learning_rate=1e-3, weight_decay=0.0)
    >>> row.init_std, row.learning_rate_multiplier
    (0.25, 48.0)
    """

    kind: Kind
    fan_in: int = 1

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(
                f"`kind` must be one of {', '.join(get_args(Kind))}, got {self.kind!r}."
            )
        if isinstance(self.fan_in, bool) or not isinstance(self.fan_in, int) or self.fan_in < 1:
            raise ValueError(f"`fan_in` must be an integer of at least 1, got {self.fan_in!r}.")

    @property
    def scales(self) -> bool:
        """Whether start and learning rate depend on ``fan_in``."""
        return self.kind in ("hidden", "output")

    @property
    def init_std(self) -> float:
        """Standard deviation of the first values, 0 where nothing is drawn."""
        return {"input": INPUT_STD, "hidden": 1 / math.sqrt(self.fan_in)}.get(self.kind, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MupRow:
    """What muP makes of one parameter: a row of :func:`mup_table`.

    Attributes
    ----------
    name : str
        Name of the parameter in the model.
    kind : str
        See :class:`MupRule`.
    shape : tuple of int
        Its shape.
    fan_in : int
        Numbers that one entry of its product sums over; 1 where the width plays no part.
    base_width_factor : int
        768 where the learning rate depends on ``fan_in``, otherwise 1.
    init : {"normal", "zeros", "ones", "kept"}
        First values.
    init_std : float
        Standard deviation of the first values.
    learning_rate : float
        ``learning_rate_multiplier`` times the learning rate that was asked for.
    learning_rate_multiplier : float
        ``base_width_factor / fan_in``.
    weight_decay : float
        The weight decay that was asked for, 0 for a parameter of fewer than two axes.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    fan_in: int
    base_width_factor: int
    init: Init
    init_std: float
    learning_rate: float
    learning_rate_multiplier: float
    weight_decay: float

    @property
    def decays(self) -> bool:
        """Whether the parameter has the two axes that weight decay asks for."""
        return len(self.shape) >= 2


def mup_table(
    model: nn.Module, *, learning_rate: float, weight_decay: float = 0.0
) -> tuple[MupRow, ...]:
    """Say for every parameter of a model how it starts and how fast it learns under muP.

    Parameters
    ----------
    model : Module
        Any model of this library, or one of your own made of linear maps, embeddings, LayerNorms
        and modules that declare their parameters, see :class:`MupRule`.
    learning_rate : float
        Learning rate of a model of width 768.
    weight_decay : float
        Weight decay of parameters of two axes or more.

    Returns
    -------
    tuple of MupRow
        One row for each parameter, in the order of ``model.named_parameters()``.

    Raises
    ------
    ValueError
        If it is not known how to treat a parameter, or one parameter stands in two places that
        ask for different treatment (such as an embedding that is also the head).

    References
    ----------
    Tensor Programs V: Tuning Large Neural Networks via Zero-Shot Hyperparameter Transfer, 2022,
    arXiv 2203.03466.
    Compute Better Spent: Replacing Dense Layers with Structured Matrices, ICML 2024,
    arXiv 2406.06248: the rule for structured matrices.

    Examples
    --------
    >>> from mlrforecast.nn import EncoderBlock
    >>> block = EncoderBlock(64, 4, hidden_width=256, bias=False)
    >>> for row in mup_table(block, learning_rate=1e-3):
    ...     print(f"{row.name:30} {row.init:6} {row.init_std:6.4f} {row.learning_rate_multiplier}")
    attention_norm.weight          ones   0.0000 1.0
    attention.score.query.weight   normal 0.1250 12.0
    attention.score.key.weight     normal 0.1250 12.0
    attention.value.weight         normal 0.1250 12.0
    attention.output.weight        zeros  0.0000 12.0
    network_norm.weight            ones   0.0000 1.0
    network.0.weight               normal 0.1250 12.0
    network.3.weight               zeros  0.0000 3.0
    """
    return tuple(
        _row(name, parameter, rule, learning_rate, weight_decay)
        for name, parameter, rule in _ruled_parameters(model)
    )


def _row(name: str, parameter: Tensor, rule: MupRule, rate: float, decay: float) -> MupRow:
    """Work out one row."""
    fan_in, base = (rule.fan_in, BASE_WIDTH) if rule.scales else (1, 1)
    return MupRow(
        name=name,
        kind=rule.kind,
        shape=tuple(parameter.shape),
        fan_in=fan_in,
        base_width_factor=base,
        init=_INITS[rule.kind],
        init_std=rule.init_std,
        learning_rate=rate * base / fan_in,
        learning_rate_multiplier=base / fan_in,
        weight_decay=decay if parameter.ndim >= 2 else 0.0,
    )


@torch.no_grad()
def initialise_mup(
    model: nn.Module, *, generator: torch.Generator | None = None, zero_branches: bool = True
) -> None:
    """Give every parameter of a model its first value under muP, in place.

    Parameters
    ----------
    model : Module
        See :func:`mup_table`. The values do not depend on its device and dtype.
    generator : torch.Generator, optional
        Source of the random numbers. Default: one with a fixed seed. The global generator is
        neither read nor moved.
    zero_branches : bool, default True
        Whether the matrices that end the branches of encoder blocks start at 0, as in the paper,
        so that a block is the identity at first. Otherwise they start as hidden ones do, which
        muP allows: a small model whose gradients are mostly noise may take thousands of steps to
        get off the ground from 0.

    Raises
    ------
    ValueError
        As :func:`mup_table`; no parameter is changed then.

    Examples
    --------
    >>> import torch
    >>> from mlrforecast.nn import EncoderBlock
    >>> block = EncoderBlock(64, 4, hidden_width=256, attention="bilinear_btt")
    >>> x = torch.ones(2, 9, 64)
    >>> initialise_mup(block, generator=torch.Generator().manual_seed(0))
    >>> bool((block(x) == x).all())
    True
    """
    if generator is None:
        generator = torch.Generator().manual_seed(_DEFAULT_SEED)
    ends = set() if zero_branches else _branch_ends(model)
    for _, parameter, rule in _ruled_parameters(model):
        if id(parameter) in ends and rule.kind == "output":
            rule = MupRule("hidden", rule.fan_in)
        match _INITS[rule.kind]:
            case "normal":
                draw = torch.randn(
                    parameter.shape,
                    generator=generator,
                    device=generator.device,
                    dtype=torch.float32,
                )
                parameter.copy_(draw * rule.init_std)
            case "zeros":
                parameter.zero_()
            case "ones":
                parameter.fill_(1.0)
            case "kept":
                pass
    for module in model.modules():
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            module.weight[module.padding_idx].zero_()


def _branch_ends(model: nn.Module) -> set[int]:
    """Return the identities of the parameters of encoder blocks, whose outputs end branches."""
    blocks = [module for module in model.modules() if isinstance(module, EncoderBlock)]
    return {id(parameter) for block in blocks for parameter in block.parameters()}


def _ruled_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter, MupRule]]:
    """Return every parameter once, with its first name and its rule."""
    rules = _rules_by_name(model)
    seen: dict[int, tuple[str, MupRule]] = {}
    ruled: list[tuple[str, nn.Parameter, MupRule]] = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name not in rules:
            raise ValueError(
                f"It is not known how muP treats the parameter `{name}` of shape "
                f"{tuple(parameter.shape)}. Declare it in an attribute `mup_rules` of its module, "
                "see mlrforecast.nn.MupRule."
            )
        other, rule = seen.setdefault(id(parameter), (name, rules[name]))
        if rule != rules[name]:
            raise ValueError(
                f"`{other}` and `{name}` are one parameter, but muP treats the first as "
                f"{rule.kind!r} and the second as {rules[name].kind!r}. Untie them."
            )
        if other == name:
            ruled.append((name, parameter, rule))
    return ruled


def _rules_by_name(model: nn.Module) -> dict[str, MupRule]:
    """Return the rules of parameters by their full names; the outermost module decides."""
    known = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    rules: dict[str, MupRule] = {}
    # Parents come before their children.
    for path, module in model.named_modules(remove_duplicate=False):
        for name, rule in _rules_of(module).items():
            full = f"{path}.{name}" if path else name
            if full not in known:
                raise ValueError(
                    f"`mup_rules` of {type(module).__name__} must name its parameters; it has none "
                    f"called {name!r}."
                )
            rules.setdefault(full, rule)
    return rules


def _rules_of(module: nn.Module) -> dict[str, MupRule]:
    """Return the rules that a module has for its own parameters, by name below it."""
    rules: dict[str, MupRule] = {}
    match module:
        case BilinearScore():
            rules = {
                f"weights.{name}": MupRule("hidden", spec.fan_in)
                for name, spec in module.specs.items()
            }
        case BilinearMLRScore():
            rules = {
                f"{side}.{lvl}": MupRule("hidden", weight.shape[1])
                for side in ("query_weights", "key_weights")
                for lvl, weight in enumerate(getattr(module, side))
            }
        case QuantileHead() | DistributionHead() if module.spread is not None:
            # Built as a distribution of a plausible width, which zeros would undo.
            rules = {"spread.bias": MupRule("kept")}
        case InputLinear() | nn.Embedding() | LearnedPositions():
            rules = {"weight": MupRule("input"), "bias": MupRule("bias")}
        case OutputLinear():
            rules = {"weight": MupRule("output", module.in_features), "bias": MupRule("bias")}
        case nn.Linear():
            rules = {"weight": MupRule("hidden", module.in_features), "bias": MupRule("bias")}
        case nn.LayerNorm():
            rules = {"weight": MupRule("gain"), "bias": MupRule("bias")}
        case _:
            pass
    own = {name: rule for name, rule in rules.items() if "." in name or name in _own(module)}
    return {**own, **getattr(module, "mup_rules", {})}


def _own(module: nn.Module) -> set[str]:
    """Return the names of the parameters that a module itself holds: not each has a bias."""
    return {name for name, _ in module.named_parameters(recurse=False)}
