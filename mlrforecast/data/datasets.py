"""Data sets by name, each with its card, splits and train-only standardisation."""

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data._files import read_file
from mlrforecast.data.catalogue import DatasetCard, load_card

__all__ = ["TimeSeriesDataset", "load_dataset"]


@dataclass(frozen=True, eq=False, repr=False)
class TimeSeriesDataset:
    """A data set: one wide frame and what is needed to forecast and score it.

    Attributes
    ----------
    name : str
        Name in the catalogue.
    frame : DataFrame of shape (T, C + number of covariates)
        All rows, time stamps as index, NaN where a value is missing.
    freq : str
        Step between rows, as pandas writes it.
    season_length, prediction_length : int
        Rows of the main cycle, and the usual number of rows to forecast.
    target_columns, covariate_columns : tuple of str
        Columns of ``frame``.
    splits : mapping of str to range
        Rows of ``"train"``, ``"validation"`` and ``"test"``.
    card : DatasetCard
        Licence, citation, source, units.

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
    freq: str
    season_length: int
    prediction_length: int
    target_columns: tuple[str, ...]
    covariate_columns: tuple[str, ...]
    splits: Mapping[str, range]
    card: DatasetCard

    def __post_init__(self) -> None:
        wanted = [*self.target_columns, *self.covariate_columns]
        if absent := [column for column in wanted if column not in self.frame.columns]:
            raise DataError(f"frame lacks the columns {absent}; it has {list(self.frame.columns)}")
        if absent := [name for name in ("train", "validation", "test") if name not in self.splits]:
            raise DataError(f"splits lack {absent}; they hold {list(self.splits)}")
        for name, rows in self.splits.items():
            if rows.step != 1 or not 0 <= rows.start < rows.stop <= len(self.frame):
                raise DataError(
                    f"split {name!r} must be a range of the {len(self.frame)} rows, got {rows}"
                )

    def __repr__(self) -> str:
        return (
            f"TimeSeriesDataset({self.name!r}: {len(self.frame)} rows x "
            f"{len(self.target_columns)} targets, freq {self.freq!r})"
        )

    @property
    def targets(self) -> pd.DataFrame:
        """Target columns of all rows."""
        return self.frame[list(self.target_columns)]

    @property
    def covariates(self) -> pd.DataFrame:
        """Covariate columns of all rows."""
        return self.frame[list(self.covariate_columns)]

    @property
    def train(self) -> pd.DataFrame:
        """Targets of the rows to learn from."""
        return self._split("train")

    @property
    def validation(self) -> pd.DataFrame:
        """Targets of the rows on which settings are chosen."""
        return self._split("validation")

    @property
    def test(self) -> pd.DataFrame:
        """Targets of the rows that give the final score."""
        return self._split("test")

    def standardised(self) -> pd.DataFrame:
        """Standardise the targets by what the train rows tell, and by nothing else.

        Returns
        -------
        DataFrame of shape (T, C)
            ``(x - mean) / std`` of all rows, with mean and population standard deviation of the
            train rows, missing values left out. A target that is constant there is only centred.

        Examples
        --------
        >>> scaled = load_dataset("synthetic").standardised()
        >>> bool(abs(scaled.iloc[:1008].mean()).max() < 1e-12)
        True
        """
        spread = self.train.std(ddof=0)
        return (self.targets - self.train.mean()) / spread.where(spread > 0, 1.0)

    def describe(self) -> str:
        """Say in a few lines what the data set holds.

        Returns
        -------
        str
            Title, size, columns, splits, licence.

        Examples
        --------
        >>> print(load_dataset("synthetic").describe().splitlines()[0])
        synthetic: Three synthetic hourly loads with known truth
        """
        index = self.frame.index
        splits = ", ".join(f"{name} {s.start}..{s.stop - 1}" for name, s in self.splits.items())
        missing = int(self.targets.isna().to_numpy().sum())
        return "\n".join(
            [
                f"{self.name}: {self.card.title}",
                f"{len(index)} rows, {index[0]} to {index[-1]}, freq {self.freq!r}, "
                f"season {self.season_length} rows",
                f"targets: {', '.join(self.target_columns)} ({missing} values missing)",
                f"covariates: {', '.join(self.covariate_columns) or 'none'}",
                f"rows of the splits: {splits}",
                f"licence: {self.card.licence}",
            ]
        )

    def _split(self, name: str) -> pd.DataFrame:
        """Targets of the rows of one split."""
        rows = self.splits[name]
        return self.frame.iloc[rows.start : rows.stop][list(self.target_columns)]


def load_dataset(
    name: str, *, root: str | os.PathLike[str] | None = None, download: bool = True
) -> TimeSeriesDataset:
    """Load a data set of the catalogue.

    The ``"synthetic"`` set comes with the package. The file of any other is sought by name, at
    any depth and plain or ``.xz``, in the folder ``root``, in the folder that the environment
    variable ``MLRFORECAST_DATA`` names, and in the user's cache; if it is in none of them it is
    downloaded into the cache. Its sha256 is checked at every load.

    Parameters
    ----------
    name : str
        One of :func:`mlrforecast.data.list_datasets`.
    root : path, optional
        An existing folder to look through first; ``~`` is expanded, in the variable too.
    download : bool, default True
        Whether the file may be fetched from its public address.

    Returns
    -------
    TimeSeriesDataset
        A fresh frame at every call, with its splits and card.

    Raises
    ------
    ValueError
        If the name is unknown, or ``root`` or ``MLRFORECAST_DATA`` is no folder.
    DatasetNotFoundError
        If the file is nowhere to be had; the message lists what was tried and what to do.
    ChecksumError
        If a file of that name is not the one of the card.

    Examples
    --------
    >>> dataset = load_dataset("synthetic")
    >>> dataset.target_columns
    ('load_1', 'load_2', 'load_3')
    >>> load_dataset("sinthetic")
    Traceback (most recent call last):
    ...
    ValueError: Unknown data set 'sinthetic'. Available: ['ETTh1', 'ETTh2', 'synthetic']
    """
    card = load_card(name)
    content = read_file(card, root=root, download=download)
    return TimeSeriesDataset(
        name=card.name,
        frame=_parse(card, content),
        freq=card.freq,
        season_length=card.season_length,
        prediction_length=card.prediction_length,
        target_columns=card.target_columns,
        covariate_columns=card.covariate_columns,
        splits=card.splits,
        card=card,
    )


def _parse(card: DatasetCard, content: bytes) -> pd.DataFrame:
    """Read the csv of a card, and make sure that the two agree."""
    frame = pd.read_csv(io.BytesIO(content))
    expected = [card.timestamp_column, *(column.name for column in card.columns)]
    if list(frame.columns) != expected or len(frame) != card.rows:
        raise DataError(
            f"{card.file} must hold {card.rows} rows of {expected} as its card says, got "
            f"{len(frame)} rows of {list(frame.columns)}"
        )
    stamps = pd.to_datetime(frame.pop(card.timestamp_column), format=card.timestamp_format)
    frame.index = pd.DatetimeIndex(stamps, name="timestamp", freq=card.freq)
    return frame
