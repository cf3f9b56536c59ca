"""The wheel holds what it should and works where no checkout is near."""

import os
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import mlrforecast

ROOT = Path(__file__).parents[1]


def run_in(folder: Path, *command: str, **env: str) -> str:
    inherited = {k: v for k, v in os.environ.items() if k not in ("MLRFORECAST_DATA", "PYTHONPATH")}
    done = subprocess.run(
        command, cwd=folder, env=inherited | env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run_in(ROOT, sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(out))
    (built,) = out.iterdir()
    return built


@dataclass(frozen=True)
class Installed:
    """The wheel, unpacked in ``site``, and an empty folder to run it from."""

    site: Path
    empty: Path

    def __call__(self, program: str, *arguments: str) -> str:
        """Run a script of the wheel, or ``python``, in the empty folder; warnings are errors."""
        path = sys.executable if program == "python" else str(self.site / "bin" / program)
        env = {"PYTHONPATH": str(self.site), "PYTHONWARNINGS": "error"}
        return run_in(self.empty, path, *arguments, **env)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    made = Installed(tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("empty"))
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target")
    run_in(made.empty, sys.executable, *pip, str(made.site), str(wheel))
    return made


def test_the_wheel_holds_the_package_its_types_and_its_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    top = {name.split("/")[0] for name in names}
    assert top == {"mlrforecast", f"mlrforecast-{mlrforecast.__version__}.dist-info"}
    assert "mlrforecast/py.typed" in names
    assert not any("__pycache__" in name for name in names)
    sources = {str(p.relative_to(ROOT)) for p in (ROOT / "mlrforecast").rglob("*.py")}
    assert sources <= names
    data = {p.relative_to(ROOT / "datasets") for p in (ROOT / "datasets").rglob("*") if p.is_file()}
    assert data
    assert {f"mlrforecast/_datasets/{path.as_posix()}" for path in data} <= names


def test_the_metadata_carry_version_script_and_extras(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = f"mlrforecast-{mlrforecast.__version__}.dist-info"
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        scripts = archive.read(f"{info}/entry_points.txt").decode()
    assert metadata["Version"] == mlrforecast.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert "mlrforecast = mlrforecast.cli:main" in scripts
    extras = {"chronos", "dev", "docs", "gluonts", "hub", "loggers", "onnx", "parquet", "test"}
    assert set(metadata.get_all("Provides-Extra") or []) == extras | {"huggingface", "text", "tune"}


def test_pandas_2_and_3_are_allowed_and_each_has_an_environment_that_tests_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (core,) = (r for r in map(Requirement, project["dependencies"]) if r.name == "pandas")
    assert all(version in core.specifier for version in ("2.2.0", "2.3.3", "3.0.0", "3.1.1"))
    dev = [Requirement(text) for text in project["optional-dependencies"]["dev"]]
    assert [str(r.specifier) for r in dev if r.name == "pandas"] == ["<3"]
    own = {extra for r in dev if r.name == "mlrforecast" for extra in r.extras}
    assert own == {"chronos", "docs", "gluonts", "hub", "onnx", "test", "tune"}

    # Where `make test` runs this, its own variables would be handed on.
    fresh = ("env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL")
    variables = ("VENV=one", "VENV3=two", "TORCH=torch==2.6")
    steps = run_in(ROOT, *fresh, "make", "-n", "test", *variables).splitlines()
    at = {
        part: next(place for place, step in enumerate(steps) if part in step)
        for part in (
            "one/bin/python -m pytest",
            "-m venv two",
            "two/bin/python -m pip install --quiet --disable-pip-version-check torch==2.6",
            'two/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[test]"'
            ' "pandas>=3"',
            "two/bin/python -m pytest",
        )
    }
    assert list(at.values()) == sorted(at.values())
    words = steps[at["two/bin/python -m pytest"]].split("pytest ")[1].split()
    folders = [word for word in words if "/" in word and not word.startswith("--")]
    assert {"tests/data", "tests/estimators", "tests/frames", "mlrforecast/data"} <= set(folders)
    assert all((ROOT / folder).is_dir() for folder in folders)
    left_out = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
    assert all((ROOT / file).is_file() for file in left_out)


def test_no_folder_of_the_checkout_hides_another_library() -> None:
    assert not (ROOT / "datasets" / "__init__.py").exists()
    assert not (ROOT / "benchmarks" / "__init__.py").exists()


def test_the_installed_package_is_the_one_of_the_wheel(installed: Installed) -> None:
    where = installed("python", "-c", "import mlrforecast; print(mlrforecast.__file__)")
    assert Path(where.strip()).is_relative_to(installed.site)


def test_the_console_script_answers(installed: Installed) -> None:
    assert mlrforecast.__version__ in installed("mlrforecast", "--version")
    assert "demo" in installed("mlrforecast", "--help")
    assert "--data" in installed("mlrforecast", "demo", "--help")
    assert "--final" in installed("mlrforecast", "benchmark", "ett", "--help")
    assert installed("python", "-m", "mlrforecast", "--version") == installed(
        "mlrforecast", "--version"
    )


def test_the_embedded_data_are_read_from_the_wheel(installed: Installed) -> None:
    code = "from mlrforecast import load_dataset; print(len(load_dataset('synthetic').frame))"
    assert int(installed("python", "-c", code)) > 1000


def test_the_demo_runs_from_the_wheel(installed: Installed, tmp_path: Path) -> None:
    out = tmp_path / "demo.png"
    printed = installed("mlrforecast", "demo", "--max-steps", "2", "--out", str(out))
    assert "seasonal" in printed.lower()
    assert out.read_bytes().startswith(b"\x89PNG")
    assert list(installed.empty.iterdir()) == []
