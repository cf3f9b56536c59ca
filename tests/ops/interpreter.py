"""Run cases of kernels in a process of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_interpreted(module: str) -> dict[str, Any]:
    """Return what a module prints when run where the interpreter was chosen before the import."""
    return run_alone(module, TRITON_INTERPRET="1")


def run_alone(module: str, **environment: str) -> dict[str, Any]:
    """Return what a module prints when run in a process with these variables."""
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Warning" not in done.stderr, done.stderr[-2000:]
    results: dict[str, Any] = json.loads(done.stdout)
    return results
