"""Draw the pictures of the docs from what the library computes, so that they cannot drift.

Each ``docs/figure_<topic>.py`` has a function ``draw(folder)``; all of them are called. Run it from
the root of the repository, with topics to draw only those; it writes into ``docs/img``::

    python docs/make_figures.py
    python docs/make_figures.py levels
"""

import sys
from importlib import import_module
from pathlib import Path

import matplotlib as mpl

DOCS = Path(__file__).parent


def main(topics: list[str]) -> None:
    """Draw the pictures of some topics, or of all."""
    mpl.use("agg")
    mpl.rcParams["font.family"] = "DejaVu Sans"
    folder = DOCS / "img"
    folder.mkdir(exist_ok=True)
    for topic in topics or sorted(p.stem.removeprefix("figure_") for p in DOCS.glob("figure_*.py")):
        import_module(f"figure_{topic}").draw(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
