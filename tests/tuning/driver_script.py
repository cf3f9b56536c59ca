"""A sweep in a process of its own, to be killed or interrupted: ``ADDRESS FOLDER``."""

import sys
from pathlib import Path
from typing import Any

from mlrforecast.tuning import TuneResult, tune
from tests.tuning.faulty import faulty
from tests.tuning.small import frame

TRIALS = 5


def sweep(address: str | None, folder: Path, **options: Any) -> TuneResult:
    """Run, or go on with, a sweep whose trials take a few seconds each."""
    settings: dict[str, Any] = {
        "num_samples": 1,
        "folds": 2,
        "windows": 3,
        "reports": 4,
        "refit": False,
        "progress": False,
        "storage_path": folder / "sweep",
    }
    space = {"seed": {"grid_search": list(range(TRIALS))}}
    base = faulty(folder / "notes", {}, max_steps=100)
    return tune(base, frame(), space, address=address, **(settings | options))


if __name__ == "__main__":
    address, folder = sys.argv[1:]
    try:
        sweep(address if address != "local" else None, Path(folder))
    except KeyboardInterrupt as error:
        sys.exit(f"interrupted: {error}")
