"""The record of the tests that need a GPU leaves none of them out."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_all_tests_that_need_a_gpu_are_run(monkeypatch: pytest.MonkeyPatch):
    script = ROOT / "benchmarks" / "gpu_tests.py"
    monkeypatch.syspath_prepend(str(script.parent))
    folders = runpy.run_path(str(script))["FOLDERS"]
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        # At the start of a line: text about the mark is no mark.
        if any(line.startswith("@pytest.mark.gpu") for line in path.read_text().splitlines())
        and path.name != "test_guards.py"
    }
    assert {path for path in marked if "tests/tasks/" in path}
    assert [path for path in sorted(marked) if not path.startswith(folders)] == []
