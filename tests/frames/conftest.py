"""What came of the cases of the fuzz test, printed at the end of a run."""

from collections import Counter

import pytest

pytest.register_assert_rewrite("tests.frames.real_files")

OUTCOMES = pytest.StashKey[Counter[str]]()


@pytest.fixture
def outcomes(request: pytest.FixtureRequest) -> Counter[str]:
    """Counts of this run, shared by all tests that fuzz."""
    return request.config.stash.setdefault(OUTCOMES, Counter())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts = terminalreporter.config.stash.get(OUTCOMES, None)
    if counts:
        listed = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        terminalreporter.write_line(f"{counts.total()} fuzzed frames: {listed}.")
