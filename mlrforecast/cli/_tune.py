"""What ``mlrforecast tune`` does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt

from mlrforecast.cli._console import Console
from mlrforecast.cli._fit import build_forecaster
from mlrforecast.cli._models import read_for
from mlrforecast.cli._paths import whole_file
from mlrforecast.cli._predict import records
from mlrforecast.cli._tables import STREAM, naming, write_table
from mlrforecast.cli._tune_commands import COMMAND
from mlrforecast.cli._tune_files import read_json, read_space, write_command
from mlrforecast.estimators import MLRForecaster
from mlrforecast.tuning import Preset, TuneResult, presets, tune

_OF_TUNE = (
    "num_samples",
    "metric",
    "folds",
    "windows",
    "step",
    "reports",
    "scheduler",
    "searcher",
    "executor",
    "seed",
    "max_concurrent",
    "max_failures",
    "max_time",
    "address",
)
_OF_COMMAND = (
    *("space", "space_file", "preset", "cpus", "gpus", "storage", "runtime_env"),
    *("form", "settings"),
)
_SHOWN = 5
"""Trials of the table, for each horizon, and failed ones that are told."""


def run_tune(
    data: str | None,
    *,
    folder: Path,
    resume: bool,
    options: Mapping[str, Any],
    console: Console,
) -> None:
    """Search, and write the best model, the trials and the picture."""
    preset = _preset(options["preset"])
    space = read_space(options["space"], options["space_file"])
    forecaster = _forecaster(options, preset, with_data=data is not None)
    given = _arguments(options, preset)
    frame = _frame(data, forecaster, preset, options["form"])
    storage = options["storage"] or str(folder / "sweep")
    begun = bool(options["storage"]) or (Path(storage) / "sweep.json").exists()
    if not resume:
        write_command(folder, data, options)
    try:
        with naming(X=data or f"the data of {options['preset']}"):
            result = tune(
                forecaster,
                frame,
                preset.space if preset else space,
                **given,
                storage_path=storage,
                resume=resume and begun,
                progress=console.progress,
            )
    except KeyboardInterrupt:
        console.say(f"To go on with the sweep: mlrforecast tune --resume {folder}")
        raise
    finally:
        _tidy(folder)
    models = _write(result, folder)
    console.say(_told(result, folder, models, data))
    console.finish({"out": str(folder), **_fields(result, models)}, _as_text(result))


def _preset(name: str | None) -> Preset | None:
    """Return a preset by its name."""
    if name is not None and name not in presets:
        raise ValueError(f"`--preset` must be one of {', '.join(presets)}, got {name!r}.")
    return None if name is None else presets[name]


def _forecaster(
    options: Mapping[str, Any], preset: Preset | None, *, with_data: bool
) -> MLRForecaster:
    """Build what is tuned: options stand before what a preset says."""
    known = {name: options[name] for name in options if name not in (*_OF_TUNE, *_OF_COMMAND)}
    settings: dict[str, Any] = {}
    if preset is not None:
        settings = {name: value for name, value in preset.settings.items() if name not in known}
        known = {
            name: preset.settings.get(name) if value is None else value
            for name, value in known.items()
        }
        if with_data and known["target"] is None:
            known["target"] = preset.target
    forecaster = build_forecaster(known, [*settings.items(), *options["settings"]])
    forecaster.set_params(progress=False)
    return forecaster


def _arguments(options: Mapping[str, Any], preset: Preset | None) -> dict[str, Any]:
    """Return the arguments of ``tune`` that were given, or that a preset says."""
    given = {name: options[name] for name in _OF_TUNE if options[name] is not None}
    resources = {"cpu": options["cpus"] or 1}
    if options["gpus"]:
        resources["gpu"] = options["gpus"]
    if options["runtime_env"] is not None:
        given["runtime_env"] = read_json(options["runtime_env"], "--runtime-env")
    return {**(preset.options if preset else {}), **given, "resources": resources}


def _frame(
    data: str | None, forecaster: MLRForecaster, preset: Preset | None, form: str | None
) -> pd.DataFrame:
    """Read the table, or the data of a preset."""
    if data is not None:
        return read_for(forecaster, data, form)
    assert preset is not None, "the command has seen to that"
    return preset.load()


def _tidy(folder: Path) -> None:
    """Leave no folder of a sweep that never began."""
    sweep = folder / "sweep"
    if sweep.is_dir() and not any(sweep.iterdir()):
        sweep.rmdir()
    if not any(path.name != COMMAND for path in folder.iterdir()):
        (folder / COMMAND).unlink(missing_ok=True)
        folder.rmdir()


def _write(result: TuneResult, folder: Path) -> list[Path]:
    """Write tables, picture and models; return the folders of the models, by horizon."""
    write_table(result.trials, str(folder / "trials.csv"), form="csv")
    write_table(result.curves, str(folder / "curves.csv"), form="csv")
    figure = result.plot()
    try:
        with whole_file(folder / "report.png") as draft:
            figure.savefig(draft, format="png", dpi=130, bbox_inches="tight")
    finally:
        plt.close(figure)
    models = []
    for length, estimator in result.best_estimators.items():
        several = len(result.best_estimators) > 1
        models.append(folder / (f"model-{length}" if several else "model"))
        # Whether this run had a terminal is no matter of the model.
        estimator.set_params(progress=True).save(models[-1])
    return models


def _fields(result: TuneResult, models: list[Path]) -> dict[str, Any]:
    """Return what is told in JSON."""
    found = zip(_best_rows(result), result.best_configs.values(), models, strict=True)
    return {
        "metric": result.metric,
        "trials": len(result.trials),
        "status": result.trials["status"].value_counts().to_dict(),
        "best": [
            {"score": row.score, "trial": row.trial, "config": config, "model": str(model)}
            for row, config, model in found
        ],
        "failed": records(_failed(result)[["trial", "error"]]),
    }


def _groups(result: TuneResult) -> list[pd.DataFrame]:
    """Return the trials of each horizon, the best first."""
    if "prediction_length" not in result.parameters:
        return [result.trials]
    return [rows for _, rows in result.trials.groupby("prediction_length", sort=True)]


def _best_rows(result: TuneResult) -> list[Any]:
    """Return the best trial of each horizon that has one."""
    groups = (rows[rows["status"] == "finished"] for rows in _groups(result))
    return [next(rows.itertuples()) for rows in groups if len(rows)]


def _failed(result: TuneResult) -> pd.DataFrame:
    """Return the trials that failed."""
    return result.trials[result.trials["status"] == "failed"]


def _told(result: TuneResult, folder: Path, models: list[Path], data: str | None) -> str:
    """Say what stands where."""
    lines = [
        f"Trial {row.trial}: {reason}"
        for row in _failed(result).head(_SHOWN).itertuples()
        for reason in [" ".join(str(row.error).split())]
    ]
    if (more := len(_failed(result)) - _SHOWN) > 0:
        lines.append(f"... and {more} more that failed, see trials.csv.")
    lines.append(f"Wrote trials.csv, curves.csv and report.png to {folder}.")
    source = "DATA" if data in (None, STREAM) else data
    lines += [f"Next: mlrforecast predict {model} {source}" for model in models]
    return "\n".join(lines)


def _as_text(result: TuneResult) -> str:
    """Return the best trials, to be read."""
    counts = result.trials["status"].value_counts()
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    trials = pd.concat(
        [
            rows[rows["status"].isin(["finished", "stopped"])].head(_SHOWN)
            for rows in _groups(result)
        ]
    )
    columns = ["trial", "status", "score", *result.parameters, "seconds"]
    table = trials[columns].rename(columns={"score": result.metric})
    count = "1 trial" if len(result.trials) == 1 else f"{len(result.trials)} trials"
    return f"{count}: {told}. The best:\n" + table.to_string(
        index=False, float_format="{:.4g}".format, na_rep=""
    )
