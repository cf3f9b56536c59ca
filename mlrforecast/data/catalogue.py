"""The catalogue of data sets: one card each, read from TOML and checked."""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

__all__ = ["ColumnCard", "DatasetCard", "list_datasets", "load_card"]

_ROLES = ("target", "past_covariate", "known_covariate")
_SPLITS = ("train", "validation", "test")
_TEXTS = (
    "name",
    "title",
    "description",
    "file",
    "sha256",
    "licence",
    "citation",
    "freq",
    "timestamp_column",
    "timestamp_format",
)
_COUNTS = ("size", "season_length", "prediction_length", "rows")


@dataclass(frozen=True, kw_only=True)
class ColumnCard:
    """One column of a data set.

    Attributes
    ----------
    name : str
        Name in the file.
    role : {"target", "past_covariate", "known_covariate"}
        What it is for; a past covariate is only seen up to the present, a known covariate also
        over the steps to be forecast.
    unit : str
        Unit of its values, or ``"not stated"``.
    description : str
        What it holds.
    """

    name: str
    role: Literal["target", "past_covariate", "known_covariate"]
    unit: str
    description: str

    def __post_init__(self) -> None:
        if self.role not in _ROLES:
            raise ValueError(
                f"role of column {self.name!r} must be one of {_ROLES}, got {self.role!r}"
            )


@dataclass(frozen=True, kw_only=True)
class DatasetCard:
    """What is known about a data set.

    Attributes
    ----------
    name, title, description : str
        Name for :func:`mlrforecast.data.load_dataset`, one line, and a paragraph.
    file : str
        Name of the file.
    sha256, size : str and int
        Hash and bytes of the file after decompression.
    licence, citation : str
        Terms of the data, and how to cite them.
    freq : str
        Step between rows, as pandas writes it.
    season_length, prediction_length : int
        Rows of the main cycle, and the usual number of rows to forecast.
    timestamp_column : str
        Column of the file that holds the time stamps.
    timestamp_format : str
        How they are written, as ``strptime`` reads them.
    rows : int
        Rows of the file.
    splits : mapping of str to range
        Rows of ``"train"``, ``"validation"`` and ``"test"``, in this order.
    columns : tuple of ColumnCard
        All columns but the time stamps, in the order of the file.
    urls : tuple of str
        Public addresses, tried in turn; empty if the data set only lives here.
    embedded : str
        Path of the file inside the catalogue, or empty if it must be found or fetched.
    generator : mapping
        Arguments of :func:`mlrforecast.data.make_synthetic` that draw the data set again, or
        empty.
    """

    name: str
    title: str
    description: str
    file: str
    sha256: str
    size: int
    licence: str
    citation: str
    freq: str
    season_length: int
    prediction_length: int
    timestamp_column: str
    timestamp_format: str
    rows: int
    splits: Mapping[str, range]
    columns: tuple[ColumnCard, ...]
    urls: tuple[str, ...] = ()
    embedded: str = ""
    generator: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _TEXTS:
            if not isinstance(value := getattr(self, name), str) or not value:
                raise ValueError(f"{name} must be a text that is not empty, got {value!r}")
        for name in _COUNTS:
            if not isinstance(value := getattr(self, name), int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        if len(self.sha256) != 64 or not set(self.sha256) <= set("0123456789abcdef"):
            raise ValueError(f"sha256 must be 64 lower-case hex digits, got {self.sha256!r}")
        if not self.urls and not self.embedded:
            raise ValueError("urls must name an address unless embedded names a file")
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names) or not self.target_columns:
            raise ValueError(f"columns must be distinct and hold a target, got {names}")
        _check_splits(self.splits, self.rows)

    @property
    def target_columns(self) -> tuple[str, ...]:
        """Names of the targets, in the order of the file."""
        return tuple(column.name for column in self.columns if column.role == "target")

    @property
    def covariate_columns(self) -> tuple[str, ...]:
        """Names of the covariates, in the order of the file."""
        return tuple(column.name for column in self.columns if column.role != "target")

    @classmethod
    def from_toml(cls, text: str) -> "DatasetCard":
        """Read a card.

        Parameters
        ----------
        text : str
            TOML with the fields of this class and no others; ``splits`` holds
            ``[start, stop]`` pairs, ``columns`` an array of tables.

        Returns
        -------
        DatasetCard
            The checked card.

        Raises
        ------
        ValueError
            If the text is no TOML, or a field is unknown, missing or outside its range.

        Examples
        --------
        >>> DatasetCard.from_toml("nmae = 'mine'")
        Traceback (most recent call last):
        ...
        ValueError: unknown field 'nmae' in a DatasetCard; known: name, title, description, \
file, sha256, size, licence, citation, freq, season_length, prediction_length, \
timestamp_column, timestamp_format, rows, splits, columns, urls, embedded, generator
        """
        raw = tomllib.loads(text)
        _check_fields(raw, cls)
        columns = []
        for column in raw.pop("columns"):
            _check_fields(column, ColumnCard)
            columns.append(ColumnCard(**column))
        splits = {}
        for name, rows in raw.pop("splits").items():
            if not isinstance(rows, list) or [type(row) for row in rows] != [int, int]:
                raise ValueError(f"split {name!r} must be a [start, stop] pair, got {rows!r}")
            splits[name] = range(*rows)
        return cls(
            columns=tuple(columns),
            splits=MappingProxyType(splits),
            urls=tuple(raw.pop("urls", ())),
            generator=MappingProxyType(raw.pop("generator", {})),
            **raw,
        )


def list_datasets() -> list[str]:
    """Name the data sets that :func:`mlrforecast.data.load_dataset` knows.

    Returns
    -------
    list of str
        Names, sorted.

    Examples
    --------
    >>> list_datasets()
    ['ETTh1', 'ETTh2', 'synthetic']
    """
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in catalogue_folder().iterdir()
        if entry.name.endswith(".toml")
    )


def load_card(name: str) -> DatasetCard:
    """Read the card of a data set.

    Parameters
    ----------
    name : str
        One of :func:`list_datasets`.

    Returns
    -------
    DatasetCard
        The checked card.

    Raises
    ------
    ValueError
        If the name is unknown, or the card breaks a rule.

    Examples
    --------
    >>> load_card("ETTh1").licence
    'CC BY-ND 4.0'
    """
    available = list_datasets()
    if name not in available:
        raise ValueError(f"Unknown data set {name!r}. Available: {available}")
    entry = catalogue_folder() / f"{name}.toml"
    try:
        card = DatasetCard.from_toml(entry.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"The card of data set {name!r} ({entry}): {error}") from error
    if card.name != name:
        raise ValueError(f"The card {entry} must be named after its data set, {card.name!r}")
    return card


def catalogue_folder() -> Traversable:
    """Folder of the cards: inside an installed package, beside it in a checkout."""
    packed = files("mlrforecast") / "_datasets"
    return packed if packed.is_dir() else Path(__file__).parents[2] / "datasets"


def _check_fields(raw: Mapping[str, object], cls: type[ColumnCard] | type[DatasetCard]) -> None:
    """Refuse unknown fields and name the missing ones."""
    known = [item.name for item in fields(cls)]
    for name in raw:
        if name not in known:
            raise ValueError(
                f"unknown field {name!r} in a {cls.__name__}; known: {', '.join(known)}"
            )
    needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    if missing := [name for name in needed if name not in raw]:
        raise ValueError(f"a {cls.__name__} lacks the fields {', '.join(missing)}")


def _check_splits(splits: Mapping[str, range], rows: int) -> None:
    """Refuse splits that are unknown, out of time order, overlapping or outside the file."""
    if tuple(splits) != _SPLITS:
        raise ValueError(f"splits must be {_SPLITS} in this order, got {tuple(splits)}")
    end = 0
    for name, span in splits.items():
        if span.step != 1 or not end <= span.start < span.stop <= rows:
            raise ValueError(
                f"split {name!r} must be a range of rows from {end} or later up to {rows} at "
                f"most, got {span}"
            )
        end = span.stop
