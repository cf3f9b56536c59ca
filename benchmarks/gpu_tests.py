"""Run the tests that need a GPU, and keep what came of each: CI has none, so this is the record.

::

    python benchmarks/gpu_tests.py benchmarks/results/gpu/tests.csv

One row is one test with all its cases. Further arguments name tests, as to pytest: the rows of
others stay as they are. The exit status is that of pytest.
"""

import platform
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from _rows import replace_rows

import mlrforecast

FOLDERS = (
    "tests/estimators/test_devices.py",
    "tests/nn",
    "tests/ops",
    "tests/tasks",
    "tests/training",
)
OUTCOMES = ("passed", "skipped", "failed")


class Outcomes:
    """Counts of passed, skipped and failed cases of each test."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a case once: where it ran, or where setting it up ended it."""
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.nodeid.split("[")[0]][report.outcome] += 1


def main(path: Path, tests: Sequence[str]) -> int:
    """Run tests, or all, and write the record."""
    if not torch.cuda.is_available():
        sys.exit("No CUDA device: there is nothing to record.")
    outcomes = Outcomes()
    status = pytest.main(
        ["-m", "gpu", "-q", "-p", "no:cacheprovider", *(tests or FOLDERS)], [outcomes]
    )
    where = {
        "hardware": torch.cuda.get_device_name(),
        "versions": f"python {platform.python_version()}, torch {torch.__version__}, "
        f"mlrforecast {mlrforecast.__version__}",
        "command": f"python benchmarks/gpu_tests.py benchmarks/results/gpu/{path.name}",
    }
    rows = [
        {"test": test, **{name: counts[name] for name in OUTCOMES}, **where}
        for test, counts in outcomes.counts.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    if not tests:
        path.unlink(missing_ok=True)
    replace_rows(path, ["test", *OUTCOMES, *where], rows, lambda row: row["test"])
    return int(status)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
