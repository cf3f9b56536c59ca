"""What ``mlrforecast fit`` does."""

import inspect
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from mlrforecast.cli._console import Console
from mlrforecast.cli._models import read_for
from mlrforecast.cli._tables import STREAM, naming
from mlrforecast.estimators import Calibration, MLRForecaster

_NOT_SET = ("backbone", "progress")


def run_fit(
    data: str,
    *,
    out: Path,
    form: str | None,
    options: Mapping[str, Any],
    settings: Iterable[tuple[str, object]],
    calibrate: str,
    with_context: bool,
    console: Console,
) -> None:
    """Fit on a table, calibrate if that was asked for, and save."""
    forecaster = build_forecaster(options, settings)
    forecaster.set_params(progress=console.progress)
    frame = read_for(forecaster, data, form)
    replaced = out.is_dir() and any(out.iterdir())
    start = time.perf_counter()
    with naming(X=data):
        forecaster.fit(frame)
        if calibrate != "none":
            forecaster.calibrate(frame, method=calibrate)
    seconds = time.perf_counter() - start
    # Whether this run had a terminal is no matter of the model.
    forecaster.set_params(progress=True)
    forecaster.save(out, with_context=with_context)
    following = ["mlrforecast predict", str(out)]
    following += [] if with_context else ["DATA" if data == STREAM else data]
    following += ["--future FILE"] if forecaster.known_covariates else []
    report = describe(forecaster) | {"rows": len(frame), "seconds": round(seconds, 3)}
    console.say(_told(report))
    if forecaster.calibration_ is not None:
        console.say(_told_of(forecaster.calibration_))
    console.say(f"{'Replaced' if replaced else 'Saved'} {out}. Next: {' '.join(following)}")
    console.finish({"folder": str(out), **report, "with_context": with_context})


def build_forecaster(
    options: Mapping[str, Any], settings: Iterable[tuple[str, object]]
) -> MLRForecaster:
    """Build a forecaster from options and settings, and check all that needs no data."""
    further: dict[str, Any] = dict(settings)
    _check_names(further, options)
    given = {name: value for name, value in options.items() if value is not None}
    # One name is one column; of a long table there may be no more.
    if len(given.get("target", ())) == 1:
        given["target"] = given["target"][0]
    if "freq" in given and given["freq"].isdecimal():
        given["freq"] = int(given["freq"])
    forecaster = MLRForecaster(**given, **further)
    try:
        forecaster.check_parameters()
    except TypeError as error:
        raise ValueError(str(error)) from error
    return forecaster


def _check_names(further: Iterable[str], options: Mapping[str, Any]) -> None:
    """Refuse settings that MLRForecaster does not have, or that have an option."""
    known = [name for name in inspect.signature(MLRForecaster).parameters if name not in _NOT_SET]
    for name in further:
        if name in options:
            option = f"--{name.replace('_', '-')}"
            raise click.BadParameter(f"{name!r} has an option: {option}.", param_hint="'--set'")
        if name not in known:
            others = ", ".join(entry for entry in known if entry not in options)
            raise click.BadParameter(f"{name!r} is none of {others}.", param_hint="'--set'")


def describe(forecaster: MLRForecaster) -> dict[str, Any]:
    """Return what is told of a fitted model."""
    assert forecaster.context_ is not None, "it was fitted just now"
    calibration = forecaster.calibration_
    return {
        "series": len(forecaster.context_.labels),
        "freq": forecaster.freq_,
        "prediction_length": forecaster.config_.prediction_length,
        "context_length": forecaster.context_length_,
        "steps": forecaster.num_steps_,
        "parameters": forecaster.num_parameters_,
        "calibration": None if calibration is None else calibration.method,
    }


def _told_of(calibration: Calibration) -> str:
    """Say what a calibration brought."""
    before, after = (float(calibration.coverage[name][0.8]) for name in ("before", "after"))
    held = "" if math.isnan(before) else f"{before:.0%} of the values before, "
    found = "too few windows to tell" if math.isnan(after) else f"{after:.0%} after"
    return f"Calibrated: the 80% interval held {held}{found}."


def _told(report: Mapping[str, Any]) -> str:
    """Say what was fitted."""
    series = "1 series" if report["series"] == 1 else f"{report['series']} series"
    return (
        f"Fitted {series}, {report['rows']} rows of frequency {report['freq']}: "
        f"{report['steps']} steps in {report['seconds']:.1f} s, {report['parameters']} parameters."
    )
