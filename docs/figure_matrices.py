"""Draw each family of structured matrices as a product or sum of its real parts."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from torch import Tensor

from mlrforecast.ops import MLBTC, BlockLevel, Butterfly
from mlrforecast.ops.matrices import matrices

SIDE = 12
EXAMPLES = {
    "low_rank": {"rank": 3},
    "mlr": {"ranks": (3, 2, 1)},
    "btt": {"rank": 2},
    "monarch": {},
    "butterfly": {},
    "kronecker": {},
    "dense": {},
}
EMPTY, INK = "#f0f0f0", "#222222"
# Neighbouring blocks differ in lightness too, for grey print and every kind of colour blindness.
BLOCKS = ("#0072b2", "#e69f00", "#004d3b", "#56b4e9", "#a33b00", "#cc79a7")
VALUES = LinearSegmentedColormap.from_list("values", [EMPTY, "#9ecae1", "#2171b5", "#08306b"])
FACTORS = ListedColormap((EMPTY, *BLOCKS))

# What one picture shows: a matrix, what stands below it, and the sign before it. Integers are
# numbers of blocks and get a colour each; other numbers are sizes of entries.
Term = tuple[str, Tensor, str]


def draw(folder: Path) -> None:
    """Draw one picture for each family."""
    for name, options in EXAMPLES.items():
        _draw_terms(folder / f"matrix_{name}.png", _terms(name, _build(name, options)))


def _build(name: str, options: dict[str, object]) -> MLBTC:
    """Draw positive entries, so that what adds up is darker."""
    generator = torch.Generator().manual_seed(4)
    specs = matrices[name].parameter_specs(SIDE, SIDE, **options)
    entries = {
        key: 0.2 + torch.rand(spec.shape, generator=generator) for key, spec in specs.items()
    }
    matrix = matrices[name].from_parameters(entries, **options)
    assert isinstance(matrix, MLBTC)
    return matrix


def _terms(name: str, matrix: MLBTC) -> list[Term]:
    """Take a matrix apart in the way that says most about its family."""
    whole = ("", matrix.dense(), "M")
    if name == "dense":
        return [whole]
    if name == "mlr":
        parts = [MLBTC([level]).dense() for level in matrix.levels]
        shown = [(part != 0) * _blocks_of_diagonal(2**lvl) for lvl, part in enumerate(parts)]
        captions = [f"{2**lvl} blocks of rank {rank}" for lvl, rank in enumerate((3, 2, 1))]
        captions[0] = "1 block of rank 3"
        signs = ["=", "+", "+"]
        return [whole, *zip(signs, shown, captions, strict=True)]
    if name == "butterfly":
        return [whole, *_digits(matrix)]
    if name == "kronecker":
        left, right = (matrix.parameters()[key] for key in ("left", "right"))
        return [whole, ("=", left, "left"), ("⊗", right, "right")]
    left, right = _factors(matrix.levels[0])
    caption = "left" if name == "low_rank" else "left, permuted"
    return [whole, ("=", left, caption), ("", right, "rightᵀ")]


def _blocks_of_diagonal(count: int) -> Tensor:
    """Number the rows by the block that they lie in."""
    return (torch.arange(SIDE) * count // SIDE + 1)[:, None]


def _factors(level: BlockLevel) -> tuple[Tensor, Tensor]:
    """Write out both factors of a level, each entry with the number of its block."""
    assert level.left is not None
    left, right = (_numbered(x) for x in (level.left, level.right))
    identity = torch.eye(level.width)[None]
    permuted = BlockLevel(identity, left, level.middle, level.output)
    return MLBTC([permuted]).dense().int(), MLBTC([BlockLevel(right)]).dense().int()


def _numbered(blocks: Tensor) -> Tensor:
    """Replace each entry by the number of its block."""
    return torch.ones_like(blocks) * (1 + torch.arange(len(blocks)))[:, None, None]


def _digits(matrix: MLBTC) -> list[Term]:
    """Write out each sparse factor of a butterfly; the blocks of one factor get a colour each."""
    factors = list(matrix.parameters().values())
    identities = [torch.eye(factor.shape[-1]).expand_as(factor) for factor in factors]
    terms = []
    for place, factor in enumerate(factors):
        numbers = 1 + torch.arange(factor.shape[0] * factor.shape[1])
        numbered = numbers.reshape(*factor.shape[:2], 1, 1).expand_as(factor).float()
        product = Butterfly([*identities[:place], numbered, *identities[place + 1 :]])
        caption = f"mixes digit {place + 1}, radix {factor.shape[-1]}"
        terms.append(("" if place else "=", product.dense().int(), caption))
    return terms


def _draw_terms(path: Path, terms: Sequence[Term]) -> None:
    """Set the matrices side by side, all entries of one size, with signs between."""
    entry, gap, below = 0.105, 0.34, 0.3
    widths = [value.shape[1] * entry for _, value, _ in terms]
    # A caption needs about an inch.
    slots = [max(width, 1.1) for width in widths]
    tallest = max(value.shape[0] for _, value, _ in terms) * entry
    size = sum(slots) + gap * len(terms), tallest + below + 0.08
    figure = Figure(figsize=size, dpi=200)
    at = gap / 2
    for (sign, value, caption), width, slot in zip(terms, widths, slots, strict=True):
        height = value.shape[0] * entry
        middle = below + tallest / 2
        left, bottom = at + (slot - width) / 2, middle - height / 2
        axes = figure.add_axes(
            (left / size[0], bottom / size[1], width / size[0], height / size[1])
        )
        _paint(axes, value)
        figure.text((at + slot / 2) / size[0], 0.04, caption, ha="center", fontsize=8, color=INK)
        figure.text((at - gap / 2) / size[0], middle / size[1], sign, ha="center", va="center")
        at += slot + gap
    figure.savefig(path)


def _paint(axes: Axes, value: Tensor) -> None:
    """Colour numbers of blocks one by one, and sizes of entries from pale to dark."""
    numbers = value.numpy()
    if value.is_floating_point():
        axes.imshow(numbers, cmap=VALUES, vmin=0, vmax=numbers.max())
    else:
        colours = np.where(numbers > 0, (numbers - 1) % len(BLOCKS) + 1, 0)
        axes.imshow(colours, cmap=FACTORS, vmin=0, vmax=len(BLOCKS))
    rows, columns = numbers.shape
    axes.set_xticks(np.arange(columns + 1) - 0.5, labels=[])
    axes.set_yticks(np.arange(rows + 1) - 0.5, labels=[])
    axes.grid(color="white", linewidth=0.5)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
