"""Forecasts of series in parquet files that no memory needs to hold, through Ray Data."""

import copy
import logging
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from mlrforecast._core.atomic import DRAFT
from mlrforecast._core.errors import DataError
from mlrforecast._core.optional import import_optional
from mlrforecast.data import FileDataset
from mlrforecast.estimators import MLRForecaster
from mlrforecast.integrations.ray._rows import (
    AHEAD,
    KEY,
    PURPOSE,
    Columns,
    Preparation,
    arrow,
    find_columns,
    newest_rows,
)
from mlrforecast.integrations.ray._workers import RayWorkers, check_room
from mlrforecast.training import isolated_seed

PART = 500_000
"""Rows of the source for each part of the series, which one worker holds at a time."""

_USAGE = "RAY_DATA_USAGE_DISABLED"

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


def predict_parquet(
    forecaster: MLRForecaster | str | PathLike[str],
    source: Paths,
    out: str | PathLike[str],
    *,
    future: Paths | None = None,
    prediction_length: int | None = None,
    quantile_levels: Sequence[float] | None = None,
    workers: RayWorkers | None = None,
    progress: bool = True,
) -> Path:
    """Forecast the steps that follow each series in parquet files, on the workers of a cluster.

    The files are read block by block, and of each series the newest rows alone go to the worker
    that forecasts it, with many others; so neither the files nor the forecasts need fit into the
    memory of a machine. The numbers are those of :meth:`MLRForecaster.predict`. Rows older than a
    forecast reads are not checked.

    Parameters
    ----------
    forecaster : MLRForecaster or path
        Fitted, or the folder that one was saved to.
    source : path or sequence of path
        Parquet files with the rows of a long frame: a file, a folder, a pattern such as
        ``"sales/*.parquet"``, or several of them. Rows may come in any order, and those of a
        series may be in several files. All workers must find them by these names.
    out : path
        Folder of the parquet files with the forecasts, which must be new or empty. It appears
        whole or not at all. All workers must be able to write to it.
    future : path or sequence of path, optional
        Parquet files with the ``known_covariates`` of the steps to forecast.
    prediction_length, quantile_levels : optional
        As in :meth:`MLRForecaster.predict`.
    workers : RayWorkers, optional
        The cluster, and what a worker takes of it. Default: the one that the process is connected
        to, otherwise a Ray on this machine that ends with the forecast.
    progress : bool
        Whether to show Ray's bars of progress.

    Returns
    -------
    Path
        The folder. Its files have the columns of a long forecast: the series, the time, the target
        and, with levels, ``"0.9"``. Rows of a series stand together, series in any order.

    Raises
    ------
    NotFittedError, DataError, ValueError, TypeError
        As in :meth:`MLRForecaster.predict`; also if ``source`` holds no rows of a long frame,
        or after a rolling calibration, which reads all series together.
    FileNotFoundError
        If there is no such file.
    FileExistsError
        If ``out`` is a file, or a folder that holds something.
    ConnectionError
        If there is no such cluster.
    OSError
        If ``out`` cannot be written, or workers have written where it is not seen from here.

    Examples
    --------
    >>> predict_parquet("model", "sales/*.parquet", "forecast")  # doctest: +SKIP
    PosixPath('forecast')
    """
    if isinstance(forecaster, str | PathLike):
        forecaster = MLRForecaster.load(forecaster)
    check_is_fitted(forecaster, "model_")
    if forecaster.calibration_ is not None and forecaster.calibration_.method == "rolling":
        raise ValueError(
            "`forecaster` must not have a rolling calibration, which reads all series together. "
            "Calibrate it with method='split', or use `predict`."
        )
    forecaster._check_horizon(prediction_length)
    levels = forecaster._check_levels(quantile_levels)
    folder, schema = _new_folder(out), forecaster.schema_
    history = FileDataset(source, format="parquet")
    later = None if future is None else FileDataset(future, format="parquet")
    columns = find_columns(history, later, schema)
    if (future is None) == bool(schema.known_covariates):
        raise DataError(
            "`future` must name the files with the known covariates "
            f"{', '.join(map(repr, schema.known_covariates))} of the steps to forecast."
            if future is None
            else "`future` was given, but the forecaster has no known covariates: leave it out."
        )
    # Of irregular stamps, a step may take any number of rows.
    newest = forecaster.context_length_ if schema.resample is None else None
    # Without the rows that the forecaster was fitted on, which no forecast of others reads.
    sent = copy.copy(forecaster)
    sent.context_ = None
    options = {"prediction_length": prediction_length, "quantile_levels": levels}
    work = _Work(sent, columns, newest, options, later is not None)
    workers = RayWorkers() if workers is None else workers
    # Ray draws numbers from the generators of the process.
    with isolated_seed(0), workers.connected(PURPOSE) as ray, _drafted(folder) as draft:
        _run(ray, work, (history, later), draft, workers, progress=progress)
    return folder


class _Work(NamedTuple):
    """What is forecast, and from which columns; the same for all workers."""

    forecaster: MLRForecaster
    columns: Columns
    newest: int | None
    options: dict[str, Any]
    needs_future: bool

    def forecast(self, table: Any) -> Any:
        """Return the forecast from rows of whole series, None if all rows are of the future."""
        pa = arrow()
        columns, ahead = self.columns, table[AHEAD]
        history = table.filter(pa.compute.invert(ahead)).select(list(columns.types))
        if not len(history):
            return None
        if self.newest is not None:
            history = newest_rows(history, columns, self.newest)
        future = None
        if self.needs_future:
            future = self._frame(table.filter(ahead).select(list(columns.ahead)))
        forecast = self.forecaster.predict(self._frame(history), future=future, **self.options)
        if columns.indexed:
            forecast = forecast.reset_index()
        made = pa.Table.from_pandas(forecast, preserve_index=False)
        types = {name: columns.types[name] for name in (columns.item, columns.time)}
        return made.cast(
            pa.schema([(field.name, types.get(field.name, field.type)) for field in made.schema])
        )

    def _frame(self, table: Any) -> pd.DataFrame:
        """Return a table as the frame that would have been written as one."""
        columns = self.columns
        frame: pd.DataFrame = table.to_pandas(ignore_metadata=True, date_as_object=False)
        return frame.set_index([columns.item, columns.time]) if columns.indexed else frame


@lru_cache(maxsize=1)
def _loaded(work: Any) -> _Work:
    """Return what a reference of Ray stands for, read once in each process of a worker."""
    ray = import_optional("ray", extra="tune", purpose=PURPOSE)
    loaded: _Work = ray.get(work)
    return loaded


def _write_part(table: Any, *, work: list[Any], folder: Path) -> dict[str, np.ndarray]:
    """Write the forecast from rows of whole series; tell which file has how many rows."""
    names, counts = [], []
    forecast = _loaded(work[0]).forecast(table) if len(table) else None
    if forecast is not None:
        # The same name again where the part of a lost worker is made anew.
        names = [f"forecast-{table[KEY].to_numpy().view(np.uint64).min():016x}.parquet"]
        counts = [len(forecast)]
        arrow().parquet.write_table(forecast, folder / names[0])
    return {"name": np.array(names, dtype=object), "rows": np.array(counts, dtype=np.int64)}


def _run(
    ray: ModuleType,
    work: _Work,
    files: tuple[FileDataset, FileDataset | None],
    draft: Path,
    workers: RayWorkers,
    *,
    progress: bool,
) -> None:
    """Bring the rows of series together, and forecast from them."""
    data = import_optional("ray.data", extra="tune", purpose=PURPOSE)
    history, future = files
    needed = workers.needed(work.forecaster.accelerator)
    places = check_room(ray, needed, 1)
    context = data.DataContext.get_current().copy()
    context.enable_progress_bars = context.print_on_execution_start = progress
    context.raise_original_map_exception = True
    prepare = Preparation(work.columns, work.newest)
    with data.DataContext.current(context), _hushed(progress), _own_errors(ray):
        rows = _read(data, history, tuple(work.columns.types), prepare.history)
        if future is not None:
            rows = rows.union(_read(data, future, work.columns.ahead, prepare.future))
        count = max(places, -(-(history.num_rows or 0) // PART))
        # First all of them, for forecasting workers would take the CPUs that reading needs.
        parts = rows.repartition(count, keys=[KEY]).materialize()
        taken = {name: number for name, number in needed.items() if name not in ("CPU", "GPU")}
        # Tasks, not actors: those of a lost node are done again elsewhere.
        written = parts.map_batches(
            _write_part,
            batch_size=None,
            batch_format="pyarrow",
            fn_kwargs={"work": [ray.put(work)], "folder": draft},
            compute=data.TaskPoolStrategy(size=min(places, count)),
            num_cpus=needed.get("CPU", 0.0),
            num_gpus=needed.get("GPU", 0.0),
            resources=taken,
            max_calls=0,
        ).take_all()
    _check_written(draft, written)


def _read(data: ModuleType, files: FileDataset, names: tuple[str, ...], prepare: Any) -> Any:
    """Return the prepared rows of files."""
    paths = [str(file.absolute()) for file in files.files]
    rows = data.read_parquet(paths).select_columns(list(names))
    return rows.map_batches(prepare, batch_size=None, batch_format="pyarrow")


def _check_written(draft: Path, written: list[dict[str, Any]]) -> None:
    """Complain about files of workers that are not seen from here."""
    parquet = arrow().parquet
    for part in written:
        path = draft / part["name"]
        if not path.is_file() or parquet.read_metadata(path).num_rows != part["rows"]:
            raise FileNotFoundError(
                "`out` must be on a file system that all nodes of the cluster share: the forecast "
                f"that a worker wrote to {str(draft.parent)!r} is not there."
            )


@contextmanager
def _drafted(folder: Path) -> Iterator[Path]:
    """Yield a folder that takes a name if a block succeeds, and goes if it does not."""
    draft = folder.with_name(f"{DRAFT}{folder.name}-{secrets.token_hex(8)}")
    draft.mkdir(parents=True)
    try:
        yield draft
        draft.replace(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _new_folder(out: str | PathLike[str]) -> Path:
    """Return a folder that is new or empty."""
    folder = Path(out).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"`out` must be a new or empty folder, got {fspath(out)!r}.")
    return folder


@contextmanager
def _own_errors(ray: ModuleType) -> Iterator[None]:
    """Raise what a worker raised as it is."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ray.exceptions.RayError):
            raise
        # Ray adds how one could have it tried again.
        error.cause.__notes__ = []
        raise error.cause from error


@contextmanager
def _hushed(progress: bool) -> Iterator[None]:
    """Keep Ray Data from telling what it does, unless that is asked for."""
    logger = logging.getLogger("ray.data")
    level, variable = logger.level, os.environ.get(_USAGE)
    try:
        # Otherwise a thread looks for counters of its use until the process ends.
        os.environ[_USAGE] = "1"
        if not progress:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        logger.setLevel(level)
        del os.environ[_USAGE]
        if variable is not None:
            os.environ[_USAGE] = variable
