"""Every structure passes the contract, and none is registered without its class here."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from mlrforecast._core.registry import Registry
from mlrforecast.ops import (
    MLBTC,
    BlockLayout,
    BlockLevel,
    BlockTensorTrain,
    Butterfly,
    Dense,
    Kronecker,
    LowRank,
    Monarch,
    MultiLevelLowRank,
    Shuffle,
    StructuredMatrix,
)
from mlrforecast.ops.matrices import matrices
from mlrforecast.testing import MatrixExample, StructuredMatrixContract
from tests.ops.matrices import definitions


class TestLowRank(StructuredMatrixContract):
    structure = LowRank
    definition = staticmethod(definitions.low_rank)

    def examples(self) -> Sequence[MatrixExample]:
        return [
            MatrixExample(6, 4, {"rank": 2}),
            MatrixExample(3, 7, {"rank": 5}),
            MatrixExample(1, 1, {"rank": 1}, torch_counts_flops=False),
        ]


class TestMultiLevelLowRank(StructuredMatrixContract):
    structure = MultiLevelLowRank
    definition = staticmethod(definitions.mlr)

    def examples(self) -> Sequence[MatrixExample]:
        return [
            MatrixExample(8, 8, {"ranks": (2,)}),
            MatrixExample(12, 8, {"ranks": (2, 1, 1)}, torch_counts_flops=False),
            MatrixExample(12, 18, {"ranks": (2, 3, 2), "num_blocks": (1, 2, 3)}),
            MatrixExample(6, 6, {"ranks": (2, 2), "num_blocks": (3, 2), "scales": (0.5, -2.0)}),
            MatrixExample(4, 4, {"ranks": (1, 1, 5)}, torch_counts_flops=False),
        ]


class TestBlockTensorTrain(StructuredMatrixContract):
    structure = BlockTensorTrain
    definition = staticmethod(definitions.btt)

    def examples(self) -> Sequence[MatrixExample]:
        pairs = {"out_factors": (2, 5), "in_factors": (4, 2)}
        return [
            MatrixExample(16, 16),
            MatrixExample(6, 12, {"rank": 2}),
            MatrixExample(10, 8, {"rank": 3} | pairs),
            MatrixExample(10, 8, {"out_factors": (5, 2)}),
            MatrixExample(5, 3, torch_counts_flops=False),
            MatrixExample(12, 10, {"out_factors": (12, 1), "in_factors": (2, 5), "rank": 2}),
        ]


class TestMonarch(StructuredMatrixContract):
    structure = Monarch
    definition = staticmethod(definitions.btt)

    def examples(self) -> Sequence[MatrixExample]:
        return [
            MatrixExample(9, 9),
            MatrixExample(6, 12),
            MatrixExample(8, 6, {"out_factors": (4, 2), "in_factors": (2, 3)}),
            MatrixExample(2, 1, torch_counts_flops=False),
        ]


class TestButterfly(StructuredMatrixContract):
    structure = Butterfly
    definition = staticmethod(definitions.butterfly)

    def examples(self) -> Sequence[MatrixExample]:
        return [
            MatrixExample(8, 8),
            MatrixExample(12, 12),
            MatrixExample(12, 12, {"radices": (3, 2, 2)}),
            MatrixExample(12, 12, {"radices": (2, 6)}),
            MatrixExample(24, 24, {"radices": (3, 2, 4)}),
            MatrixExample(5, 5),
            MatrixExample(1, 1, torch_counts_flops=False),
        ]


class TestKronecker(StructuredMatrixContract):
    structure = Kronecker
    definition = staticmethod(definitions.kronecker)

    def examples(self) -> Sequence[MatrixExample]:
        return [
            MatrixExample(6, 6),
            MatrixExample(12, 6),
            MatrixExample(6, 12, {"out_factors": (3, 2), "in_factors": (2, 6)}),
            MatrixExample(12, 8, {"out_factors": (2, 6), "in_factors": (4, 2)}),
        ]


class TestDense(StructuredMatrixContract):
    structure = Dense
    definition = staticmethod(definitions.dense)

    def examples(self) -> Sequence[MatrixExample]:
        return [
            MatrixExample(3, 5),
            MatrixExample(4, 2),
            MatrixExample(1, 1, torch_counts_flops=False),
        ]


class TestMLBTC(StructuredMatrixContract):
    structure = MLBTC

    def examples(self) -> Sequence[MatrixExample]:
        cycle = Shuffle((2, 3, 2), (2, 0, 1))
        mixed = BlockLayout(2, 6, 4, middle=cycle, output=Shuffle((2, 4), (1, 0)))
        crossing = BlockLayout(3, 4, 2, middle=Shuffle((2, 2, 3), (1, 2, 0)))
        one_sided = BlockLayout(2, 4, None, output=Shuffle((4, 2), (1, 0)))
        return [
            MatrixExample(8, 6, {"levels": (mixed, crossing), "scales": (2.0, -0.25)}),
            MatrixExample(8, 6, {"levels": (one_sided,)}),
            MatrixExample(8, 12, {"levels": (crossing, one_sided)}),
            MatrixExample(4, 8, {"levels": (BlockLayout(1, 2, 2),)}, torch_counts_flops=False),
        ]

    def definition(
        self,
        parameters: dict[str, Tensor],
        d_out: int,
        d_in: int,
        *,
        levels: Sequence[BlockLayout],
        scales: Any = None,
    ) -> Tensor:
        made = [
            BlockLevel(
                parameters[f"right_{lvl}"],
                parameters.get(f"left_{lvl}"),
                layout.middle,
                layout.output,
            )
            for lvl, layout in enumerate(levels)
        ]
        return definitions.mlbtc(made, scales or [1.0] * len(made))


CONTRACTS: list[type[StructuredMatrixContract]] = [
    contract
    for contract in vars().copy().values()
    if isinstance(contract, type)
    and issubclass(contract, StructuredMatrixContract)
    and contract is not StructuredMatrixContract
]
SQUARES = [
    ("low_rank", {"rank": 2}),
    ("mlr", {"ranks": (3, 1)}),
    *[(name, {}) for name in ("btt", "butterfly", "dense", "kronecker", "monarch")],
]


def without_contract(
    table: Registry[type[StructuredMatrix]], contracts: list[type[StructuredMatrixContract]]
) -> list[str]:
    covered = {contract.structure for contract in contracts}
    return [name for name in table if table[name] not in covered]


def test_every_registered_family_has_its_contract_class() -> None:
    assert without_contract(matrices, CONTRACTS) == []
    assert {name for name, _ in SQUARES} == set(matrices)


def test_a_family_that_is_registered_without_a_contract_class_is_named() -> None:
    planted: Registry[type[StructuredMatrix]] = Registry("structured matrix")
    for name in matrices:
        planted.register(name, matrices[name])
    planted.register("unproved", type("Unproved", (Dense,), {}))
    assert without_contract(planted, CONTRACTS) == ["unproved"]
    assert without_contract(matrices, CONTRACTS[1:]) != []


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda c: c.structure.__name__)
def test_each_family_is_the_mlbtc_that_its_levels_say(
    contract: type[StructuredMatrixContract],
) -> None:
    """By permutation matrices and block diagonals of its levels, without any of its products."""
    for example in contract().examples():
        specs = contract.structure.parameter_specs(example.d_out, example.d_in, **example.options)
        generator = torch.Generator().manual_seed(1)
        parameters = {
            name: torch.randn(spec.shape, generator=generator, dtype=torch.float64)
            for name, spec in specs.items()
        }
        matrix = contract.structure.from_parameters(parameters, **example.options)
        assert isinstance(matrix, MLBTC)
        expected = contract().definition(parameters, example.d_out, example.d_in, **example.options)
        torch.testing.assert_close(definitions.mlbtc(matrix.levels, matrix.scales), expected)
        general = MLBTC(matrix.levels, matrix.scales)
        x = torch.randn(3, example.d_in, generator=generator, dtype=torch.float64)
        assert torch.equal(general.apply(x), matrix.apply(x))
        assert general.flops() == matrix.flops()


@pytest.mark.parametrize(("name", "options"), SQUARES)
def test_each_family_is_found_by_name_and_makes_heads(name: str, options: dict[str, Any]) -> None:
    """As a module does it: ask for the shapes, add the axis of the heads, build, multiply."""
    specs = matrices[name].parameter_specs(16, 16, **options)
    parameters = {key: torch.ones(4, *spec.shape) for key, spec in specs.items()}
    matrix = matrices[name].from_parameters(parameters, **options)
    assert matrix.apply(torch.ones(2, 1, 5, 16)).shape == (2, 4, 5, 16)


@pytest.mark.compile
@pytest.mark.parametrize(("name", "options"), SQUARES)
def test_each_family_is_traced_as_one_graph(name: str, options: dict[str, Any]) -> None:
    """Built and multiplied inside the function, as in a module's forward."""
    specs = matrices[name].parameter_specs(12, 12, **options)
    parameters = {key: torch.ones(2, *spec.shape) for key, spec in specs.items()}

    def product(x: Tensor, parameters: dict[str, Tensor]) -> Tensor:
        return matrices[name].from_parameters(parameters, **options).apply(x)

    x = torch.arange(60.0).reshape(1, 5, 12)
    compiled = torch.compile(product, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, parameters), product(x, parameters))


def test_the_checks_run_without_pytest_and_can_fail() -> None:
    TestDense().check()

    class Transposed(TestDense):
        def definition(self, parameters: dict[str, Tensor], *args: Any, **options: Any) -> Tensor:
            return parameters["weight"] + 1e-3

    with pytest.raises(AssertionError, match="MatrixExample"):
        Transposed().check()


def test_a_contract_without_examples_fails() -> None:
    class Empty(TestDense):
        def examples(self) -> Sequence[MatrixExample]:
            return []

    with pytest.raises(AssertionError, match="at least one"):
        Empty().check()
