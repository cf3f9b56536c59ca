"""Small tables, and models of them, as the commands read and write them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from mlrforecast.cli import main

ROOT = Path(__file__).parents[2]
SMALL = (
    *("--max-steps", "2", "--context-length", "24"),
    *("--set", "width=8", "--set", "num_heads=2", "--set", "num_layers=1"),
    *("--set", "hidden_width=8", "--set", "batch_size=4"),
)


def wide_table():
    """Two columns of eight days of hours."""
    hours = pd.date_range("2024-01-01", periods=192, freq="h")
    daily = np.sin(np.arange(192) * 2 * np.pi / 24)
    north, south = np.random.default_rng(0).normal(size=(2, 192))
    return pd.DataFrame(
        {"time": hours, "north": 10 + daily + north, "south": 5 + 3 * daily + south}
    )


def long_table():
    """Two shops over 100 days, the first of them called 007, with promotions known in advance."""
    days = pd.date_range("2024-01-01", periods=100, freq="D")
    promo = np.arange(100) % 5 == 0
    noise = np.random.default_rng(1).normal(size=(2, 100))
    parts = [
        {"shop": name, "day": days, "sold": 10 + number + 5 * promo + noise[number], "promo": promo}
        for number, name in enumerate(("007", "NA"))
    ]
    return pd.concat(map(pd.DataFrame, parts), ignore_index=True)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run one command line inside an empty folder."""
    monkeypatch.chdir(tmp_path)

    def invoke(*words, stdin=None):
        return CliRunner().invoke(main, [*map(str, words)], prog_name="mlrforecast", input=stdin)

    return invoke


@pytest.fixture
def python(tmp_path):
    """Run Python in a process of its own, inside an empty folder."""

    def start(*words, stdin=None, **variables):
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
            capture_output=True,
            input=stdin,
            text=True,
            timeout=120,
            check=False,
        )

    return start


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """A folder with a wide table, a long one without its last week, and that week."""
    folder = tmp_path_factory.mktemp("tables")
    wide_table().to_csv(folder / "wide.csv", index=False)
    long = long_table()
    newest = long["day"] >= "2024-04-03"
    long[~newest].to_csv(folder / "long.csv", index=False)
    long.loc[newest, ["shop", "day", "promo"]].to_csv(folder / "plan.csv", index=False)
    return folder


def _fitted(folder, *words):
    words = ("fit", *words, "--out", str(folder), *SMALL)
    result = CliRunner().invoke(main, [*map(str, words)], prog_name="mlrforecast")
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="session")
def wide_model(tables, tmp_path_factory):
    """A model of the wide table that keeps its context."""
    folder = tmp_path_factory.mktemp("wide") / "model"
    return _fitted(folder, tables / "wide.csv", "--prediction-length", 6, "--with-context")


@pytest.fixture(scope="session")
def long_model(tables, tmp_path_factory):
    """A model of the long table, with a known covariate and without its context."""
    columns = ("--id-column", "shop", "--timestamp-column", "day", "--target", "sold")
    folder = tmp_path_factory.mktemp("long") / "model"
    known = ("--known-covariates", "promo")
    return _fitted(folder, tables / "long.csv", "--prediction-length", 7, *columns, *known)
