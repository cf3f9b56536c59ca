"""Short lives of a forecaster, in a folder, as a program of a user would have them."""

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


def whole_life(folder: Path, *, progress: bool) -> None:
    """Do what writes, prints or trains, with files in a folder alone."""
    fitted = MLRForecaster(**TINY | {"progress": progress}).fit(wide())
    fitted.predict(), fitted.score(wide()), fitted.backtest(wide(), step=1)
    fitted.save(folder / "model")
    loaded = MLRForecaster.load(folder / "model").set_params(progress=progress)
    loaded.partial_fit(wide(seed=1)).predict()
    loaded.estimate_memory(wide()), loaded.save(folder / "model")
