"""Run cases in Triton's interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_interpreted(module: str) -> dict[str, Any]:
    """Return what a module prints when run where the interpreter was chosen before the import."""
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results: dict[str, Any] = json.loads(done.stdout)
    return results
