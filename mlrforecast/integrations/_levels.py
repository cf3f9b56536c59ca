"""Levels of multi-level attention in the configuration of somebody else's model."""

import copy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from mlrforecast._core.arguments import check_switch
from mlrforecast.nn.attention.mlr import default_ranks
from mlrforecast.ops import check_levels, halving_block_sizes, level_scales
from mlrforecast.ops.scores import LevelScale

Ranks: TypeAlias = Sequence[int] | Mapping[str, Sequence[int] | None] | None
Sizes: TypeAlias = Sequence[int | None] | Mapping[str, Sequence[int | None] | None] | None

STACKS = ("encoder", "decoder")
FIELDS = ("ranks", "block_sizes", "level_scale", "divide_by_shared_levels")
# Names under which configurations have the length of a sequence.
_LENGTHS = ("max_position_embeddings", "n_positions")
# Functions of modules whose rotary positions turn neighbouring columns together.
_PAIRWISE = ("rotate_every_two", "rotate_pairwise", "apply_rotary_emb")


@dataclass(frozen=True)
class Levels:
    """The levels of one attention module of a model."""

    ranks: tuple[int, ...]
    block_sizes: tuple[int | None, ...]
    level_scale: LevelScale | tuple[float, ...] | None
    divide_by_shared_levels: bool
    rotary: bool

    @classmethod
    def of(
        cls, module: nn.Module, head_width: int, length: int, *, causal: bool
    ) -> "Levels | None":
        """Read the levels of a module; None of a stack that keeps standard attention."""
        config: Any = module.config
        stack = STACKS[bool(getattr(module, "is_decoder", False))]
        given, given_sizes = getattr(config, "ranks", None), getattr(config, "block_sizes", None)
        _check_stacks(given, given_sizes)
        ranks, sizes = _of_stack(given, stack), _of_stack(given_sizes, stack)
        if isinstance(given, Mapping) and ranks is None:
            return None
        ranks = default_ranks(head_width) if ranks is None else ranks
        if sizes is None:
            sizes = _default_sizes(config, len(check_levels(1, ranks)[0]), length, causal)
        checked, blocks = check_levels(length, ranks, sizes)
        rotary = _is_rotary(config)
        if rotary:
            _check_rotary(config, checked, module)
        scale = getattr(config, "level_scale", None)
        divides = getattr(config, "divide_by_shared_levels", False)
        check_switch("divide_by_shared_levels", divides)
        return cls(
            checked, blocks, tuple(scale) if isinstance(scale, list) else scale, divides, rotary
        )

    def arranged(self, x: Tensor) -> Tensor:
        """Return queries or keys with the columns that rotary positions turn together side by side.

        Those that turn slowly come first, for the coarse levels. Scores of all columns stay the
        same, and those of a level depend on distances alone.
        """
        if not self.rotary:
            return x
        slow_first: Tensor = x.unflatten(-1, (2, -1)).flip(-1)
        return slow_first.transpose(-1, -2).flatten(-2)

    def scale(self, scaling: float) -> LevelScale | tuple[float, ...]:
        """Return the factor of each level in a model that scales scores by ``scaling``."""
        return (scaling,) * len(self.ranks) if self.level_scale is None else self.level_scale


def _default_sizes(config: Any, num_levels: int, length: int, causal: bool) -> Sequence[int | None]:
    """Halve the blocks of each level in the length that a configuration names."""
    named = _named_length(config)
    if named is None and causal and num_levels > 1:
        raise ValueError(
            "`block_sizes` must stand in the configuration of a causal model that names no length "
            "of its sequences: blocks must stay in place as a sequence grows."
        )
    return halving_block_sizes(length if named is None else named, num_levels)


def _named_length(config: Any) -> int | None:
    """Return the length of a sequence that a configuration names, None if it names none."""
    return next((n for name in _LENGTHS if (n := getattr(config, name, None)) is not None), None)


def levels_of(config: Any) -> dict[str, Any]:
    """Return what a configuration says of levels, by name."""
    return {name: getattr(config, name) for name in FIELDS if hasattr(config, name)}


def with_levels(
    config: Any,
    *,
    ranks: Ranks,
    block_sizes: Sizes,
    level_scale: LevelScale | Sequence[float] | None,
    divide_by_shared_levels: bool,
) -> Any:
    """Return a copy of a configuration that names levels, which are checked."""
    width = head_width(config)
    _check_stacks(ranks, block_sizes)
    _check_two_stacks(config, ranks, block_sizes)
    for stack in STACKS:
        if isinstance(ranks, Mapping) and ranks.get(stack) is None:
            continue
        own, sizes = _of_stack(ranks, stack), _of_stack(block_sizes, stack)
        checked, _ = check_levels(1, default_ranks(width) if own is None else own, sizes)
        if sum(checked) != width:
            raise ValueError(
                f"`ranks` must sum to the head width {width}, got {checked} (sum {sum(checked)})."
            )
        if _is_rotary(config):
            _check_rotary(config, checked)
        if level_scale is not None:
            level_scales(checked, level_scale)
        if stack == "decoder" and getattr(config, "is_encoder_decoder", False) and sizes is None:
            # Their default, of which a causal stack may have none.
            _default_sizes(config, len(checked), 1, True)
    check_switch("divide_by_shared_levels", divide_by_shared_levels)
    made = copy.deepcopy(config)
    made.ranks = _plain(ranks)
    made.block_sizes = _plain(block_sizes)
    made.level_scale = _plain(level_scale)
    made.divide_by_shared_levels = divide_by_shared_levels
    return made


def _check_stacks(ranks: Any, block_sizes: Any) -> None:
    """Check that mappings name stacks, and ranks at least one."""
    for name, value in (("ranks", ranks), ("block_sizes", block_sizes)):
        if isinstance(value, Mapping) and (unknown := set(value) - set(STACKS)):
            raise ValueError(
                f"`{name}` must be given for {' and '.join(STACKS)}, got "
                f"{sorted(map(str, unknown))}."
            )
    if isinstance(ranks, Mapping) and all(value is None for value in ranks.values()):
        raise ValueError(f"`ranks` must name the levels of at least one stack, got {ranks!r}.")


def _check_two_stacks(config: Any, *given: Any) -> None:
    """Check that only a model of an encoder and a decoder has a mapping."""
    if getattr(config, "is_encoder_decoder", False):
        return
    for name, value in zip(("ranks", "block_sizes"), given, strict=True):
        if isinstance(value, Mapping):
            raise ValueError(
                f"`{name}` must be a sequence in a model of one stack: a mapping is for an "
                f"encoder and a decoder; got {value!r}."
            )


def check_modules(model: nn.Module, config: Any) -> None:
    """Check, of the attention of a whole model, what a forward pass would refuse."""
    if not _is_rotary(config):
        return
    given = config.ranks.values() if isinstance(config.ranks, Mapping) else [config.ranks]
    for ranks in given:
        for module in model.modules():
            if "Attention" in type(module).__name__:
                levels = default_ranks(head_width(config)) if ranks is None else ranks
                _check_rotary(config, tuple(levels), module)


def _check_rotary(config: Any, ranks: tuple[int, ...], module: nn.Module | None = None) -> None:
    """Check that each level can have whole pairs of columns that turn together."""
    if any(rank % 2 for rank in ranks):
        raise ValueError(
            "`ranks` must be even in a model with rotary positions, which turn columns in "
            f"pairs; got {ranks}."
        )
    if len(ranks) == 1:
        return
    reason = _turned_part(config) or (None if module is None else _pairwise(module))
    if reason is not None:
        raise ValueError(
            "`ranks` must be one level in a model whose rotary positions do not turn each column "
            f"i of a head of R with column i + R / 2, and {reason}; got {ranks}."
        )


def _is_rotary(config: Any) -> bool:
    """Whether a model turns pairs of columns of queries and keys by their positions."""
    names = ("rope_parameters", "rope_theta", "rotary_dim")
    return (
        any(getattr(config, name, None) is not None for name in names)
        or getattr(config, "position_embedding_type", None) == "rotary"
    )


def _turned_part(config: Any) -> str | None:
    """Return what says that only a part of the columns turns, None if nothing does."""
    if (width := getattr(config, "rotary_dim", None)) is not None:
        return f"`rotary_dim` is {width}"
    rope = getattr(config, "rope_parameters", None) or {}
    # There is one of each type of layer, or one of all.
    for each in (rope, *(value for value in rope.values() if isinstance(value, Mapping))):
        share = each.get("partial_rotary_factor")
        if share not in (None, 1):
            return f"`partial_rotary_factor` is {share}"
    return None


def _pairwise(module: nn.Module) -> str | None:
    """Return what says that neighbouring columns turn together, None if nothing does."""
    home = sys.modules[type(module).__module__]
    for name in _PAIRWISE:
        if hasattr(home, name):
            return f"{type(module).__name__} turns neighbouring columns together"
    turn = getattr(home, "rotate_half", None)
    if turn is not None and not torch.compiler.is_compiling():
        found = turn(torch.arange(4.0)).tolist()
        if found != [-2.0, -3.0, 0.0, 1.0]:
            return f"{type(module).__name__} turns neighbouring columns together"
    return None


def _of_stack(value: Any, stack: str) -> Any:
    """Return what holds for one stack."""
    return value.get(stack) if isinstance(value, Mapping) else value


def head_width(config: Any) -> int:
    """Return the columns of a head of the model that a configuration describes."""
    for name in ("d_kv", "head_dim"):
        if (width := getattr(config, name, None)) is not None:
            return int(width)
    width, count = (getattr(config, n, None) for n in ("hidden_size", "num_attention_heads"))
    if width is None or count is None:
        raise TypeError(
            "`config` must be the configuration of one model of transformers, which names "
            f"`hidden_size` and `num_attention_heads`; got a {type(config).__name__}. Of a model "
            "that consists of several, convert the parts."
        )
    return int(width // count)


def _plain(value: Any) -> Any:
    """Return a value in the types of JSON, as it comes back from a file."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return value if value is None or isinstance(value, str) else list(value)
