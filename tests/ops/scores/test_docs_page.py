"""The page on scores: its tables are what the code counts, its picture is there."""

import ast
import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch

from mlrforecast.nn.attention.score import Heads, Score, attentions
from mlrforecast.ops import attention_ops

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "scores.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| `(\w+)` \| `(\{.*?\})` \| ([\d,]+) \| ([\d,]+) \| ([\d,.]+) \|$", PAGE, re.MULTILINE
)
CROSSING = dict(re.findall(r"^\| `(\w+)` \| [a-z ]+ \| [^|]+ \| (yes|no|with)", PAGE, re.MULTILINE))
WIDTH, HEADS, COLUMNS, LENGTH, WINDOW = 512, 8, 64, 1024, 128


def build(name: str, options: dict[str, Any]) -> Score:
    heads = Heads(
        width=WIDTH,
        num_heads=HEADS,
        num_kv_heads=HEADS,
        head_width=COLUMNS,
        bias=False,
        context_length=LENGTH,
    )
    return attentions[name](heads, **options)


def level_columns(ranks: tuple[int, ...]) -> float:
    """Add up rank * block / T over levels of halving blocks."""
    return sum(rank / 2**lvl for lvl, rank in enumerate(ranks))


def near(columns: int) -> tuple[float, float]:
    """Count the window of the paper (its edges cut off) and what a cache keeps of it."""
    pairs = (2 * WINDOW * LENGTH - WINDOW**2) / LENGTH
    return columns * pairs, columns * (WINDOW + 1) / LENGTH


# The second table: product, parameters, kept keys, each of one head.
FORMULAS: dict[str, Callable[..., tuple[float, float, float]]] = {
    "standard": lambda: (COLUMNS * LENGTH, 2 * WIDTH * COLUMNS, COLUMNS),
    "sliding_window": lambda window: (near(COLUMNS)[0], 2 * WIDTH * COLUMNS, near(COLUMNS)[1]),
    "global_window": lambda ranks, window: (
        ranks[0] * LENGTH + near(ranks[1])[0],
        2 * WIDTH * sum(ranks),
        ranks[0] + near(ranks[1])[1],
    ),
    "mlr": lambda ranks: (
        LENGTH * level_columns(ranks),
        2 * WIDTH * sum(ranks),
        level_columns(ranks),
    ),
    "mlr_window": lambda ranks, window: (
        LENGTH * level_columns((0, *ranks[1:])) + near(ranks[0])[0],
        2 * WIDTH * sum(ranks),
        level_columns((0, *ranks[1:])) + near(ranks[0])[1],
    ),
    "bilinear": lambda structure: (WIDTH * LENGTH, WIDTH**2, WIDTH),
    "bilinear_mlr": lambda ranks: (
        LENGTH * sum(r * 2**lvl for lvl, r in enumerate(ranks)),
        2 * WIDTH * sum(ranks),
        sum(r * 2**lvl for lvl, r in enumerate(ranks)),
    ),
    # 512 = 16 * 32, and so b + c = 32 + 16.
    "bilinear_btt": lambda: (WIDTH * LENGTH, WIDTH * (32 + 16), WIDTH),
}


@pytest.mark.parametrize(("name", "options", "product", "parameters", "kept"), ROWS)
def test_each_row_of_the_table_is_what_the_code_counts(
    name: str, options: str, product: str, parameters: str, kept: str, seeded: None
) -> None:
    given = ast.literal_eval(options)
    score = build(name, given)
    counted = score.cost(LENGTH, "paper").scores / LENGTH
    entries = sum(prod(x.shape) for x in score.parameters())
    numbers = sum(r.columns * (LENGTH - r.first(LENGTH - 1)) for r in score.reaches())
    cached = HEADS * numbers / LENGTH
    assert (product, parameters, kept) == (f"{counted:,.0f}", f"{entries:,}", f"{cached:,.1f}")
    norm = WIDTH if name in {"bilinear", "bilinear_btt"} else 0
    exact = FORMULAS[name](**given)
    assert (counted, entries - norm, cached) == pytest.approx([HEADS * part for part in exact])


def test_each_score_has_a_row_and_the_picture_is_there() -> None:
    assert {row[0] for row in ROWS} == set(attention_ops) == set(attentions) == set(CROSSING)
    assert f"For width {WIDTH}, {HEADS} heads of {COLUMNS} columns, {LENGTH:,} steps" in PAGE
    assert "(img/scores.png)" in PAGE
    assert (DOCS / "img" / "scores.png").is_file()


@pytest.mark.parametrize(("name", "options"), [row[:2] for row in ROWS])
def test_another_sequence_is_taken_where_the_page_says_so(name: str, options: str) -> None:
    if not attentions[name].positional:
        assert CROSSING[name] == "yes"
        return
    assert CROSSING[name] == ("with" if name == "mlr" else "no")
    q, k = torch.zeros(1, 2, 9, COLUMNS), torch.zeros(1, 2, 5, COLUMNS)
    with pytest.raises(ValueError, match=r"S|block_ids"):
        attention_ops[name](q, k, k, **ast.literal_eval(options))
