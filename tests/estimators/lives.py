"""A short life of a forecaster, in a folder, as a program of a user would have it."""

from pathlib import Path
from typing import Any

from mlrforecast import MLRForecaster
from mlrforecast.evaluation import Backtest
from tests.estimators.frames import TINY, wide

STEPS = 40
"""Of each fit; a checkpoint is written after every second one, and at the end."""


def live(folder: Path, **parameters: Any) -> tuple[MLRForecaster, Backtest]:
    """Fit, save, test with three refits, and calibrate with another one."""
    given = {"max_steps": STEPS, "checkpoint_dir": folder / "checkpoints", **parameters}
    forecaster = MLRForecaster(**TINY | given).fit(wide())
    forecaster.save(folder / "model")
    backtest = forecaster.backtest(wide(), windows=3, refit=True)
    return forecaster.calibrate(wide(), windows=4), backtest
