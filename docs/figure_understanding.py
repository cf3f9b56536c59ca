"""Draw what a trained forecaster rests on: attention, covariates, errors, intervals."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from mlrforecast import MLRForecaster
from mlrforecast.data import make_synthetic
from mlrforecast.plots import (
    plot_attention,
    plot_backtest,
    plot_error_by_step,
    plot_importance,
)

HORIZON = 24
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


def draw(folder: Path) -> None:
    """Fit one forecaster on a synthetic panel, and draw all that the page shows of it."""
    frame = _frame()
    past = frame[: -28 * HORIZON]
    forecaster = _forecaster().fit(past)
    _save(plot_attention(forecaster.attention_by_level()), folder / "attention_by_level.png")
    importance = forecaster.permutation_importance(frame, windows=28)
    _save(plot_importance(importance), folder / "importance.png")
    backtest = forecaster.backtest(frame, windows=28, quantile_levels=LEVELS)
    axes = plot_backtest(backtest.frame, items=["load_1", "load_2"], max_cutoffs=7)
    _save(axes[0], folder / "backtest.png")
    _save(plot_error_by_step(_errors(backtest.frame), ylabel="MAE"), folder / "error_by_step.png")


def _frame() -> pd.DataFrame:
    """Draw hourly loads, what makes them, and a column that has nothing to do with them."""
    hours = 24 * 7 * 26
    frame = make_synthetic(num_series=3, length=hours, noise=0.25, missing_rate=0, seed=3).frame
    frame["dice"] = np.random.default_rng(0).integers(1, 7, hours).astype(float)
    return frame


def _forecaster() -> MLRForecaster:
    """Return an unfitted forecaster."""
    return MLRForecaster(
        HORIZON,
        known_covariates=["temperature", "holiday", "dice"],
        context_length=336,
        patch_length=8,
        max_steps=300,
        progress=False,
        accelerator="cpu",
    )


def _errors(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the mean absolute error of each step of the forecaster and of the day before."""
    windows = frame.groupby(["item_id", "cutoff"], sort=False)
    step = 1 + windows.cumcount()
    day_before = frame["actual"].groupby(frame["item_id"], sort=False).shift(HORIZON)
    errors = pd.DataFrame(
        {
            "MLRForecaster": (frame["actual"] - frame["forecast"]).abs(),
            "the day before": (frame["actual"] - day_before).abs(),
        }
    )
    return errors.groupby(step).mean()


def _save(axis: plt.Axes, path: Path) -> None:
    """Write a figure and close it."""
    axis.figure.savefig(path, dpi=110)
    plt.close(axis.figure)
