"""One version, and no malicious release among what may be installed."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import mlrforecast

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
DEPENDENCIES = [Requirement(line) for line in PYPROJECT["project"]["dependencies"]]


def test_the_version_is_one_and_of_the_standard_form() -> None:
    assert str(Version(mlrforecast.__version__)) == mlrforecast.__version__
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "mlrforecast/_version.py"


@pytest.mark.parametrize("package", ["lightning", "pytorch-lightning"])
def test_malicious_lightning_releases_are_excluded(package: str) -> None:
    (allowed,) = [line.specifier for line in DEPENDENCIES if line.name == package]
    assert not allowed.contains("2.6.2")
    assert not allowed.contains("2.6.3")
    assert allowed.contains("2.6.1")
    assert allowed.contains("2.6.4")


def test_both_generations_of_pandas_are_allowed() -> None:
    (allowed,) = [line.specifier for line in DEPENDENCIES if line.name == "pandas"]
    assert allowed.contains("2.3.3")
    assert allowed.contains("3.1.1")


def test_the_extras_are_those_that_are_promised() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    promised = {"chronos", "dev", "docs", "gluonts", "hub", "loggers", "onnx", "parquet", "test"}
    assert set(extras) == promised | {"huggingface", "text", "tune"}
