"""Marks, guards and shared fixtures of the whole test suite."""

import os

# Before torch or matplotlib is imported by any test: few threads, and no window.
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("MPLBACKEND", "Agg")

import functools
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

DATA_VARIABLE = "MLRFORECAST_DATA"
NOT_SET = f"{DATA_VARIABLE} is not set"
# What tools keep in the working directory; ignored by git.
TOOL_FOLDERS = {
    ".coverage",
    ".hypothesis",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "__pycache__",
}

# The same examples on every machine, and no time limit on a busy one. To search further:
# pytest --hypothesis-profile=default
hypothesis.settings.register_profile(
    "repeatable", database=None, deadline=None, derandomize=True, print_blob=True
)
hypothesis.settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-network", action="store_true", help="run tests that need the internet")
    parser.addoption(
        "--shaped",
        action="append",
        default=[],
        metavar="FOLDER",
        help="leave out the tests of a folder that run under the shape checker",
    )


def pytest_configure(config: pytest.Config) -> None:
    folder = os.environ.get(DATA_VARIABLE)
    if folder and not Path(folder).is_dir():
        raise pytest.UsageError(f"{DATA_VARIABLE} names {folder!r}, which is not a folder.")
    # A plugin, not a fixture of this folder: the doctests of the package are guarded as well.
    config.pluginmanager.register(_Guards(), "mlrforecast-guards")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    folders = [config.rootpath / folder for folder in config.getoption("--shaped")]
    shaped = {item for item in items if _is_shaped(item, folders)}
    config.hook.pytest_deselected(items=list(shaped))
    items[:] = [item for item in items if item not in shaped]
    reasons = {
        "gpu": None if _gpu_needed_and_there(items) else "needs a CUDA device",
        "network": None if config.getoption("--run-network") else "needs --run-network",
        "shared": None if os.environ.get(DATA_VARIABLE) else NOT_SET,
    }
    for mark, reason in reasons.items():
        marked = [item for item in items if item.get_closest_marker(mark)] if reason else []
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


def _is_shaped(item: pytest.Item, folders: list[Path]) -> bool:
    """Tell whether the shape checker runs a test of some folders, which says as much of it."""
    if not any(folder in item.path.parents for folder in folders):
        return False
    alone = any(item.get_closest_marker(mark) for mark in ("compile", "slow"))
    return not alone and "own_errors" not in getattr(item, "fixturenames", ())


def _gpu_needed_and_there(items: list[pytest.Item]) -> bool:
    """Ask torch for a device, but only where a test wants one."""
    if not any(item.get_closest_marker("gpu") for item in items):
        return False
    import torch  # heavy: only for runs that hold such a test

    return torch.cuda.is_available()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    left_out = sum(NOT_SET in str(report.longrepr) for report in skipped)
    if left_out:
        terminalreporter.write_line(
            f"{left_out} tests that need {DATA_VARIABLE} were left out: it is not set.", yellow=True
        )


def _random_states() -> dict[str, Any]:
    """Fingerprint each global generator; torch's only if something has imported torch."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - the legacy state is what is guarded
    states: dict[str, Any] = {
        "random": random.getstate(),
        "numpy.random": (kind, keys.tobytes(), *rest),
    }
    if torch := sys.modules.get("torch"):
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states


def _put_back(states: dict[str, Any]) -> None:
    """Undo every draw since ``_random_states`` gave ``states``."""
    random.setstate(states["random"])
    kind, keys, *rest = states["numpy.random"]
    np.random.set_state((kind, np.frombuffer(keys, np.uint32), *rest))  # noqa: NPY002
    if "torch" in states:
        torch = sys.modules["torch"]
        torch.set_rng_state(torch.frombuffer(bytearray(states["torch"]), dtype=torch.uint8))


class _Guards:
    """Fail any test or doctest that leaves a trace outside itself."""

    @pytest.fixture(autouse=True)
    def leaves_no_trace(self, request: pytest.FixtureRequest) -> Iterator[None]:
        folder = Path.cwd()
        files, states = set(os.listdir(folder)), _random_states()
        yield
        if isinstance(request.node, pytest.DoctestItem):
            # An example is a user's own session, and may build a module of torch.
            _put_back(states)
        after = _random_states()
        if request.config.getoption("--jaxtyping-packages", default=None):
            # beartype draws which item of a container it looks at.
            after["random"] = states["random"]
        changed = [name for name, state in states.items() if after[name] != state]
        if changed:
            pytest.fail(
                f"The global random state of {', '.join(changed)} was changed. Draw from a "
                "generator, or ask for the fixture `seeded` where a test itself must draw.",
                pytrace=False,
            )
        new = sorted(set(os.listdir(folder)) - files - TOOL_FOLDERS)
        if new:
            pytest.fail(f"New in the working directory: {', '.join(new)}", pytrace=False)


@pytest.fixture
def seeded() -> Iterator[None]:
    """Seed the global generators for one test and put them back: for tests that must draw.

    A module of torch draws its first weights from the global generator, so a test that builds one
    asks for this fixture. What the library draws itself is tested without it.
    """
    import torch  # heavy: only for the tests that ask

    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 - the legacy state is the one to be seeded
        torch.manual_seed(0)
        yield
    random.setstate(python_state)
    np.random.set_state(numpy_state)  # noqa: NPY002


@pytest.fixture
def own_errors(request: pytest.FixtureRequest) -> None:
    """Ask for it where wrong types or shapes go in: the shape checker would speak first."""
    if request.config.getoption("--jaxtyping-packages", default=None):
        pytest.skip("tests our own message, and the shape checker speaks first")


@pytest.fixture(scope="session")
def shared_file() -> Callable[[str], Path]:
    """Find a file of the shared folder by name, at any depth, plain or ``.xz``."""
    root = os.environ.get(DATA_VARIABLE)
    if not root:
        pytest.fail(f"shared_file without {DATA_VARIABLE}: mark the test `shared`.", pytrace=False)

    @functools.cache
    def find(name: str) -> Path:
        for wanted in (name, f"{name}.xz"):
            if found := sorted(Path(root).rglob(wanted)):
                return found[0]
        raise FileNotFoundError(f"No {name} (or {name}.xz) below {root}")

    return find
