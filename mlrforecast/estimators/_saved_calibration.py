"""What was learnt of the errors of a forecaster as JSON values and tensors, and back."""

from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import torch

from mlrforecast.estimators._calibration import INTERVALS, LEAST, Calibration, check_method

REPORT = ("before", "after", "width")

TENSORS = {
    "split": ("residuals", "step_scale"),
    "rolling": ("residuals", "known_at", "step_scale"),
}

Tensors = dict[str, torch.Tensor]


def describe_calibration(calibration: Calibration) -> dict[str, Any]:
    """Return all of a calibration but its residuals as JSON values."""
    report = calibration.coverage.astype(object).where(calibration.coverage.notna(), None)
    return {
        "method": calibration.method,
        "step": calibration.step,
        "num_windows": calibration.num_windows,
        "coverage": {name: report[name].tolist() for name in REPORT},
    }


def calibration_tensors(calibration: Calibration) -> Tensors:
    """Return the numbers of a calibration; only a rolling one reads the times of its rows."""
    names = TENSORS[calibration.method]
    return {name: torch.from_numpy(np.array(getattr(calibration, name))) for name in names}


def read_calibration(
    described: dict[str, Any], tensors: Tensors, prediction_length: int
) -> Calibration:
    """Undo :func:`describe_calibration` and :func:`calibration_tensors`."""
    method = check_method(described["method"])
    residuals, step_scale = tensors["residuals"], tensors["step_scale"]
    known_at = tensors.get("known_at", torch.arange(len(residuals)))
    if (
        tensors.keys() != set(TENSORS[method])
        or residuals.dtype != torch.float64
        or step_scale.dtype != torch.float64
        or known_at.dtype != torch.int64
        or residuals.ndim != 1
        or len(residuals) < LEAST
        or known_at.shape != residuals.shape
        or step_scale.shape != (prediction_length,)
        or not torch.isfinite(residuals).all()
        or not (torch.isfinite(step_scale) & (step_scale > 0)).all()
    ):
        raise ValueError("the parts of its calibration do not fit together.")
    counts = {name: described[name] for name in ("step", "num_windows")}
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` of its calibration is {value!r}.")
    report = {name: [_share(value) for value in described["coverage"][name]] for name in REPORT}
    return Calibration(
        method=method,
        residuals=residuals.numpy(),
        known_at=known_at.numpy(),
        step_scale=step_scale.numpy(),
        coverage=pd.DataFrame(report, index=pd.Index(INTERVALS, name="nominal")),
        **counts,
    )


def _share(value: Any) -> float:
    """Return a number, NaN for None."""
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"the coverage of its calibration is {value!r}.")
    return float(value)


def read_dependence(values: Any, prediction_length: int) -> np.ndarray:
    """Return correlations by their distance in steps."""
    correlations = np.array(values, dtype=np.float64)
    if (
        correlations.shape != (prediction_length,)
        or correlations[0] != 1
        or not (np.abs(correlations) <= 1).all()
    ):
        raise ValueError(
            f"its dependence of errors is no list of {prediction_length} correlations."
        )
    return correlations
