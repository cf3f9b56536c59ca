"""Loggers of Lightning by name."""

from pathlib import Path

from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger

from mlrforecast._core.errors import MissingDependencyError
from mlrforecast.training.options import LoggerName, TrainingOptions

__all__ = ["build_loggers"]


def build_loggers(options: TrainingOptions) -> list[Logger] | bool:
    """Return the loggers of a run, False if there are none.

    Parameters
    ----------
    options : TrainingOptions
        Names, folder, and the settings that are logged.

    Returns
    -------
    list of Logger, or False

    Raises
    ------
    MissingDependencyError
        If the package of a logger is not installed.

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
    try:
        if name == "csv":
            return CSVLogger(folder, name="csv")
        if name == "tensorboard":
            return TensorBoardLogger(folder, name="tensorboard", default_hp_metric=False)
        store = (folder / "mlflow").resolve().as_uri()
        return MLFlowLogger(experiment_name="mlrforecast", tracking_uri=store)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"logger={name!r} needs {name!r}, which is not installed. Install it with: pip install "
            "'mlrforecast[loggers]'"
        ) from error
