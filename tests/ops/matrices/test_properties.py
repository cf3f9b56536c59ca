"""Formulas of parameters, cost and rank, and the products, over sizes that hypothesis draws."""

import math
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mlrforecast.ops import MLBTC, BlockLevel, Shuffle, StructuredMatrix
from mlrforecast.ops.matrices import matrices
from tests.ops.matrices import definitions

SMALL = st.integers(1, 6)
# Each example is one more matrix; the run-time shape checker makes a hundred of them slow.
FEW = settings(max_examples=40)


def build(name: str, d_out: int, d_in: int, **options: Any) -> Any:
    specs = matrices[name].parameter_specs(d_out, d_in, **options)
    generator = torch.Generator().manual_seed(0)
    parameters = {key: randn(generator, *spec.shape) for key, spec in specs.items()}
    return matrices[name].from_parameters(parameters, **options)


def randn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def check_products(matrix: StructuredMatrix) -> None:
    dense, generator = matrix.dense(), torch.Generator().manual_seed(1)
    x, y = randn(generator, 3, matrix.shape[1]), randn(generator, 3, matrix.shape[0])
    torch.testing.assert_close(matrix.apply(x), x @ dense.mT)
    torch.testing.assert_close(matrix.apply_transposed(y), y @ dense)


def true_rank(matrix: StructuredMatrix) -> int:
    return int(torch.linalg.matrix_rank(matrix.dense()))


@FEW
@given(d_out=SMALL, d_in=SMALL, rank=SMALL)
def test_low_rank(d_out: int, d_in: int, rank: int) -> None:
    matrix = build("low_rank", d_out, d_in, rank=rank)
    check_products(matrix)
    assert matrix.num_parameters == matrix.flops() == (d_out + d_in) * rank
    assert matrix.rank() == true_rank(matrix) == min(rank, d_out, d_in)


@FEW
@given(
    sides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    ranks=st.lists(st.integers(1, 3), min_size=1, max_size=4),
)
def test_mlr_of_halved_blocks(sides: tuple[int, int], ranks: list[int]) -> None:
    d_out, d_in = (side * 2 ** (len(ranks) - 1) for side in sides)
    matrix = build("mlr", d_out, d_in, ranks=ranks)
    check_products(matrix)
    assert matrix.num_parameters == matrix.flops() == (d_out + d_in) * sum(ranks)
    reach = sum(rank * 2**lvl for lvl, rank in enumerate(ranks))
    assert matrix.rank() == true_rank(matrix) == min(d_out, d_in, reach)


@FEW
@given(
    levels=st.lists(
        st.tuples(st.integers(1, 2), st.sampled_from([1, 2, 3, 4, 6, 12])), min_size=1, max_size=3
    ),
    wide=st.booleans(),
)
def test_mlr_of_any_divisors(levels: list[tuple[int, int]], wide: bool) -> None:
    ranks, counts = zip(*levels, strict=True)
    matrix = build("mlr", 12, 24 if wide else 12, ranks=ranks, num_blocks=counts)
    check_products(matrix)
    reach = sum(rank * count for rank, count in levels)
    assert matrix.rank() == true_rank(matrix) == min(12, reach)


@FEW
@given(a=SMALL, b=SMALL, c=SMALL, d=SMALL, rank=st.integers(1, 3))
def test_btt_of_uneven_factors(a: int, b: int, c: int, d: int, rank: int) -> None:
    pairs = {"out_factors": (a, b), "in_factors": (c, d)}
    matrix = build("btt", a * b, c * d, rank=rank, **pairs)
    check_products(matrix)
    assert matrix.num_parameters == matrix.flops() == b * c * rank * (a + d)
    assert matrix.rank() == true_rank(matrix) == min(a * b, c * d, b * c * rank)
    if (a, b) == (c, d):
        assert matrix.num_parameters == a * b * rank * (a + b)
        assert matrix.rank() == a * b


@FEW
@given(root=SMALL, rank=st.integers(1, 3))
def test_btt_of_a_square_split_evenly(root: int, rank: int) -> None:
    pairs = {"out_factors": (root, root), "in_factors": (root, root)}
    matrix = build("btt", root**2, root**2, rank=rank, **pairs)
    assert matrix.num_parameters == 2 * (root**2) ** 1.5 * rank


@FEW
@given(d_out=st.integers(1, 30), d_in=st.integers(1, 30))
def test_monarch_and_the_default_train_differ_only_in_their_factors(d_out: int, d_in: int) -> None:
    monarch = build("monarch", d_out, d_in)
    (b, a, c), (_, d, _) = (x.shape for x in monarch.parameters().values())
    train = build("btt", d_out, d_in, out_factors=(a, b), in_factors=(c, d))
    assert torch.equal(monarch.dense(), train.dense())
    check_products(monarch)
    assert b >= a
    assert d >= c
    assert monarch.rank() == true_rank(monarch)


@FEW
@given(
    radices=st.lists(st.integers(2, 5), min_size=1, max_size=4).filter(lambda r: math.prod(r) < 64)
)
def test_butterfly_of_mixed_radices(radices: list[int]) -> None:
    size = math.prod(radices)
    matrix = build("butterfly", size, size, radices=radices)
    check_products(matrix)
    assert matrix.num_parameters == size * sum(radices)
    assert matrix.rank() == true_rank(matrix) == size


@FEW
@given(size=st.integers(1, 60))
def test_butterfly_of_any_size(size: int) -> None:
    matrix = build("butterfly", size, size)
    check_products(matrix)
    radices = [factor.shape[-1] for factor in matrix.parameters().values()]
    assert math.prod(radices) == size
    assert all(n < 4 or all(n % i for i in range(2, n)) for n in radices)
    assert matrix.num_parameters == size * sum(radices)


@FEW
@given(a=SMALL, b=SMALL, c=SMALL, d=SMALL)
def test_kronecker_of_uneven_factors(a: int, b: int, c: int, d: int) -> None:
    matrix = build("kronecker", a * b, c * d, out_factors=(a, b), in_factors=(c, d))
    check_products(matrix)
    assert matrix.num_parameters == a * c + b * d
    assert matrix.flops() == b * c * (a + d)
    assert matrix.rank() == true_rank(matrix) == min(a, c) * min(b, d)


# Strategies draw plain numbers and the tests build from them: the run-time shape checker draws at
# random inside the library, which hypothesis does not allow in a strategy.
Grid = tuple[tuple[int, ...], tuple[int, ...]]


@st.composite
def grids(draw: st.DrawFn, length: int) -> Grid | None:
    """Sides and order of a permutation of ``length`` entries, with three axes."""
    first = draw(st.sampled_from(divisors(length)))
    second = draw(st.sampled_from(divisors(length // first)))
    order = draw(st.permutations(range(3)))
    return draw(st.sampled_from([None, ((first, second, length // first // second), tuple(order))]))


@st.composite
def sizes(draw: st.DrawFn, d_out: int, d_in: int) -> tuple[int, int, int, Grid | None, Grid | None]:
    """Blocks on both sides, the width between them, and permutations after each."""
    right, left = draw(st.sampled_from(divisors(d_in))), draw(st.sampled_from(divisors(d_out)))
    width = math.lcm(right, left) * draw(st.integers(1, 2))
    return right, left, width, draw(grids(width)), draw(grids(d_out))


def divisors(size: int) -> list[int]:
    return [n for n in range(1, size + 1) if size % n == 0]


@FEW
@given(data=st.data(), d_out=st.integers(1, 12), d_in=st.integers(1, 12))
def test_the_rank_of_any_mlbtc_is_that_of_its_narrowest_part(
    data: st.DataObject, d_out: int, d_in: int
) -> None:
    """Whatever the permutations and the numbers of blocks: the claim that all families rest on."""
    generator = torch.Generator().manual_seed(0)
    levels, middle_width = [], 0
    drawn = data.draw(st.lists(sizes(d_out, d_in), min_size=1, max_size=3))
    for right, left, width, middle, output in drawn:
        level = BlockLevel(
            randn(generator, right, d_in // right, width // right),
            randn(generator, left, d_out // left, width // left),
            middle and Shuffle(*middle),
            output and Shuffle(*output),
        )
        levels.append(level)
        middle_width += width
    matrix = MLBTC(levels)
    check_products(matrix)
    torch.testing.assert_close(matrix.dense(), definitions.mlbtc(levels, matrix.scales))
    assert matrix.rank() == true_rank(matrix) == min(d_out, d_in, middle_width)


@FEW
@given(data=st.data(), length=st.integers(1, 24))
def test_a_permutation_is_undone_by_its_inverse(data: st.DataObject, length: int) -> None:
    permutation = Shuffle(*(data.draw(grids(length)) or ((length,), (0,))))
    x = torch.arange(length)
    assert torch.equal(permutation.inverse()(permutation(x)), x)
    assert sorted(permutation(x).tolist()) == x.tolist()
