"""The guards of ``conftest.py`` catch what they are there for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run_planted(folder: Path, body: str, *options: str, data: str | None = None) -> str:
    """Run one planted test file below a copy of the conftest; give what pytest printed."""
    (folder / "conftest.py").write_text((HERE / "conftest.py").read_text())
    (folder / "test_planted.py").write_text(body)
    env = {name: value for name, value in os.environ.items() if name != "MLRFORECAST_DATA"}
    if data is not None:
        env["MLRFORECAST_DATA"] = data
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_each_trace_is_caught_and_named(tmp_path: Path) -> None:
    printed = run_planted(
        tmp_path,
        """
import random
from pathlib import Path
import numpy, pytest, torch
def test_python(): random.random()
def test_numpy(): numpy.random.rand()
def test_torch(): torch.rand(1)
def test_file(): Path("leftover.txt").write_text("x")
def test_clean(tmp_path): (tmp_path / "fine.txt").write_text("x")
def test_seeded(seeded): random.random(), numpy.random.rand(), torch.rand(1)
def example():
    '''Draw, as a user may.

    >>> _ = random.random(), numpy.random.rand(), torch.rand(1)
    '''
@pytest.mark.gpu
def test_gpu(): assert torch.cuda.is_available()
@pytest.mark.network
def test_network(): raise AssertionError
""",
        "--doctest-modules",
    )
    for source in ("random", "numpy.random", "torch"):
        assert f"The global random state of {source} was changed" in printed
    assert "New in the working directory: leftover.txt" in printed
    assert "needs --run-network" in printed
    assert "4 errors" in printed
    assert "failed" not in printed


def test_shared_files_are_found_by_name_or_counted_as_left_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "deep" / "er").mkdir(parents=True)
    (data / "deep" / "er" / "a.csv.xz").touch()
    body = """
import pytest
@pytest.mark.shared
def test_found(shared_file): assert shared_file("a.csv").name == "a.csv.xz"
@pytest.mark.shared
def test_absent(shared_file):
    with pytest.raises(FileNotFoundError, match="No b.csv"): shared_file("b.csv")
"""
    assert "2 passed" in run_planted(tmp_path, body, data=str(data))
    without = run_planted(tmp_path, body)
    assert "2 tests that need MLRFORECAST_DATA were left out" in without
    assert "MLRFORECAST_DATA is not set" in without


@pytest.mark.parametrize("name", ["missing", ""])
def test_a_data_folder_that_is_none_is_told(tmp_path: Path, name: str) -> None:
    printed = run_planted(tmp_path, "def test_one(): pass", data=name and str(tmp_path / name))
    assert ("which is not a folder" in printed) == bool(name)
