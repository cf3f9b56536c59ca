"""Loggers of Lightning by name."""

import os
from collections.abc import Sequence
from pathlib import Path

from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger

from mlrforecast._core.optional import import_optional
from mlrforecast.training.options import LoggerName, TrainingOptions

__all__ = ["build_loggers", "check_loggers"]


def check_loggers(names: Sequence[LoggerName]) -> None:
    """Import what loggers need.

    Parameters
    ----------
    names : sequence of {"csv", "tensorboard", "mlflow"}
        Their names.

    Raises
    ------
    MissingDependencyError
        If the package of a logger is not installed.

    Examples
    --------
    >>> check_loggers(["csv"])
    """
    for name in names:
        if name != "csv":
            import_optional(name, extra="loggers", purpose=f"`logger`={name!r}")


def build_loggers(options: TrainingOptions) -> list[Logger] | bool:
    """Return the loggers of a run, False if there are none.

    Parameters
    ----------
    options : TrainingOptions
        Names, folder, and the settings that are logged.

    Returns
    -------
    list of Logger, or False

    Examples
    --------
    >>> build_loggers(TrainingOptions(max_steps=1, batch_size=1, learning_rate=0.1))
    False
    """
    if not options.logger:
        return False
    assert options.log_dir is not None
    return [_build(name, options.log_dir) for name in options.logger]


def _build(name: LoggerName, folder: Path) -> Logger:
    """Return one logger; runs in one folder get numbers of their own."""
    if name == "csv":
        return CSVLogger(folder, name="csv")
    if name == "tensorboard":
        return TensorBoardLogger(folder, name="tensorboard", default_hp_metric=False)
    if set("%?") & set(str(folder.resolve())):
        raise ValueError(f"`log_dir` of MLflow must have no '%' and no '?', got {str(folder)!r}.")
    folder.mkdir(parents=True, exist_ok=True)
    # A server that the user has named, or a local database, as MLflow itself would make.
    server = os.environ.get("MLFLOW_TRACKING_URI")
    store = server or f"sqlite:///{folder.resolve() / 'mlflow.db'}"
    artifacts = None if server else str(folder.resolve() / "mlflow")
    return MLFlowLogger("mlrforecast", tracking_uri=store, artifact_location=artifacts)
