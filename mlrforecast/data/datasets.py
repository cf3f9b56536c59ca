"""Data sets by name, each with its card, splits and train-only standardisation."""

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data import gluonts
from mlrforecast.data._files import read_file
from mlrforecast.data.catalogue import DatasetCard, load_card
from mlrforecast.data.frequency import default_season_length
from mlrforecast.data.m4 import parse_m4
from mlrforecast.data.schema import FrameSchema
from mlrforecast.data.tsf import parse_tsf

__all__ = ["TimeSeriesDataset", "load_dataset"]

ITEM, TIME, TARGET = "item_id", "timestamp", "target"


@dataclass(frozen=True, eq=False, repr=False)
class TimeSeriesDataset:
    """A data set: one frame and what is needed to forecast and score it.

    Attributes
    ----------
    name : str
        Name in the catalogue.
    frame : DataFrame
        All rows, NaN where a value is missing. Wide: a row for each stamp, which is the index,
        and a column for each series and covariate. Long: the columns ``item_id``, ``timestamp``,
        ``target`` and covariates, and a row for each series and stamp, the rows of a series
        together and oldest first.
    freq : str or int
        Step between the rows of a series: a pandas alias, or 1 where time is a number.
    season_length, prediction_length : int
        Rows of the main cycle, and the usual number of rows to forecast.
    target_columns : tuple of str
        Columns to forecast; ``("target",)`` of a long frame.
    past_covariates, known_covariates, static_covariates : tuple of str
        Columns of ``frame`` by role, to be handed to :class:`mlrforecast.MLRForecaster`.
    splits : mapping of str to slice
        Rows of ``"train"`` and ``"test"``, and mostly of ``"validation"``. Of a long frame they
        are rows of each series, and negative numbers count from its end.
    card : DatasetCard
        Source, licence, citation, units.

    Examples
    --------
    >>> dataset = load_dataset("synthetic")
    >>> dataset
    TimeSeriesDataset('synthetic': 1344 rows x 3 targets, freq 'h')
    >>> dataset.test.shape
    (168, 3)
    """

    name: str
    frame: pd.DataFrame
    freq: str | int
    season_length: int
    prediction_length: int
    target_columns: tuple[str, ...]
    past_covariates: tuple[str, ...]
    known_covariates: tuple[str, ...]
    static_covariates: tuple[str, ...]
    splits: Mapping[str, slice]
    card: DatasetCard

    def __post_init__(self) -> None:
        wanted = [*self.target_columns, *self.covariate_columns]
        if absent := [column for column in wanted if column not in self.frame.columns]:
            raise DataError(f"frame lacks the columns {absent}; it has {list(self.frame.columns)}")
        if absent := [name for name in ("train", "test") if name not in self.splits]:
            raise DataError(f"splits lack {absent}; they hold {list(self.splits)}")
        lengths = self.lengths
        if self.is_long:
            items = self.frame[ITEM].to_numpy()
            if 1 + (items[1:] != items[:-1]).sum() != len(lengths):
                raise DataError("the rows of each series of frame must stand together")
        shortest = int(lengths.min())
        for name, part in self.splits.items():
            start, stop, step = part.indices(shortest)
            # Beyond the end a slice would be cut off in silence.
            if step != 1 or start >= stop or (part.stop or 0) > shortest:
                raise DataError(
                    f"split {name!r} must be a slice of the {shortest} rows"
                    f"{' of the shortest series' if self.is_long else ''}, got {part}"
                )

    def __repr__(self) -> str:
        what = f"{len(self.target_columns)} targets"
        if self.is_long:
            what = f"{len(self.lengths)} series"
        return (
            f"TimeSeriesDataset({self.name!r}: {len(self.frame)} rows "
            f"{'of' if self.is_long else 'x'} {what}, freq {self.freq!r})"
        )

    @property
    def is_long(self) -> bool:
        """Whether ``frame`` has a row for each series and stamp."""
        return ITEM in self.frame.columns

    @property
    def lengths(self) -> pd.Series:
        """Rows of each series of a long frame by its name; of a wide one, its rows."""
        if not self.is_long:
            return pd.Series({self.name: len(self.frame)})
        return self.frame.groupby(ITEM, sort=False, observed=True).size()

    @property
    def source(self) -> str:
        """Page that the data come from."""
        return self.card.source

    @property
    def licence(self) -> str:
        """Terms of the data."""
        return self.card.licence

    @property
    def covariate_columns(self) -> tuple[str, ...]:
        """Names of all covariates."""
        return (*self.past_covariates, *self.known_covariates, *self.static_covariates)

    @property
    def targets(self) -> pd.DataFrame:
        """Targets of all rows; of a long frame with their items and stamps."""
        targets: pd.DataFrame = self.frame[self._target_frame()]
        return targets

    @property
    def covariates(self) -> pd.DataFrame:
        """Covariate columns of all rows."""
        return self.frame[list(self.covariate_columns)]

    @property
    def train(self) -> pd.DataFrame:
        """Targets of the rows to learn from."""
        return self.targets_of("train")

    @property
    def validation(self) -> pd.DataFrame:
        """Targets of the rows on which settings are chosen."""
        return self.targets_of("validation")

    @property
    def test(self) -> pd.DataFrame:
        """Targets of the rows that give the final score."""
        return self.targets_of("test")

    def targets_of(self, split: str) -> pd.DataFrame:
        """Return the targets of the rows of one split.

        Parameters
        ----------
        split : str
            A name in ``splits``.

        Returns
        -------
        DataFrame
            Rows of ``targets``.

        Raises
        ------
        ValueError
            If there is no such split.
        """
        targets: pd.DataFrame = self.frame_of(split)[self._target_frame()]
        return targets

    def frame_of(self, split: str, *, context_length: int = 0) -> pd.DataFrame:
        """Return the rows of one split with all columns.

        Parameters
        ----------
        split : str
            A name in ``splits``.
        context_length : int, default 0
            Rows before the split that are returned too, as far as a series has them: with
            ``forecaster.context_length_`` the forecasts of a backtest are those of the split.

        Returns
        -------
        DataFrame
            Rows of ``frame``.

        Raises
        ------
        ValueError
            If there is no such split, or ``context_length`` is below 0.

        Examples
        --------
        >>> dataset = load_dataset("synthetic")
        >>> dataset.frame_of("test").columns[-1]
        'holiday'
        >>> len(dataset.frame_of("test", context_length=48)) - len(dataset.test)
        48
        """
        if context_length < 0:
            raise ValueError(f"`context_length` must be at least 0, got {context_length}.")
        if split not in self.splits:
            raise ValueError(
                f"`split` must be one of {', '.join(self.splits)} of data set {self.name!r}, "
                f"got {split!r}."
            )
        part = self.splits[split]
        if not self.is_long:
            return self.frame.iloc[max(part.start - context_length, 0) : part.stop]
        lengths = self.lengths.to_numpy()
        firsts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        row = np.arange(len(self.frame)) - firsts
        bounds = np.array([part.indices(length)[:2] for length in lengths]).repeat(lengths, axis=0)
        kept: pd.DataFrame = self.frame[
            (row >= bounds[:, 0] - context_length) & (row < bounds[:, 1])
        ]
        return kept

    def parameters(self) -> dict[str, Any]:
        """Return what a forecaster must be told of the data.

        Returns
        -------
        dict of str to object
            Arguments of :class:`mlrforecast.MLRForecaster`: ``prediction_length``,
            ``season_length``, the covariates by role, and ``fill="missing"`` where rows are absent.

        Examples
        --------
        >>> load_dataset("synthetic").parameters()["known_covariates"]
        ('holiday',)
        """
        index = self.frame.index
        absent = not self.is_long and isinstance(index, pd.DatetimeIndex) and index.freq is None
        return {
            "prediction_length": self.prediction_length,
            "season_length": self.season_length,
            "past_covariates": self.past_covariates,
            "known_covariates": self.known_covariates,
            "static_covariates": self.static_covariates,
            **({"fill": "missing"} if absent else {}),
        }

    def standardised(self) -> pd.DataFrame:
        """Standardise the targets by what the train rows tell, and by nothing else.

        Returns
        -------
        DataFrame
            ``targets`` with ``(x - mean) / std`` of all rows, with mean and population standard
            deviation of the train rows of each series, missing values left out. A series that is
            constant there is only centred.

        Examples
        --------
        >>> scaled = load_dataset("synthetic").standardised()
        >>> bool(abs(scaled.iloc[:1008].mean()).max() < 1e-12)
        True
        """
        if not self.is_long:
            spread = self.train.std(ddof=0)
            return (self.targets - self.train.mean()) / spread.where(spread > 0, 1.0)
        known = self.train.groupby(ITEM, sort=False, observed=True)[TARGET]
        items = self.frame[ITEM]
        spread = items.map(known.std(ddof=0))
        centred = self.frame[TARGET] - items.map(known.mean())
        return self.targets.assign(target=centred / spread.where(spread > 0, 1.0))

    def describe(self) -> str:
        """Say in a few lines what the data set holds.

        Returns
        -------
        str
            Title, size, columns, splits, source, licence.

        Examples
        --------
        >>> print(load_dataset("synthetic").describe().splitlines()[0])
        synthetic: Three synthetic hourly loads with known truth
        """
        splits = ", ".join(f"{name} {_span(part)}" for name, part in self.splits.items())
        return "\n".join(
            [
                f"{self.name}: {self.card.title}",
                self._size(),
                f"step {self.freq!r}, season {self.season_length} rows, "
                f"horizon {self.prediction_length} rows",
                self._columns(),
                f"covariates: {', '.join(self.covariate_columns) or 'none'}",
                f"rows of the splits: {splits}",
                f"source: {self.source}",
                f"licence: {self.licence}",
            ]
        )

    def plot(self, *, items: Sequence[str] | None = None, max_items: int = 4) -> np.ndarray:
        """Draw the first series, their validation and test rows shaded.

        Parameters
        ----------
        items : sequence of str, optional
            Series of a long frame, or target columns of a wide one, to draw. Default: the first.
        max_items : int, default 4
            Series to draw at most.

        Returns
        -------
        ndarray of Axes
            One a series; nothing is shown or saved.

        Raises
        ------
        ValueError
            If there is no such series, or ``max_items`` is below 1.

        Examples
        --------
        >>> [axes.get_ylabel() for axes in load_dataset("synthetic").plot(max_items=2)]
        ['load_1', 'load_2']
        """
        # Imported here since matplotlib is slow to load and few calls need it.
        from mlrforecast.plots import plot_series

        if max_items < 1:
            raise ValueError(f"`max_items` must be at least 1, got {max_items}.")
        every = self.frame[ITEM].unique() if self.is_long else self.target_columns
        names = list(every if items is None else items)
        axes = plot_series(
            {name: self._series(name) for name in names[:max_items]}, splits=self.splits
        )
        if (hidden := len(names) - len(axes)) > 0:
            axes[-1].set_xlabel(f"and {hidden} more, not drawn")
        return axes

    def to_gluonts(self) -> Any:
        """Turn it into data sets of GluonTS.

        Returns
        -------
        gluonts.dataset.common.TrainDatasets
            ``train`` without the rows of ``"test"``, ``test`` with them, and ``metadata``.

        Raises
        ------
        MissingDependencyError
            If GluonTS is not installed.
        """
        schema = FrameSchema(
            target=None if self.is_long else self.target_columns,
            past_covariates=self.past_covariates,
            known_covariates=self.known_covariates,
            static_covariates=self.static_covariates,
        )
        return gluonts.to_train_datasets(
            self.frame,
            schema,
            freq=self.freq,
            prediction_length=self.prediction_length,
            test=self.splits["test"],
        )

    def _series(self, name: str) -> pd.Series:
        """Values of one target by time."""
        if not self.is_long and name in self.target_columns:
            return self.frame[name]
        rows = self.frame[self.frame[ITEM] == name] if self.is_long else self.frame[:0]
        if rows.empty:
            raise ValueError(f"`items` must name series of data set {self.name!r}, got {name!r}.")
        return pd.Series(rows[TARGET].to_numpy(), index=pd.Index(rows[TIME]), name=name)

    def _target_frame(self) -> list[str]:
        """Columns of ``targets``."""
        return [ITEM, TIME, *self.target_columns] if self.is_long else list(self.target_columns)

    def _size(self) -> str:
        """How many rows and series, and from when to when."""
        time = self.frame[TIME] if self.is_long else self.frame.index
        span = f"{time.min()} to {time.max()}"
        if not self.is_long:
            return f"{len(self.frame)} rows, {span}"
        lengths = self.lengths
        return (
            f"{len(self.frame)} rows of {len(lengths)} series with {lengths.min()} to "
            f"{lengths.max()} rows, {span}"
        )

    def _columns(self) -> str:
        """Which targets there are, and how many values are missing."""
        missing = int(self.frame[list(self.target_columns)].isna().to_numpy().sum())
        names = ", ".join(self.target_columns[:8])
        more = f" and {len(self.target_columns) - 8} more" if len(self.target_columns) > 8 else ""
        return f"targets: {names}{more} ({missing} values missing)"


def load_dataset(
    name: str, root: str | os.PathLike[str] | None = None, download: bool = True
) -> TimeSeriesDataset:
    """Load a data set of the catalogue.

    The ``"synthetic"`` set comes with the package. A file of any other is sought by name, at
    any depth and plain or ``.xz``, in the folder ``root``, in the folder that the environment
    variable ``MLRFORECAST_DATA`` names, and in the user's cache; if it is in none of them it is
    downloaded into the cache. Its sha256 is checked at every load. Data sets of
    ``"gluonts:..."`` are sought as folders of that name, then in the cache of GluonTS, which
    also downloads them.

    Parameters
    ----------
    name : str
        One of :func:`mlrforecast.data.list_datasets`.
    root : path, optional
        An existing folder to look through first; ``~`` is expanded, in the variable too.
    download : bool, default True
        Whether a file may be fetched from its public address. The environment variables
        ``MLRFORECAST_OFFLINE`` and ``HF_HUB_OFFLINE`` set to 1 switch that off too.

    Returns
    -------
    TimeSeriesDataset
        A fresh frame at every call, with its splits and card.

    Raises
    ------
    ValueError
        If the name is unknown, or ``root`` or ``MLRFORECAST_DATA`` is no folder.
    DatasetNotFoundError
        If a file is nowhere to be had; the message lists what was tried and what to do.
    ChecksumError
        If a file of that name is not the one of the card.
    DataError
        If a file is not what its card says, though there is no hash of it.
    MissingDependencyError
        If it is a data set of GluonTS, which is not installed.

    Examples
    --------
    >>> dataset = load_dataset("synthetic")
    >>> dataset.target_columns
    ('load_1', 'load_2', 'load_3')
    >>> load_dataset("sinthetic")
    Traceback (most recent call last):
    ...
    ValueError: Unknown data set 'sinthetic'. Did you mean 'synthetic'? Available: ETTh1, ETTh2, \
ETTm1, ETTm2, electricity, exchange_rate, national_illness, synthetic, traffic, weather, \
gluonts:airpassengers, ..., m4:daily, ..., monash:australian_electricity_demand, ...
    """
    card = load_card(name)
    if card.format == "gluonts":
        return _of_gluonts(card, root, download)
    contents = [read_file(file, dataset=name, root=root, download=download) for file in card.files]
    if card.format == "csv":
        return _of_csv(card, contents[0])
    if card.format == "m4":
        read = _Panel(parse_m4(*contents), 1, card.season_length, card.prediction_length)
        return _of_panel(card, read)
    return _of_tsf(card, contents[0])


class _Panel(NamedTuple):
    """A long frame, and what its file or card says of it."""

    frame: pd.DataFrame
    freq: str | int
    season_length: int
    prediction_length: int
    past: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    num_windows: int = 1


def _of_panel(card: DatasetCard, panel: _Panel) -> TimeSeriesDataset:
    """Make a data set whose last rows of each series are the test."""
    held = panel.num_windows * panel.prediction_length
    return TimeSeriesDataset(
        name=card.name,
        frame=panel.frame,
        freq=panel.freq,
        season_length=panel.season_length,
        prediction_length=panel.prediction_length,
        target_columns=(TARGET,),
        past_covariates=panel.past,
        known_covariates=panel.known,
        static_covariates=panel.static,
        splits={"train": slice(None, -held), "test": slice(-held, None)},
        card=card,
    )


def _of_tsf(card: DatasetCard, content: bytes) -> TimeSeriesDataset:
    """Read a file of the Monash archive."""
    data = parse_tsf(content, where=card.files[0].name)
    horizon = data.prediction_length or card.prediction_length
    if not horizon:
        raise DataError(
            f"{card.files[0].name} names no horizon, and neither does the card of {card.name!r}"
        )
    season = card.season_length or default_season_length(data.season_frequency or 1)
    return _of_panel(card, _Panel(data.frame, data.freq, season, horizon, static=data.attributes))


def _of_csv(card: DatasetCard, content: bytes) -> TimeSeriesDataset:
    """Read a csv file with a row for each stamp."""
    frame = _read_csv(card, content)
    return TimeSeriesDataset(
        name=card.name,
        frame=frame,
        freq=card.freq,
        season_length=card.season_length,
        prediction_length=card.prediction_length,
        target_columns=card.target_columns or tuple(frame.columns),
        past_covariates=card.columns_of("past_covariate"),
        known_covariates=card.columns_of("known_covariate"),
        static_covariates=(),
        splits=card.splits_of(len(frame)),
        card=card,
    )


def _read_csv(card: DatasetCard, content: bytes) -> pd.DataFrame:
    """Read the csv of a card, and make sure that the two agree."""
    # Headers of some files were written in an older encoding.
    frame = pd.read_csv(io.BytesIO(content), encoding_errors="replace")
    given = list(frame.columns)
    expected = [card.timestamp_column, *(column.name for column in card.columns)]
    agree = given == expected if card.columns else card.timestamp_column in given
    if not agree or (card.rows and len(frame) != card.rows):
        rows = f"{card.rows} rows" if card.rows else "columns"
        raise DataError(
            f"{card.files[0].name} must hold {rows} of {expected} as its card says, got "
            f"{len(frame)} rows of {given}"
        )
    text = frame.pop(card.timestamp_column)
    try:
        stamps = pd.to_datetime(text, format=card.timestamp_format or None)
    except ValueError as error:
        raise DataError(
            f"Column {card.timestamp_column!r} of {card.files[0].name} must hold time stamps: "
            f"{error}"
        ) from error
    frame.index = pd.DatetimeIndex(stamps, name=TIME)
    if frame.index.equals(pd.date_range(stamps[0], periods=len(frame), freq=card.freq)):
        frame.index = pd.DatetimeIndex(frame.index, freq=card.freq)
    return frame


def _span(part: slice) -> str:
    """Write the rows of a split."""
    if part.start is None and (part.stop or 0) < 0:
        return f"all but the last {-part.stop} of each series"
    if part.stop is None and (part.start or 0) < 0:
        return f"the last {-part.start}"
    return f"{part.start}..{part.stop - 1}"


def _of_gluonts(
    card: DatasetCard, root: str | os.PathLike[str] | None, download: bool
) -> TimeSeriesDataset:
    """Read a data set of the GluonTS repository."""
    name = card.name.rpartition(":")[2]
    data = gluonts.read_repository(name, root=root, download=download)
    season = card.season_length or default_season_length(data.freq)
    return _of_panel(
        card,
        _Panel(
            data.frame,
            data.freq,
            season,
            data.prediction_length,
            data.past,
            data.known,
            data.static,
            data.num_windows,
        ),
    )
