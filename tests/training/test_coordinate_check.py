"""The size of activations does not depend on the width under muP, for every score."""

import csv
import importlib.util
import math
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from mlrforecast.nn import attentions, initialise_mup
from mlrforecast.training import build_optimizer

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "coordinate_check.py"
WIDTHS, STEPS, SEEDS = (64, 128, 256), 5, (0, 1)
# The head, what ends a branch, and queries and keys move one after another, in steps 1 to 3.
FIRST_FULL_STEP = 3
FLAT = 0.2


RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "mup"


@pytest.fixture
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coordinate_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def slope(values: dict[int, float]) -> float:
    """The exponent of the power law of the width that fits best."""
    x, y = [math.log(w) for w in values], [math.log(v) for v in values.values()]
    centre = sum(x) / len(x)
    above = sum((a - centre) * b for a, b in zip(x, y, strict=True))
    return above / sum((a - centre) ** 2 for a in x)


def growth(check: ModuleType, attention: str, **changes: Any) -> dict[str, float]:
    """The exponent of each activation, and of the scores before training."""
    arguments = {"parametrization": "mup", "options": check.mup_options(attention), **changes}
    sizes: dict[str, dict[int, float]] = defaultdict(lambda: dict.fromkeys(WIDTHS, 0.0))
    for width in WIDTHS:
        for seed in SEEDS:
            for row in check.measure(attention, width, steps=STEPS, seed=seed, **arguments):
                if row["step"] == 0:
                    sizes["first scores"][width] += float(row["scores"])
                if row["step"] >= FIRST_FULL_STEP:
                    for quantity in check.QUANTITIES:
                        sizes[quantity][width] += float(row[quantity])
    return {quantity: slope(by_width) for quantity, by_width in sizes.items()}


def outside(check: ModuleType, attention: str, found: dict[str, float]) -> set[str]:
    """The activations whose size depends on the width."""
    expected = dict.fromkeys(found, (0.0, FLAT))
    if attention in check.COMPARES_THE_WHOLE_WIDTH:
        # Random columns, D of them over D, fall as 1 / sqrt(D) until training aligns them.
        expected["first scores"] = (-0.5, 0.05)
        expected["scores"] = (-0.25, 0.25)
    return {
        quantity
        for quantity, exponent in found.items()
        if abs(exponent - expected[quantity][0]) > expected[quantity][1]
    }


@pytest.mark.parametrize("attention", list(attentions))
def test_activations_keep_their_size_as_the_model_grows(check: ModuleType, attention: str) -> None:
    found = growth(check, attention)
    assert outside(check, attention, found) == set(), found


@pytest.mark.parametrize("attention", list(attentions))
def test_under_the_standard_parametrisation_they_grow(check: ModuleType, attention: str) -> None:
    found = growth(check, attention, parametrization="standard", options={})
    assert {"attention_output", "block_output", "logits"} <= outside(check, attention, found)
    assert found["attention_output"] > 0.8
    assert found["block_output"] > 0.8


@pytest.mark.parametrize("attention", ["bilinear", "bilinear_btt"])
def test_scores_over_the_whole_width_grow_without_their_own_factor(
    check: ModuleType, attention: str
) -> None:
    scaled = growth(check, attention)
    plain = growth(check, attention, options={})
    assert plain["first scores"] == pytest.approx(0, abs=0.1)
    assert plain["scores"] > 0.1
    assert plain["scores"] > scaled["scores"] + 0.3


def changed_rate(kind: str, multiplier: float) -> Any:
    """The optimiser with one rate for all parameters whose name holds ``kind``, whatever width."""

    def build(model: nn.Module, **arguments: Any) -> torch.optim.AdamW:
        optimizer = build_optimizer(model, **arguments)
        names = {id(p): name for name, p in model.named_parameters()}
        for group in list(optimizer.param_groups):
            moved = [p for p in group["params"] if kind in names[id(p)] and p.ndim > 1]
            kept = [p for p in group["params"] if not any(p is q for q in moved)]
            group["params"] = kept
            if moved:
                optimizer.add_param_group(
                    {**group, "params": moved, "lr": multiplier * arguments["learning_rate"]}
                )
        return optimizer

    return build


def changed_start(kind: str, std: float) -> Any:
    """The start with one standard deviation for matrices whose name holds ``kind``."""

    def start(model: nn.Module, *, generator: torch.Generator) -> None:
        initialise_mup(model, generator=generator)
        for name, parameter in model.named_parameters():
            if kind in name and parameter.ndim > 1:
                nn.init.normal_(parameter, std=std, generator=generator)

    return start


PLANTED = {
    "rate of the head": ("build_optimizer", changed_rate("head", 12.0), "logits"),
    "rate of the ends of branches": (
        "build_optimizer",
        changed_rate("network.3", 3.0),
        "block_output",
    ),
    "rate of the values": ("build_optimizer", changed_rate("value", 12.0), "attention_output"),
    "rate of queries and keys": ("build_optimizer", changed_rate("score", 12.0), "scores"),
    "start of queries and keys": ("initialise_mup", changed_start("score", 0.1), "first scores"),
    "start of the values": ("initialise_mup", changed_start("value", 0.1), "attention_output"),
    "start of the hidden layer": (
        "initialise_mup",
        changed_start("network.0", 0.1),
        "block_output",
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_wrong_rate_or_start_is_seen(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    name, replacement, where = PLANTED[bug]
    monkeypatch.setattr(check, name, replacement)
    found = growth(check, "standard")
    assert where in outside(check, "standard", found), found


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.name)
def test_committed_rows_say_what_ran_them_and_hold_what_the_docs_say(
    check: ModuleType, path: Path
) -> None:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(check.COLUMNS)
    command = f"python benchmarks/coordinate_check.py benchmarks/results/mup/{path.name}"
    assert all(row["command"].startswith(command) for row in rows)
    assert all(row[name] != "" for row in rows for name in check.COLUMNS if name != "options")
    sizes: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        if int(row["step"]) == 8 and row["options"] == options_of(check, row["attention"]):
            sizes[row["attention"], row["parametrization"]][int(row["width"])] += float(
                row["block_output"]
            )
    names = {"standard"} if path.stem.endswith("wide") else set(attentions)
    assert {name for name, parametrization in sizes if parametrization == "mup"} == names
    for name in names:
        assert abs(slope(sizes[name, "mup"])) < 0.1


def options_of(check: ModuleType, attention: str) -> str:
    """The options that muP asks for, as a row has them."""
    return ";".join(f"{name}={value}" for name, value in check.mup_options(attention).items())
