"""Levels of multi-level attention in the configuration of somebody else's model."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor, nn

from mlrforecast.nn.attention.mlr import default_ranks
from mlrforecast.ops import check_levels, halving_block_sizes, level_scales
from mlrforecast.ops.scores import LevelScale

Ranks: TypeAlias = Sequence[int] | Mapping[str, Sequence[int] | None] | None
Sizes: TypeAlias = Sequence[int | None] | Mapping[str, Sequence[int | None] | None] | None

STACKS = ("encoder", "decoder")
FIELDS = ("ranks", "block_sizes", "level_scale", "divide_by_shared_levels")
# Names under which configurations have the length of a sequence.
_LENGTHS = ("max_position_embeddings", "n_positions")


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
        given = getattr(config, "ranks", None)
        ranks = _of_stack(given, stack)
        if isinstance(given, Mapping) and ranks is None:
            return None
        sizes = _of_stack(getattr(config, "block_sizes", None), stack)
        ranks = default_ranks(head_width) if ranks is None else ranks
        checked, blocks = check_levels(
            length,
            ranks,
            _default_sizes(config, len(ranks), length, causal) if sizes is None else sizes,
        )
        scale = getattr(config, "level_scale", None)
        return cls(
            checked,
            blocks,
            tuple(scale) if isinstance(scale, list) else scale,
            getattr(config, "divide_by_shared_levels", False),
            _is_rotary(config),
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
    named = next((n for name in _LENGTHS if (n := getattr(config, name, None)) is not None), None)
    if named is None and causal and num_levels > 1:
        raise ValueError(
            "`block_sizes` must stand in the configuration of a causal model that names no length "
            "of its sequences: blocks must stay in place as a sequence grows."
        )
    return halving_block_sizes(length if named is None else named, num_levels)


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
    for name, value in (("ranks", ranks), ("block_sizes", block_sizes)):
        if isinstance(value, Mapping) and (unknown := set(value) - set(STACKS)):
            raise ValueError(
                f"`{name}` must be given for {' and '.join(STACKS)}, got {sorted(unknown)}."
            )
    for stack in STACKS:
        if isinstance(ranks, Mapping) and ranks.get(stack) is None:
            continue
        own = _of_stack(ranks, stack)
        checked, _ = check_levels(
            1, default_ranks(width) if own is None else own, _of_stack(block_sizes, stack)
        )
        if sum(checked) != width:
            raise ValueError(
                f"`ranks` must sum to the head width {width}, got {checked} (sum {sum(checked)})."
            )
        if _is_rotary(config) and any(rank % 2 for rank in checked):
            raise ValueError(
                "`ranks` must be even in a model with rotary positions, which turn columns in "
                f"pairs; got {checked}."
            )
        if level_scale is not None:
            level_scales(checked, level_scale)
    if not isinstance(divide_by_shared_levels, bool):
        raise TypeError(
            f"`divide_by_shared_levels` must be True or False, got {divide_by_shared_levels!r}."
        )
    made = copy.deepcopy(config)
    made.ranks = _plain(ranks)
    made.block_sizes = _plain(block_sizes)
    made.level_scale = _plain(level_scale)
    made.divide_by_shared_levels = divide_by_shared_levels
    return made


def _is_rotary(config: Any) -> bool:
    """Whether a model turns pairs of columns of queries and keys by their positions."""
    names = ("rope_parameters", "rope_theta")
    return any(getattr(config, name, None) is not None for name in names)


def _of_stack(value: Any, stack: str) -> Any:
    """Return what holds for one stack."""
    return value.get(stack) if isinstance(value, Mapping) else value


def head_width(config: Any) -> int:
    """Return the columns of a head of the model that a configuration describes."""
    for name in ("d_kv", "head_dim"):
        if (width := getattr(config, name, None)) is not None:
            return int(width)
    return int(config.hidden_size // config.num_attention_heads)


def _plain(value: Any) -> Any:
    """Return a value in the types of JSON, as it comes back from a file."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return value if value is None or isinstance(value, str) else list(value)
