"""Try what may happen to a model: killed, cut short, altered, hostile; and write what happened.

Each row is one attempt on a tiny model, in a process of its own, which is killed with SIGKILL where
the row says so. What must hold stands beside what did.

    python benchmarks/failures.py --out benchmarks/results/failures

`--only save` tries one group (save, files, hostile, fit, checkpoint or backtest) and keeps the
lines of the others that are there.
"""

import argparse
import platform
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from _failures_checkpoint import checkpoints
from _failures_files import files
from _failures_hostile import hostile
from _failures_lab import Row, Workshop
from _failures_save import saves
from _failures_training import backtests, fits
from _rows import replace_rows

from mlrforecast import __version__
from mlrforecast.benchmark import cpu_model

FIELDS = (
    "group",
    "what",
    "where",
    "how",
    "expected",
    "happened",
    "ok",
    "version",
    "torch",
    "python",
    "hardware",
    "command",
)
GROUPS: dict[str, Callable[[Workshop], Iterator[Row]]] = {
    "save": saves,
    "files": files,
    "hostile": hostile,
    "fit": fits,
    "checkpoint": checkpoints,
    "backtest": backtests,
}


def _rank(row: dict[str, Any]) -> int:
    return list(GROUPS).index(row["group"])


def main() -> None:
    """Try all, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=GROUPS)
    options = parser.parse_args()
    # A process is forked for each attempt: threads would not be there.
    torch.set_num_threads(1)
    about = {
        "version": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": f"{cpu_model()}, 1 thread",
        "command": shlex.join(["python", *sys.argv]),
    }
    names = [options.only] if options.only else list(GROUPS)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        shop = Workshop(Path(folder))
        for name in names:
            for row in GROUPS[name](shop):
                rows.append({"group": name, **row._asdict(), **about})
                print("ok " if row.ok else "BAD", *row[:-1], sep=" | ", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    replace_rows(options.out / "failures.csv", FIELDS, rows, _rank, end="\r\n")
    bad = sum(not row["ok"] for row in rows)
    print(f"{len(rows)} attempts, {bad} not as expected")


if __name__ == "__main__":
    main()
