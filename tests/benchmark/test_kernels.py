"""The benchmark of the kernels: it compares the right things, and tells a wrong result."""

import csv
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.kernels import __main__ as program
from benchmarks.kernels import _timing, _verifying
from benchmarks.kernels._cases import Case, cases, equal, sizes_of
from benchmarks.kernels._computing import attention, inputs, published_attention
from mlrforecast.ops import mlr_attention, mlr_step_attention


def case(**changes: Any) -> Case:
    options = {"device": "cpu", "length": 32, "ranks": (4, 2, 2), "batch": 1, "heads": 2}
    return Case(**options | {"dtype": "float32", "backends": ("hierarchical",)} | changes)


@pytest.mark.parametrize("causal", [True, False])
def test_the_published_way_is_the_same_function(causal: bool, seeded: None) -> None:
    q, k, v = torch.randn(3, 1, 2, 32, 8, dtype=torch.float64)
    got = published_attention(q, k, v, (4, 2, 2), causal)
    options = {"ranks": (4, 2, 2), "causal": causal, "level_scale": "inverse_sqrt_width"}
    exact = mlr_attention(q, k, v, backend="reference", **options)
    torch.testing.assert_close(got, exact, rtol=0, atol=1e-12)


def test_a_step_reads_what_its_levels_keep(seeded: None) -> None:
    step = case(passes=("decode",), backends=("reference",))
    q, v, *keys = inputs(step)
    assert [x.shape[2] for x in keys] == [size or 32 for size in sizes_of(32, 3)]
    out = attention(step, "reference")(q, v, *keys)
    exact = mlr_step_attention(
        q, keys, v, length=32, block_sizes=(None, 16, 8), level_scale="inverse_sqrt_width"
    )
    assert torch.equal(out, exact)


def test_rows_of_a_case(monkeypatch: pytest.MonkeyPatch, seeded: None) -> None:
    monkeypatch.setattr(_timing, "_cpu_times", lambda run: [run() is None or 1.0, 2.0, 3.0])
    rows = _timing.time_case(case(), nullcontext())
    assert [row["pass"] for row in rows] == ["fwd", "fwdbwd"]
    for row in rows:
        assert set(row) == set(program.COLUMNS) - {"device", "versions", "command"}
        assert (row["baseline"], row["ranks"], row["head_dim"]) == ("flash", "4|2|2", 8)
        assert 0 < float(row["error"]) < 1e-6


def test_every_goal_has_its_case() -> None:
    found = list(cases("cuda", quick=False))
    for head_dim in (64, 128):
        for length in (8192, 16384, 32768):
            wanted = (length, equal(head_dim, 8), True)
            assert any((one.length, one.ranks, one.causal) == wanted for one in found)
    short = {(one.length, one.ranks, one.causal) for one in found if one.length <= 2048}
    for length in (256, 512, 1024, 2048):
        for ranks in ((32, 32), (32, 16, 16), (16, 16, 16, 16)):
            assert {(length, ranks, True), (length, ranks, False)} <= short
    assert {one.length for one in cases("cpu", quick=False)} == {512, 2048, 8192}


def run(monkeypatch: pytest.MonkeyPatch, *told: str) -> None:
    monkeypatch.setattr(
        program, "checks", lambda *_: [("cpu", "hierarchical", "float32", 65, (4, 4), True)]
    )
    monkeypatch.setattr(program, "cases", lambda *_: [case(passes=("fwd",))])
    monkeypatch.setattr(_timing, "_cpu_times", lambda run: [1.0, 2.0, 3.0])
    arguments = ["--device", "cpu", "--threads", "1", *told]
    monkeypatch.setattr(sys, "argv", ["benchmarks.kernels", *arguments])
    program.main()


def test_it_verifies_then_times(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    seeded: None,
) -> None:
    run(monkeypatch, "--out", str(tmp_path))
    with (tmp_path / "cpu.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["command"] == "python -m benchmarks.kernels --device cpu --threads 1"
    assert str(tmp_path) not in (tmp_path / "errors_cpu.csv").read_text()
    assert "4 results; 0 err" in capsys.readouterr().out


def test_a_few_cases_do_not_take_the_place_of_all_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seeded: None
) -> None:
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, "--quick")
    assert not (tmp_path / "benchmarks").exists()
    found = (tmp_path / "benchmark-output" / "kernels").iterdir()
    assert sorted(path.name for path in found) == ["cpu.csv", "errors_cpu.csv"]


def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    right = _verifying.mlr_attention
    monkeypatch.setattr(
        _verifying,
        "mlr_attention",
        lambda *x, **options: right(*x, **options) * (1 + (options["backend"] == "hierarchical")),
    )
    with pytest.raises(SystemExit, match=r"not timed: \[\('hierarchical', 'float32'\)\]"):
        run(monkeypatch, "--out", str(tmp_path))
    assert (tmp_path / "cpu.csv").read_text().count("\n") == 1
