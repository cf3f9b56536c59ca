"""Classes of functions to learn in context: each draws points, values and what to predict.

A draw can be recorded as a CUDA graph: it launches device operations of fixed shapes only, reads
nothing back, and takes every random number from the generator that it is given.
"""

import dataclasses
import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from mlrforecast._core.registry import Registry
from mlrforecast.tasks._checks import count
from mlrforecast.tasks.in_context_regression._function import Episodes, FunctionClass, normal

__all__ = [
    "DecisionTree",
    "Episodes",
    "FunctionClass",
    "LinearClassification",
    "LinearRegression",
    "NearestNeighbour",
    "ReluNetwork",
    "SparseLinearRegression",
    "build_function",
    "function_classes",
]

NeighbourValues = Literal["normal", "signs"]

_DEEPEST_TREE = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearRegression(FunctionClass):
    """Linear functions ``y = w . x`` without noise, with normal weights of variance 1.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> xs, ys, _ = LinearRegression().draw(1, 2, 1, generator=generator)
    >>> bool(torch.isclose(ys[0, 0] / xs[0, 0, 0], ys[0, 1] / xs[0, 1, 0]))
    True
    """

    def _values(self, xs: Tensor, active: Tensor, generator: torch.Generator) -> Tensor:
        return _project(xs, normal((len(xs), xs.shape[-1]), generator, xs.device))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseLinearRegression(FunctionClass):
    """Linear functions of a few of the active coordinates, which are drawn for each episode.

    The kept weights are normal with the variance ``d / sparsity``, rather than 1 as in the original
    study, where coordinates have the variance 1: so the values have the variance 1.

    Parameters
    ----------
    sparsity : int, default 3
        How many weights are not 0; all where fewer coordinates are active.

    Raises
    ------
    ValueError
        If ``sparsity`` is no integer of at least 1.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> SparseLinearRegression(sparsity=2).draw(64, 20, 10, generator=generator).ys.shape
    torch.Size([64, 20])
    """

    sparsity: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "sparsity", count("sparsity", self.sparsity))

    def _values(self, xs: Tensor, active: Tensor, generator: torch.Generator) -> Tensor:
        shape = (len(xs), xs.shape[-1])
        weights = normal(shape, generator, xs.device)
        # The largest of random keys are a random choice whose size is known beforehand.
        keys = _uniform(shape, generator, xs.device).masked_fill(~active, -1)
        chosen = keys.topk(min(self.sparsity, shape[1]), sorted=False).indices
        kept = torch.zeros_like(weights).scatter(1, chosen, 1.0)
        dims = active.sum()
        scale = (dims / dims.clamp(max=self.sparsity)).sqrt()
        return _project(xs, weights * kept) * scale


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearClassification(FunctionClass):
    """On which side of a hyperplane through 0 a point lies: ``y = sign(w . x)``, -1 or 1.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> LinearClassification().draw(8, 20, 4, generator=generator).ys.unique()
    tensor([-1.,  1.])
    """

    def _values(self, xs: Tensor, active: Tensor, generator: torch.Generator) -> Tensor:
        weights = normal((len(xs), xs.shape[-1]), generator, xs.device)
        return _signs(_project(xs, weights))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReluNetwork(FunctionClass):
    """Networks of two layers, ``y = sqrt(2 / h) * sum_j a_j relu(w_j . x)``, of normal weights.

    All weights have the variance 1. The values have it too, here where a coordinate has the
    variance ``1 / d``; in the original study, where it is 1, they have the variance ``d``.

    Parameters
    ----------
    hidden_width : int, default 100
        Hidden units ``h``.

    Raises
    ------
    ValueError
        If ``hidden_width`` is no integer of at least 1.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> ReluNetwork(hidden_width=10).draw(64, 20, 10, generator=generator).ys.shape
    torch.Size([64, 20])
    """

    hidden_width: int = 100

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden_width", count("hidden_width", self.hidden_width))

    def _values(self, xs: Tensor, active: Tensor, generator: torch.Generator) -> Tensor:
        width = self.hidden_width
        first = normal((len(xs), xs.shape[-1], width), generator, xs.device)
        second = normal((len(xs), width), generator, xs.device)
        return _project(torch.relu(xs @ first), second) * math.sqrt(2 / width)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecisionTree(FunctionClass):
    """Full binary trees: a node asks for the sign of one active coordinate, a leaf has a value.

    A positive coordinate leads to the right. Values of leaves are normal with variance 1; the
    scale of points does not matter.

    Parameters
    ----------
    depth : int, default 4
        Questions on the way to a leaf, 1 to 16.

    Raises
    ------
    ValueError
        If ``depth`` is out of its range.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> ys = DecisionTree(depth=1).draw(1, 20, 10, generator=generator).ys
    >>> len(ys.unique())
    2
    """

    depth: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", count("depth", self.depth))
        if self.depth > _DEEPEST_TREE:
            raise ValueError(f"`depth` must be at most {_DEEPEST_TREE}, got {self.depth}.")

    def _values(self, xs: Tensor, active: Tensor, generator: torch.Generator) -> Tensor:
        num_leaves = 2**self.depth
        shares = _uniform((len(xs), num_leaves - 1), generator, xs.device)
        dims = active.sum()
        # A share just below 1 times the dimensions may be rounded up to them.
        asked = torch.minimum((shares * dims).long(), dims - 1)
        leaves = normal((len(xs), num_leaves), generator, xs.device)
        # The children of a node are 2 node + 1 and 2 node + 2.
        node = torch.zeros(xs.shape[:2], dtype=torch.long, device=xs.device)
        for _ in range(self.depth):
            coordinate = asked.gather(1, node)[..., None]
            node = 2 * node + 1 + (xs.gather(2, coordinate)[..., 0] > 0)
        return leaves.gather(1, node - (num_leaves - 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NearestNeighbour(FunctionClass):
    """Points on the unit sphere with random values; to predict is that of the nearest point before.

    One head that compares points in all their dimensions can do it; of heads of a low rank it takes
    a number that is exponential in the dimensions. The target of the first point is 0; of points
    before that are equally near, the earliest counts.

    Parameters
    ----------
    values : {"normal", "signs"}
        Whether values are normal with variance 1, or -1 and 1 with equal chances.

    Raises
    ------
    ValueError
        If ``values`` is neither.

    References
    ----------
    Amsel, Yehudai and Bruna, On the Benefits of Rank in Attention Layers, arXiv 2407.16153.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> xs, ys, targets = NearestNeighbour().draw(1, 9, 3, generator=generator)
    >>> torch.equal(targets[0, :2], torch.stack([torch.tensor(0.0), ys[0, 0]]))
    True
    """

    values: NeighbourValues = "normal"

    def __post_init__(self) -> None:
        if self.values not in (choices := get_args(NeighbourValues)):
            raise ValueError(f"`values` must be one of {', '.join(choices)}, got {self.values!r}.")

    def _place(self, xs: Tensor, active: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(xs, dim=-1, keepdim=True)
        return xs / lengths

    def _values(self, xs: Tensor, active: Tensor, generator: torch.Generator) -> Tensor:
        drawn = normal(tuple(xs.shape[:2]), generator, xs.device)
        return drawn if self.values == "normal" else _signs(drawn)

    def _targets(self, xs: Tensor, ys: Tensor) -> Tensor:
        # Rounded products (float32, or TF32 where it is allowed) would mistake close neighbours.
        exact = xs.double()
        squares = exact.square().sum(-1)
        distances = squares[:, None, :] - 2 * exact @ exact.mT
        later = torch.ones(distances.shape[1:], dtype=torch.bool, device=xs.device).triu()
        nearest = distances.masked_fill(later, math.inf).argmin(-1)
        seen = torch.arange(xs.shape[1], device=xs.device) > 0
        return ys.gather(1, nearest) * seen


function_classes: Registry[type[FunctionClass]] = Registry("function class", base=FunctionClass)
"""Name of a task -> class of its functions."""

function_classes.register("decision_tree", DecisionTree)
function_classes.register("linear_classification", LinearClassification)
function_classes.register("linear_regression", LinearRegression)
function_classes.register("nearest_neighbour", NearestNeighbour)
function_classes.register("relu_network", ReluNetwork)
function_classes.register("sparse_linear_regression", SparseLinearRegression)


def build_function(name: str, **options: Any) -> FunctionClass:
    """Return a function class by its name.

    Parameters
    ----------
    name : str
        One of the names of :data:`function_classes`.
    **options : object
        Its own settings, such as ``depth`` of a decision tree.

    Returns
    -------
    FunctionClass

    Raises
    ------
    ValueError
        If there is no such name or option, or an option is out of its range.

    Examples
    --------
    >>> build_function("decision_tree", depth=3)
    DecisionTree(depth=3)
    """
    found = function_classes[name]
    known = [field.name for field in dataclasses.fields(found)]
    for option in options:
        if option not in known:
            raise ValueError(
                f"{name!r} has no option `{option}`. Its options are "
                f"{', '.join(known) if known else 'none'}."
            )
    return found(**options)


def _uniform(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw numbers in [0, 1)."""
    return torch.rand(shape, generator=generator, device=device, dtype=torch.float32)


def _signs(values: Tensor) -> Tensor:
    """Return -1 or 1; what rounds to 0 is no third class."""
    return (values >= 0).float() * 2 - 1


def _project(vectors: Tensor, weights: Tensor) -> Tensor:
    """Return the products of vectors (B, N, K) with weights (B, K), in full float32 anywhere."""
    return (vectors * weights[:, None]).sum(-1)
