"""The committed measurements of the kernels: whole, exact enough, and as the README quotes them."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "kernels"


def rows(name: str) -> list[dict[str, str]]:
    with (RESULTS / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_each_row_says_what_made_it(name: str) -> None:
    for row in rows(name):
        assert row["device"]
        assert "torch" in row["versions"]
        assert row["command"].startswith(f"python -m benchmarks.kernels --device {name}")
        if row["baseline"]:
            ratio = float(row["baseline_ms"]) / float(row["ms"])
            assert float(row["ratio"]) == pytest.approx(ratio, rel=0.02, abs=0.001)


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_nothing_wrong_was_timed(name: str) -> None:
    bounds = {"float32": 1e-6, "bfloat16": 4e-3}
    errors = [(row["dtype"], float(row["error"] or "nan")) for row in rows(name)]
    assert all(not error > bounds[dtype] for dtype, error in errors)
    assert any(error > 0 for _, error in errors)


def test_the_error_budget_is_kept_where_there_is_more_than_one_step() -> None:
    over = [row for row in rows("errors_cpu") if float(row["ratio"]) > 1.2]
    assert {row["T"] for row in over} <= {"1"}


def test_on_a_gpu_only_the_gradient_of_the_values_errs_more() -> None:
    found = [row for row in rows("errors_cuda") if row["backend"] == "triton" and row["T"] != "1"]
    assert {int(row["T"]) for row in found} >= {7, 63, 64, 65, 127, 129, 1000, 4097, 8192, 16384}
    for row in found:
        assert float(row["ratio"]) < (1.5 if row["tensor"] == "dv" else 1.2), row


def test_the_readme_quotes_the_files() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    quoted = re.search(r"\| CPU, 2 threads, float32 \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", text)
    assert quoted
    measured = {
        int(row["T"]): float(row["ratio"])
        for row in rows("cpu")
        if (row["pass"], row["backend"], row["causal"]) == ("fwdbwd", "auto", "True")
    }
    for length, value in zip((512, 2048, 8192), quoted.groups(), strict=True):
        assert float(value) == pytest.approx(measured[length], abs=0.005)
    quoted = re.search(r"\| H200, bfloat16 \| \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", text)
    assert quoted
    for length, value in zip((2048, 8192, 32768), quoted.groups(), strict=True):
        assert float(value) == pytest.approx(on_a_gpu(length), abs=0.005)


def on_a_gpu(length: int) -> float:
    """Return the ratio of the least times of training 8 equal levels of 64 columns."""
    same = [
        row
        for row in rows("cuda")
        if (row["pass"], row["T"], row["head_dim"], row["causal"], row["batch_heads"])
        == ("fwdbwd", str(length), "64", "True", str(2**20 // length))
        and row["dtype"] == "bfloat16"
    ]
    mine = [
        float(row["ms"])
        for row in same
        if row["ranks"] == "|".join("8" * 8) and row["backend"] in ("auto", "triton")
    ]
    return min(float(row["baseline_ms"]) for row in same) / min(mine)
