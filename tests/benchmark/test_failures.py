"""The committed table of failures: nothing was lost, and each attempt went as it must."""

import csv
from collections import Counter
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "results" / "failures" / "failures.csv"
LEAST = {"save": 20, "files": 40, "hostile": 30, "fit": 20, "checkpoint": 10, "backtest": 8}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with PATH.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_each_attempt_went_as_it_must(rows: list[dict[str, str]]) -> None:
    assert [row for row in rows if row["ok"] != "True"] == []


def test_each_group_is_there_and_each_line_complete(rows: list[dict[str, str]]) -> None:
    counts = Counter(row["group"] for row in rows)
    assert counts.keys() == LEAST.keys()
    assert all(counts[group] >= least for group, least in LEAST.items())
    assert all(all(row.values()) for row in rows)
    tried = [(row["group"], row["what"], row["where"], row["how"]) for row in rows]
    assert len(set(tried)) == len(tried)


def test_each_line_names_a_command_that_tries_its_group(rows: list[dict[str, str]]) -> None:
    for row in rows:
        program, script, *options = row["command"].split()
        assert (program, script) == ("python", "benchmarks/failures.py")
        if "--only" in options:
            assert options[options.index("--only") + 1] == row["group"]
