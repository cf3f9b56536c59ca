"""Data sets in files, which are read piece by piece and never held in memory as a whole."""

import glob
from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from mlrforecast.data import _pieces
from mlrforecast.data._entries import Entry
from mlrforecast.data._pieces import SUFFIXES, Format, Source, open_source
from mlrforecast.data._storage import scratch_folder

__all__ = ["FileDataset"]

_SHOWN = 3


class FileDataset:
    """Series in files, in place of a frame, for data that memory cannot hold.

    A fit reads the files block by block, about a million values at a time, and keeps what it needs
    in scratch files, which it maps into memory piece by piece. What comes of it equals, bit for
    bit, a fit of the same rows in a frame. Forecasts read the files in the same way, and hold the
    newest rows of each series in memory.

    Two kinds of records are read. **Rows of a long frame**: an item, a stamp, a value and
    covariates, in columns that the parameters of the estimator name as those of a frame. All
    rows of a series must stand together; files are read one after the other, and a series may
    go on in the next one. **A series in each record**, as GluonTS and Chronos write them, where
    the column ``"target"`` holds lists: fields ``"start"``, ``"item_id"`` and the features of
    GluonTS. The frequency is then that of the estimator's parameter ``freq``.

    Parameters
    ----------
    path : path or sequence of path
        A file, a folder, whose files are taken in the order of their names, or a pattern such as
        ``"sales/2024-*.parquet"``; or several of them, in this order.
    format : {"parquet", "arrow", "jsonl"}, optional
        What the files are: parquet; record batches of Arrow, as a file (``.feather`` too) or a
        stream; or a JSON object in each line, compressed by gzip where the name ends in ``.gz``.
        Default: as their names say.
    scratch_dir : path, optional
        Folder of the scratch files, on a disk with room for about 30 bytes a row and 16 for each
        covariate, and half as much again with early stopping. They have no names, and their room
        is free again when they are no longer needed or the process has ended, however it ended.
        Default: the folder of temporary files; ``/var/tmp`` where that one is held in memory.

    Attributes
    ----------
    files : tuple of Path
        The files in the order in which they are read.
    format : {"parquet", "arrow", "jsonl"}
        What they are.
    scratch_dir : Path
        Folder of the scratch files.

    Raises
    ------
    FileNotFoundError
        If there is no such file, or a folder or pattern has none.
    ValueError
        If the format is unknown, or cannot be told from the names.

    Examples
    --------
    >>> import tempfile
    >>> from mlrforecast import MLRForecaster, load_dataset
    >>> frame = load_dataset("synthetic").targets
    >>> rows = frame.melt(var_name="item_id", value_name="target", ignore_index=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "load.jsonl"
    ...     rows.rename_axis("timestamp").reset_index().to_json(
    ...         path, orient="records", lines=True, date_format="iso"
    ...     )
    ...     dataset = FileDataset(path)
    ...     forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
    ...     forecast = forecaster.fit(dataset).predict(dataset)
    >>> dataset
    FileDataset(1 file, jsonl: load.jsonl)
    >>> forecast.shape
    (72, 3)
    """

    def __init__(
        self,
        path: str | PathLike[str] | Sequence[str | PathLike[str]],
        *,
        format: Format | None = None,  # noqa: A002
        scratch_dir: str | PathLike[str] | None = None,
    ) -> None:
        if format is not None and format not in get_args(Format):
            raise ValueError(
                f"`format` must be one of {', '.join(get_args(Format))}, got {format!r}."
            )
        given = [path] if isinstance(path, str | PathLike) else list(path)
        self.files = tuple(file for each in given for file in _find(fspath(each)))
        if not self.files:
            raise FileNotFoundError(f"`path` names no file, got {path!r}.")
        self.format: Format = _format_of(self.files) if format is None else format
        self.scratch_dir = scratch_folder() if scratch_dir is None else Path(scratch_dir)
        if not self.scratch_dir.is_dir():
            raise FileNotFoundError(
                f"`scratch_dir` must be a folder that is there, got {str(self.scratch_dir)!r}."
            )

    def __repr__(self) -> str:
        names = ", ".join(file.name for file in self.files[:_SHOWN])
        names += ", ..." * (len(self.files) > _SHOWN)
        count = f"{len(self.files)} file{'s' * (len(self.files) > 1)}"
        return f"FileDataset({count}, {self.format}: {names})"

    @property
    def columns(self) -> list[Any]:
        """Names of the columns of the frames that are read."""
        return list(next(self.sources[0].rows(1)).columns)

    @property
    def sources(self) -> list[Source]:
        """What reads each file."""
        return [open_source(file, self.format) for file in self.files]

    @property
    def num_rows(self) -> int | None:
        """Records of all files; None where only reading them all would tell."""
        counts = [source.num_rows() for source in self.sources]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def holds_series(self, target: str) -> bool:
        """Tell whether each record holds a whole series, as a list named ``target``."""
        return self.sources[0].holds_series(target)

    def rows(self) -> Iterator[pd.DataFrame]:
        """Yield the rows of all files, some at a time."""
        return (frame for source in self.sources for frame in source.rows(_pieces.ROWS))

    def entries(self, target: str) -> Iterator[list[Entry]]:
        """Yield the series of all files, some at a time.

        Parameters
        ----------
        target : str
            Field of the values: as many of them as make a block are read at once.

        Yields
        ------
        list of mappings
            Entries as GluonTS has them.
        """
        return (entries for source in self.sources for entries in source.entries(target))


def _find(path: str) -> list[Path]:
    """Return the files that a path, a folder or a pattern names."""
    if not any(sign in path for sign in "*?[") or Path(path).exists():
        place = Path(path)
        if place.is_dir():
            return [each for each in sorted(place.iterdir()) if _is_data(each)]
        if not place.exists():
            raise FileNotFoundError(f"`path` names no file, got {path!r}.")
        return [place]
    return [Path(each) for each in sorted(glob.glob(path, recursive=True)) if Path(each).is_file()]


def _is_data(path: Path) -> bool:
    """Tell whether a file of a folder holds data, by its name."""
    described = path.name.startswith((".", "_")) or path.name == "metadata.json"
    return path.is_file() and not described and _suffix(path) in SUFFIXES


def _suffix(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _format_of(files: Sequence[Path]) -> Format:
    """Return the format that the names of all files say."""
    found: dict[Format | None, str] = {}
    for file in files:
        found.setdefault(SUFFIXES.get(_suffix(file)), file.name)
    if None in found:
        raise ValueError(
            f"`format` must be given for {found[None]!r}: its name ends in none of "
            f"{', '.join(SUFFIXES)}."
        )
    if len(found) > 1:
        names = " and ".join(repr(name) for name in list(found.values())[:2])
        raise ValueError(f"All files must have one format, but `path` names {names}.")
    return next(form for form in found if form is not None)
