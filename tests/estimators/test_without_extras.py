"""Nothing that is optional is needed: polars, pyarrow, GluonTS and others may be absent."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys

ABSENT = ("chronos", "gluonts", "modin", "platformdirs", "polars", "pyarrow", "ray", "requests")
sys.modules.update(dict.fromkeys(ABSENT))  # importing them fails from here on

import numpy as np
import pandas as pd
from mlrforecast import MLRForecaster

stamps = pd.date_range("2024-01-01", periods=60, freq="D")
wide = pd.DataFrame({"a": np.arange(60.0), "b": np.arange(60.0) % 7}, index=stamps)
long = wide.reset_index(names="ds").melt("ds", var_name="unique_id", value_name="y")
small = {"prediction_length": 7, "context_length": 14, "max_steps": 1, "progress": False}
for frame in (wide, long, wide["a"], wide.to_numpy()):
    forecast = MLRForecaster(**small).fit(frame).predict()
    print(type(forecast).__name__, *forecast.shape)
assert not any(sys.modules[name] for name in ABSENT)
"""


def test_frames_are_read_and_written_with_pandas_and_numpy_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert printed == ["DataFrame 7 2", "DataFrame 14 3", "Series 7", "ndarray 7 2"]
