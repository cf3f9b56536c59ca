"""Write ``notation.md`` from the axis legend: ``python docs/notation.py``."""

from pathlib import Path

from mlrforecast._core.axes import AXES

INTRODUCTION = """# Notation

Every shape in a signature or a docstring is written with these letters, and in no other sense.
(This page is generated from the legend in the code; a test compares the two.)
"""

LEVELS = """
The levels of MLR attention run from coarse to fine. They are counted by `num_levels` and indexed
by `lvl`; `ranks` and `block_sizes` hold one entry a level.
"""


def render() -> str:
    """Give the text of the page."""
    rows = [f"| `{letter}` | {meaning} |" for letter, meaning in AXES.items()]
    table = "\n".join(["| axis | meaning |", "|---|---|", *rows])
    return f"{INTRODUCTION}\n{table}\n{LEVELS}"


if __name__ == "__main__":
    (Path(__file__).parent / "notation.md").write_text(render(), encoding="utf-8")
