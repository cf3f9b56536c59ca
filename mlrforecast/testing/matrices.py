"""What every structured matrix must do; the test class of a structure subclasses the contract."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from mlrforecast.ops import ParameterSpec, StructuredMatrix

__all__ = ["MatrixExample", "StructuredMatrixContract"]

_Parameters: TypeAlias = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class MatrixExample:
    """One matrix that the contract builds, with random entries, and checks.

    Attributes
    ----------
    d_out, d_in : int
        Rows and columns; keep them below about 30, as gradients are checked entry by entry.
    options : mapping, optional
        Options of the structure, as for ``parameter_specs``.
    torch_counts_flops : bool, default True
        Whether the flop counter of torch sees all products. It knows matrix products and no Fourier
        transforms, and it leaves out a sum over one term.
    """

    d_out: int
    d_in: int
    options: Mapping[str, Any] = field(default_factory=dict)
    torch_counts_flops: bool = True


class StructuredMatrixContract(ABC):
    """All checks of a structure: subclass it, name the structure, and give its definition.

    pytest runs the checks of a subclass whose name begins with ``Test``, and :meth:`check` runs
    them without pytest.

    Attributes
    ----------
    structure : type of StructuredMatrix
        What is checked.

    Examples
    --------
    >>> from mlrforecast.ops import LowRank
    >>> class TestLowRank(StructuredMatrixContract):
    ...     structure = LowRank
    ...
    ...     def examples(self):
    ...         return [MatrixExample(5, 4, {"rank": 2}), MatrixExample(3, 3, {"rank": 4})]
    ...
    ...     def definition(self, parameters, d_out, d_in, *, rank):
    ...         terms = zip(parameters["left"].T, parameters["right"].T, strict=True)
    ...         return sum(torch.outer(left, right) for left, right in terms)
    >>> TestLowRank().check()
    """

    structure: ClassVar[type[StructuredMatrix]]

    @abstractmethod
    def examples(self) -> Sequence[MatrixExample]:
        """Return matrices to check: the usual, the smallest, uneven sizes, each option."""

    @abstractmethod
    def definition(self, parameters: _Parameters, *args: Any, **options: Any) -> Tensor:
        """Write one matrix out, straight from its formula and not by the code under test.

        It is called with ``parameters`` without batch axes, and with ``d_out, d_in, **options`` of
        the example in place of ``args`` and ``options``.
        """

    def check(self) -> None:
        """Run every check of the contract."""
        for name in dir(self):
            if name.startswith("test_"):
                getattr(self, name)()

    def test_specs_describe_the_parameters(self) -> None:
        """Names, shapes and numbers of entries agree, and some factor reads the input."""
        for example in self._examples():
            specs = self._specs(example)
            matrix = self._build(example, _draw(specs, (2,)))
            shapes = {name: tuple(x.shape) for name, x in matrix.parameters().items()}
            assert shapes == {name: (2, *spec.shape) for name, spec in specs.items()}, example
            entries = sum(math.prod(spec.shape) for spec in specs.values())
            assert matrix.num_parameters == entries, example
            assert any(spec.reads_input for spec in specs.values()), example
            assert all(min(spec.fan_in, spec.fan_out) >= 1 for spec in specs.values()), example

    def test_sizes_and_kind_are_told(self) -> None:
        """Shape, batch axes and data type are those of the tensors."""
        for example in self._examples():
            for batch in ((), (3,), (2, 3)):
                for dtype in (torch.float32, torch.float64):
                    parameters = _draw(self._specs(example), batch, dtype)
                    matrix = self._build(example, parameters)
                    assert matrix.shape == (example.d_out, example.d_in), example
                    assert matrix.batch_shape == batch, example
                    assert matrix.dtype == dtype, example
                    assert matrix.device == next(iter(parameters.values())).device, example

    def test_dense_is_the_definition(self) -> None:
        """The matrix written out is the one of the formula, for each of a batch."""
        for example in self._examples():
            for batch in ((), (3,), (2, 3)):
                parameters = _draw(self._specs(example), batch)
                dense = self._build(example, parameters).dense()
                assert_close(dense, self._expected(example, parameters, batch), msg=_at(example))

    def test_products_are_those_of_the_definition(self) -> None:
        """Both products equal the dense ones, for batches of the matrix, of the rows, of both."""
        for example in self._examples():
            for batch, rows in (((), ()), ((3,), ()), ((), (3,)), ((3,), (2, 1)), ((3,), (2, 3))):
                parameters = _draw(self._specs(example), batch)
                matrix = self._build(example, parameters)
                dense = self._expected(example, parameters, batch)
                for length in (1, 5):
                    x = _rows((*rows, length, example.d_in))
                    y = _rows((*rows, length, example.d_out))
                    assert_close(matrix.apply(x), x @ dense.mT, msg=_at(example))
                    assert_close(matrix.apply_transposed(y), y @ dense, msg=_at(example))

    def test_a_parameter_may_be_shared_by_the_batch(self) -> None:
        """A tensor whose batch axis has size 1 counts for every matrix of the batch."""
        for example in self._examples():
            parameters = _draw(self._specs(example), (3,))
            for shared in parameters if len(parameters) > 1 else ():
                some = parameters | {shared: parameters[shared][:1]}
                every = parameters | {shared: some[shared].expand_as(parameters[shared])}
                matrix = self._build(example, some)
                assert_close(matrix.dense(), self._expected(example, every, (3,)), msg=_at(example))
                assert matrix.batch_shape == (3,), example
                assert matrix.num_parameters == self._build(example, every).num_parameters, example

    def test_single_precision_stays_single(self) -> None:
        """Products in float32 are float32 and close to those in float64."""
        for example in self._examples():
            parameters = _draw(self._specs(example), (2,))
            x = _rows((5, example.d_in))
            exact = self._build(example, parameters).apply(x)
            single = {name: value.float() for name, value in parameters.items()}
            out = self._build(example, single).apply(x.float())
            assert out.dtype == torch.float32, example
            assert_close(out.double(), exact, rtol=1e-4, atol=1e-4, msg=_at(example))

    def test_rank_is_that_of_random_entries(self) -> None:
        """The closed form equals the rank of the definition, as random entries are generic."""
        for example in self._examples():
            parameters = _draw(self._specs(example), (2,))
            ranks = torch.linalg.matrix_rank(self._expected(example, parameters, (2,)))
            matrix = self._build(example, parameters)
            assert ranks.tolist() == [matrix.rank()] * 2, f"{example}: {ranks}, {matrix.rank()}"

    def test_flops_are_those_that_torch_counts(self) -> None:
        """Multiply-adds of a vector are half of what torch counts, where it counts all."""
        for example in self._examples():
            for heads in ((), (3,)):
                matrix = self._build(example, _draw(self._specs(example), heads))
                # Rows of a batch, as each matrix multiplies all of them.
                x, y = _rows((2, 1, 7, example.d_in)), _rows((2, 1, 7, example.d_out))
                for product, rows in ((matrix.apply, x), (matrix.apply_transposed, y)):
                    with FlopCounterMode(display=False) as counter:
                        product(rows)
                    counted = counter.get_total_flops()
                    claimed = 2 * matrix.flops() * 2 * 7 * math.prod(heads)
                    fits = counted == claimed if example.torch_counts_flops else counted <= claimed
                    assert fits, f"{example}, {heads}: torch {counted}, by flops() {claimed}"
                    assert claimed > 0, example

    def test_gradients_are_those_of_finite_differences(self) -> None:
        """Both products are differentiable in the rows and in every parameter."""
        for place, example in enumerate(self._examples()):
            # One example with a batch is enough, and each entry costs two products.
            drawn = _draw(self._specs(example), () if place else (2,))
            tensors = [value.requires_grad_() for value in drawn.values()]
            for name, width in (("apply", example.d_in), ("apply_transposed", example.d_out)):

                def product(
                    rows: Tensor, *values: Tensor, name: str = name, at: MatrixExample = example
                ) -> Tensor:
                    parameters = dict(zip(self._specs(at), values, strict=True))
                    out: Tensor = getattr(self._build(at, parameters), name)(rows)
                    return out

                rows = _rows((2, width)).requires_grad_()
                assert torch.autograd.gradcheck(product, (rows, *tensors)), example

    def test_nothing_that_is_passed_is_changed(self) -> None:
        """The caller's tensors keep their values."""
        for example in self._examples():
            parameters = _draw(self._specs(example), (2,))
            x, y = _rows((3, example.d_in)), _rows((3, example.d_out))
            passed = [*parameters.values(), x, y]
            before = [value.clone() for value in passed]
            matrix = self._build(example, parameters)
            matrix.apply(x)
            matrix.apply_transposed(y)
            matrix.dense()
            assert all(map(torch.equal, passed, before)), example

    def test_rows_of_another_width_are_refused(self) -> None:
        """A wrong width, a single vector or a batch that does not fit: the error names the rows."""
        for example in self._examples():
            matrix = self._build(example, _draw(self._specs(example), (3,)))
            for product, name, width in (
                (matrix.apply, "x", example.d_in),
                (matrix.apply_transposed, "y", example.d_out),
            ):
                for shape in ((4, width + 1), (width,), (2, 4, width)):
                    message = _refusal(product, _rows(shape))
                    assert re.search(rf"\b{name}\b", message), f"{example}, {shape}: {message}"

    def test_parameters_of_another_shape_are_refused(self) -> None:
        """A tensor that is too long raises a ValueError, or makes a matrix of another size."""
        for example in self._examples():
            parameters = _draw(self._specs(example), ())
            for name, value in parameters.items():
                longer = torch.cat([value, value[..., :1]], -1)
                wrong = parameters | {name: longer}
                try:
                    shape = self._build(example, wrong).shape
                except (ValueError, TypeError):
                    continue
                assert shape != (example.d_out, example.d_in), f"{example}: {name}"

    def _examples(self) -> Sequence[MatrixExample]:
        """Return the examples, of which there must be some."""
        examples = self.examples()
        assert examples, "`examples` must return at least one MatrixExample"
        return examples

    def _specs(self, example: MatrixExample) -> dict[str, ParameterSpec]:
        """Ask the structure for the tensors of an example."""
        return self.structure.parameter_specs(example.d_out, example.d_in, **example.options)

    def _build(self, example: MatrixExample, parameters: _Parameters) -> StructuredMatrix:
        """Build the matrix of an example."""
        return self.structure.from_parameters(parameters, **example.options)

    def _expected(
        self, example: MatrixExample, parameters: _Parameters, batch: tuple[int, ...]
    ) -> Tensor:
        """Write out each matrix of a batch."""
        flat = {name: x.reshape(-1, *x.shape[len(batch) :]) for name, x in parameters.items()}
        dense = [
            self.definition(
                {name: x[item] for name, x in flat.items()},
                example.d_out,
                example.d_in,
                **example.options,
            )
            for item in range(math.prod(batch))
        ]
        return torch.stack(dense).reshape(*batch, example.d_out, example.d_in)


def _draw(
    specs: Mapping[str, ParameterSpec], batch: tuple[int, ...], dtype: torch.dtype = torch.float64
) -> _Parameters:
    """Draw parameters, always the same, without touching the global generator."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(*batch, *spec.shape, generator=generator, dtype=torch.float64).to(dtype)
        for name, spec in specs.items()
    }


def _rows(shape: tuple[int, ...]) -> Tensor:
    """Draw rows, always the same for one shape."""
    generator = torch.Generator().manual_seed(math.prod(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _refusal(product: Any, rows: Tensor) -> str:
    """Return the message with which ``rows`` are refused."""
    try:
        product(rows)
    except (ValueError, TypeError) as error:  # the latter where shapes are checked at run time
        return str(error)
    return "no ValueError was raised"


def _at(example: MatrixExample) -> Any:
    """Say in a failure which example it was."""
    return lambda message: f"{example}: {message}"
