"""The page on structured matrices: its table is what the code counts, its pictures are there."""

import ast
import re
from pathlib import Path

import pytest
import torch

from mlrforecast.ops.matrices import matrices

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "structured-matrices.md").read_text(encoding="utf-8")
SIDE = 512
ROWS = re.findall(
    r"^\| `(\w+)` \| `(\{.*?\})` \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", PAGE, re.MULTILINE
)


@pytest.mark.parametrize(("name", "options", "parameters", "flops", "rank"), ROWS)
def test_each_row_of_the_table_is_what_the_code_counts(
    name: str, options: str, parameters: str, flops: str, rank: str
) -> None:
    given = ast.literal_eval(options)
    specs = matrices[name].parameter_specs(SIDE, SIDE, **given)
    tensors = {key: torch.zeros(spec.shape) for key, spec in specs.items()}
    matrix = matrices[name].from_parameters(tensors, **given)
    counted = (matrix.num_parameters, matrix.flops(), matrix.rank())
    assert counted == tuple(int(value.replace(",", "")) for value in (parameters, flops, rank))


def test_each_family_has_a_row_and_a_picture() -> None:
    assert f"For {SIDE} x {SIDE}" in PAGE
    assert {row[0] for row in ROWS} == set(matrices)
    assert PAGE.count("\n| `") == len(ROWS)
    for name in matrices:
        assert f"(img/matrix_{name}.png)" in PAGE
        assert (DOCS / "img" / f"matrix_{name}.png").is_file()
