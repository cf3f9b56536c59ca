"""How the fused kernels are launched: tiles, warps, and what a kernel is specialised by."""

import itertools
import math
import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mlrforecast.ops._layout import constant
from mlrforecast.ops.attention._walks import Evenness

__all__ = [
    "ABSENT",
    "AVAILABLE",
    "FUSION",
    "INTERPRETED",
    "Launch",
    "abilities",
    "column_factors",
    "column_spans",
    "describable",
    "descriptors",
    "launch_of",
    "make_layout",
    "power_of_two",
    "strided",
    "sum_dtype",
]


def _is_available() -> bool:
    """Whether a Triton is there that the kernels compile with."""
    try:
        major, minor = version("triton").split(".")[:2]
    except PackageNotFoundError:
        return False
    return (int(major), int(minor)) >= (3, 6)


AVAILABLE = _is_available()
"""Whether there is a Triton that the kernels compile with."""

ABSENT = "it needs the package triton, 3.6 or later, as it comes with PyTorch for a GPU"
"""Why nothing is served without it."""

INTERPRETED = AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
"""Whether the kernels run on the CPU, in Triton's interpreter: slow, to check them."""


FUSION: dict[str, bool] = {} if INTERPRETED else {"enable_fp_fusion": True}
"""A product and a sum are one instruction: said, because Triton is about to change what is not."""


@lru_cache(maxsize=16)
def abilities(device: torch.device) -> tuple[tuple[int, int], int]:
    """Return the compute capability of a GPU and the shared memory that a program may have."""
    properties = torch.cuda.get_device_properties(device)
    return (properties.major, properties.minor), getattr(
        properties, "shared_memory_per_block_optin", 0
    )


class Launch(NamedTuple):
    """How a kernel is launched."""

    rows: int
    columns: int
    warps: int
    registers: int | None
    """Most registers of a thread: fewer let more programs run side by side."""
    depth: int
    """Tiles in flight where a stage has many."""
    described_from: int
    """The fewest columns of a tile that the copy engine loads: it is slow at narrow ones."""

    @property
    def options(self) -> dict[str, int]:
        """The keyword arguments of a launch."""
        if INTERPRETED:
            return {}
        options = {"num_warps": self.warps, **FUSION}
        return options if self.registers is None else options | {"maxnreg": self.registers}


_WIDTHS = (16, 32, 64, 128, 256)

# The fastest of those tried on an H200 at 8192 steps, see benchmarks/kernels/NOTES.md.
_HALF_PRECISION = {
    ("forward", 64): Launch(64, 64, 4, 128, 3, 64),
    ("backward_queries", 64): Launch(64, 64, 4, 168, 3, 64),
    ("backward_keys", 64): Launch(64, 64, 4, 168, 2, 16),
    ("forward", 128): Launch(64, 64, 4, 168, 2, 16),
    ("backward_queries", 128): Launch(64, 64, 4, 168, 2, 16),
    ("backward_keys", 128): Launch(64, 64, 4, None, 3, 128),
    ("forward", 256): Launch(64, 64, 8, None, 2, 64),
    ("backward_queries", 256): Launch(64, 32, 8, None, 2, 64),
    ("backward_keys", 256): Launch(64, 32, 8, None, 2, 64),
}
_FULL_PRECISION = Launch(32, 32, 4, None, 2, 16)
_INTERPRETED = Launch(16, 16, 4, None, 1, 16)

_FEW_LEVELS = 4
_FLAT_UP_TO = 2048
"""Steps up to which one loop over all tiles is faster than a narrower one for each level."""

_FLAT_DEPTH = 2
"""Tiles in flight there."""

_MANY_TILES = 6
"""Tiles of a stage from which it pays to load some ahead."""


def launch_of(name: str, dtype: torch.dtype, width: int) -> Launch:
    """Return how a kernel is launched for heads of so many columns."""
    if INTERPRETED:
        return _INTERPRETED
    if dtype.itemsize > 2:
        return _FULL_PRECISION
    return _HALF_PRECISION[name, max(64, power_of_two(width))]


@lru_cache(maxsize=256)
def make_layout(
    launch: Launch,
    ranks: tuple[int, ...],
    evenness: Evenness,
    value_width: int,
    group: int,
    dtype: torch.dtype,
    causal: bool,
    masked: bool,
    scaled: bool,
    divide: bool,
    dropout: bool,
    cut: bool,
    described: bool,
) -> Any:
    """Return what a kernel is specialised by; ``cut``: see :class:`Span`."""
    from triton import language as tl

    from mlrforecast.ops.attention._triton_kernels import Layout

    upto, padded = column_spans(ranks)
    coarse = 0 if cut else _coarse(evenness.alignment, launch.rows, launch.columns)
    flat = 1 < coarse == len(ranks) <= _FEW_LEVELS and max(evenness.lengths) <= _FLAT_UP_TO
    return Layout(
        upto=upto,
        padded=padded,
        widths=tuple(power_of_two(rank) for rank in ranks),
        halvings=(0, *(_halvings(wide, narrow) for narrow, wide in itertools.pairwise(padded))),
        kinds=tuple(_halvings(width, _WIDTHS[0]) for width in padded),
        depths=(_FLAT_DEPTH,) * len(ranks) if flat else _depths(evenness.lengths, padded, launch),
        levels=len(ranks),
        coarse=coarse,
        first_mixed=min(coarse, len(ranks) - causal),
        value_columns=value_width,
        value_width=power_of_two(value_width),
        group=group,
        causal=causal,
        masked=masked,
        scaled=scaled,
        divide=divide,
        dropout=dropout,
        rank_step=math.gcd(*upto),
        flat=flat,
        described=described,
        described_from=launch.described_from,
        rows=launch.rows,
        columns=launch.columns,
        # Products of float32 are those of float32, as in PyTorch's own attention.
        precision="ieee",
        sum=tl.float64 if dtype == torch.float64 else tl.float32,
    )


def _depths(lengths: Sequence[int], widths: Sequence[int], launch: Launch) -> tuple[int, ...]:
    """Return how many tiles of each stage are in flight.

    One where there are few anyway, and where they are the widest: room for more of those would
    leave a multiprocessor with fewer programs.
    """
    longest = lengths[0]
    beyond = [longer - shorter for longer, shorter in itertools.pairwise((*lengths, 0))]
    widest = widths[-1] if widths[0] < widths[-1] else 2 * widths[-1]
    many = [longest == 0 or steps >= _MANY_TILES * launch.columns for steps in beyond]
    return tuple(
        launch.depth if pays and width < widest else 1
        for pays, width in zip(many, widths, strict=True)
    )


def column_spans(ranks: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the columns before each level, and all, and the widths of products up to each."""
    upto = tuple(itertools.accumulate(ranks, initial=0))
    return upto, tuple(power_of_two(end) for end in upto[1:])


def power_of_two(width: int) -> int:
    """Return the width that a product of tiles takes for so many columns."""
    return max(_WIDTHS[0], 1 << (width - 1).bit_length())


def _halvings(wide: int, narrow: int) -> int:
    """Return how often one power of two is to be halved to become another."""
    return (wide // narrow).bit_length() - 1


def _coarse(alignment: Sequence[int], *sizes: int) -> int:
    """Count the levels, from the coarsest on, that have no border inside a tile."""
    inside = [any(step % size for size in sizes) for step in alignment]
    return inside.index(True) if True in inside else len(inside)


def sum_dtype(x: Tensor) -> torch.dtype:
    """Return what sums are taken in."""
    return torch.promote_types(x.dtype, torch.float32)


def describable(*tensors: Tensor) -> bool:
    """Whether the copy engine can load tiles: it wants addresses that 16 bytes divide."""
    if not _has_copy_engine(tensors[0].device):
        return False
    return all(
        x.data_ptr() % 16 == 0 and all(s > 0 and s * x.itemsize % 16 == 0 for s in x.stride()[:3])
        for x in tensors
    )


@lru_cache
def _has_copy_engine(device: torch.device) -> bool:
    """Whether a GPU loads tiles by itself."""
    return device.type == "cuda" and abilities(device)[0] >= (9, 0)


def descriptors(layout: Any, x: Tensor, values: Tensor) -> list[Any]:
    """Return the descriptors of the tiles of ``x``, by their width, and of ``values``."""
    if not layout.described:
        return [0] * (len(_WIDTHS) + 1)
    from triton.tools.tensor_descriptor import TensorDescriptor

    def describe(x: Tensor, width: int) -> Any:
        return TensorDescriptor(x, x.shape, x.stride(), [1, 1, layout.columns, width])

    by_width = [describe(x, width) if width in layout.padded else 0 for width in _WIDTHS]
    return [*by_width, describe(values, layout.value_width)]


def strided(*tensors: Tensor) -> list[Any]:
    """Return each tensor and the elements from one sequence, head and step to the next."""
    return [argument for x in tensors for argument in (x, x.stride()[:3])]


def column_factors(q: Tensor, ranks: Sequence[int], scales: Sequence[float]) -> Tensor:
    """Return the factor of each column of the queries, relative to the largest.

    Relative to it no factor is above 1, and half-precision queries cannot overflow.
    """
    largest = max(scales)
    columns = [
        scale / largest for scale, rank in zip(scales, ranks, strict=True) for _ in range(rank)
    ]
    return constant(columns, sum_dtype(q), q.device)
