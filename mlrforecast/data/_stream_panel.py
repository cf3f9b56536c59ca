"""A panel of files that memory cannot hold, put together from blocks of whole series."""

import shutil
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals
from tqdm import tqdm  # type: ignore[import-untyped]  # no types for tqdm

from mlrforecast._core.errors import DataError
from mlrforecast.data._entries import Entry, entry_frames
from mlrforecast.data._grid import index_of, ticks_of
from mlrforecast.data._storage import MEMORY, Disk, Storage, blocks
from mlrforecast.data.panel import Covariate, Layout, Panel, name_at
from mlrforecast.data.schema import FrameSchema
from mlrforecast.data.streaming import FileDataset

ItemsOf = Callable[[pd.DataFrame], pd.Series]
ReadBlock = Callable[[pd.DataFrame, str | int | None], Panel]


class Request(NamedTuple):
    """What is wanted of files.

    Parameters
    ----------
    dataset : FileDataset
        The files.
    schema : FrameSchema
        Which column is what.
    freq : str or int, optional
        The frequency, where it is known.
    newest : int, optional
        Rows of each series that are kept, in memory. Default: all of them, in scratch files.
    progress : bool
        Whether a bar shows how far reading is.
    """

    dataset: FileDataset
    schema: FrameSchema
    freq: str | int | None
    newest: int | None
    progress: bool


def stream_panel(request: Request, items_of: ItemsOf, read: ReadBlock) -> Panel:
    """Read files block by block into one panel.

    Parameters
    ----------
    request : Request
        What is wanted.
    items_of : callable
        Finds the item of each row of a frame.
    read : callable
        Reads a block of whole series, with the frequency of the blocks before it, if there are
        any, as a frame of its own.

    Returns
    -------
    Panel
        The series in the order of the files.
    """
    dataset = request.dataset
    storage: Storage = MEMORY if request.newest is not None else Disk(dataset.scratch_dir)
    if isinstance(storage, Disk) and dataset.num_rows is not None:
        _check_room(storage, dataset.num_rows, request.schema)
    with closing(storage):
        made = _Assembly(storage)
        _read_all(request, items_of, read, made)
        return made.panel()


def _read_all(request: Request, items_of: ItemsOf, read: ReadBlock, made: "_Assembly") -> None:
    """Read all blocks, and put them together."""
    dataset, newest = request.dataset, request.newest
    freq, first = request.freq, 0
    # A bar shows where a terminal does, and nowhere else.
    hidden = None if request.progress else True
    with tqdm(
        total=dataset.num_rows, unit=" rows", unit_scale=True, desc="Reading", disable=hidden
    ) as bar:
        for frame in _blocks_of(request, items_of):
            try:
                panel = read(frame, freq)
            except DataError as error:
                where = f"from row {first} of {dataset} on, where the rows of a series"
                raise DataError(f"{error} (Read {where} must stand together.)") from error
            made.add(panel if newest is None else panel.tail(newest))
            freq, first = panel.freq, first + len(frame)
            bar.update(len(frame))


def _check_room(disk: Disk, rows: int, schema: FrameSchema) -> None:
    """Refuse a scratch folder that cannot hold what is sure to be written."""
    covariates = len(schema.past_covariates) + len(schema.known_covariates)
    # Values and stamps, and the windows and the clock that are made of them.
    needed = rows * (28 + 16 * covariates)
    free = shutil.disk_usage(disk.folder).free
    if needed > free:
        raise OSError(
            f"The scratch folder {str(disk.folder)!r} needs {needed / 1e9:.1f} GB for {rows} rows, "
            f"but has {free / 1e9:.1f} GB free. Set `scratch_dir` of the FileDataset to a folder "
            "on a larger disk."
        )


def _blocks_of(request: Request, items_of: ItemsOf) -> Iterator[pd.DataFrame]:
    """Yield frames of whole series."""
    schema = request.schema
    target = schema.target if isinstance(schema.target, str) else "target"
    if not request.dataset.holds_series(target):
        yield from _whole_series(request.dataset.rows(), items_of)
        return
    schema = replace(schema, freq=schema.freq if request.freq is None else request.freq)
    count = 0
    for entries in request.dataset.entries(target):
        # An item without a name has its number.
        named = [_named(entry, count + number) for number, entry in enumerate(entries)]
        count += len(named)
        yield entry_frames(named, schema, long=True).frame


def _named(entry: Entry, number: int) -> Entry:
    return entry if entry.get("item_id") is not None else {**entry, "item_id": str(number)}


def _whole_series(pieces: Iterable[pd.DataFrame], items_of: ItemsOf) -> Iterator[pd.DataFrame]:
    """Put pieces of a long frame together so that no series is cut."""
    held: list[pd.DataFrame] = []
    for piece in pieces:
        if not len(piece):
            continue
        items = items_of(piece)
        first = _last_run(items)
        if first:
            yield _joined([*held, piece[:first]])
            held = [piece[first:]]
        elif held and not _same(items_of(held[-1]).iloc[-1], items.iloc[0]):
            yield _joined(held)
            held = [piece]
        else:
            held.append(piece)
    if held:
        yield _joined(held)


def _last_run(items: pd.Series) -> int:
    """Return the row from which on all rows have the last item."""
    last = items.iloc[-1]
    if pd.isna(last):
        # It is refused when the block is read.
        return 0
    others = np.flatnonzero(items.ne(last).fillna(True).to_numpy(dtype=bool))
    return int(others[-1]) + 1 if len(others) else 0


def _same(one: object, other: object) -> bool:
    return bool(one == other)


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Put frames with the same columns below one another, categories of all of them included."""
    if len(frames) == 1:
        return frames[0]
    joined = pd.concat(frames)
    for name in frames[0].columns:
        parts = [frame[name] for frame in frames]
        if all(isinstance(part.dtype, pd.CategoricalDtype) for part in parts):
            joined[name] = union_categoricals(parts)
    return joined


class _Assembly:
    """The blocks that were read, put together."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._first: Panel | None = None
        self._values, self._ticks = storage.collect(), storage.collect()
        self._lengths: list[np.ndarray] = []
        self._labels: list[pd.Index] = []
        self._seen: set[Hashable] = set()
        self._covariates: dict[str, list[_Column]] = {}

    def add(self, panel: Panel) -> None:
        """Put the series of a block behind all others."""
        if self._first is None:
            self._first = panel.select(np.arange(0))
            for role in ("past", "known", "static"):
                storage = MEMORY if role == "static" else self._storage
                self._covariates[role] = [_Column(each, storage) for each in getattr(panel, role)]
        first = self._first
        self._check_items(panel)
        if panel.layout != first.layout:
            raise DataError(
                "All rows of files must have the same columns for items, time and target, but "
                f"there are {_keys(first.layout)} at first and {_keys(panel.layout)} later."
            )
        self._labels.append(panel.labels)
        self._lengths.append(panel.lengths)
        self._values.add(panel.values)
        self._ticks.add(_ticks_like(panel, first.index))
        for role, columns in self._covariates.items():
            for column, covariate in zip(columns, getattr(panel, role), strict=True):
                column.add(covariate)

    def panel(self) -> Panel:
        """Return the panel of all series."""
        first = self._first
        if first is None:
            raise DataError("`X` is empty: its files have no rows.")
        return Panel(
            layout=first.layout,
            freq=first.freq,
            labels=_joined_labels(self._labels),
            index=index_of(self._ticks.array(), first.index),
            values=self._values.array(),
            bounds=np.concatenate([[0], np.cumsum(np.concatenate(self._lengths))]),
            storage=self._storage,
            past=self._made("past"),
            known=self._made("known"),
            static=self._made("static"),
        )

    def _made(self, role: str) -> tuple[Covariate, ...]:
        return tuple(column.covariate() for column in self._covariates[role])

    def _check_items(self, panel: Panel) -> None:
        """Refuse a series that another block held already, and items of another type."""
        labels = panel.labels
        if self._labels and not _alike(labels.dtype, self._labels[0].dtype):
            raise DataError(
                f"The items of all rows must be of one type, but they are {self._labels[0].dtype} "
                f"at first and {labels.dtype} from series {name_at(labels, 0)!r} on."
            )
        items = labels.tolist()
        again = next((item for item in items if item in self._seen), None)
        if again is not None:
            raise DataError(apart(again))
        self._seen.update(items)


def apart(item: Hashable) -> str:
    """Say of a series that its rows do not stand together."""
    return (
        "The rows of a series must stand together in files, but there are rows of others between "
        f"those of series {item!r}. Sort the rows by item and time before they are written, or "
        "give each series another name."
    )


def _keys(layout: Layout) -> tuple[Hashable | None, ...]:
    return layout.id_name, layout.time_name, layout.target_name


def _alike(one: object, other: object) -> bool:
    categories = (isinstance(dtype, pd.CategoricalDtype) for dtype in (one, other))
    return one == other or all(categories)


def _joined_labels(labels: list[pd.Index]) -> pd.Index:
    if isinstance(labels[0], pd.CategoricalIndex):
        parts = [pd.CategoricalIndex(part) for part in labels]
        return pd.CategoricalIndex(union_categoricals(parts))
    return labels[0].append(labels[1:])


def _ticks_like(panel: Panel, first: pd.Index) -> np.ndarray:
    """Return the ticks of a panel in the unit of the first one."""
    index = panel.index
    if isinstance(index, pd.DatetimeIndex) and isinstance(first, pd.DatetimeIndex):
        stamps = index.as_unit(first.unit)
        if str(index.tz) == str(first.tz) and bool((stamps == index).all()):
            return ticks_of(stamps)
    elif index.dtype == first.dtype:
        return ticks_of(index)
    raise DataError(
        f"The time of all rows must be of one kind, but it is {first.dtype} at first and "
        f"{index.dtype} in {panel.owner(0)}. Bring all to the same dtype and time zone."
    )


class _Column:
    """A covariate that is put together from those of blocks.

    A block without any value reads as either kind: it takes that of the others.
    """

    def __init__(self, first: Covariate, storage: Storage) -> None:
        self._first = first
        self._storage = storage
        self._collector = storage.collect()
        self._kind: str | None = None
        self._waiting = 0
        self._codes: dict[str, int] = {}

    def add(self, covariate: Covariate) -> None:
        """Put the rows of a block behind all others."""
        empty = bool(covariate.missing.all())
        if self._kind is None and not empty:
            self._kind = covariate.kind
            self._add_missing(self._waiting)
        if self._kind is None:
            self._waiting += len(covariate.values)
        elif empty:
            self._add_missing(len(covariate.values))
        elif covariate.kind != self._kind:
            kinds = {"number": "numbers", "category": "categories"}
            raise DataError(
                f"Column {covariate.name!r} holds {kinds[self._kind]} in the first rows of the "
                f"files and {kinds[covariate.kind]} in later ones. Bring it to one dtype."
            )
        elif covariate.categories is None:
            self._collector.add(covariate.values)
        else:
            known = self._codes
            codes = [known.setdefault(text, len(known)) for text in covariate.categories]
            self._collector.add(np.array([*codes, -1], dtype=np.int64)[covariate.values])

    def covariate(self) -> Covariate:
        """Return the covariate of all rows."""
        if self._kind is None:
            self._kind = self._first.kind
            self._add_missing(self._waiting)
        values = self._collector.array()
        if self._kind == "number":
            return Covariate(self._first.name, values)
        # As in a frame, categories are in the order of their text.
        categories = sorted(self._codes)
        places = np.empty(len(categories) + 1, dtype=np.int64)
        places[[self._codes[text] for text in categories]] = np.arange(len(categories))
        places[-1] = -1
        for part in blocks(len(values)):
            values[part] = places[values[part]]
            self._storage.release()
        return Covariate(self._first.name, values, tuple(categories))

    def _add_missing(self, count: int) -> None:
        missing = np.nan if self._kind == "number" else -1
        self._collector.add(np.full(count, missing, dtype=np.array(missing).dtype))
