"""The catalogue of data sets: one card each, read from TOML and checked."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

__all__ = ["ColumnCard", "DatasetCard", "FileCard", "list_datasets", "load_card"]

_ROLES = ("target", "past_covariate", "known_covariate")
_FORMATS = ("csv", "tsf", "m4", "gluonts")
_SPLITS = ("train", "validation", "test")
_TEXTS = ("name", "title", "description", "source", "licence", "citation")
_CSV_TEXTS = ("freq", "timestamp_column")
_CSV_COUNTS = ("season_length", "prediction_length")
_SEPARATOR = ":"


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
class FileCard:
    """One file of a data set.

    Attributes
    ----------
    name : str
        Name under which it is sought in folders and kept in the cache, without ``.xz``.
    urls : tuple of str
        Public addresses, tried in turn; empty if the file only lives here.
    sha256 : str
        Hash of the file after decompression; empty if neither the file nor a published hash of it
        was seen: the first download then records it in the user's cache.
    size : int
        Bytes of it, or 0 if unknown.
    member : str
        Name of the file inside the archive that an address ending in ``.zip`` serves.
    embedded : str
        Path inside the catalogue, or empty if the file must be found or fetched.

    Examples
    --------
    >>> card = FileCard(name="a.csv", urls=("https://example.org/a.csv",))
    >>> card.verified
    False
    """

    name: str
    urls: tuple[str, ...] = ()
    sha256: str = ""
    size: int = 0
    member: str = ""
    embedded: str = ""

    def __post_init__(self) -> None:
        if not self.name or Path(self.name).name != self.name:
            raise ValueError(f"name of a file must be a name without folders, got {self.name!r}")
        if self.sha256 and not (
            len(self.sha256) == 64 and set(self.sha256) <= set("0123456789abcdef")
        ):
            raise ValueError(f"sha256 must be 64 lower-case hex digits, got {self.sha256!r}")
        if type(self.size) is not int or self.size < 0:
            raise ValueError(f"size must be an integer of at least 0, got {self.size!r}")
        if not self.urls and not self.embedded:
            raise ValueError("urls must name an address unless embedded names a file")

    @property
    def verified(self) -> bool:
        """Whether its hash is known."""
        return bool(self.sha256)


@dataclass(frozen=True, kw_only=True)
class DatasetCard:
    """What is known about a data set.

    Attributes
    ----------
    name, title, description : str
        Name for :func:`mlrforecast.data.load_dataset`, one line, and a paragraph.
    source : str
        Page that the data come from.
    licence, citation : str
        Terms of the data, and how to cite them.
    format : {"csv", "tsf", "m4", "gluonts"}
        How the files are read: a csv file with a row for each stamp, a file of the Monash
        archive, the csv files of the M4 competition, or by GluonTS itself.
    files : tuple of FileCard
        Its files, none of ``"gluonts"``.
    freq : str
        Step between rows, as pandas writes it; empty if it stands in the files.
    season_length, prediction_length : int
        Rows of the main cycle, and the usual number of rows to forecast; 0 if they stand in the
        files or follow from the frequency.
    columns : tuple of ColumnCard
        Columns beside the time; of csv, all of them in the order of the file, or empty if every
        column is a target.
    unit : str
        Unit of the values of targets that ``columns`` does not list.
    timestamp_column : str
        Column of a csv file that holds the time stamps.
    timestamp_format : str
        How they are written, as ``strptime`` reads them, or empty if all are written as the first.
    rows : int
        Rows of a csv file, or 0 if unknown.
    splits : mapping of str to slice
        Rows of ``"train"``, ``"validation"`` and ``"test"`` of a csv file, in this order.
    split_shares : tuple of float
        In place of them, shares of the rows: the first go to ``"train"``, the last to ``"test"``,
        what is left to ``"validation"``.
    generator : mapping
        Arguments of :func:`mlrforecast.data.make_synthetic` that draw the data set again, or
        empty.
    """

    name: str
    title: str
    description: str
    source: str
    licence: str
    citation: str
    format: Literal["csv", "tsf", "m4", "gluonts"]
    files: tuple[FileCard, ...] = ()
    freq: str = ""
    season_length: int = 0
    prediction_length: int = 0
    columns: tuple[ColumnCard, ...] = ()
    unit: str = "not stated"
    timestamp_column: str = ""
    timestamp_format: str = ""
    rows: int = 0
    splits: Mapping[str, slice] = field(default_factory=dict)
    split_shares: tuple[float, ...] = ()
    generator: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_texts(self, _TEXTS)
        if self.format not in _FORMATS:
            raise ValueError(f"format must be one of {_FORMATS}, got {self.format!r}")
        if (self.format == "gluonts") == bool(self.files):
            raise ValueError(f"files must be named for every format but gluonts, got {self.files}")
        _check_counts(self, ("season_length", "prediction_length", "rows"), least=0)
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names) or (names and not self.target_columns):
            raise ValueError(f"columns must be distinct and hold a target, got {names}")
        if self.format == "csv":
            _check_texts(self, _CSV_TEXTS)
            _check_counts(self, _CSV_COUNTS, least=1)
            _check_splits(self)

    @property
    def target_columns(self) -> tuple[str, ...]:
        """Names of the targets that ``columns`` lists, in the order of the file."""
        return self.columns_of("target")

    @property
    def verified(self) -> bool:
        """Whether the hash of every file is known."""
        return bool(self.files) and all(file.verified for file in self.files)

    def columns_of(self, role: str) -> tuple[str, ...]:
        """Name the columns of one role.

        Parameters
        ----------
        role : {"target", "past_covariate", "known_covariate"}
            Their role.

        Returns
        -------
        tuple of str
            Names in the order of the file.
        """
        return tuple(column.name for column in self.columns if column.role == role)

    def splits_of(self, rows: int) -> dict[str, slice]:
        """Rows of each split of a csv file.

        Parameters
        ----------
        rows : int
            Rows of the file.

        Returns
        -------
        dict of str to slice
            Rows of ``"train"``, ``"validation"`` and ``"test"``.

        Examples
        --------
        >>> load_card("exchange_rate").splits_of(7588)["test"]
        slice(6071, 7588, None)
        """
        if not self.split_shares:
            return dict(self.splits)
        train, _, test = (int(rows * share) for share in self.split_shares)
        edges = (0, train, rows - test, rows)
        return {name: slice(*edges[i : i + 2]) for i, name in enumerate(_SPLITS)}

    @classmethod
    def from_toml(cls, text: str) -> "DatasetCard":
        """Read a card.

        Parameters
        ----------
        text : str
            TOML with the fields of this class and no others; ``splits`` holds
            ``[start, stop]`` pairs, ``columns`` and ``files`` arrays of tables.

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
source, licence, citation, format, files, freq, season_length, prediction_length, columns, unit, \
timestamp_column, timestamp_format, rows, splits, split_shares, generator
        """
        return _card_of(tomllib.loads(text))


def list_datasets() -> list[str]:
    """Name the data sets that :func:`mlrforecast.data.load_dataset` knows.

    Returns
    -------
    list of str
        Names, sorted; those of a collection after the others, as ``"COLLECTION:NAME"``.

    Examples
    --------
    >>> names = list_datasets()
    >>> names[:5]
    ['ETTh1', 'ETTh2', 'ETTm1', 'ETTm2', 'electricity']
    >>> [name for name in names if "m4" in name and "hourly" in name]
    ['gluonts:m4_hourly', 'm4:hourly', 'monash:m4_hourly']
    """
    return [*_singles(), *(name for part in _collections() for name in _members(part))]


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
    >>> load_card("monash:m3_monthly").files[0].name
    'm3_monthly_dataset.tsf'
    """
    if not isinstance(name, str):
        raise TypeError(f"`name` must be a text such as 'ETTh1', got {name!r}.")
    collection, _, member = name.rpartition(_SEPARATOR)
    if collection in _collections():
        path = _collections()[collection]
        raw = _read_collection(path)
        found = [entry for entry in raw.pop("datasets") if entry["name"] == member]
        if not found:
            raise ValueError(_unknown(name, _members(collection)))
        return _card_at(path, raw | found[0] | {"name": name})
    if name not in (singles := _singles()):
        if name in _collections():
            raise ValueError(_unknown(name, _members(name)))
        examples = [_members(part)[0] for part in _collections()]
        raise ValueError(_unknown(name, [*singles, *(f"{one}, ..." for one in examples)]))
    return _card_at(singles[name], tomllib.loads(singles[name].read_text(encoding="utf-8")))


def catalogue_folder() -> Traversable:
    """Folder of the cards: inside an installed package, beside it in a checkout."""
    packed = files("mlrforecast") / "_datasets"
    return packed if packed.is_dir() else Path(__file__).parents[2] / "datasets"


def _tomls(folder: Traversable) -> dict[str, Traversable]:
    """Every TOML file of a folder by the name that it stands for, sorted."""
    found = {entry.name.removesuffix(".toml"): entry for entry in folder.iterdir()}
    return {name: entry for name, entry in sorted(found.items()) if entry.name != name}


def _singles() -> dict[str, Traversable]:
    """Cards that have a file of their own."""
    return _tomls(catalogue_folder())


def _collections() -> dict[str, Traversable]:
    """Files that hold the cards of many data sets of one source."""
    return _tomls(catalogue_folder() / "collections")


def _read_collection(path: Traversable) -> dict[str, Any]:
    """Read what the data sets of a collection share, and under ``datasets`` what each has."""
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    if not all("name" in entry for entry in raw.get("datasets", [{}])):
        raise ValueError(f"Every one of the datasets in {path} must have a name.")
    return raw


def _members(collection: str) -> list[str]:
    """Names of the data sets of a collection, sorted."""
    raw = _read_collection(_collections()[collection])
    return sorted(f"{collection}{_SEPARATOR}{entry['name']}" for entry in raw["datasets"])


def _unknown(name: str, available: Iterable[str]) -> str:
    """Say that there is no data set of a name, and which ones are near it or at all there."""
    listed = list(available)
    known = {other.lower(): other for other in list_datasets()}
    near = [known[other] for other in get_close_matches(name.lower(), known, n=3, cutoff=0.7)]
    meant = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"Unknown data set {name!r}.{meant} Available: {', '.join(listed)}"


def _card_at(path: Traversable, raw: dict[str, Any]) -> DatasetCard:
    """Make the card whose fields stand in a file."""
    name = raw.get("name", "")
    try:
        card = _card_of(raw)
    except ValueError as error:
        raise ValueError(f"The card of data set {name!r} ({path}): {error}") from error
    if _SEPARATOR not in name and path.name != f"{name}.toml":
        raise ValueError(f"The card {path} must be named after its data set, {name!r}")
    return card


def _card_of(raw: Mapping[str, Any]) -> DatasetCard:
    """Make a card of the fields of a TOML file."""
    _check_fields(raw, DatasetCard)
    given = dict(raw)
    for name, cls in (("columns", ColumnCard), ("files", FileCard)):
        given[name] = tuple(_part_of(entry, cls) for entry in given.get(name, ()))
    splits = {}
    for name, rows in given.get("splits", {}).items():
        if not isinstance(rows, list) or [type(row) for row in rows] != [int, int]:
            raise ValueError(f"split {name!r} must be a [start, stop] pair, got {rows!r}")
        splits[name] = slice(*rows)
    return DatasetCard(
        **given
        | {
            "splits": MappingProxyType(splits),
            "split_shares": tuple(given.get("split_shares", ())),
            "generator": MappingProxyType(given.get("generator", {})),
        }
    )


def _part_of(raw: Mapping[str, Any], cls: type[Any]) -> Any:
    """Make the card of a column or a file."""
    _check_fields(raw, cls)
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()})


def _check_fields(raw: Mapping[str, object], cls: type[Any]) -> None:
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


def _check_texts(card: DatasetCard, names: Iterable[str]) -> None:
    for name in names:
        if not isinstance(value := getattr(card, name), str) or not value:
            raise ValueError(f"{name} must be a text that is not empty, got {value!r}")


def _check_counts(card: DatasetCard, names: Iterable[str], least: int) -> None:
    for name in names:
        if type(value := getattr(card, name)) is not int or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def _check_splits(card: DatasetCard) -> None:
    """Refuse splits that are unknown, out of time order, overlapping or outside the file."""
    if bool(card.splits) == bool(card.split_shares):
        raise ValueError("either splits or split_shares must be given, and not both")
    if card.split_shares:
        numbers = [type(share) is float and 0 < share < 1 for share in card.split_shares]
        if len(numbers) != 3 or not all(numbers) or abs(sum(card.split_shares) - 1) > 1e-9:
            raise ValueError(
                f"split_shares must be three numbers that add up to 1, got {card.split_shares}"
            )
        return
    if tuple(card.splits) != _SPLITS:
        raise ValueError(f"splits must be {_SPLITS} in this order, got {tuple(card.splits)}")
    end = 0
    for name, part in card.splits.items():
        if not end <= part.start < part.stop or (card.rows and part.stop > card.rows):
            raise ValueError(
                f"split {name!r} must be a range of rows from {end} or later"
                + (f" up to {card.rows} at most" if card.rows else "")
                + f", got {part.start} to {part.stop}"
            )
        end = part.stop
